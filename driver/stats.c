// SPDX-License-Identifier: GPL-2.0
/*
 * Statistics on their way to the control interface.
 */
#include <net/netlink.h>

#include "stats.h"

/*
 * Buckets in one message. With the counters and headers around them a message
 * then takes 2500 bytes of the page that netlink gives a dump.
 */
#define RFLASH_STATS_BUCKETS_PER_MSG	150

static unsigned int rflash_stats_count_buckets(const struct rflash_dir_stats *s,
					       unsigned int from)
{
	unsigned int i, n = 0;

	for (i = from; i < RFLASH_HIST_BUCKETS; i++)
		if (READ_ONCE(s->buckets[i]) &&
		    ++n == RFLASH_STATS_BUCKETS_PER_MSG)
			break;
	return n;
}

/*
 * Append up to one message's worth of buckets. The writer goes on meanwhile, but
 * a bucket never becomes empty again: the second walk finds at least as many as
 * the first and is ended by the room, or by the last bucket.
 */
static int rflash_stats_fill_buckets(struct sk_buff *skb,
				     const struct rflash_dir_stats *s,
				     unsigned int *bucket)
{
	unsigned int n = rflash_stats_count_buckets(s, *bucket);
	unsigned int i = *bucket, filled = 0;
	struct rflash_bucket b = { };
	struct nlattr *attr;

	if (!n) {
		*bucket = RFLASH_HIST_BUCKETS;
		return 0;
	}
	attr = nla_reserve(skb, RFLASH_STATS_A_BUCKETS, n * sizeof(b));
	if (!attr)
		return -EMSGSIZE;
	for (; i < RFLASH_HIST_BUCKETS && filled < n; i++) {
		b.index = i;
		b.count = READ_ONCE(s->buckets[i]);
		if (!b.count)
			continue;
		/* Attributes are aligned to 4 bytes, the counts want 8. */
		memcpy(nla_data(attr) + filled * sizeof(b), &b, sizeof(b));
		filled++;
	}
	if (n < RFLASH_STATS_BUCKETS_PER_MSG)
		i = RFLASH_HIST_BUCKETS;
	*bucket = i;
	return 0;
}

static int rflash_stats_put_u64(struct sk_buff *skb, int type, const u64 *value)
{
	return nla_put_u64_64bit(skb, type, READ_ONCE(*value),
				 RFLASH_STATS_A_PAD);
}

/**
 * rflash_stats_fill - append one RFLASH_A_STATS to a message
 * @skb: the message
 * @qid: the queue
 * @dir: the direction
 * @s: its counters
 * @bucket: first bucket to look at: 0 for the first message of a queue and
 *	direction; advanced past what was appended, RFLASH_HIST_BUCKETS when
 *	nothing is left for another message
 *
 * Return: 0, or -EMSGSIZE with @skb and @bucket unchanged.
 */
int rflash_stats_fill(struct sk_buff *skb, u32 qid, enum rflash_stats_dir dir,
		      const struct rflash_dir_stats *s, unsigned int *bucket)
{
	struct nlattr *nest = nla_nest_start(skb, RFLASH_A_STATS);

	if (!nest)
		return -EMSGSIZE;
	if (nla_put_u32(skb, RFLASH_STATS_A_QID, qid) ||
	    nla_put_u32(skb, RFLASH_STATS_A_DIR, dir) ||
	    rflash_stats_put_u64(skb, RFLASH_STATS_A_IOS, &s->ios) ||
	    rflash_stats_put_u64(skb, RFLASH_STATS_A_BYTES, &s->bytes) ||
	    rflash_stats_put_u64(skb, RFLASH_STATS_A_ERRORS, &s->errors) ||
	    rflash_stats_put_u64(skb, RFLASH_STATS_A_LAT_SUM_NS,
				 &s->lat_sum_ns) ||
	    rflash_stats_put_u64(skb, RFLASH_STATS_A_LAT_MAX_NS,
				 &s->lat_max_ns) ||
	    rflash_stats_fill_buckets(skb, s, bucket)) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	nla_nest_end(skb, nest);
	return 0;
}
