// SPDX-License-Identifier: GPL-2.0
/*
 * Command identifiers.
 */
#include <kunit/test.h>

#include "../tags.h"

struct rflash_tag_depth {
	unsigned int depth;
	u8 bits;
};

static const struct rflash_tag_depth rflash_tag_depths[] = {
	{ 1, 0 }, { 2, 1 }, { 3, 2 }, { 16, 4 }, { 17, 5 }, { 31, 5 }, { 32, 5 },
	{ 33, 6 }, { 127, 7 }, { 128, 7 }, { 129, 8 }, { 1023, 10 },
	{ 1024, 10 }, { 1027, 11 }, { 32768, 15 },
};

static void rflash_tag_depth_desc(const struct rflash_tag_depth *d, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "depth %u", d->depth);
}

KUNIT_ARRAY_PARAM(rflash_tag_depth, rflash_tag_depths, rflash_tag_depth_desc);

static void tags_bits(struct kunit *test)
{
	const struct rflash_tag_depth *d = test->param_value;

	KUNIT_EXPECT_EQ(test, rflash_tag_bits(d->depth), d->bits);
}

/* Each index with each generation that occurs, there and back. */
static void tags_round_trip(struct kunit *test)
{
	const struct rflash_tag_depth *d = test->param_value;
	u8 bits = rflash_tag_bits(d->depth);
	unsigned int index, bad = 0;
	u16 gen = 0;

	do {
		for (index = 0; index < d->depth; index++) {
			u16 cid = rflash_cid(bits, index, gen);

			bad += rflash_cid_index(bits, cid) != index;
			bad += rflash_cid_gen(bits, cid) != gen;
			bad += cid == 0xffff;
		}
		gen = rflash_gen_next(bits, gen);
	} while (gen);
	KUNIT_EXPECT_EQ(test, bad, 0);
}

/* Generations come round after all of them have been used, not earlier. */
static void tags_wrap(struct kunit *test)
{
	const struct rflash_tag_depth *d = test->param_value;
	u8 bits = rflash_tag_bits(d->depth);
	unsigned int n = 0, bad = 0;
	u16 gen = 0, next;

	do {
		next = rflash_gen_next(bits, gen);
		bad += next && next != gen + 1;
		gen = next;
		n++;
	} while (gen && n <= 65536);
	KUNIT_EXPECT_EQ(test, bad, 0);
	KUNIT_EXPECT_EQ(test, n, (1u << (16 - bits)) - 1);
}

/* A completion of an earlier use of a tag is not taken for the current one. */
static void tags_stale(struct kunit *test)
{
	const struct rflash_tag_depth *d = test->param_value;
	u8 bits = rflash_tag_bits(d->depth);
	unsigned int uses = (1u << (16 - bits)) - 1, age, bad = 0;
	u16 index = d->depth - 1, old = 0, gen = 0;

	for (age = 1; age < uses; age++) {
		gen = rflash_gen_next(bits, gen);
		bad += rflash_cid(bits, index, gen) ==
		       rflash_cid(bits, index, old);
	}
	KUNIT_EXPECT_EQ(test, bad, 0);
	KUNIT_EXPECT_EQ(test, rflash_gen_next(bits, gen), old);
}

/* Whatever the peer sends, the parts stay within their bits. */
static void tags_any_cid(struct kunit *test)
{
	const struct rflash_tag_depth *d = test->param_value;
	u8 bits = rflash_tag_bits(d->depth);
	unsigned int cid, bad = 0;

	for (cid = 0; cid <= 0xffff; cid++) {
		u16 index = rflash_cid_index(bits, cid);
		u16 gen = rflash_cid_gen(bits, cid);

		bad += index >= 1u << bits;
		bad += rflash_cid(bits, index, gen) != cid;
	}
	KUNIT_EXPECT_EQ(test, bad, 0);
}

/* A generation from nowhere does not lead out of range. */
static void tags_gen_out_of_range(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rflash_gen_next(10, 62), 0);
	KUNIT_EXPECT_EQ(test, rflash_gen_next(10, 63), 0);
	KUNIT_EXPECT_EQ(test, rflash_gen_next(10, 0xffff), 0);
}

static struct kunit_case rflash_tags_cases[] = {
	KUNIT_CASE_PARAM(tags_bits, rflash_tag_depth_gen_params),
	KUNIT_CASE_PARAM(tags_round_trip, rflash_tag_depth_gen_params),
	KUNIT_CASE_PARAM(tags_wrap, rflash_tag_depth_gen_params),
	KUNIT_CASE_PARAM(tags_stale, rflash_tag_depth_gen_params),
	KUNIT_CASE_PARAM(tags_any_cid, rflash_tag_depth_gen_params),
	KUNIT_CASE(tags_gen_out_of_range),
	{ }
};

static struct kunit_suite rflash_tags_suite = {
	.name = "rflash_tags",
	.test_cases = rflash_tags_cases,
};

kunit_test_suite(rflash_tags_suite);

MODULE_DESCRIPTION("KUnit tests of rflash's command identifiers");
MODULE_LICENSE("GPL");
