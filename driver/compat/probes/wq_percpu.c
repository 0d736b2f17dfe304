// SPDX-License-Identifier: GPL-2.0
/*
 * probe: wq_percpu
 * kernels: 6.18 and later, and the stable kernels that have it too
 * what: a work queue that is not unbound has to say so
 */
#include <linux/workqueue.h>

unsigned int probe = WQ_PERCPU;
