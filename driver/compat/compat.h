/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included in front of every source file, which is written for the newest
 * supported kernel: what older ones lack or have differently is made up for
 * here and nowhere else. See README.rst.
 */
#ifndef _RFLASH_COMPAT_H
#define _RFLASH_COMPAT_H

/* The probes see the kernel as it is. */
#ifndef RFLASH_COMPAT_PROBE

#include "rflash_features.h"

/*
 * The headers below bring in printk.h, which wants this before anything else.
 * A source file may say the same again.
 */
#define pr_fmt(fmt) "rflash: " fmt

#include "block.h"
#include "bvec.h"
#include "extack.h"
#include "genl.h"
#include "socket.h"
#include "wq.h"

#endif /* RFLASH_COMPAT_PROBE */
#endif /* _RFLASH_COMPAT_H */
