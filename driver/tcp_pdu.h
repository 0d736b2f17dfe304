/* SPDX-License-Identifier: GPL-2.0 */
/*
 * NVMe/TCP PDU codec: pure functions between C structures and the bytes on the
 * wire. No sockets, no allocation, no state, callable from any context.
 *
 * Nothing from the peer is believed before it is checked. The first field that
 * is wrong is reported; fields are checked in the order type, flags, hlen, pdo,
 * plen, then those of the PDU itself from its first byte to its last. What the
 * specification calls reserved outside the flags is not looked at.
 */
#ifndef _RFLASH_TCP_PDU_H
#define _RFLASH_TCP_PDU_H

#include <linux/crc32c.h>
#include <linux/types.h>

#include "wire.h"

/**
 * struct rflash_pdu_error - what was wrong with a PDU
 * @field: name of the field, as in the specification's tables, lower case
 * @value: what the peer sent in it
 * @expected: short phrase that names what would be right
 *
 * Both strings are constants and never need to be freed.
 */
struct rflash_pdu_error {
	const char *field;
	u64 value;
	const char *expected;
};

/**
 * struct rflash_icresp - what the controller granted in its ICResp
 * @maxh2cdata: greatest number of data bytes in one H2CData PDU
 * @cpda: alignment of data we send, in dwords, zero-based (0..31)
 * @hdgst: header digests are on
 * @ddgst: data digests are on
 */
struct rflash_icresp {
	u32 maxh2cdata;
	u8 cpda;
	bool hdgst;
	bool ddgst;
};

/**
 * struct rflash_c2h_data - a C2HData PDU
 * @offset: where in the command's buffer the data belongs, bytes
 * @length: bytes of data, never 0
 * @pad: bytes between header (with its digest) and data, to be skipped
 * @cid: command identifier
 * @last: the last C2HData PDU of the command
 * @success: completes the command without a response; implies @last
 */
struct rflash_c2h_data {
	u32 offset;
	u32 length;
	u32 pad;
	u16 cid;
	bool last;
	bool success;
};

/**
 * struct rflash_r2t - an R2T PDU
 * @offset: first byte of the command's buffer that is asked for
 * @length: number of bytes asked for, never 0
 * @cid: command identifier
 * @ttag: transfer tag to be echoed in H2CData
 */
struct rflash_r2t {
	u32 offset;
	u32 length;
	u16 cid;
	u16 ttag;
};

/**
 * struct rflash_rsp - a response capsule
 * @result: dwords 0 and 1 of the completion
 * @sq_head: submission queue head, meaningful only with flow control
 * @cid: command identifier
 * @status: status field without the phase bit, as NVME_SC_*
 */
struct rflash_rsp {
	u64 result;
	u16 sq_head;
	u16 cid;
	u16 status;
};

/**
 * struct rflash_term - a terminate request
 * @fei: fatal error information: an offset into the header that offended, or
 *	the digest that was received
 * @fes: fatal error status
 * @reason: @fes in words
 */
struct rflash_term {
	u32 fei;
	u16 fes;
	const char *reason;
};

void rflash_pdu_icreq(struct nvme_tcp_icreq_pdu *pdu, bool hdgst, bool ddgst);
int rflash_pdu_parse_icresp(const struct nvme_tcp_icresp_pdu *pdu,
			    bool want_hdgst, bool want_ddgst,
			    struct rflash_icresp *out,
			    struct rflash_pdu_error *err);

void rflash_pdu_cmd(struct nvme_tcp_hdr *hdr, bool hdgst, bool ddgst, u8 cpda,
		    u32 inline_len);
void rflash_pdu_h2c_data(struct nvme_tcp_data_pdu *pdu, bool hdgst, bool ddgst,
			 u8 cpda, u16 cid, u16 ttag, u32 offset, u32 len,
			 bool last);

int rflash_pdu_check_hdr(const struct nvme_tcp_hdr *hdr, bool hdgst, bool ddgst,
			 struct rflash_pdu_error *err);
int rflash_pdu_parse_c2h_data(const struct nvme_tcp_data_pdu *pdu, bool hdgst,
			      bool ddgst, struct rflash_c2h_data *out,
			      struct rflash_pdu_error *err);
int rflash_pdu_parse_r2t(const struct nvme_tcp_r2t_pdu *pdu,
			 struct rflash_r2t *out, struct rflash_pdu_error *err);
int rflash_pdu_parse_term(const struct nvme_tcp_term_pdu *pdu,
			  struct rflash_term *out,
			  struct rflash_pdu_error *err);
const char *rflash_pdu_fes_name(u16 fes);

__le32 rflash_pdu_hdgst(const void *pdu, size_t hlen);
bool rflash_pdu_hdgst_ok(const void *pdu, size_t hlen);

/**
 * rflash_pdu_parse_rsp - decode a response capsule
 * @pdu: the PDU, whose header has passed rflash_pdu_check_hdr()
 * @out: filled in
 *
 * Cannot fail: every bit pattern is a completion. Whether the command exists is
 * for the caller to find out.
 */
static inline void rflash_pdu_parse_rsp(const struct nvme_tcp_rsp_pdu *pdu,
					struct rflash_rsp *out)
{
	out->result = le64_to_cpu(pdu->cqe.result.u64);
	out->sq_head = le16_to_cpu(pdu->cqe.sq_head);
	out->cid = pdu->cqe.command_id;
	out->status = le16_to_cpu(pdu->cqe.status) >> 1;
}

/**
 * rflash_pdu_head_len - bytes in front of the data of a PDU we send
 * @hdr: header filled in by rflash_pdu_cmd() or rflash_pdu_h2c_data()
 * @hdgst: header digests are on
 *
 * Return: length of header, header digest and padding, at most
 * RFLASH_PDU_HEAD_MAX. The padding, if any, is to be sent as zeroes.
 */
static inline u32 rflash_pdu_head_len(const struct nvme_tcp_hdr *hdr,
				      bool hdgst)
{
	if (hdr->pdo)
		return hdr->pdo;
	return hdr->hlen + (hdgst ? NVME_TCP_DIGEST_LENGTH : 0);
}

/**
 * rflash_crc32c_init - begin a CRC32C
 *
 * Return: the state to hand to rflash_crc32c_update().
 */
static inline u32 rflash_crc32c_init(void)
{
	return ~0U;
}

/**
 * rflash_crc32c_update - add bytes to a CRC32C
 * @crc: state so far
 * @data: bytes to add
 * @len: number of bytes
 *
 * Return: the new state.
 */
static inline u32 rflash_crc32c_update(u32 crc, const void *data, size_t len)
{
	return crc32c(crc, data, len);
}

/**
 * rflash_crc32c_final - end a CRC32C
 * @crc: state after the last byte
 *
 * Return: the digest as it stands on the wire.
 */
static inline __le32 rflash_crc32c_final(u32 crc)
{
	return cpu_to_le32(~crc);
}

#endif /* _RFLASH_TCP_PDU_H */
