// SPDX-License-Identifier: GPL-2.0
/*
 * probe: quiesce_tagset
 * kernels: 6.2 and later
 * what: all queues of a tag set can be quiesced with one grace period
 */
#include <linux/blk-mq.h>

void probe(struct blk_mq_tag_set *set)
{
	blk_mq_quiesce_tagset(set);
	blk_mq_unquiesce_tagset(set);
}
