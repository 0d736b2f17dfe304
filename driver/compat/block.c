// SPDX-License-Identifier: GPL-2.0
/*
 * The block layer of older kernels, made to look like the newest one's.
 */
#include <linux/log2.h>
#include <linux/mutex.h>

#if !RFLASH_HAS_QUEUE_LIMITS_FEATURES

/*
 * One update of limits at a time, from start to commit or cancel. Newer kernels
 * have a lock per queue; updates are rare enough to share one.
 */
static DEFINE_MUTEX(rflash_limits_lock);

static bool rflash_limits_valid(const struct rflash_compat_limits *lim)
{
	unsigned int lbs = lim->logical_block_size;

	if (lbs && (lbs < SECTOR_SIZE || lbs > PAGE_SIZE || !is_power_of_2(lbs)))
		return false;
	if (lim->physical_block_size > lbs &&
	    !is_power_of_2(lim->physical_block_size))
		return false;
	if (lim->max_hw_sectors && lim->max_hw_sectors < PAGE_SECTORS)
		return false;
	return true;
}

static void rflash_limits_set_flag(struct request_queue *q, unsigned int flag,
				   bool on)
{
	if (on)
		blk_queue_flag_set(flag, q);
	else
		blk_queue_flag_clear(flag, q);
}

static void rflash_limits_apply(struct request_queue *q,
				const struct rflash_compat_limits *lim)
{
	unsigned int lbs = lim->logical_block_size ?: SECTOR_SIZE;
	unsigned int pbs = max(lim->physical_block_size, lbs);

	blk_queue_logical_block_size(q, lbs);
	blk_queue_physical_block_size(q, pbs);
	blk_queue_io_min(q, max(lim->io_min, pbs));
	blk_queue_io_opt(q, round_down(lim->io_opt, pbs));
	blk_queue_max_hw_sectors(q, lim->max_hw_sectors ?: BLK_SAFE_MAX_SECTORS);
	blk_queue_chunk_sectors(q, lim->chunk_sectors);

	blk_queue_max_segments(q, lim->max_segments ?: BLK_MAX_SEGMENTS);
	blk_queue_segment_boundary(q, lim->seg_boundary_mask ?:
				   BLK_SEG_BOUNDARY_MASK);
	blk_queue_virt_boundary(q, lim->virt_boundary_mask);
	if (!lim->virt_boundary_mask)
		blk_queue_max_segment_size(q, lim->max_segment_size ?:
					   BLK_MAX_SEGMENT_SIZE);
	blk_queue_dma_alignment(q, lim->dma_alignment ?: SECTOR_SIZE - 1);

	blk_queue_max_discard_sectors(q, lim->max_hw_discard_sectors);
	blk_queue_max_discard_segments(q, lim->max_discard_segments ?: 1);
	q->limits.discard_granularity = lim->max_hw_discard_sectors ?
		max(lim->discard_granularity, pbs) : 0;
	blk_queue_max_write_zeroes_sectors(q, lim->max_write_zeroes_sectors);

	rflash_limits_set_flag(q, QUEUE_FLAG_NONROT,
			       !(lim->features & BLK_FEAT_ROTATIONAL));
	rflash_limits_set_flag(q, QUEUE_FLAG_ADD_RANDOM,
			       lim->features & BLK_FEAT_ADD_RANDOM);
	rflash_limits_set_flag(q, QUEUE_FLAG_STABLE_WRITES,
			       lim->features & BLK_FEAT_STABLE_WRITES);
	blk_queue_write_cache(q, lim->features & BLK_FEAT_WRITE_CACHE,
			      lim->features & BLK_FEAT_FUA);
}

/**
 * rflash_compat_alloc_disk - blk_mq_alloc_disk() with limits
 * @set: the tag set
 * @lim: limits, or NULL for the defaults
 * @queuedata: for the driver
 * @lkclass: lock class of the disk
 *
 * Return: the disk, or an error pointer.
 */
struct gendisk *rflash_compat_alloc_disk(struct blk_mq_tag_set *set,
					 const struct rflash_compat_limits *lim,
					 void *queuedata,
					 struct lock_class_key *lkclass)
{
	const struct rflash_compat_limits defaults = { };
	struct gendisk *disk;

	if (!lim)
		lim = &defaults;
	if (!rflash_limits_valid(lim))
		return ERR_PTR(-EINVAL);
	disk = __blk_mq_alloc_disk(set, queuedata, lkclass);
	if (!IS_ERR(disk))
		rflash_limits_apply(disk->queue, lim);
	return disk;
}

/**
 * rflash_compat_limits_start - begin an update of a live queue's limits
 * @q: the queue
 *
 * Return: the present limits, to be changed and handed to
 * rflash_compat_limits_commit(), or to be dropped with
 * rflash_compat_limits_cancel().
 */
struct rflash_compat_limits rflash_compat_limits_start(struct request_queue *q)
{
	struct rflash_compat_limits lim = { };

	mutex_lock(&rflash_limits_lock);
	lim.seg_boundary_mask = q->limits.seg_boundary_mask;
	lim.virt_boundary_mask = q->limits.virt_boundary_mask;
	lim.max_hw_sectors = q->limits.max_hw_sectors;
	lim.chunk_sectors = q->limits.chunk_sectors;
	lim.max_segment_size = q->limits.max_segment_size;
	lim.physical_block_size = q->limits.physical_block_size;
	lim.logical_block_size = q->limits.logical_block_size;
	lim.io_min = q->limits.io_min;
	lim.io_opt = q->limits.io_opt;
	lim.max_hw_discard_sectors = q->limits.max_hw_discard_sectors;
	lim.max_write_zeroes_sectors = q->limits.max_write_zeroes_sectors;
	lim.discard_granularity = q->limits.discard_granularity;
	lim.dma_alignment = q->limits.dma_alignment;
	lim.max_segments = q->limits.max_segments;
	lim.max_discard_segments = q->limits.max_discard_segments;
	if (test_bit(QUEUE_FLAG_WC, &q->queue_flags))
		lim.features |= BLK_FEAT_WRITE_CACHE;
	if (test_bit(QUEUE_FLAG_FUA, &q->queue_flags))
		lim.features |= BLK_FEAT_FUA;
	if (!test_bit(QUEUE_FLAG_NONROT, &q->queue_flags))
		lim.features |= BLK_FEAT_ROTATIONAL;
	if (test_bit(QUEUE_FLAG_ADD_RANDOM, &q->queue_flags))
		lim.features |= BLK_FEAT_ADD_RANDOM;
	if (test_bit(QUEUE_FLAG_STABLE_WRITES, &q->queue_flags))
		lim.features |= BLK_FEAT_STABLE_WRITES;
	return lim;
}

/**
 * rflash_compat_limits_commit - finish an update with the queue frozen
 * @q: the queue
 * @lim: the new limits
 *
 * Return: 0, or -EINVAL with the limits unchanged.
 */
int rflash_compat_limits_commit(struct request_queue *q,
				const struct rflash_compat_limits *lim)
{
	int ret = -EINVAL;

	if (rflash_limits_valid(lim)) {
		blk_mq_freeze_queue(q);
		rflash_limits_apply(q, lim);
		blk_mq_unfreeze_queue(q);
		ret = 0;
	}
	mutex_unlock(&rflash_limits_lock);
	return ret;
}

/**
 * rflash_compat_limits_cancel - give up an update
 * @q: the queue
 */
void rflash_compat_limits_cancel(struct request_queue *q)
{
	mutex_unlock(&rflash_limits_lock);
}

#endif
