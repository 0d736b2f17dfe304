// SPDX-License-Identifier: GPL-2.0
/*
 * Histogram and counters, and their way into netlink messages.
 */
#include <kunit/test.h>
#include <net/netlink.h>

#include "../stats.h"

/* Lower bound of a bucket, as uapi/rflash.h has it. */
static u64 hist_lower_bound(unsigned int i)
{
	if (i < 16)
		return i;
	return (u64)(16 + i % 16) << (i / 16 - 1);
}

static void hist_small_values(struct kunit *test)
{
	unsigned int ns;

	for (ns = 0; ns < 32; ns++)
		KUNIT_EXPECT_EQ(test, rflash_hist_index(ns), ns);
}

static void hist_bounds(struct kunit *test)
{
	unsigned int i;

	for (i = 1; i < RFLASH_HIST_BUCKETS; i++) {
		u64 lower = hist_lower_bound(i);

		KUNIT_EXPECT_EQ(test, rflash_hist_index(lower), i);
		KUNIT_EXPECT_EQ(test, rflash_hist_index(lower - 1), i - 1);
	}
}

/* The formula of the ABI, word for word. */
static void hist_formula(struct kunit *test)
{
	static const u64 values[] = {
		16, 17, 100, 999, 1000, 4095, 4096, 51900, 1000000, 123456789,
		1000000000ULL, 30000000000ULL, (1ULL << 40) - 1,
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(values); i++) {
		u64 ns = values[i];
		unsigned int e = fls64(ns) - 1;

		KUNIT_EXPECT_EQ(test, rflash_hist_index(ns),
				(e - 3) * 16 + ((ns >> (e - 4)) & 15));
	}
}

static void hist_beyond_the_last(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, hist_lower_bound(RFLASH_HIST_BUCKETS), 1ULL << 40);
	KUNIT_EXPECT_EQ(test, rflash_hist_index((1ULL << 40) - 1),
			RFLASH_HIST_BUCKETS - 1);
	KUNIT_EXPECT_EQ(test, rflash_hist_index(1ULL << 40),
			RFLASH_HIST_BUCKETS - 1);
	KUNIT_EXPECT_EQ(test, rflash_hist_index(1ULL << 63),
			RFLASH_HIST_BUCKETS - 1);
	KUNIT_EXPECT_EQ(test, rflash_hist_index(U64_MAX),
			RFLASH_HIST_BUCKETS - 1);
}

static struct rflash_dir_stats *stats_alloc(struct kunit *test)
{
	struct rflash_dir_stats *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, s);
	return s;
}

static u64 stats_in_histogram(const struct rflash_dir_stats *s)
{
	u64 sum = 0;
	int i;

	for (i = 0; i < RFLASH_HIST_BUCKETS; i++)
		sum += s->buckets[i];
	return sum;
}

static void stats_success(struct kunit *test)
{
	struct rflash_dir_stats *s = stats_alloc(test);

	rflash_stats_account(s, 4096, 50000, false);
	rflash_stats_account(s, 512, 70000, false);
	rflash_stats_account(s, 0, 60000, false);
	KUNIT_EXPECT_EQ(test, s->ios, 3);
	KUNIT_EXPECT_EQ(test, s->bytes, 4608);
	KUNIT_EXPECT_EQ(test, s->errors, 0);
	KUNIT_EXPECT_EQ(test, s->lat_sum_ns, 180000);
	KUNIT_EXPECT_EQ(test, s->lat_max_ns, 70000);
	KUNIT_EXPECT_EQ(test, s->buckets[rflash_hist_index(50000)], 1);
	KUNIT_EXPECT_EQ(test, s->buckets[rflash_hist_index(70000)], 1);
	KUNIT_EXPECT_EQ(test, stats_in_histogram(s), 3);
}

static void stats_errors_have_no_latency(struct kunit *test)
{
	struct rflash_dir_stats *s = stats_alloc(test);

	rflash_stats_account(s, 4096, 30000000000ULL, true);
	KUNIT_EXPECT_EQ(test, s->ios, 1);
	KUNIT_EXPECT_EQ(test, s->errors, 1);
	KUNIT_EXPECT_EQ(test, s->bytes, 0);
	KUNIT_EXPECT_EQ(test, s->lat_sum_ns, 0);
	KUNIT_EXPECT_EQ(test, s->lat_max_ns, 0);
	KUNIT_EXPECT_EQ(test, stats_in_histogram(s), 0);
}

/* What a reader makes of one message, added to @total. */
static unsigned int stats_read(struct kunit *test, struct sk_buff *skb,
			       u32 qid, u32 dir, const struct rflash_dir_stats *s,
			       struct rflash_dir_stats *total)
{
	struct nlattr *nest = (struct nlattr *)skb->data;
	struct nlattr *tb[RFLASH_STATS_A_MAX + 1];
	const struct rflash_bucket *b;
	unsigned int n, i;

	KUNIT_ASSERT_EQ(test, nla_type(nest), RFLASH_A_STATS);
	KUNIT_EXPECT_TRUE(test, nest->nla_type & NLA_F_NESTED);
	KUNIT_EXPECT_EQ(test, NLA_ALIGN(nest->nla_len), skb->len);
	KUNIT_ASSERT_EQ(test, 0, nla_parse_nested(tb, RFLASH_STATS_A_MAX, nest,
						  NULL, NULL));
	KUNIT_EXPECT_EQ(test, nla_get_u32(tb[RFLASH_STATS_A_QID]), qid);
	KUNIT_EXPECT_EQ(test, nla_get_u32(tb[RFLASH_STATS_A_DIR]), dir);
	KUNIT_EXPECT_EQ(test, nla_get_u64(tb[RFLASH_STATS_A_IOS]), s->ios);
	KUNIT_EXPECT_EQ(test, nla_get_u64(tb[RFLASH_STATS_A_BYTES]), s->bytes);
	KUNIT_EXPECT_EQ(test, nla_get_u64(tb[RFLASH_STATS_A_ERRORS]), s->errors);
	KUNIT_EXPECT_EQ(test, nla_get_u64(tb[RFLASH_STATS_A_LAT_SUM_NS]),
			s->lat_sum_ns);
	KUNIT_EXPECT_EQ(test, nla_get_u64(tb[RFLASH_STATS_A_LAT_MAX_NS]),
			s->lat_max_ns);
	if (!tb[RFLASH_STATS_A_BUCKETS])
		return 0;
	n = nla_len(tb[RFLASH_STATS_A_BUCKETS]) / sizeof(*b);
	KUNIT_EXPECT_EQ(test, nla_len(tb[RFLASH_STATS_A_BUCKETS]),
			n * sizeof(*b));
	b = nla_data(tb[RFLASH_STATS_A_BUCKETS]);
	for (i = 0; i < n; i++) {
		struct rflash_bucket one;

		memcpy(&one, &b[i], sizeof(one));
		KUNIT_ASSERT_LT(test, one.index, RFLASH_HIST_BUCKETS);
		KUNIT_EXPECT_EQ(test, one.reserved, 0);
		KUNIT_EXPECT_NE(test, one.count, 0);
		total->buckets[one.index] += one.count;
	}
	return n;
}

/* Fill messages until nothing is left, and see that they add up to @s. */
static unsigned int stats_messages(struct kunit *test,
				   const struct rflash_dir_stats *s)
{
	struct rflash_dir_stats *total = stats_alloc(test);
	unsigned int bucket = 0, messages = 0, last;
	struct sk_buff *skb;

	do {
		skb = alloc_skb(NLMSG_GOODSIZE, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, skb);
		last = bucket;
		KUNIT_EXPECT_EQ(test, 0, rflash_stats_fill(skb, 7, RFLASH_STATS_WRITE,
							   s, &bucket));
		KUNIT_EXPECT_LT(test, skb->len, 3500);
		stats_read(test, skb, 7, RFLASH_STATS_WRITE, s, total);
		kfree_skb(skb);
		KUNIT_ASSERT_GT(test, bucket, last);
		messages++;
	} while (bucket < RFLASH_HIST_BUCKETS);
	KUNIT_EXPECT_EQ(test, bucket, RFLASH_HIST_BUCKETS);
	KUNIT_EXPECT_MEMEQ(test, total->buckets, s->buckets, sizeof(s->buckets));
	return messages;
}

static void stats_fill_empty(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, stats_messages(test, stats_alloc(test)), 1);
}

static void stats_fill_some(struct kunit *test)
{
	struct rflash_dir_stats *s = stats_alloc(test);
	int i;

	for (i = 0; i < 1000; i++)
		rflash_stats_account(s, 4096, 20000 + i * 137, i % 10 == 0);
	KUNIT_EXPECT_EQ(test, stats_messages(test, s), 1);
}

static void stats_fill_all(struct kunit *test)
{
	struct rflash_dir_stats *s = stats_alloc(test);
	int i;

	s->ios = U64_MAX;
	s->bytes = U64_MAX - 1;
	for (i = 0; i < RFLASH_HIST_BUCKETS; i++)
		s->buckets[i] = U64_MAX - i;
	KUNIT_EXPECT_EQ(test, stats_messages(test, s), 4);
}

/* As many buckets as fit one message exactly. */
static void stats_fill_one_message_full(struct kunit *test)
{
	struct rflash_dir_stats *s = stats_alloc(test);
	int i;

	for (i = 0; i < 150; i++)
		s->buckets[i * 3] = i + 1;
	KUNIT_EXPECT_LE(test, stats_messages(test, s), 2);
	s->buckets[RFLASH_HIST_BUCKETS - 1] = 1;
	KUNIT_EXPECT_EQ(test, stats_messages(test, s), 2);
}

/* A message without room is left as it was. */
static void stats_fill_no_room(struct kunit *test)
{
	struct rflash_dir_stats *s = stats_alloc(test);
	unsigned int bucket = 0, i;
	struct sk_buff *skb;
	u32 room;

	for (i = 0; i < 100; i++)
		s->buckets[i] = 1;
	for (room = 0; room < 1600; room += 4) {
		skb = alloc_skb(4096, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, skb);
		skb_put(skb, skb_tailroom(skb) - room);
		i = skb->len;
		KUNIT_EXPECT_EQ(test, -EMSGSIZE,
				rflash_stats_fill(skb, 1, RFLASH_STATS_READ, s,
						  &bucket));
		KUNIT_EXPECT_EQ(test, skb->len, i);
		KUNIT_EXPECT_EQ(test, bucket, 0);
		kfree_skb(skb);
	}
}

static struct kunit_case rflash_stats_cases[] = {
	KUNIT_CASE(hist_small_values),
	KUNIT_CASE(hist_bounds),
	KUNIT_CASE(hist_formula),
	KUNIT_CASE(hist_beyond_the_last),
	KUNIT_CASE(stats_success),
	KUNIT_CASE(stats_errors_have_no_latency),
	KUNIT_CASE(stats_fill_empty),
	KUNIT_CASE(stats_fill_some),
	KUNIT_CASE(stats_fill_all),
	KUNIT_CASE(stats_fill_one_message_full),
	KUNIT_CASE(stats_fill_no_room),
	{ }
};

static struct kunit_suite rflash_stats_suite = {
	.name = "rflash_stats",
	.test_cases = rflash_stats_cases,
};

kunit_test_suite(rflash_stats_suite);

MODULE_DESCRIPTION("KUnit tests of rflash's statistics");
MODULE_LICENSE("GPL");
