// SPDX-License-Identifier: GPL-2.0
/*
 * probe: bvec_set_virt
 * kernels: 6.3 and later
 * what: a helper that makes a bio vector of an address
 */
#include <linux/bvec.h>

void probe(struct bio_vec *bv, void *vaddr)
{
	bvec_set_virt(bv, vaddr, 1);
}
