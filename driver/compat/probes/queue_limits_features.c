// SPDX-License-Identifier: GPL-2.0
/*
 * probe: queue_limits_features
 * kernels: 6.11 and later
 * what: struct queue_limits, features included, is given to blk_mq_alloc_disk()
 *	and changed as a whole; before, each limit had a setter
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>

int probe(struct blk_mq_tag_set *set, struct request_queue *q)
{
	struct queue_limits lim = { .features = BLK_FEAT_WRITE_CACHE };
	struct gendisk *disk = blk_mq_alloc_disk(set, &lim, NULL);

	lim = queue_limits_start_update(q);
	return disk ? queue_limits_commit_update_frozen(q, &lim) : 0;
}
