// SPDX-License-Identifier: GPL-2.0
/*
 * rflash: remote flash as block devices, over standard NVMe over Fabrics.
 */
#define pr_fmt(fmt) "rflash: " fmt

#include <linux/module.h>
#include <net/genetlink.h>

#include "rflash.h"

static int __init rflash_init(void)
{
	int ret;

	ret = rflash_ctrl_init();
	if (ret)
		return ret;
	ret = rflash_tcp_init();
	if (ret)
		goto exit_ctrl;
	ret = rflash_control_init();
	if (ret)
		goto exit_tcp;
	return 0;

exit_tcp:
	rflash_tcp_exit();
exit_ctrl:
	rflash_ctrl_exit();
	return ret;
}

static void __exit rflash_exit(void)
{
	rflash_control_exit();
	rflash_ctrl_delete_all();
	rflash_tcp_exit();
	rflash_ctrl_exit();
}

module_init(rflash_init);
module_exit(rflash_exit);

MODULE_DESCRIPTION("Remote flash over NVMe/TCP");
MODULE_AUTHOR("rflash maintainers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
MODULE_ALIAS_GENL_FAMILY(RFLASH_GENL_NAME);
