// SPDX-License-Identifier: GPL-2.0
/*
 * probe: control_fail_symbol
 * kernels: none
 * what: calls a function that no kernel has; stops the build if it passes,
 *	as all probes for functions then would
 */
#include <linux/blk-mq.h>

void probe(struct blk_mq_tag_set *set)
{
	rflash_no_kernel_has_this_function(set);
}
