/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Formatted extended acks, as long as they need to be.
 *
 * Kernels before 6.3 have none, later ones cut them off after 79 characters,
 * which is short for a sentence that names an NQN. So on all kernels the macros
 * are replaced by ones that keep the text in buffers of ours.
 */
#ifndef _RFLASH_COMPAT_EXTACK_H
#define _RFLASH_COMPAT_EXTACK_H

#include <linux/netlink.h>

__printf(1, 2) const char *rflash_compat_extack_text(const char *fmt, ...);

#undef NL_SET_ERR_MSG_FMT
#define NL_SET_ERR_MSG_FMT(extack, fmt, args...) do {			\
	struct netlink_ext_ack *__extack = (extack);			\
									\
	if (__extack)							\
		__extack->_msg = rflash_compat_extack_text(fmt, ##args);\
} while (0)

#undef NL_SET_ERR_MSG_ATTR_FMT
#define NL_SET_ERR_MSG_ATTR_FMT(extack, attr, fmt, args...) do {	\
	struct netlink_ext_ack *__extack = (extack);			\
									\
	if (__extack) {							\
		__extack->_msg = rflash_compat_extack_text(fmt, ##args);\
		__extack->bad_attr = (attr);				\
		__extack->policy = NULL;				\
	}								\
} while (0)

#endif /* _RFLASH_COMPAT_EXTACK_H */
