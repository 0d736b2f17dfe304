// SPDX-License-Identifier: GPL-2.0
/*
 * probe: control_fail_type
 * kernels: none
 * what: a callback of the wrong type; stops the build if it passes, as all
 *	probes for prototypes then would
 */
#include <linux/blk-mq.h>

static long probe(int unrelated)
{
	return unrelated;
}

const struct blk_mq_ops probe_ops = {
	.queue_rq = probe,
};
