/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bio vectors.
 */
#ifndef _RFLASH_COMPAT_BVEC_H
#define _RFLASH_COMPAT_BVEC_H

#include <linux/bvec.h>
#include <linux/mm.h>

#if !RFLASH_HAS_BVEC_SET_VIRT
static inline void bvec_set_virt(struct bio_vec *bv, void *vaddr,
				 unsigned int len)
{
	bv->bv_page = virt_to_page(vaddr);
	bv->bv_len = len;
	bv->bv_offset = offset_in_page(vaddr);
}
#endif

#endif /* _RFLASH_COMPAT_BVEC_H */
