// SPDX-License-Identifier: GPL-2.0
/*
 * The PDU codec over the vectors in tests/vectors/nvme_tcp.
 *
 * Received PDUs go through the codec the way the receive path drives it: the
 * common header first, then as many bytes as the codec asks for, then the data.
 * Each piece is in an allocation of its own size, so that KASAN finds a codec
 * that reads further than it was given.
 */
#include <kunit/test.h>
#include <linux/slab.h>

#include "../tcp_pdu.h"

enum rflash_vector_kind {
	RFLASH_VECTOR_ICREQ,
	RFLASH_VECTOR_ICRESP,
	RFLASH_VECTOR_CMD,
	RFLASH_VECTOR_RSP,
	RFLASH_VECTOR_H2C_DATA,
	RFLASH_VECTOR_C2H_DATA,
	RFLASH_VECTOR_R2T,
	RFLASH_VECTOR_H2C_TERM,
	RFLASH_VECTOR_C2H_TERM,
	RFLASH_VECTOR_TYPE,
};

/**
 * struct rflash_vector - one vector, generated from its file
 * @error: the field to be blamed, NULL in a good vector
 * @value: what is in that field, if @has_value
 *
 * The fields after @value are those of tests/vectors/README.rst; the ones that
 * the kind of PDU does not have are 0.
 */
struct rflash_vector {
	const char *name;
	enum rflash_vector_kind kind;
	bool hdgst, ddgst;
	u8 cpda;
	u32 len;
	const u8 *bytes;
	const char *error;
	bool has_value;
	u64 value;

	u64 pfv, hpda, maxr2t, maxh2cdata;
	u64 cid, ttag, offset, length, pad, last, success;
	u64 inline_len, head_len;
	u64 status, result, sq_head;
	u64 fes, fei;
};

#include "vectors.h"

static bool pdu_is_received(const struct rflash_vector *v)
{
	switch (v->kind) {
	case RFLASH_VECTOR_ICRESP:
	case RFLASH_VECTOR_RSP:
	case RFLASH_VECTOR_C2H_DATA:
	case RFLASH_VECTOR_R2T:
	case RFLASH_VECTOR_C2H_TERM:
	case RFLASH_VECTOR_TYPE:
		return true;
	default:
		return false;
	}
}

static bool pdu_is_sent(const struct rflash_vector *v)
{
	return v->kind == RFLASH_VECTOR_ICREQ || v->kind == RFLASH_VECTOR_CMD ||
	       v->kind == RFLASH_VECTOR_H2C_DATA;
}

static bool want_good_received(const struct rflash_vector *v)
{
	return !v->error && pdu_is_received(v);
}

static bool want_bad_received(const struct rflash_vector *v)
{
	return v->error && pdu_is_received(v);
}

static bool want_good_sent(const struct rflash_vector *v)
{
	return !v->error && pdu_is_sent(v);
}

static const void *pdu_next(const struct rflash_vector *prev, char *desc,
			    bool (*want)(const struct rflash_vector *v))
{
	const struct rflash_vector *v = prev ? prev + 1 : rflash_vectors;

	for (; v < rflash_vectors + ARRAY_SIZE(rflash_vectors); v++) {
		if (!want(v))
			continue;
		strscpy(desc, v->name, KUNIT_PARAM_DESC_SIZE);
		return v;
	}
	return NULL;
}

static const void *pdu_good_received(const void *prev, char *desc)
{
	return pdu_next(prev, desc, want_good_received);
}

static const void *pdu_bad_received(const void *prev, char *desc)
{
	return pdu_next(prev, desc, want_bad_received);
}

static const void *pdu_good_sent(const void *prev, char *desc)
{
	return pdu_next(prev, desc, want_good_sent);
}

/**
 * struct pdu_decoded - what became of a PDU
 * @err: @err.field is NULL if all is well, "hdgst" or "ddgst" if a digest is
 *	wrong, "short" if the codec asks for more bytes than there are
 * @head: bytes of header and digest
 */
struct pdu_decoded {
	struct rflash_pdu_error err;
	int head;
	struct rflash_icresp icresp;
	struct rflash_c2h_data data;
	struct rflash_r2t r2t;
	struct rflash_rsp rsp;
	struct rflash_term term;
};

static void *pdu_copy(struct kunit *test, const u8 *bytes, size_t len)
{
	void *copy = kmemdup(bytes, len, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, copy);
	return copy;
}

static void pdu_decode_icresp(struct kunit *test, const struct rflash_vector *v,
			      const u8 *bytes, struct pdu_decoded *out)
{
	void *pdu;
	int ret;

	if (v->len < sizeof(struct nvme_tcp_icresp_pdu)) {
		/* The receive path waits for 128 bytes whatever they are. */
		out->err.field = "short";
		return;
	}
	pdu = pdu_copy(test, bytes, sizeof(struct nvme_tcp_icresp_pdu));
	ret = rflash_pdu_parse_icresp(pdu, v->hdgst, v->ddgst, &out->icresp,
				      &out->err);
	KUNIT_EXPECT_EQ(test, ret, out->err.field ? -EPROTO : 0);
	kfree(pdu);
}

static bool pdu_ddgst_ok(const u8 *bytes, u32 start, u32 length)
{
	__le32 digest;
	u32 crc = rflash_crc32c_init();

	/* In two pieces, as data arrives. */
	crc = rflash_crc32c_update(crc, bytes + start, length / 3);
	crc = rflash_crc32c_update(crc, bytes + start + length / 3,
				   length - length / 3);
	memcpy(&digest, bytes + start + length, sizeof(digest));
	return digest == rflash_crc32c_final(crc);
}

static int pdu_decode_head(const struct rflash_vector *v, void *pdu, u8 type,
			   struct pdu_decoded *out)
{
	switch (type) {
	case nvme_tcp_c2h_data:
		return rflash_pdu_parse_c2h_data(pdu, v->hdgst, v->ddgst,
						 &out->data, &out->err);
	case nvme_tcp_r2t:
		return rflash_pdu_parse_r2t(pdu, &out->r2t, &out->err);
	case nvme_tcp_c2h_term:
		return rflash_pdu_parse_term(pdu, &out->term, &out->err);
	default:
		rflash_pdu_parse_rsp(pdu, &out->rsp);
		return 0;
	}
}

static void pdu_decode(struct kunit *test, const struct rflash_vector *v,
		       const u8 *bytes, struct pdu_decoded *out)
{
	u8 type = bytes[0];
	void *pdu;
	int ret;

	memset(out, 0, sizeof(*out));
	if (v->kind == RFLASH_VECTOR_ICRESP) {
		pdu_decode_icresp(test, v, bytes, out);
		return;
	}

	pdu = pdu_copy(test, bytes, sizeof(struct nvme_tcp_hdr));
	out->head = rflash_pdu_check_hdr(pdu, v->hdgst, v->ddgst, &out->err);
	kfree(pdu);
	if (out->head < 0) {
		KUNIT_EXPECT_EQ(test, out->head, -EPROTO);
		KUNIT_EXPECT_NOT_NULL(test, out->err.field);
		return;
	}
	KUNIT_EXPECT_NULL(test, out->err.field);
	KUNIT_EXPECT_GE(test, out->head, 24);
	KUNIT_EXPECT_LE(test, out->head, RFLASH_PDU_HEAD_MAX);
	if (out->head > v->len) {
		out->err.field = "short";
		return;
	}

	pdu = pdu_copy(test, bytes, out->head);
	if (v->hdgst && type != nvme_tcp_c2h_term &&
	    !rflash_pdu_hdgst_ok(pdu, out->head - NVME_TCP_DIGEST_LENGTH)) {
		out->err.field = "hdgst";
		kfree(pdu);
		return;
	}
	ret = pdu_decode_head(v, pdu, type, out);
	KUNIT_EXPECT_EQ(test, ret, out->err.field ? -EPROTO : 0);
	kfree(pdu);
	if (ret || type != nvme_tcp_c2h_data)
		return;

	/* What the receive path relies on. */
	KUNIT_EXPECT_GT(test, out->data.length, 0);
	KUNIT_EXPECT_LE(test, out->head + out->data.pad,
			RFLASH_PDU_DATA_ALIGN_MAX);
	KUNIT_EXPECT_TRUE(test, out->data.last || !out->data.success);
	if ((u64)out->head + out->data.pad + out->data.length +
	    (v->ddgst ? NVME_TCP_DIGEST_LENGTH : 0) > v->len)
		out->err.field = "short";
	else if (v->ddgst && !pdu_ddgst_ok(bytes, out->head + out->data.pad,
					   out->data.length))
		out->err.field = "ddgst";
}

static void pdu_receive_good(struct kunit *test)
{
	const struct rflash_vector *v = test->param_value;
	struct pdu_decoded out;

	pdu_decode(test, v, v->bytes, &out);
	KUNIT_ASSERT_NULL_MSG(test, out.err.field,
			      "%s is %llu, expected %s", out.err.field,
			      out.err.value, out.err.expected);
	switch (v->kind) {
	case RFLASH_VECTOR_ICRESP:
		KUNIT_EXPECT_EQ(test, out.icresp.maxh2cdata, v->maxh2cdata);
		KUNIT_EXPECT_EQ(test, out.icresp.cpda, v->cpda);
		KUNIT_EXPECT_EQ(test, out.icresp.hdgst, v->hdgst);
		KUNIT_EXPECT_EQ(test, out.icresp.ddgst, v->ddgst);
		break;
	case RFLASH_VECTOR_RSP:
		KUNIT_EXPECT_EQ(test, out.rsp.cid, v->cid);
		KUNIT_EXPECT_EQ(test, out.rsp.status, v->status);
		KUNIT_EXPECT_EQ(test, out.rsp.result, v->result);
		KUNIT_EXPECT_EQ(test, out.rsp.sq_head, v->sq_head);
		KUNIT_EXPECT_EQ(test, out.head, v->len);
		break;
	case RFLASH_VECTOR_C2H_DATA:
		KUNIT_EXPECT_EQ(test, out.data.cid, v->cid);
		KUNIT_EXPECT_EQ(test, out.data.offset, v->offset);
		KUNIT_EXPECT_EQ(test, out.data.length, v->length);
		KUNIT_EXPECT_EQ(test, out.data.pad, v->pad);
		KUNIT_EXPECT_EQ(test, out.data.last, v->last);
		KUNIT_EXPECT_EQ(test, out.data.success, v->success);
		break;
	case RFLASH_VECTOR_R2T:
		KUNIT_EXPECT_EQ(test, out.r2t.cid, v->cid);
		KUNIT_EXPECT_EQ(test, out.r2t.ttag, v->ttag);
		KUNIT_EXPECT_EQ(test, out.r2t.offset, v->offset);
		KUNIT_EXPECT_EQ(test, out.r2t.length, v->length);
		KUNIT_EXPECT_EQ(test, out.head, v->len);
		break;
	case RFLASH_VECTOR_C2H_TERM:
		KUNIT_EXPECT_EQ(test, out.term.fes, v->fes);
		KUNIT_EXPECT_EQ(test, out.term.fei, v->fei);
		KUNIT_EXPECT_STREQ(test, out.term.reason,
				   rflash_pdu_fes_name(v->fes));
		KUNIT_EXPECT_STRNEQ(test, out.term.reason, "unknown reason");
		break;
	default:
		KUNIT_FAIL(test, "a good vector of this kind is never received");
	}
}

static void pdu_receive_bad(struct kunit *test)
{
	const struct rflash_vector *v = test->param_value;
	struct pdu_decoded out;

	pdu_decode(test, v, v->bytes, &out);
	KUNIT_ASSERT_NOT_NULL(test, out.err.field);
	KUNIT_EXPECT_STREQ(test, out.err.field, v->error);
	if (v->has_value) {
		KUNIT_EXPECT_EQ(test, out.err.value, v->value);
		KUNIT_ASSERT_NOT_NULL(test, out.err.expected);
		KUNIT_EXPECT_GT(test, strlen(out.err.expected), 0);
	}
}

/*
 * Each bit of the header wrong in turn: refused, or decoded to something that
 * keeps within bounds (pdu_decode() checks); with a header digest, refused.
 */
static void pdu_receive_bit_flips(struct kunit *test)
{
	const struct rflash_vector *v = test->param_value;
	u32 head = v->kind == RFLASH_VECTOR_ICRESP ? 16 : 24;
	struct pdu_decoded out;
	u32 bit;
	u8 *bytes;

	bytes = kunit_kmalloc(test, v->len, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, bytes);
	for (bit = 0; bit < head * 8; bit++) {
		memcpy(bytes, v->bytes, v->len);
		bytes[bit / 8] ^= 1 << bit % 8;
		pdu_decode(test, v, bytes, &out);
		if (v->hdgst && v->kind != RFLASH_VECTOR_ICRESP &&
		    v->kind != RFLASH_VECTOR_C2H_TERM)
			KUNIT_EXPECT_NOT_NULL_MSG(test, out.err.field,
						  "bit %u", bit);
	}
}

static void pdu_send_icreq(struct kunit *test, const struct rflash_vector *v)
{
	struct nvme_tcp_icreq_pdu pdu;

	memset(&pdu, 0xa5, sizeof(pdu));
	rflash_pdu_icreq(&pdu, v->hdgst, v->ddgst);
	KUNIT_ASSERT_EQ(test, v->len, sizeof(pdu));
	KUNIT_EXPECT_MEMEQ(test, &pdu, v->bytes, sizeof(pdu));
	KUNIT_EXPECT_EQ(test, v->pfv, NVME_TCP_PFV_1_0);
	KUNIT_EXPECT_EQ(test, v->hpda, 0);
	KUNIT_EXPECT_EQ(test, v->maxr2t, 0);
}

/* Put a PDU together as the send path does; @pdu has the header. */
static void pdu_send_rest(struct kunit *test, const struct rflash_vector *v,
			  struct nvme_tcp_hdr *hdr, u32 length)
{
	u32 head = rflash_pdu_head_len(hdr, v->hdgst);
	u8 *pdu = (u8 *)hdr;
	__le32 digest;

	KUNIT_EXPECT_EQ(test, head, v->head_len);
	KUNIT_ASSERT_LE(test, head, RFLASH_PDU_HEAD_MAX);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(hdr->plen), v->len);
	memset(pdu + hdr->hlen, 0, head - hdr->hlen);
	if (v->hdgst) {
		digest = rflash_pdu_hdgst(pdu, hdr->hlen);
		memcpy(pdu + hdr->hlen, &digest, sizeof(digest));
		KUNIT_EXPECT_TRUE(test, rflash_pdu_hdgst_ok(pdu, hdr->hlen));
	}
	KUNIT_EXPECT_MEMEQ(test, pdu, v->bytes, head);
	KUNIT_ASSERT_EQ(test, v->len, head + length +
			(v->ddgst && length ? NVME_TCP_DIGEST_LENGTH : 0));
	if (v->ddgst && length)
		KUNIT_EXPECT_TRUE(test, pdu_ddgst_ok(v->bytes, head, length));
}

static void pdu_send_cmd(struct kunit *test, const struct rflash_vector *v)
{
	u8 *pdu = kunit_kmalloc(test, RFLASH_PDU_HEAD_MAX, GFP_KERNEL);
	struct nvme_tcp_cmd_pdu *cmd = (void *)pdu;

	KUNIT_ASSERT_NOT_NULL(test, pdu);
	memset(pdu, 0xa5, RFLASH_PDU_HEAD_MAX);
	memcpy(&cmd->cmd, v->bytes + sizeof(cmd->hdr), sizeof(cmd->cmd));
	KUNIT_EXPECT_EQ(test, cmd->cmd.common.command_id, v->cid);
	rflash_pdu_cmd(&cmd->hdr, v->hdgst, v->ddgst, v->cpda, v->inline_len);
	pdu_send_rest(test, v, &cmd->hdr, v->inline_len);
}

static void pdu_send_h2c_data(struct kunit *test, const struct rflash_vector *v)
{
	u8 *pdu = kunit_kmalloc(test, RFLASH_PDU_HEAD_MAX, GFP_KERNEL);
	struct nvme_tcp_data_pdu *data = (void *)pdu;

	KUNIT_ASSERT_NOT_NULL(test, pdu);
	memset(pdu, 0xa5, RFLASH_PDU_HEAD_MAX);
	rflash_pdu_h2c_data(data, v->hdgst, v->ddgst, v->cpda, v->cid, v->ttag,
			    v->offset, v->length, v->last);
	pdu_send_rest(test, v, &data->hdr, v->length);
}

static void pdu_send_good(struct kunit *test)
{
	const struct rflash_vector *v = test->param_value;

	switch (v->kind) {
	case RFLASH_VECTOR_ICREQ:
		pdu_send_icreq(test, v);
		break;
	case RFLASH_VECTOR_CMD:
		pdu_send_cmd(test, v);
		break;
	case RFLASH_VECTOR_H2C_DATA:
		pdu_send_h2c_data(test, v);
		break;
	default:
		KUNIT_FAIL(test, "a vector of this kind is never sent");
	}
}

/* Head room and alignment for all alignments a controller can ask for. */
static void pdu_send_all_alignments(struct kunit *test)
{
	struct nvme_tcp_data_pdu data;
	struct nvme_tcp_hdr hdr;
	unsigned int cpda, hdgst, most = 0;

	for (cpda = 0; cpda < 32; cpda++) {
		for (hdgst = 0; hdgst < 2; hdgst++) {
			rflash_pdu_cmd(&hdr, hdgst, false, cpda, 512);
			KUNIT_EXPECT_EQ(test, hdr.pdo % ((cpda + 1) * 4), 0);
			KUNIT_EXPECT_GE(test, hdr.pdo, 72 + 4 * hdgst);
			KUNIT_EXPECT_LE(test, hdr.pdo, RFLASH_PDU_HEAD_MAX);
			most = max_t(unsigned int, most, hdr.pdo);
			rflash_pdu_h2c_data(&data, hdgst, false, cpda, 0, 0, 0,
					    512, true);
			KUNIT_EXPECT_EQ(test, data.hdr.pdo % ((cpda + 1) * 4), 0);
			KUNIT_EXPECT_GE(test, data.hdr.pdo, 24 + 4 * hdgst);
			KUNIT_EXPECT_LE(test, data.hdr.pdo, RFLASH_PDU_HEAD_MAX);
		}
	}
	KUNIT_EXPECT_EQ(test, most, RFLASH_PDU_HEAD_MAX);
}

static void pdu_crc32c_known(struct kunit *test)
{
	u32 crc = rflash_crc32c_update(rflash_crc32c_init(), "123456789", 9);

	KUNIT_EXPECT_EQ(test, le32_to_cpu(rflash_crc32c_final(crc)), 0xe3069283);
	KUNIT_EXPECT_EQ(test, le32_to_cpu(rflash_crc32c_final(rflash_crc32c_init())),
			0);
}

static void pdu_fes_names(struct kunit *test)
{
	unsigned int fes;

	for (fes = 1; fes <= 6; fes++)
		KUNIT_EXPECT_STRNEQ(test, rflash_pdu_fes_name(fes),
				    "unknown reason");
	KUNIT_EXPECT_STREQ(test, rflash_pdu_fes_name(0), "unknown reason");
	KUNIT_EXPECT_STREQ(test, rflash_pdu_fes_name(7), "unknown reason");
}

static struct kunit_case rflash_pdu_cases[] = {
	KUNIT_CASE_PARAM(pdu_receive_good, pdu_good_received),
	KUNIT_CASE_PARAM(pdu_receive_bad, pdu_bad_received),
	KUNIT_CASE_PARAM(pdu_receive_bit_flips, pdu_good_received),
	KUNIT_CASE_PARAM(pdu_send_good, pdu_good_sent),
	KUNIT_CASE(pdu_send_all_alignments),
	KUNIT_CASE(pdu_crc32c_known),
	KUNIT_CASE(pdu_fes_names),
	{ }
};

static struct kunit_suite rflash_pdu_suite = {
	.name = "rflash_pdu",
	.test_cases = rflash_pdu_cases,
};

kunit_test_suite(rflash_pdu_suite);

MODULE_DESCRIPTION("KUnit tests of rflash's PDU codec");
MODULE_LICENSE("GPL");
