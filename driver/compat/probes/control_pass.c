// SPDX-License-Identifier: GPL-2.0
/*
 * probe: control_pass
 * kernels: all
 * what: passes wherever the compiler and the kernel's headers work at all;
 *	stops the build if it does not
 */
#include <linux/blk-mq.h>
#include <net/tcp.h>

static unsigned int probe(struct blk_mq_tag_set *set)
{
	return set->nr_hw_queues;
}

unsigned int (*probe_user)(struct blk_mq_tag_set *) = probe;
