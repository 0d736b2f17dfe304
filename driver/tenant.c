// SPDX-License-Identifier: GPL-2.0
/*
 * Tenants on the wire, see tenant.h.
 */
#include <linux/kernel.h>
#include <linux/string.h>

#include "tenant.h"

/**
 * rflash_tenant_encode - the data of Tenant Set
 * @tenant: of a class, with its numbers in their ranges
 * @data: all of it is written
 */
void rflash_tenant_encode(const struct rflash_tenant *tenant,
			  struct rflash_tenant_data *data)
{
	memset(data, 0, sizeof(*data));
	data->version = RFLASH_TENANT_VERSION;
	data->class = tenant->class;
	if (tenant->class == RFLASH_TENANT_LATENCY_CRITICAL) {
		data->read_pct = tenant->read_pct;
		data->p95_us = cpu_to_le32(tenant->p95_us);
		data->iops = cpu_to_le32(tenant->iops);
		data->block = cpu_to_le32(tenant->block);
	} else {
		data->weight = cpu_to_le32(tenant->weight);
	}
}

/* Reserved bytes get a meaning one day: all of them, or-ed. */
static u8 rflash_tenant_reserved(const struct rflash_tenant_data *data)
{
	u8 all = data->reserved3;
	size_t i;

	for (i = 0; i < sizeof(data->reserved20); i++)
		all |= data->reserved20[i];
	return all;
}

static const char *rflash_tenant_check_critical(const struct rflash_tenant *t,
						u32 *value)
{
	const struct {
		const char *name;
		u32 value;
		bool good;
	} fields[] = {
		{ "weight", t->weight, !t->weight },
		{ "p95_us", t->p95_us, t->p95_us },
		{ "iops", t->iops, t->iops },
		{ "read_pct", t->read_pct, t->read_pct <= 100 },
		{ "block", t->block, t->block >= RFLASH_TENANT_BLOCK_MIN &&
		  t->block <= RFLASH_TENANT_BLOCK_MAX &&
		  t->block % RFLASH_TENANT_BLOCK_MIN == 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		*value = fields[i].value;
		if (!fields[i].good)
			return fields[i].name;
	}
	return NULL;
}

static const char *rflash_tenant_check_best(const struct rflash_tenant *t,
					    u32 *value)
{
	const struct {
		const char *name;
		u32 value;
	} zeroes[] = {
		{ "read_pct", t->read_pct },
		{ "p95_us", t->p95_us },
		{ "iops", t->iops },
		{ "block", t->block },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(zeroes); i++) {
		*value = zeroes[i].value;
		if (*value)
			return zeroes[i].name;
	}
	*value = t->weight;
	return *value ? NULL : "weight";
}

/**
 * rflash_tenant_decode - check and decode the data of Tenant Get
 * @data: the data
 * @tenant: filled in; of use only if nothing is wrong
 * @value: what is in the field that is wrong
 *
 * Return: NULL, or the name of the first field that is wrong, a constant.
 */
const char *rflash_tenant_decode(const struct rflash_tenant_data *data,
				 struct rflash_tenant *tenant, u32 *value)
{
	*value = data->version;
	if (*value != RFLASH_TENANT_VERSION)
		return "version";
	*value = rflash_tenant_reserved(data);
	if (*value)
		return "reserved";

	tenant->class = data->class;
	tenant->read_pct = data->read_pct;
	tenant->p95_us = le32_to_cpu(data->p95_us);
	tenant->iops = le32_to_cpu(data->iops);
	tenant->block = le32_to_cpu(data->block);
	tenant->weight = le32_to_cpu(data->weight);
	switch (data->class) {
	case RFLASH_TENANT_LATENCY_CRITICAL:
		return rflash_tenant_check_critical(tenant, value);
	case RFLASH_TENANT_BEST_EFFORT:
		return rflash_tenant_check_best(tenant, value);
	default:
		*value = data->class;
		return "class";
	}
}

/**
 * rflash_tenant_version - whether a controller has the tenant commands
 * @signature: the head of the vendor's area of Identify Controller
 *
 * Return: the highest version that it has; 0: the commands must not be sent.
 */
u16 rflash_tenant_version(const struct rflash_signature *signature)
{
	if (memcmp(signature->magic, RFLASH_SIGNATURE_MAGIC,
		   sizeof(signature->magic)))
		return 0;
	return le16_to_cpu(signature->version);
}

/**
 * rflash_tenant_text - a promise in words and numbers
 * @tenant: the promise
 * @text: where to
 */
void rflash_tenant_text(const struct rflash_tenant *tenant,
			char text[RFLASH_TENANT_TEXT_LEN])
{
	switch (tenant->class) {
	case RFLASH_TENANT_LATENCY_CRITICAL:
		snprintf(text, RFLASH_TENANT_TEXT_LEN,
			 "latency-critical p95_us=%u iops=%u read_pct=%u block=%u",
			 tenant->p95_us, tenant->iops, tenant->read_pct,
			 tenant->block);
		break;
	case RFLASH_TENANT_BEST_EFFORT:
		snprintf(text, RFLASH_TENANT_TEXT_LEN, "best-effort weight=%u",
			 tenant->weight);
		break;
	default:
		strscpy(text, "none", RFLASH_TENANT_TEXT_LEN);
		break;
	}
}
