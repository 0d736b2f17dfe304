/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters and latency histograms, per queue and direction.
 *
 * Each struct rflash_queue_stats has a single writer: whoever holds the queue's
 * receive path, which completes requests one after the other. So nothing here is
 * locked or atomic. Readers run at any time and take a snapshot that is not one
 * moment's: a request can be in one counter and not yet in the next. On 32-bit
 * machines a reader can also see half of a 64-bit counter's carry; such a value
 * is off by 2^32 and right again in the next reading. Requests that fail or are
 * put through one by one end on the CPU that submitted them: there a count can
 * be lost to a completion on the receive path at the same instant.
 */
#ifndef _RFLASH_STATS_H
#define _RFLASH_STATS_H

#include <linux/bitops.h>
#include <linux/cache.h>
#include <linux/compiler.h>
#include <linux/log2.h>
#include <linux/types.h>

#include "uapi/rflash.h"

struct sk_buff;

/**
 * struct rflash_dir_stats - one queue, one direction
 * @ios: requests completed, failed ones included
 * @bytes: bytes moved by those that succeeded
 * @errors: requests that failed
 * @lat_sum_ns: sum of the latencies of those in the histogram
 * @lat_max_ns: greatest latency in the histogram
 * @buckets: log-linear histogram of those that succeeded; the time a failed
 *	request took says nothing about the storage
 */
struct rflash_dir_stats {
	u64 ios;
	u64 bytes;
	u64 errors;
	u64 lat_sum_ns;
	u64 lat_max_ns;
	u64 buckets[RFLASH_HIST_BUCKETS];
};

/**
 * struct rflash_queue_stats - both directions of one queue
 * @dir: indexed by enum rflash_stats_dir
 */
struct rflash_queue_stats {
	struct rflash_dir_stats dir[__RFLASH_STATS_DIRS];
} ____cacheline_aligned;

/**
 * rflash_hist_index - the histogram bucket of a latency
 * @ns: latency in nanoseconds
 *
 * The formula is part of the control ABI, see uapi/rflash.h.
 *
 * Return: index below RFLASH_HIST_BUCKETS.
 */
static inline unsigned int rflash_hist_index(u64 ns)
{
	unsigned int exp, index;

	if (ns < BIT(RFLASH_HIST_SUB_BITS))
		return ns;
	exp = ilog2(ns) - RFLASH_HIST_SUB_BITS;
	index = ((exp + 1) << RFLASH_HIST_SUB_BITS) +
		((ns >> exp) & (BIT(RFLASH_HIST_SUB_BITS) - 1));
	return index < RFLASH_HIST_BUCKETS ? index : RFLASH_HIST_BUCKETS - 1;
}

/**
 * rflash_stats_account - count one completed request
 * @s: counters of its queue and direction
 * @bytes: bytes it moved
 * @lat_ns: time from the block layer's start of the request until now
 * @error: it failed
 *
 * Context: the queue's receive path only (see the head of this file).
 */
static inline void rflash_stats_account(struct rflash_dir_stats *s, u32 bytes,
					u64 lat_ns, bool error)
{
	u64 *bucket;

	WRITE_ONCE(s->ios, s->ios + 1);
	if (unlikely(error)) {
		WRITE_ONCE(s->errors, s->errors + 1);
		return;
	}
	WRITE_ONCE(s->bytes, s->bytes + bytes);
	WRITE_ONCE(s->lat_sum_ns, s->lat_sum_ns + lat_ns);
	if (unlikely(lat_ns > s->lat_max_ns))
		WRITE_ONCE(s->lat_max_ns, lat_ns);
	bucket = &s->buckets[rflash_hist_index(lat_ns)];
	WRITE_ONCE(*bucket, *bucket + 1);
}

int rflash_stats_fill(struct sk_buff *skb, u32 qid, enum rflash_stats_dir dir,
		      const struct rflash_dir_stats *s, unsigned int *bucket);

#endif /* _RFLASH_STATS_H */
