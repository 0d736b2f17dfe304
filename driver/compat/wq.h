/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Work queues.
 */
#ifndef _RFLASH_COMPAT_WQ_H
#define _RFLASH_COMPAT_WQ_H

#include <linux/workqueue.h>

#if !RFLASH_HAS_WQ_PERCPU
/* What was not WQ_UNBOUND was per CPU. */
#define WQ_PERCPU	0
#endif

#endif /* _RFLASH_COMPAT_WQ_H */
