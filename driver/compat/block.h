/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The block layer.
 */
#ifndef _RFLASH_COMPAT_BLOCK_H
#define _RFLASH_COMPAT_BLOCK_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>

/* The last argument of blk_mq_ops.init_request. */
#if RFLASH_HAS_INIT_REQUEST_INT
#define rflash_compat_numa_node_t	int
#else
#define rflash_compat_numa_node_t	unsigned int
#endif

/* What blk_mq_tag_set.flags needs for what later kernels do unasked. */
#if RFLASH_HAS_BLK_MQ_F_SHOULD_MERGE
#define RFLASH_COMPAT_MQ_FLAGS	BLK_MQ_F_SHOULD_MERGE
#else
#define RFLASH_COMPAT_MQ_FLAGS	0
#endif

#if !RFLASH_HAS_QUEUE_LIMITS_FEATURES

typedef unsigned int __bitwise blk_features_t;	/* as the kernel has it */

#define BLK_FEAT_WRITE_CACHE	((__force blk_features_t)(1u << 0))
#define BLK_FEAT_FUA		((__force blk_features_t)(1u << 1))
#define BLK_FEAT_ROTATIONAL	((__force blk_features_t)(1u << 2))
#define BLK_FEAT_ADD_RANDOM	((__force blk_features_t)(1u << 3))
#define BLK_FEAT_STABLE_WRITES	((__force blk_features_t)(1u << 5))

/*
 * Queue limits as later kernels have them: the fields of struct queue_limits
 * that a driver sets. Each means what it means there, and 0 the block layer's
 * default.
 */
struct rflash_compat_limits {
	blk_features_t features;
	unsigned long seg_boundary_mask;
	unsigned long virt_boundary_mask;
	unsigned int max_hw_sectors;
	unsigned int chunk_sectors;
	unsigned int max_segment_size;
	unsigned int physical_block_size;
	unsigned int logical_block_size;
	unsigned int io_min;
	unsigned int io_opt;
	unsigned int max_hw_discard_sectors;
	unsigned int max_write_zeroes_sectors;
	unsigned int discard_granularity;
	unsigned int dma_alignment;
	unsigned short max_segments;
	unsigned short max_discard_segments;
};

struct gendisk *rflash_compat_alloc_disk(struct blk_mq_tag_set *set,
					 const struct rflash_compat_limits *lim,
					 void *queuedata,
					 struct lock_class_key *lkclass);
struct rflash_compat_limits
rflash_compat_limits_start(struct request_queue *q);
int rflash_compat_limits_commit(struct request_queue *q,
				const struct rflash_compat_limits *lim);
void rflash_compat_limits_cancel(struct request_queue *q);

/* From here on: the kernel's own declarations are all above. */
#define queue_limits	rflash_compat_limits

#undef blk_mq_alloc_disk
#define blk_mq_alloc_disk(set, lim, queuedata)				\
({									\
	static struct lock_class_key __key;				\
									\
	rflash_compat_alloc_disk(set, lim, queuedata, &__key);		\
})

#define queue_limits_start_update		rflash_compat_limits_start
#define queue_limits_commit_update_frozen	rflash_compat_limits_commit
#define queue_limits_cancel_update		rflash_compat_limits_cancel

#endif /* !RFLASH_HAS_QUEUE_LIMITS_FEATURES */

#endif /* _RFLASH_COMPAT_BLOCK_H */
