/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Generic netlink.
 */
#ifndef _RFLASH_COMPAT_GENL_H
#define _RFLASH_COMPAT_GENL_H

#if !RFLASH_HAS_GENL_INFO_DUMP
/* Not a struct genl_info, but it has attrs, which is all there is to use. */
#define genl_info_dump(cb)	genl_dumpit_info(cb)
#endif

#endif /* _RFLASH_COMPAT_GENL_H */
