// SPDX-License-Identifier: GPL-2.0
/*
 * Tenants over the vectors in tests/vectors/tenant.
 */
#include <kunit/test.h>
#include <linux/slab.h>

#include "../tenant.h"

/**
 * struct rflash_tenant_vector - one vector, generated from its file
 * @error: the field to be blamed, NULL in a good vector
 * @value: what is in that field
 * @tenant: of a good vector
 */
struct rflash_tenant_vector {
	const char *name;
	u8 bytes[64];
	const char *error;
	u32 value;
	struct rflash_tenant tenant;
};

struct rflash_signature_vector {
	const char *name;
	u8 bytes[16];
	u16 version;
};

#include "tenant_vectors.h"

static void tenant_desc(const struct rflash_tenant_vector *v, char *desc)
{
	strscpy(desc, v->name, KUNIT_PARAM_DESC_SIZE);
}

static void signature_desc(const struct rflash_signature_vector *v, char *desc)
{
	strscpy(desc, v->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(tenant, rflash_tenant_vectors, tenant_desc);
KUNIT_ARRAY_PARAM(signature, rflash_signature_vectors, signature_desc);

/* In an allocation of its own, so that KASAN finds who reads further. */
static const char *tenant_decode(struct kunit *test, const u8 *bytes,
				 struct rflash_tenant *tenant, u32 *value)
{
	struct rflash_tenant_data *data;
	const char *bad;

	data = kmemdup(bytes, sizeof(*data), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, data);
	memset(tenant, 0, sizeof(*tenant));
	*value = 0;
	bad = rflash_tenant_decode(data, tenant, value);
	kfree(data);
	return bad;
}

static void tenant_receive(struct kunit *test)
{
	const struct rflash_tenant_vector *v = test->param_value;
	struct rflash_tenant got;
	const char *bad;
	u32 value;

	bad = tenant_decode(test, v->bytes, &got, &value);
	if (v->error) {
		KUNIT_ASSERT_NOT_NULL(test, bad);
		KUNIT_EXPECT_STREQ(test, bad, v->error);
		KUNIT_EXPECT_EQ(test, value, v->value);
		return;
	}
	KUNIT_ASSERT_NULL_MSG(test, bad, "%s is %u", bad, value);
	KUNIT_EXPECT_EQ(test, got.class, v->tenant.class);
	KUNIT_EXPECT_EQ(test, got.read_pct, v->tenant.read_pct);
	KUNIT_EXPECT_EQ(test, got.p95_us, v->tenant.p95_us);
	KUNIT_EXPECT_EQ(test, got.iops, v->tenant.iops);
	KUNIT_EXPECT_EQ(test, got.block, v->tenant.block);
	KUNIT_EXPECT_EQ(test, got.weight, v->tenant.weight);
}

static void tenant_send(struct kunit *test)
{
	const struct rflash_tenant_vector *v = test->param_value;
	struct rflash_tenant_data data;

	if (v->error)
		return;
	memset(&data, 0xff, sizeof(data));
	rflash_tenant_encode(&v->tenant, &data);
	KUNIT_EXPECT_EQ(test, memcmp(&data, v->bytes, sizeof(data)), 0);
}

/* Numbers of the other class, which nobody has cleared, stay at home. */
static void tenant_send_other_class(struct kunit *test)
{
	const struct rflash_tenant_vector *v = test->param_value;
	struct rflash_tenant tenant = v->tenant;
	struct rflash_tenant_data data;

	if (v->error)
		return;
	if (tenant.class == RFLASH_TENANT_LATENCY_CRITICAL)
		tenant.weight = 7;
	else
		tenant.block = tenant.iops = tenant.p95_us = tenant.read_pct = 7;
	rflash_tenant_encode(&tenant, &data);
	KUNIT_EXPECT_EQ(test, memcmp(&data, v->bytes, sizeof(data)), 0);
}

/* Each bit wrong in turn: refused, or what the same bytes are made of. */
static void tenant_receive_bit_flips(struct kunit *test)
{
	const struct rflash_tenant_vector *v = test->param_value;
	struct rflash_tenant_data data;
	struct rflash_tenant got;
	u8 bytes[64];
	u32 bit, value;

	for (bit = 0; bit < sizeof(bytes) * 8; bit++) {
		memcpy(bytes, v->bytes, sizeof(bytes));
		bytes[bit / 8] ^= 1 << bit % 8;
		if (tenant_decode(test, bytes, &got, &value))
			continue;
		rflash_tenant_encode(&got, &data);
		KUNIT_EXPECT_EQ_MSG(test, memcmp(&data, bytes, sizeof(data)), 0,
				    "bit %u", bit);
	}
}

static void tenant_signature(struct kunit *test)
{
	const struct rflash_signature_vector *v = test->param_value;
	struct rflash_signature *copy;

	copy = kmemdup(v->bytes, sizeof(*copy), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, copy);
	KUNIT_EXPECT_EQ(test, rflash_tenant_version(copy), v->version);
	kfree(copy);
}

static void tenant_texts(struct kunit *test)
{
	struct rflash_tenant tenant = { };
	char text[RFLASH_TENANT_TEXT_LEN];

	rflash_tenant_text(&tenant, text);
	KUNIT_EXPECT_STREQ(test, text, "none");
	tenant.class = RFLASH_TENANT_BEST_EFFORT;
	tenant.weight = 2;
	rflash_tenant_text(&tenant, text);
	KUNIT_EXPECT_STREQ(test, text, "best-effort weight=2");
	tenant = (struct rflash_tenant) {
		.class = RFLASH_TENANT_LATENCY_CRITICAL,
		.p95_us = U32_MAX, .iops = U32_MAX, .read_pct = 100,
		.block = U32_MAX,
	};
	rflash_tenant_text(&tenant, text);
	KUNIT_EXPECT_STREQ(test, text,
			   "latency-critical p95_us=4294967295 iops=4294967295 read_pct=100 block=4294967295");
}

static struct kunit_case rflash_tenant_cases[] = {
	KUNIT_CASE_PARAM(tenant_receive, tenant_gen_params),
	KUNIT_CASE_PARAM(tenant_send, tenant_gen_params),
	KUNIT_CASE_PARAM(tenant_send_other_class, tenant_gen_params),
	KUNIT_CASE_PARAM(tenant_receive_bit_flips, tenant_gen_params),
	KUNIT_CASE_PARAM(tenant_signature, signature_gen_params),
	KUNIT_CASE(tenant_texts),
	{ }
};

static struct kunit_suite rflash_tenant_suite = {
	.name = "rflash_tenant",
	.test_cases = rflash_tenant_cases,
};

kunit_test_suite(rflash_tenant_suite);

MODULE_DESCRIPTION("KUnit tests of rflash's tenants");
MODULE_LICENSE("GPL");
