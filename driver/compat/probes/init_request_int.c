// SPDX-License-Identifier: GPL-2.0
/*
 * probe: init_request_int
 * kernels: 7.1 and later
 * what: the last argument of blk_mq_ops.init_request, the NUMA node, is an int;
 *	before, it was unsigned
 */
#include <linux/blk-mq.h>

static int probe(struct blk_mq_tag_set *set, struct request *rq,
		 unsigned int hctx_idx, int numa_node)
{
	return 0;
}

const struct blk_mq_ops probe_ops = {
	.init_request = probe,
};
