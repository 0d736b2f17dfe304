/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a tenant is promised, and its bytes on the wire: pure functions, callable
 * from any context. Nothing from the peer is believed before it is checked.
 */
#ifndef _RFLASH_TENANT_H
#define _RFLASH_TENANT_H

#include <linux/types.h>

#include "uapi/rflash.h"
#include "wire.h"

#define RFLASH_TENANT_TEXT_LEN	96

/**
 * struct rflash_tenant - a promise, asked for or made
 * @class: RFLASH_TENANT_NONE: nothing else counts
 * @p95_us: latency-critical: p95 of the latency of reads in microseconds
 * @iops: latency-critical: reads and writes per second
 * @read_pct: latency-critical: reads among them, 0 to 100 %
 * @block: latency-critical: bytes of each
 * @weight: best-effort: share of what is left
 */
struct rflash_tenant {
	enum rflash_tenant_class class;
	u32 p95_us;
	u32 iops;
	u32 read_pct;
	u32 block;
	u32 weight;
};

void rflash_tenant_encode(const struct rflash_tenant *tenant,
			  struct rflash_tenant_data *data);
const char *rflash_tenant_decode(const struct rflash_tenant_data *data,
				 struct rflash_tenant *tenant, u32 *value);
u16 rflash_tenant_version(const struct rflash_signature *signature);
void rflash_tenant_text(const struct rflash_tenant *tenant,
			char text[RFLASH_TENANT_TEXT_LEN]);

#endif /* _RFLASH_TENANT_H */
