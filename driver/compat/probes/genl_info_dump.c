// SPDX-License-Identifier: GPL-2.0
/*
 * probe: genl_info_dump
 * kernels: 6.6 and later
 * what: a dump has a struct genl_info, as other requests have; before, its
 *	attributes are in struct genl_dumpit_info
 */
#include <net/genetlink.h>

struct nlattr *probe(struct netlink_callback *cb)
{
	return genl_info_dump(cb)->attrs[1];
}
