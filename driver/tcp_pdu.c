// SPDX-License-Identifier: GPL-2.0
/*
 * NVMe/TCP PDU codec, see tcp_pdu.h.
 */
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include "tcp_pdu.h"

#define RFLASH_PDU_F_ALL						\
	(NVME_TCP_F_HDGST | NVME_TCP_F_DDGST | NVME_TCP_F_DATA_LAST |	\
	 NVME_TCP_F_DATA_SUCCESS)

/* Say what is wrong. Out of line and cold, so that the checks stay short. */
static noinline __cold int rflash_pdu_bad(struct rflash_pdu_error *err,
					  const char *field, u64 value,
					  const char *expected)
{
	err->field = field;
	err->value = value;
	err->expected = expected;
	return -EPROTO;
}

static u8 rflash_pdu_digest_len(bool digest)
{
	return digest ? NVME_TCP_DIGEST_LENGTH : 0;
}

/* Where data starts behind a header, aligned as the controller wants it. */
static u8 rflash_pdu_data_offset(u8 hlen, bool hdgst, u8 cpda)
{
	return roundup(hlen + rflash_pdu_digest_len(hdgst),
		       ((u32)cpda + 1) * sizeof(u32));
}

/**
 * rflash_pdu_icreq - fill in the request that opens a connection
 * @pdu: the PDU, all of which is written
 * @hdgst: ask for header digests
 * @ddgst: ask for data digests
 *
 * Asks for no alignment of data sent to us and admits one R2T at a time per
 * command (both fields are zero-based).
 */
void rflash_pdu_icreq(struct nvme_tcp_icreq_pdu *pdu, bool hdgst, bool ddgst)
{
	memset(pdu, 0, sizeof(*pdu));
	pdu->hdr.type = nvme_tcp_icreq;
	pdu->hdr.hlen = sizeof(*pdu);
	pdu->hdr.plen = cpu_to_le32(sizeof(*pdu));
	pdu->pfv = cpu_to_le16(NVME_TCP_PFV_1_0);
	if (hdgst)
		pdu->digest |= NVME_TCP_HDR_DIGEST_ENABLE;
	if (ddgst)
		pdu->digest |= NVME_TCP_DATA_DIGEST_ENABLE;
}

/**
 * rflash_pdu_parse_icresp - check and decode the answer to our ICReq
 * @pdu: the PDU, of which all 128 bytes were received
 * @want_hdgst: header digests were asked for
 * @want_ddgst: data digests were asked for
 * @out: filled in on success
 * @err: filled in on failure
 *
 * Return: 0 or -EPROTO.
 */
int rflash_pdu_parse_icresp(const struct nvme_tcp_icresp_pdu *pdu,
			    bool want_hdgst, bool want_ddgst,
			    struct rflash_icresp *out,
			    struct rflash_pdu_error *err)
{
	u8 want = (want_hdgst ? NVME_TCP_HDR_DIGEST_ENABLE : 0) |
		  (want_ddgst ? NVME_TCP_DATA_DIGEST_ENABLE : 0);
	u32 maxh2cdata = le32_to_cpu(pdu->maxdata);
	static const char * const digests[] = {
		"0: no digest, as was asked for",
		"1: the header digest, as was asked for",
		"2: the data digest, as was asked for",
		"3: both digests, as was asked for",
	};

	if (pdu->hdr.type != nvme_tcp_icresp)
		return rflash_pdu_bad(err, "type", pdu->hdr.type,
				      "1, an ICResp");
	if (pdu->hdr.flags)
		return rflash_pdu_bad(err, "flags", pdu->hdr.flags,
				      "0 in an ICResp");
	if (pdu->hdr.hlen != sizeof(*pdu))
		return rflash_pdu_bad(err, "hlen", pdu->hdr.hlen,
				      "128 in an ICResp");
	if (le32_to_cpu(pdu->hdr.plen) != sizeof(*pdu))
		return rflash_pdu_bad(err, "plen", le32_to_cpu(pdu->hdr.plen),
				      "128 in an ICResp");
	if (le16_to_cpu(pdu->pfv) != NVME_TCP_PFV_1_0)
		return rflash_pdu_bad(err, "pfv", le16_to_cpu(pdu->pfv),
				      "0, version 1.0 of the PDU format");
	if (pdu->cpda >= RFLASH_PDU_DATA_ALIGN_MAX / sizeof(u32))
		return rflash_pdu_bad(err, "cpda", pdu->cpda, "0 to 31");
	if (pdu->digest != want)
		return rflash_pdu_bad(err, "dgst", pdu->digest, digests[want]);
	if (maxh2cdata < NVME_TCP_MIN_MAXH2CDATA ||
	    maxh2cdata % sizeof(u32))
		return rflash_pdu_bad(err, "maxh2cdata", maxh2cdata,
				      "a multiple of 4, at least 4096");

	out->maxh2cdata = maxh2cdata;
	out->cpda = pdu->cpda;
	out->hdgst = want_hdgst;
	out->ddgst = want_ddgst;
	return 0;
}

/**
 * rflash_pdu_cmd - fill in the common header of a command capsule
 * @hdr: the header
 * @hdgst: header digests are on
 * @ddgst: data digests are on
 * @cpda: alignment from the ICResp
 * @inline_len: bytes of data in the capsule, 0 for none
 *
 * rflash_pdu_head_len() then tells what goes in front of the data.
 */
void rflash_pdu_cmd(struct nvme_tcp_hdr *hdr, bool hdgst, bool ddgst, u8 cpda,
		    u32 inline_len)
{
	u32 plen = sizeof(struct nvme_tcp_cmd_pdu) +
		   rflash_pdu_digest_len(hdgst);

	hdr->type = nvme_tcp_cmd;
	hdr->flags = hdgst ? NVME_TCP_F_HDGST : 0;
	hdr->hlen = sizeof(struct nvme_tcp_cmd_pdu);
	hdr->pdo = 0;
	if (inline_len) {
		hdr->pdo = rflash_pdu_data_offset(hdr->hlen, hdgst, cpda);
		plen = hdr->pdo + inline_len + rflash_pdu_digest_len(ddgst);
		if (ddgst)
			hdr->flags |= NVME_TCP_F_DDGST;
	}
	hdr->plen = cpu_to_le32(plen);
}

/**
 * rflash_pdu_h2c_data - fill in the header of an H2CData PDU
 * @pdu: the PDU
 * @hdgst: header digests are on
 * @ddgst: data digests are on
 * @cpda: alignment from the ICResp
 * @cid: command identifier
 * @ttag: transfer tag from the R2T
 * @offset: where in the command's buffer the data is from
 * @len: bytes of data, at least 1 and at most the ICResp's maxh2cdata
 * @last: the last PDU that answers this R2T
 */
void rflash_pdu_h2c_data(struct nvme_tcp_data_pdu *pdu, bool hdgst, bool ddgst,
			 u8 cpda, u16 cid, u16 ttag, u32 offset, u32 len,
			 bool last)
{
	struct nvme_tcp_hdr *hdr = &pdu->hdr;

	hdr->type = nvme_tcp_h2c_data;
	hdr->flags = (hdgst ? NVME_TCP_F_HDGST : 0) |
		     (ddgst ? NVME_TCP_F_DDGST : 0) |
		     (last ? NVME_TCP_F_DATA_LAST : 0);
	hdr->hlen = sizeof(*pdu);
	hdr->pdo = rflash_pdu_data_offset(hdr->hlen, hdgst, cpda);
	hdr->plen = cpu_to_le32(hdr->pdo + len + rflash_pdu_digest_len(ddgst));
	pdu->command_id = cid;
	pdu->ttag = ttag;
	pdu->data_offset = cpu_to_le32(offset);
	pdu->data_length = cpu_to_le32(len);
	memset(pdu->rsvd, 0, sizeof(pdu->rsvd));
}

/* Response and R2T: a header, its digest if they are on, and nothing else. */
static int rflash_pdu_check_plain(const struct nvme_tcp_hdr *hdr, bool hdgst,
				  struct rflash_pdu_error *err)
{
	u32 head = sizeof(struct nvme_tcp_rsp_pdu) +
		   rflash_pdu_digest_len(hdgst);

	BUILD_BUG_ON(sizeof(struct nvme_tcp_rsp_pdu) !=
		     sizeof(struct nvme_tcp_r2t_pdu));

	if (unlikely(hdr->flags != (hdgst ? NVME_TCP_F_HDGST : 0)))
		return rflash_pdu_bad(err, "flags", hdr->flags, hdgst ?
				      "1, the header digest" :
				      "0, digests being off");
	if (unlikely(hdr->hlen != sizeof(struct nvme_tcp_rsp_pdu)))
		return rflash_pdu_bad(err, "hlen", hdr->hlen, "24");
	if (unlikely(le32_to_cpu(hdr->plen) != head))
		return rflash_pdu_bad(err, "plen", le32_to_cpu(hdr->plen),
				      hdgst ? "28, header and digest" :
				      "24, the header");
	return head;
}

static int rflash_pdu_check_c2h_data(const struct nvme_tcp_hdr *hdr, bool hdgst,
				     bool ddgst, struct rflash_pdu_error *err)
{
	u32 head = sizeof(struct nvme_tcp_data_pdu) +
		   rflash_pdu_digest_len(hdgst);
	u8 digests = (hdgst ? NVME_TCP_F_HDGST : 0) |
		     (ddgst ? NVME_TCP_F_DDGST : 0);

	if (unlikely(hdr->flags & ~RFLASH_PDU_F_ALL))
		return rflash_pdu_bad(err, "flags", hdr->flags,
				      "no flags but bits 0 to 3");
	if (unlikely((hdr->flags & (NVME_TCP_F_HDGST | NVME_TCP_F_DDGST)) !=
		     digests))
		return rflash_pdu_bad(err, "flags", hdr->flags,
				      "the digests that the ICResp granted");
	if (unlikely((hdr->flags & NVME_TCP_F_DATA_SUCCESS) &&
		     !(hdr->flags & NVME_TCP_F_DATA_LAST)))
		return rflash_pdu_bad(err, "flags", hdr->flags,
				      "SUCCESS only together with LAST");
	if (unlikely(hdr->hlen != sizeof(struct nvme_tcp_data_pdu)))
		return rflash_pdu_bad(err, "hlen", hdr->hlen, "24");
	if (unlikely(hdr->pdo < head || hdr->pdo % sizeof(u32) ||
		     hdr->pdo > RFLASH_PDU_DATA_ALIGN_MAX))
		return rflash_pdu_bad(err, "pdo", hdr->pdo, hdgst ?
				      "a multiple of 4, 28 to 128" :
				      "a multiple of 4, 24 to 128");
	if (unlikely(le32_to_cpu(hdr->plen) <=
		     (u32)hdr->pdo + rflash_pdu_digest_len(ddgst)))
		return rflash_pdu_bad(err, "plen", le32_to_cpu(hdr->plen),
				      "room for data and its digest behind pdo");
	return head;
}

static int rflash_pdu_check_term(const struct nvme_tcp_hdr *hdr,
				 struct rflash_pdu_error *err)
{
	u32 plen = le32_to_cpu(hdr->plen);

	if (hdr->flags)
		return rflash_pdu_bad(err, "flags", hdr->flags,
				      "0 in a C2HTermReq");
	if (hdr->hlen != sizeof(struct nvme_tcp_term_pdu))
		return rflash_pdu_bad(err, "hlen", hdr->hlen, "24");
	if (plen < sizeof(struct nvme_tcp_term_pdu) ||
	    plen > sizeof(struct nvme_tcp_term_pdu) + RFLASH_PDU_TERM_DATA_MAX)
		return rflash_pdu_bad(err, "plen", plen, "24 to 152");
	return sizeof(struct nvme_tcp_term_pdu);
}

/**
 * rflash_pdu_check_hdr - check the common header of a PDU from the controller
 * @hdr: the 8 bytes
 * @hdgst: header digests are on
 * @ddgst: data digests are on
 * @err: filled in on failure
 *
 * To be called for each PDU after the ICResp, as soon as its first 8 bytes are
 * there and before any more are read.
 *
 * Return: how many bytes make up the header and its digest, counted from the
 * first of @hdr, at most RFLASH_PDU_HEAD_MAX; or -EPROTO.
 */
int rflash_pdu_check_hdr(const struct nvme_tcp_hdr *hdr, bool hdgst, bool ddgst,
			 struct rflash_pdu_error *err)
{
	switch (hdr->type) {
	case nvme_tcp_c2h_data:
		return rflash_pdu_check_c2h_data(hdr, hdgst, ddgst, err);
	case nvme_tcp_rsp:
	case nvme_tcp_r2t:
		return rflash_pdu_check_plain(hdr, hdgst, err);
	case nvme_tcp_c2h_term:
		return rflash_pdu_check_term(hdr, err);
	default:
		return rflash_pdu_bad(err, "type", hdr->type,
				      "3 (C2HTermReq), 5 (CapsuleResp), 7 (C2HData) or 9 (R2T)");
	}
}

/**
 * rflash_pdu_parse_c2h_data - check and decode a C2HData PDU
 * @pdu: the PDU, whose header has passed rflash_pdu_check_hdr()
 * @hdgst: header digests are on
 * @ddgst: data digests are on
 * @out: filled in on success
 * @err: filled in on failure
 *
 * That offset and length lie within the command's buffer is for the caller to
 * check, who knows the command.
 *
 * Return: 0 or -EPROTO.
 */
int rflash_pdu_parse_c2h_data(const struct nvme_tcp_data_pdu *pdu, bool hdgst,
			      bool ddgst, struct rflash_c2h_data *out,
			      struct rflash_pdu_error *err)
{
	u32 offset = le32_to_cpu(pdu->data_offset);
	u32 length = le32_to_cpu(pdu->data_length);
	u8 flags = pdu->hdr.flags;
	u8 pdo = pdu->hdr.pdo;

	if (unlikely(offset % sizeof(u32)))
		return rflash_pdu_bad(err, "datao", offset, "a multiple of 4");
	if (unlikely(!length))
		return rflash_pdu_bad(err, "datal", length, "at least 1");
	if (unlikely(length != le32_to_cpu(pdu->hdr.plen) - pdo -
		     rflash_pdu_digest_len(ddgst)))
		return rflash_pdu_bad(err, "datal", length,
				      "plen less pdo and data digest");

	out->offset = offset;
	out->length = length;
	out->pad = pdo - sizeof(*pdu) - rflash_pdu_digest_len(hdgst);
	out->cid = pdu->command_id;
	out->last = flags & NVME_TCP_F_DATA_LAST;
	out->success = flags & NVME_TCP_F_DATA_SUCCESS;
	return 0;
}

/**
 * rflash_pdu_parse_r2t - check and decode an R2T PDU
 * @pdu: the PDU, whose header has passed rflash_pdu_check_hdr()
 * @out: filled in on success
 * @err: filled in on failure
 *
 * That offset and length are what the command still owes is for the caller to
 * check, who knows the command.
 *
 * Return: 0 or -EPROTO.
 */
int rflash_pdu_parse_r2t(const struct nvme_tcp_r2t_pdu *pdu,
			 struct rflash_r2t *out, struct rflash_pdu_error *err)
{
	u32 offset = le32_to_cpu(pdu->r2t_offset);
	u32 length = le32_to_cpu(pdu->r2t_length);

	if (offset % sizeof(u32))
		return rflash_pdu_bad(err, "r2to", offset, "a multiple of 4");
	if (!length)
		return rflash_pdu_bad(err, "r2tl", length, "at least 1");

	out->offset = offset;
	out->length = length;
	out->cid = pdu->command_id;
	out->ttag = pdu->ttag;
	return 0;
}

/**
 * rflash_pdu_fes_name - a fatal error status in words
 * @fes: fatal error status of a terminate request
 *
 * Return: a constant string, "unknown reason" for a status that is not defined.
 */
const char *rflash_pdu_fes_name(u16 fes)
{
	switch (fes) {
	case NVME_TCP_FES_INVALID_PDU_HDR:
		return "invalid PDU header field";
	case NVME_TCP_FES_PDU_SEQ_ERR:
		return "PDU sequence error";
	case NVME_TCP_FES_HDR_DIGEST_ERR:
		return "header digest error";
	case NVME_TCP_FES_DATA_OUT_OF_RANGE:
		return "data transfer out of range";
	case NVME_TCP_FES_DATA_LIMIT_EXCEEDED:
		return "data transfer or R2T limit exceeded";
	case NVME_TCP_FES_UNSUPPORTED_PARAM:
		return "unsupported parameter";
	default:
		return "unknown reason";
	}
}

/**
 * rflash_pdu_parse_term - check and decode a C2HTermReq PDU
 * @pdu: the PDU, whose header has passed rflash_pdu_check_hdr()
 * @out: filled in on success
 * @err: filled in on failure
 *
 * Return: 0 or -EPROTO.
 */
int rflash_pdu_parse_term(const struct nvme_tcp_term_pdu *pdu,
			  struct rflash_term *out,
			  struct rflash_pdu_error *err)
{
	u16 fes = le16_to_cpu(pdu->fes);

	if (fes < NVME_TCP_FES_INVALID_PDU_HDR ||
	    fes > NVME_TCP_FES_UNSUPPORTED_PARAM)
		return rflash_pdu_bad(err, "fes", fes, "1 to 6");

	out->fes = fes;
	out->fei = le16_to_cpu(pdu->feil) | (u32)le16_to_cpu(pdu->feiu) << 16;
	out->reason = rflash_pdu_fes_name(fes);
	return 0;
}

/**
 * rflash_pdu_hdgst - the digest of a header
 * @pdu: the header
 * @hlen: its length
 *
 * Return: the four bytes to send behind it.
 */
__le32 rflash_pdu_hdgst(const void *pdu, size_t hlen)
{
	return rflash_crc32c_final(rflash_crc32c_update(rflash_crc32c_init(),
							pdu, hlen));
}

/**
 * rflash_pdu_hdgst_ok - check the digest of a header
 * @pdu: the header, with its digest right behind it
 * @hlen: length of the header without the digest
 *
 * Return: whether the digest is that of the header.
 */
bool rflash_pdu_hdgst_ok(const void *pdu, size_t hlen)
{
	__le32 digest;

	memcpy(&digest, pdu + hlen, sizeof(digest));
	return digest == rflash_pdu_hdgst(pdu, hlen);
}
