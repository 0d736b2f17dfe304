// SPDX-License-Identifier: GPL-2.0
/*
 * Makes trouble on request, so that the guest lab's own tests can see whether
 * it is noticed.
 */
#include <linux/bug.h>
#include <linux/module.h>
#include <linux/slab.h>

static char *kind = "none";
module_param(kind, charp, 0444);
MODULE_PARM_DESC(kind, "what to do on loading: none, warn, oops or bug");

static int __init lab_trouble_init(void)
{
	if (!strcmp(kind, "warn")) {
		WARN(1, "lab_trouble: a warning, as asked for\n");
	} else if (!strcmp(kind, "oops")) {
		int *nowhere = (int *)8;

		OPTIMIZER_HIDE_VAR(nowhere);
		*nowhere = 1;
	} else if (!strcmp(kind, "bug")) {
		BUG();
	} else if (strcmp(kind, "none")) {
		pr_err("lab_trouble: kind can be none, warn, oops or bug, not '%s'\n", kind);
		return -EINVAL;
	}
	return 0;
}
module_init(lab_trouble_init);

static void __exit lab_trouble_exit(void)
{
}
module_exit(lab_trouble_exit);

MODULE_DESCRIPTION("Trouble on request, for the guest lab's own tests");
MODULE_LICENSE("GPL");
