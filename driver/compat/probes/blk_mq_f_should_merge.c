// SPDX-License-Identifier: GPL-2.0
/*
 * probe: blk_mq_f_should_merge
 * kernels: before 6.14
 * what: merging has to be asked for with a flag; later it is always on
 */
#include <linux/blk-mq.h>

unsigned int probe = BLK_MQ_F_SHOULD_MERGE;
