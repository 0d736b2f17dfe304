/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What goes over the wire: the kernel's own definitions of NVMe and NVMe/TCP,
 * with the layout this driver relies on asserted at build time.
 *
 * Command identifiers and transfer tags are opaque to the peer, which only
 * echoes them. They are declared __u16 and are sent and compared as they stand.
 */
#ifndef _RFLASH_WIRE_H
#define _RFLASH_WIRE_H

#include <linux/build_bug.h>
#include <linux/nvme.h>
#include <linux/nvme-tcp.h>
#include <linux/stddef.h>

/* The greatest alignment of PDU data that a peer can ask for: 32 dwords. */
#define RFLASH_PDU_DATA_ALIGN_MAX	128

/*
 * Bytes in front of a PDU's data at most: header, header digest and padding. The
 * worst is a command with header digest, 76 bytes, whose data is to be aligned
 * to 72: alignments need not be powers of two.
 */
#define RFLASH_PDU_HEAD_MAX		144

/* A terminate request's data: the header that offended, at most one of ours. */
#define RFLASH_PDU_TERM_DATA_MAX	128

/* Each command and completion, whichever transport carries it. */
static_assert(sizeof(struct nvme_command) == 64);
static_assert(sizeof(struct nvme_common_command) == 64);
static_assert(sizeof(struct nvme_rw_command) == 64);
static_assert(sizeof(struct nvme_dsm_cmd) == 64);
static_assert(sizeof(struct nvme_write_zeroes_cmd) == 64);
static_assert(sizeof(struct nvme_identify) == 64);
static_assert(sizeof(struct nvme_features) == 64);
static_assert(sizeof(struct nvme_get_log_page_command) == 64);
static_assert(sizeof(struct nvmf_common_command) == 64);
static_assert(sizeof(struct nvmf_connect_command) == 64);
static_assert(sizeof(struct nvmf_property_get_command) == 64);
static_assert(sizeof(struct nvmf_property_set_command) == 64);
static_assert(sizeof(struct nvme_completion) == 16);
static_assert(sizeof(struct nvme_dsm_range) == 16);
static_assert(sizeof(struct nvme_sgl_desc) == 16);

static_assert(offsetof(struct nvme_common_command, command_id) == 2);
static_assert(offsetof(struct nvme_common_command, nsid) == 4);
static_assert(offsetof(struct nvme_common_command, dptr) == 24);
static_assert(offsetof(struct nvme_rw_command, slba) == 40);
static_assert(offsetof(struct nvme_rw_command, length) == 48);
static_assert(offsetof(struct nvme_rw_command, control) == 50);
static_assert(offsetof(struct nvme_dsm_cmd, nr) == 40);
static_assert(offsetof(struct nvme_dsm_cmd, attributes) == 44);
static_assert(offsetof(struct nvme_write_zeroes_cmd, slba) == 40);
static_assert(offsetof(struct nvme_write_zeroes_cmd, control) == 50);
static_assert(offsetof(struct nvme_identify, cns) == 40);
static_assert(offsetof(struct nvme_features, fid) == 40);
static_assert(offsetof(struct nvmf_connect_command, qid) == 42);
static_assert(offsetof(struct nvmf_connect_command, sqsize) == 44);
static_assert(offsetof(struct nvmf_connect_command, cattr) == 46);
static_assert(offsetof(struct nvmf_connect_command, kato) == 48);
static_assert(offsetof(struct nvmf_property_get_command, offset) == 44);
static_assert(offsetof(struct nvmf_property_set_command, value) == 48);
static_assert(offsetof(struct nvme_completion, result) == 0);
static_assert(offsetof(struct nvme_completion, sq_head) == 8);
static_assert(offsetof(struct nvme_completion, command_id) == 12);
static_assert(offsetof(struct nvme_completion, status) == 14);
static_assert(offsetof(struct nvme_sgl_desc, length) == 8);
static_assert(offsetof(struct nvme_sgl_desc, type) == 15);

/* What those commands carry. */
static_assert(sizeof(struct nvmf_connect_data) == 1024);
static_assert(offsetof(struct nvmf_connect_data, cntlid) == 16);
static_assert(offsetof(struct nvmf_connect_data, subsysnqn) == 256);
static_assert(offsetof(struct nvmf_connect_data, hostnqn) == 512);
static_assert(sizeof(struct nvme_id_ctrl) == NVME_IDENTIFY_DATA_SIZE);
static_assert(offsetof(struct nvme_id_ctrl, mdts) == 77);
static_assert(offsetof(struct nvme_id_ctrl, cntlid) == 78);
static_assert(offsetof(struct nvme_id_ctrl, kas) == 320);
static_assert(offsetof(struct nvme_id_ctrl, maxcmd) == 514);
static_assert(offsetof(struct nvme_id_ctrl, oncs) == 520);
static_assert(offsetof(struct nvme_id_ctrl, vwc) == 525);
static_assert(offsetof(struct nvme_id_ctrl, sgls) == 536);
static_assert(offsetof(struct nvme_id_ctrl, subnqn) == 768);
static_assert(offsetof(struct nvme_id_ctrl, ioccsz) == 1792);
static_assert(offsetof(struct nvme_id_ctrl, icdoff) == 1800);
static_assert(sizeof(struct nvme_id_ns) == NVME_IDENTIFY_DATA_SIZE);
static_assert(offsetof(struct nvme_id_ns, flbas) == 26);
static_assert(offsetof(struct nvme_id_ns, nguid) == 104);
static_assert(offsetof(struct nvme_id_ns, eui64) == 120);
static_assert(offsetof(struct nvme_id_ns, lbaf) == 128);
static_assert(sizeof(struct nvme_lbaf) == 4);
static_assert(sizeof(struct nvme_ns_id_desc) == 4);
static_assert(NVME_IDENTIFY_DATA_SIZE == 4096);

/* NVMe/TCP. */
static_assert(sizeof(struct nvme_tcp_hdr) == 8);
static_assert(sizeof(struct nvme_tcp_icreq_pdu) == 128);
static_assert(sizeof(struct nvme_tcp_icresp_pdu) == 128);
static_assert(sizeof(struct nvme_tcp_term_pdu) == 24);
static_assert(sizeof(struct nvme_tcp_cmd_pdu) == 72);
static_assert(sizeof(struct nvme_tcp_rsp_pdu) == 24);
static_assert(sizeof(struct nvme_tcp_r2t_pdu) == 24);
static_assert(sizeof(struct nvme_tcp_data_pdu) == 24);
static_assert(offsetof(struct nvme_tcp_hdr, hlen) == 2);
static_assert(offsetof(struct nvme_tcp_hdr, pdo) == 3);
static_assert(offsetof(struct nvme_tcp_hdr, plen) == 4);
static_assert(offsetof(struct nvme_tcp_icreq_pdu, pfv) == 8);
static_assert(offsetof(struct nvme_tcp_icreq_pdu, digest) == 11);
static_assert(offsetof(struct nvme_tcp_icreq_pdu, maxr2t) == 12);
static_assert(offsetof(struct nvme_tcp_icresp_pdu, cpda) == 10);
static_assert(offsetof(struct nvme_tcp_icresp_pdu, digest) == 11);
static_assert(offsetof(struct nvme_tcp_icresp_pdu, maxdata) == 12);
static_assert(offsetof(struct nvme_tcp_term_pdu, fes) == 8);
static_assert(offsetof(struct nvme_tcp_term_pdu, feil) == 10);
static_assert(offsetof(struct nvme_tcp_cmd_pdu, cmd) == 8);
static_assert(offsetof(struct nvme_tcp_rsp_pdu, cqe) == 8);
static_assert(offsetof(struct nvme_tcp_r2t_pdu, r2t_offset) == 12);
static_assert(offsetof(struct nvme_tcp_r2t_pdu, r2t_length) == 16);
static_assert(offsetof(struct nvme_tcp_data_pdu, command_id) == 8);
static_assert(offsetof(struct nvme_tcp_data_pdu, ttag) == 10);
static_assert(offsetof(struct nvme_tcp_data_pdu, data_offset) == 12);
static_assert(offsetof(struct nvme_tcp_data_pdu, data_length) == 16);
static_assert(sizeof(struct nvme_tcp_cmd_pdu) + NVME_TCP_DIGEST_LENGTH <= RFLASH_PDU_HEAD_MAX);

/*
 * Tenants, which rflashd knows beyond the standard: two vendor-specific admin
 * commands and, in the vendor's area of Identify Controller, how a host sees
 * that the controller has them. The Rust twin is nvme-wire's tenant.rs.
 */
#define RFLASH_ADMIN_TENANT_SET		0xc1	/* to the controller */
#define RFLASH_ADMIN_TENANT_GET		0xc2	/* from the controller */
#define RFLASH_TENANT_VERSION		1
#define RFLASH_SIGNATURE_MAGIC		"rflash\0"	/* 8 bytes with its end */

/**
 * struct rflash_tenant_data - data of Tenant Set and Tenant Get
 * @version: RFLASH_TENANT_VERSION
 * @class: enum rflash_tenant_class, not RFLASH_TENANT_NONE
 * @read_pct: reads among @iops, 0 to 100 %
 * @reserved3: 0
 * @p95_us: p95 of the latency of reads in microseconds, at least 1
 * @iops: reads and writes per second, at least 1
 * @block: bytes of each, 512 to 1 MiB and a multiple of 512
 * @weight: share among best-effort tenants, at least 1
 * @reserved20: 0
 *
 * @weight is 0 in a latency-critical one, the other numbers in a best-effort
 * one. Tenant Get may return nothing but zeroes: there is no promise.
 */
struct rflash_tenant_data {
	__u8 version;
	__u8 class;
	__u8 read_pct;
	__u8 reserved3;
	__le32 p95_us;
	__le32 iops;
	__le32 block;
	__le32 weight;
	__u8 reserved20[44];
};

static_assert(sizeof(struct rflash_tenant_data) == 64);
static_assert(offsetof(struct rflash_tenant_data, p95_us) == 4);
static_assert(offsetof(struct rflash_tenant_data, iops) == 8);
static_assert(offsetof(struct rflash_tenant_data, block) == 12);
static_assert(offsetof(struct rflash_tenant_data, weight) == 16);

/**
 * struct rflash_signature - head of the vendor's area of Identify Controller
 * @magic: RFLASH_SIGNATURE_MAGIC
 * @version: highest version of the tenant commands that the controller has
 * @reserved10: not looked at
 */
struct rflash_signature {
	char magic[8];
	__le16 version;
	__u8 reserved10[6];
};

static_assert(sizeof(struct rflash_signature) == 16);
static_assert(sizeof(RFLASH_SIGNATURE_MAGIC) == sizeof_field(struct rflash_signature, magic));
static_assert(offsetof(struct rflash_signature, version) == 8);
static_assert(offsetof(struct nvme_id_ctrl, vs) == 3072);
static_assert(sizeof_field(struct nvme_id_ctrl, vs) >= sizeof(struct rflash_signature));
static_assert(offsetof(struct nvme_common_command, cdw10) == 40);

#endif /* _RFLASH_WIRE_H */
