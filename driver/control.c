// SPDX-License-Identifier: GPL-2.0
/*
 * Control by generic netlink. The interface is documented in uapi/rflash.h.
 */
#define pr_fmt(fmt) "rflash: " fmt

#include <linux/blkdev.h>
#include <linux/capability.h>
#include <linux/cpumask.h>
#include <linux/slab.h>
#include <net/genetlink.h>
#include <net/sock.h>

#include "rflash.h"

static struct genl_family rflash_family;
static bool rflash_registered;

static const struct nla_policy rflash_connect_policy[RFLASH_A_MAX + 1] = {
	[RFLASH_A_TRANSPORT]	    = { .type = NLA_NUL_STRING, .len = 15 },
	[RFLASH_A_TRADDR]	    = { .type = NLA_NUL_STRING, .len = 63 },
	[RFLASH_A_TRSVCID]	    = { .type = NLA_NUL_STRING, .len = 15 },
	[RFLASH_A_HOST_TRADDR]	    = { .type = NLA_NUL_STRING, .len = 63 },
	[RFLASH_A_SUBSYS_NQN]	    = { .type = NLA_NUL_STRING, .len = RFLASH_NQN_MAX },
	[RFLASH_A_HOST_NQN]	    = { .type = NLA_NUL_STRING, .len = RFLASH_NQN_MAX },
	[RFLASH_A_HOST_ID]	    = NLA_POLICY_EXACT_LEN(RFLASH_HOSTID_LEN),
	[RFLASH_A_NR_IO_QUEUES]	    = { .type = NLA_U32 },
	[RFLASH_A_QUEUE_SIZE]	    = { .type = NLA_U32 },
	[RFLASH_A_KATO]		    = { .type = NLA_U32 },
	[RFLASH_A_RECONNECT_DELAY]  = { .type = NLA_U32 },
	[RFLASH_A_CTRL_LOSS_TMO]    = { .type = NLA_S32 },
	[RFLASH_A_FAST_IO_FAIL_TMO] = { .type = NLA_S32 },
	[RFLASH_A_HDR_DIGEST]	    = { .type = NLA_FLAG },
	[RFLASH_A_DATA_DIGEST]	    = { .type = NLA_FLAG },
	[RFLASH_A_TENANT_CLASS]	    = { .type = NLA_U32 },
	[RFLASH_A_TENANT_P95_US]    = { .type = NLA_U32 },
	[RFLASH_A_TENANT_IOPS]	    = { .type = NLA_U32 },
	[RFLASH_A_TENANT_READ_PCT]  = { .type = NLA_U32 },
	[RFLASH_A_TENANT_BLOCK]	    = { .type = NLA_U32 },
	[RFLASH_A_TENANT_WEIGHT]    = { .type = NLA_U32 },
};

static const struct nla_policy rflash_id_policy[RFLASH_A_MAX + 1] = {
	[RFLASH_A_CTRL_ID] = { .type = NLA_U32 },
};

static const struct nla_policy rflash_stats_policy[RFLASH_A_MAX + 1] = {
	[RFLASH_A_NS_INSTANCE] = { .type = NLA_U32 },
};

/* A string attribute as a copy of our own; one that must not be empty. */
static int rflash_get_string(struct genl_info *info, int type, const char *name,
			     bool required, char **to)
{
	struct nlattr *attr = info->attrs[type];

	if (!attr) {
		if (!required)
			return 0;
		NL_SET_ERR_MSG_FMT(info->extack, "%s is missing", name);
		return -EINVAL;
	}
	if (nla_len(attr) < 2) {
		NL_SET_ERR_MSG_ATTR_FMT(info->extack, attr, "%s is empty", name);
		return -EINVAL;
	}
	*to = nla_strdup(attr, GFP_KERNEL);
	return *to ? 0 : -ENOMEM;
}

static int rflash_get_number(struct genl_info *info, int type, const char *name,
			     s64 min, s64 max, s64 fallback, s64 *to)
{
	struct nlattr *attr = info->attrs[type];

	*to = fallback;
	if (!attr)
		return 0;
	*to = min < 0 ? (s64)nla_get_s32(attr) : (s64)nla_get_u32(attr);
	if (*to < min || *to > max) {
		NL_SET_ERR_MSG_ATTR_FMT(info->extack, attr,
					"%s is %lld, it must be %lld to %lld",
					name, *to, min, max);
		return -EINVAL;
	}
	return 0;
}

static int rflash_get_strings(struct genl_info *info, struct rflash_opts *opts)
{
	int ret;

	ret = rflash_get_string(info, RFLASH_A_TRADDR, "the target's address",
				true, &opts->traddr);
	if (!ret)
		ret = rflash_get_string(info, RFLASH_A_TRSVCID, "the port",
					false, &opts->trsvcid);
	if (!ret)
		ret = rflash_get_string(info, RFLASH_A_HOST_TRADDR,
					"the host's address", false,
					&opts->host_traddr);
	if (!ret)
		ret = rflash_get_string(info, RFLASH_A_SUBSYS_NQN,
					"the subsystem NQN", true,
					&opts->subsys_nqn);
	if (!ret)
		ret = rflash_get_string(info, RFLASH_A_HOST_NQN, "the host NQN",
					true, &opts->host_nqn);
	if (ret)
		return ret;
	if (!opts->trsvcid) {
		opts->trsvcid = kstrdup(RFLASH_TCP_PORT, GFP_KERNEL);
		if (!opts->trsvcid)
			return -ENOMEM;
	}
	return 0;
}

static int rflash_get_numbers(struct genl_info *info, struct rflash_opts *opts)
{
	u32 cpus = num_online_cpus();
	s64 queues, size, kato, delay, loss, fast;
	int ret;

	ret = rflash_get_number(info, RFLASH_A_NR_IO_QUEUES,
				"the number of I/O queues", 1, cpus, cpus,
				&queues);
	if (!ret)
		ret = rflash_get_number(info, RFLASH_A_QUEUE_SIZE,
					"the queue size", RFLASH_QUEUE_SIZE_MIN,
					RFLASH_QUEUE_SIZE_MAX,
					RFLASH_QUEUE_SIZE_DEFAULT, &size);
	if (!ret)
		ret = rflash_get_number(info, RFLASH_A_KATO, "kato", 0,
					RFLASH_KATO_MAX, RFLASH_KATO_DEFAULT,
					&kato);
	if (!ret)
		ret = rflash_get_number(info, RFLASH_A_RECONNECT_DELAY,
					"reconnect_delay", 1,
					RFLASH_RECONNECT_DELAY_MAX,
					RFLASH_RECONNECT_DELAY_DEFAULT, &delay);
	if (!ret)
		ret = rflash_get_number(info, RFLASH_A_CTRL_LOSS_TMO,
					"ctrl_loss_tmo", -1, RFLASH_TMO_MAX,
					RFLASH_CTRL_LOSS_TMO_DEFAULT, &loss);
	if (!ret)
		ret = rflash_get_number(info, RFLASH_A_FAST_IO_FAIL_TMO,
					"fast_io_fail_tmo", -1, RFLASH_TMO_MAX,
					RFLASH_FAST_IO_FAIL_TMO_DEFAULT, &fast);
	if (ret)
		return ret;
	if (loss >= 0 && fast > loss) {
		NL_SET_ERR_MSG_ATTR_FMT(info->extack,
					info->attrs[RFLASH_A_FAST_IO_FAIL_TMO],
					"fast_io_fail_tmo is %lld, it must not exceed ctrl_loss_tmo, which is %lld",
					fast, loss);
		return -EINVAL;
	}
	opts->nr_io_queues = queues;
	opts->queue_size = size;
	opts->kato = kato;
	opts->reconnect_delay = delay;
	opts->ctrl_loss_tmo = loss;
	opts->fast_io_fail_tmo = fast;
	return 0;
}

/* What goes with a class, and which numbers it must have. */
static const struct rflash_tenant_attr {
	int type;
	const char *name;
	enum rflash_tenant_class class;
	bool required;
	u32 min, max, fallback;
	size_t offset;			/* in struct rflash_tenant, a u32 */
} rflash_tenant_attrs[] = {
	{ RFLASH_A_TENANT_P95_US, "the p95 latency",
	  RFLASH_TENANT_LATENCY_CRITICAL, true, 1, RFLASH_TENANT_P95_MAX, 0,
	  offsetof(struct rflash_tenant, p95_us) },
	{ RFLASH_A_TENANT_IOPS, "the IOPS",
	  RFLASH_TENANT_LATENCY_CRITICAL, true, 1, RFLASH_TENANT_IOPS_MAX, 0,
	  offsetof(struct rflash_tenant, iops) },
	{ RFLASH_A_TENANT_READ_PCT, "the share of reads",
	  RFLASH_TENANT_LATENCY_CRITICAL, true, 0, 100, 0,
	  offsetof(struct rflash_tenant, read_pct) },
	{ RFLASH_A_TENANT_BLOCK, "the block size",
	  RFLASH_TENANT_LATENCY_CRITICAL, false, RFLASH_TENANT_BLOCK_MIN,
	  RFLASH_TENANT_BLOCK_MAX, RFLASH_TENANT_BLOCK_DEFAULT,
	  offsetof(struct rflash_tenant, block) },
	{ RFLASH_A_TENANT_WEIGHT, "the weight",
	  RFLASH_TENANT_BEST_EFFORT, false, 1, RFLASH_TENANT_WEIGHT_MAX,
	  RFLASH_TENANT_WEIGHT_DEFAULT,
	  offsetof(struct rflash_tenant, weight) },
};

static int rflash_get_tenant_number(struct genl_info *info,
				    const struct rflash_tenant_attr *a,
				    struct rflash_tenant *tenant)
{
	struct nlattr *attr = info->attrs[a->type];
	s64 value;
	int ret;

	if (tenant->class != a->class) {
		if (!attr)
			return 0;
		NL_SET_ERR_MSG_ATTR_FMT(info->extack, attr,
					"%s is not for this class of tenant",
					a->name);
		return -EINVAL;
	}
	if (!attr && a->required) {
		NL_SET_ERR_MSG_FMT(info->extack, "%s of the tenant is missing",
				   a->name);
		return -EINVAL;
	}
	ret = rflash_get_number(info, a->type, a->name, a->min, a->max,
				a->fallback, &value);
	if (!ret)
		*(u32 *)((void *)tenant + a->offset) = value;
	return ret;
}

static int rflash_get_tenant(struct genl_info *info,
			     struct rflash_tenant *tenant)
{
	s64 class;
	size_t i;
	int ret;

	ret = rflash_get_number(info, RFLASH_A_TENANT_CLASS,
				"the class of the tenant",
				RFLASH_TENANT_LATENCY_CRITICAL,
				RFLASH_TENANT_BEST_EFFORT, RFLASH_TENANT_NONE,
				&class);
	tenant->class = class;
	for (i = 0; !ret && i < ARRAY_SIZE(rflash_tenant_attrs); i++)
		ret = rflash_get_tenant_number(info, &rflash_tenant_attrs[i],
					       tenant);
	if (!ret && tenant->block % RFLASH_TENANT_BLOCK_MIN) {
		NL_SET_ERR_MSG_ATTR_FMT(info->extack,
					info->attrs[RFLASH_A_TENANT_BLOCK],
					"the block size is %u, it must be a multiple of %u",
					tenant->block, RFLASH_TENANT_BLOCK_MIN);
		return -EINVAL;
	}
	return ret;
}

static int rflash_get_opts(struct genl_info *info, struct rflash_opts *opts)
{
	struct nlattr *transport = info->attrs[RFLASH_A_TRANSPORT];
	struct nlattr *host_id = info->attrs[RFLASH_A_HOST_ID];
	u16 port;
	int ret;

	if (!transport || nla_strcmp(transport, rflash_tcp_ops.name)) {
		NL_SET_ERR_MSG_ATTR_FMT(info->extack, transport,
					"the transport must be tcp");
		return -EINVAL;
	}
	if (!host_id ||
	    !memchr_inv(nla_data(host_id), 0, RFLASH_HOSTID_LEN)) {
		NL_SET_ERR_MSG_ATTR_FMT(info->extack, host_id,
					"the host id is missing or all zero, it must be a UUID");
		return -EINVAL;
	}
	import_uuid(&opts->host_id, nla_data(host_id));
	ret = rflash_get_strings(info, opts);
	if (ret)
		return ret;
	if (kstrtou16(opts->trsvcid, 10, &port) || !port) {
		NL_SET_ERR_MSG_ATTR_FMT(info->extack,
					info->attrs[RFLASH_A_TRSVCID],
					"the port is %s, it must be 1 to 65535",
					opts->trsvcid);
		return -EINVAL;
	}
	opts->hdr_digest = nla_get_flag(info->attrs[RFLASH_A_HDR_DIGEST]);
	opts->data_digest = nla_get_flag(info->attrs[RFLASH_A_DATA_DIGEST]);
	ret = rflash_get_tenant(info, &opts->tenant);
	return ret ? ret : rflash_get_numbers(info, opts);
}

static int rflash_put_ns(struct sk_buff *skb, struct rflash_ns *ns)
{
	struct nlattr *nest = nla_nest_start(skb, RFLASH_A_NS);

	if (!nest ||
	    nla_put_u32(skb, RFLASH_NS_A_INSTANCE, ns->instance) ||
	    nla_put_u32(skb, RFLASH_NS_A_NSID, ns->info.nsid) ||
	    nla_put_string(skb, RFLASH_NS_A_WWID, ns->info.wwid) ||
	    nla_put_u64_64bit(skb, RFLASH_NS_A_SIZE_BYTES,
			      ns->info.nr_lbas << ns->info.lba_shift,
			      RFLASH_NS_A_PAD) ||
	    nla_put_u32(skb, RFLASH_NS_A_BLOCK_SIZE, 1 << ns->info.lba_shift) ||
	    (ns->info.read_only && nla_put_flag(skb, RFLASH_NS_A_READ_ONLY)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int rflash_put_queue(struct sk_buff *skb, struct rflash_ctrl *ctrl,
			    u32 qid, struct cpumask *mask)
{
	struct rflash_queue_endpoint ep = { };
	char cpus[64] = "";
	struct nlattr *nest;
	u32 cpu;

	ctrl->ops->endpoint(ctrl->queues[qid], &ep);
	cpumask_clear(mask);
	for_each_possible_cpu(cpu)
		if (ctrl->tagset.map[HCTX_TYPE_DEFAULT].mq_map[cpu] == qid - 1)
			cpumask_set_cpu(cpu, mask);
	snprintf(cpus, sizeof(cpus), "%*pbl", cpumask_pr_args(mask));
	nest = nla_nest_start(skb, RFLASH_A_QUEUE);
	if (!nest ||
	    nla_put_u32(skb, RFLASH_QUEUE_A_QID, qid) ||
	    nla_put_string(skb, RFLASH_QUEUE_A_CPUS, cpus) ||
	    nla_put_string(skb, RFLASH_QUEUE_A_SRC_ADDR, ep.addr) ||
	    nla_put_u32(skb, RFLASH_QUEUE_A_SRC_PORT, ep.port))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int rflash_put_queues(struct sk_buff *skb, struct rflash_ctrl *ctrl)
{
	cpumask_var_t mask;
	int ret = 0;
	u32 qid;

	/* Not with the lock, which recovery needs: reclaim may wait for that. */
	if (!alloc_cpumask_var(&mask, GFP_KERNEL))
		return -ENOMEM;
	mutex_lock(&ctrl->connection_lock);
	/* Before there are tags, and after, there are no queues to speak of. */
	if (ctrl->tagset_ready)
		for (qid = 1; qid <= ctrl->nr_io_queues && !ret; qid++)
			ret = rflash_put_queue(skb, ctrl, qid, mask);
	mutex_unlock(&ctrl->connection_lock);
	free_cpumask_var(mask);
	return ret;
}

static int rflash_put_opts(struct sk_buff *skb, const struct rflash_ctrl *ctrl)
{
	const struct rflash_opts *opts = &ctrl->opts;

	if (nla_put_string(skb, RFLASH_A_TRANSPORT, ctrl->ops->name) ||
	    nla_put_string(skb, RFLASH_A_TRADDR, opts->traddr) ||
	    nla_put_string(skb, RFLASH_A_TRSVCID, opts->trsvcid) ||
	    (opts->host_traddr &&
	     nla_put_string(skb, RFLASH_A_HOST_TRADDR, opts->host_traddr)) ||
	    nla_put_string(skb, RFLASH_A_SUBSYS_NQN, opts->subsys_nqn) ||
	    nla_put_string(skb, RFLASH_A_HOST_NQN, opts->host_nqn) ||
	    nla_put(skb, RFLASH_A_HOST_ID, RFLASH_HOSTID_LEN,
		    opts->host_id.b) ||
	    nla_put_u32(skb, RFLASH_A_KATO, opts->kato) ||
	    nla_put_u32(skb, RFLASH_A_RECONNECT_DELAY, opts->reconnect_delay) ||
	    nla_put_s32(skb, RFLASH_A_CTRL_LOSS_TMO, opts->ctrl_loss_tmo) ||
	    nla_put_s32(skb, RFLASH_A_FAST_IO_FAIL_TMO,
			opts->fast_io_fail_tmo) ||
	    (opts->hdr_digest && nla_put_flag(skb, RFLASH_A_HDR_DIGEST)) ||
	    (opts->data_digest && nla_put_flag(skb, RFLASH_A_DATA_DIGEST)))
		return -EMSGSIZE;
	return 0;
}

static int rflash_put_promise(struct sk_buff *skb,
			      const struct rflash_tenant *tenant)
{
	size_t i;

	if (tenant->class == RFLASH_TENANT_NONE)
		return 0;
	if (nla_put_u32(skb, RFLASH_A_TENANT_CLASS, tenant->class))
		return -EMSGSIZE;
	for (i = 0; i < ARRAY_SIZE(rflash_tenant_attrs); i++) {
		const struct rflash_tenant_attr *a = &rflash_tenant_attrs[i];

		if (a->class == tenant->class &&
		    nla_put_u32(skb, a->type,
				*(const u32 *)((const void *)tenant + a->offset)))
			return -EMSGSIZE;
	}
	return 0;
}

static int rflash_put_tenant(struct sk_buff *skb, struct rflash_ctrl *ctrl)
{
	struct rflash_tenant granted;
	enum rflash_tenant_state state = rflash_ctrl_tenant(ctrl, &granted);
	struct nlattr *nest;

	if (rflash_put_promise(skb, &ctrl->opts.tenant) ||
	    nla_put_u32(skb, RFLASH_A_TENANT_STATE, state))
		return -EMSGSIZE;
	if (granted.class == RFLASH_TENANT_NONE)
		return 0;
	nest = nla_nest_start(skb, RFLASH_A_TENANT_GRANTED);
	if (!nest || rflash_put_promise(skb, &granted))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int rflash_put_identity(struct sk_buff *skb,
			       const struct rflash_ctrl *ctrl)
{
	if (nla_put_u32(skb, RFLASH_A_CTRL_ID, ctrl->id) ||
	    nla_put_u32(skb, RFLASH_A_NR_IO_QUEUES, ctrl->nr_io_queues) ||
	    nla_put_u32(skb, RFLASH_A_NR_POLL_QUEUES, 0) ||
	    nla_put_u32(skb, RFLASH_A_QUEUE_SIZE, ctrl->sqsize + 1) ||
	    nla_put_u32(skb, RFLASH_A_RECONNECTS, ctrl->reconnects) ||
	    nla_put_string(skb, RFLASH_A_MODEL, ctrl->model) ||
	    nla_put_string(skb, RFLASH_A_SERIAL, ctrl->serial) ||
	    nla_put_string(skb, RFLASH_A_FIRMWARE, ctrl->firmware) ||
	    nla_put_u32(skb, RFLASH_A_CNTLID, ctrl->cntlid))
		return -EMSGSIZE;
	return 0;
}

static int rflash_put_state(struct sk_buff *skb, struct rflash_ctrl *ctrl)
{
	char error[RFLASH_ERROR_LEN];
	unsigned long flags;
	u32 state;

	spin_lock_irqsave(&ctrl->lock, flags);
	state = ctrl->state;
	strscpy(error, ctrl->last_error, sizeof(error));
	spin_unlock_irqrestore(&ctrl->lock, flags);
	if (nla_put_u32(skb, RFLASH_A_STATE, state) ||
	    (error[0] && nla_put_string(skb, RFLASH_A_LAST_ERROR, error)))
		return -EMSGSIZE;
	return 0;
}

static int rflash_put_ctrl(struct sk_buff *skb, struct rflash_ctrl *ctrl)
{
	struct nlattr *nest = nla_nest_start(skb, RFLASH_A_CTRL);
	struct rflash_ns *ns;
	int ret = 0;

	if (!nest || rflash_put_identity(skb, ctrl) ||
	    rflash_put_opts(skb, ctrl) || rflash_put_state(skb, ctrl) ||
	    rflash_put_tenant(skb, ctrl))
		return -EMSGSIZE;

	mutex_lock(&ctrl->ns_lock);
	list_for_each_entry(ns, &ctrl->namespaces, entry) {
		if (!READ_ONCE(ns->removing))
			ret = rflash_put_ns(skb, ns);
		if (ret)
			break;
	}
	mutex_unlock(&ctrl->ns_lock);

	if (!ret)
		ret = rflash_put_queues(skb, ctrl);
	if (ret)
		return ret;
	nla_nest_end(skb, nest);
	return 0;
}

/* Room for all queues and namespaces of one controller. */
static size_t rflash_ctrl_msg_size(struct rflash_ctrl *ctrl)
{
	struct rflash_ns *ns;
	size_t size = NLMSG_GOODSIZE;

	mutex_lock(&ctrl->ns_lock);
	list_for_each_entry(ns, &ctrl->namespaces, entry)
		size += 64 + RFLASH_WWID_LEN;
	mutex_unlock(&ctrl->ns_lock);
	return size + ctrl->max_io_queues * 192;
}

static int rflash_reply_ctrl(struct genl_info *info, struct rflash_ctrl *ctrl)
{
	struct sk_buff *skb = genlmsg_new(rflash_ctrl_msg_size(ctrl), GFP_KERNEL);
	void *head;
	int ret;

	if (!skb)
		return -ENOMEM;
	head = genlmsg_put_reply(skb, info, &rflash_family, 0,
				 info->genlhdr->cmd);
	ret = head ? rflash_put_ctrl(skb, ctrl) : -EMSGSIZE;
	if (ret) {
		nlmsg_free(skb);
		return ret;
	}
	genlmsg_end(skb, head);
	return genlmsg_reply(skb, info);
}

/* Disks are for the whole machine, so CAP_NET_ADMIN is not enough. */
static int rflash_may_change(struct genl_info *info)
{
	if (capable(CAP_SYS_ADMIN))
		return 0;
	NL_SET_ERR_MSG_FMT(info->extack, "this needs CAP_SYS_ADMIN and CAP_NET_ADMIN");
	return -EPERM;
}

static int rflash_connect_doit(struct sk_buff *skb, struct genl_info *info)
{
	char error[RFLASH_ERROR_LEN] = "";
	struct rflash_opts opts = { };
	struct rflash_ctrl *ctrl;
	int ret;

	ret = rflash_may_change(info);
	if (ret)
		return ret;
	ret = rflash_get_opts(info, &opts);
	if (ret) {
		rflash_opts_free(&opts);
		return ret;
	}
	ret = rflash_ctrl_create(genl_info_net(info), &rflash_tcp_ops, &opts,
				 &ctrl, error);
	if (ret) {
		NL_SET_ERR_MSG_FMT(info->extack, "%s", error);
		return ret;
	}
	ret = rflash_reply_ctrl(info, ctrl);
	rflash_ctrl_put(ctrl);
	return ret;
}

static struct rflash_ctrl *rflash_get_ctrl(struct genl_info *info)
{
	struct nlattr *attr = info->attrs[RFLASH_A_CTRL_ID];
	struct rflash_ctrl *ctrl;

	if (!attr) {
		NL_SET_ERR_MSG_FMT(info->extack, "the controller id is missing");
		return ERR_PTR(-EINVAL);
	}
	ctrl = rflash_ctrl_find(genl_info_net(info), nla_get_u32(attr));
	if (ctrl)
		return ctrl;
	NL_SET_ERR_MSG_ATTR_FMT(info->extack, attr, "there is no controller %u",
				nla_get_u32(attr));
	return ERR_PTR(-ENODEV);
}

static int rflash_disconnect_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct rflash_ctrl *ctrl;
	int ret;

	ret = rflash_may_change(info);
	if (ret)
		return ret;
	ctrl = rflash_get_ctrl(info);
	if (IS_ERR(ctrl))
		return PTR_ERR(ctrl);
	ret = rflash_ctrl_delete(ctrl);
	if (ret)
		NL_SET_ERR_MSG_ATTR_FMT(info->extack,
					info->attrs[RFLASH_A_CTRL_ID],
					"controller %u is being removed already",
					ctrl->id);
	else
		wait_for_completion(&ctrl->removed);
	rflash_ctrl_put(ctrl);
	return ret;
}

static int rflash_ctrl_get_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct rflash_ctrl *ctrl = rflash_get_ctrl(info);
	int ret;

	if (IS_ERR(ctrl))
		return PTR_ERR(ctrl);
	ret = rflash_reply_ctrl(info, ctrl);
	rflash_ctrl_put(ctrl);
	return ret;
}

/* The largest controller must fit into one message. */
static int rflash_ctrl_get_start(struct netlink_callback *cb)
{
	struct rflash_ctrl *ctrl;
	size_t size = 0;
	u32 id = 0;

	while ((ctrl = rflash_ctrl_next(sock_net(cb->skb->sk), id))) {
		size = max(size, rflash_ctrl_msg_size(ctrl));
		id = ctrl->id + 1;
		rflash_ctrl_put(ctrl);
	}
	cb->min_dump_alloc = min_t(size_t, size, U16_MAX);
	return 0;
}

/* One message per controller; cb->args[0] is the next controller's id. */
static int rflash_ctrl_get_dumpit(struct sk_buff *skb,
				  struct netlink_callback *cb)
{
	struct rflash_ctrl *ctrl;
	void *head;
	int ret;

	while ((ctrl = rflash_ctrl_next(sock_net(cb->skb->sk), cb->args[0]))) {
		head = genlmsg_put(skb, NETLINK_CB(cb->skb).portid,
				   cb->nlh->nlmsg_seq, &rflash_family,
				   NLM_F_MULTI, RFLASH_CMD_CTRL_GET);
		ret = head ? rflash_put_ctrl(skb, ctrl) : -EMSGSIZE;
		if (ret) {
			if (head)
				genlmsg_cancel(skb, head);
			rflash_ctrl_put(ctrl);
			return skb->len ? skb->len : ret;
		}
		genlmsg_end(skb, head);
		cb->args[0] = ctrl->id + 1;
		rflash_ctrl_put(ctrl);
	}
	return skb->len;
}

/* The disk rflash<instance>, with its controller referenced and ns_lock held. */
static struct rflash_ns *rflash_get_ns(const struct net *net, u32 instance)
{
	struct rflash_ctrl *ctrl;
	struct rflash_ns *ns;
	u32 id = 0;

	while ((ctrl = rflash_ctrl_next(net, id))) {
		mutex_lock(&ctrl->ns_lock);
		list_for_each_entry(ns, &ctrl->namespaces, entry)
			if (ns->instance == instance)
				return ns;
		mutex_unlock(&ctrl->ns_lock);
		id = ctrl->id + 1;
		rflash_ctrl_put(ctrl);
	}
	return NULL;
}

/*
 * cb->args: [0] queue index, [1] direction, [2] next bucket; all of a device
 * in as many messages as it takes.
 */
static int rflash_stats_get_dumpit(struct sk_buff *skb,
				   struct netlink_callback *cb)
{
	struct nlattr *attr = genl_info_dump(cb)->attrs[RFLASH_A_NS_INSTANCE];
	struct rflash_ctrl *ctrl;
	struct rflash_ns *ns;
	int ret = 0;

	if (!attr) {
		NL_SET_ERR_MSG_FMT(cb->extack, "the device's number is missing");
		return -EINVAL;
	}
	ns = rflash_get_ns(sock_net(cb->skb->sk), nla_get_u32(attr));
	if (!ns) {
		NL_SET_ERR_MSG_ATTR_FMT(cb->extack, attr,
					"there is no device rflash%u",
					nla_get_u32(attr));
		return -ENODEV;
	}
	ctrl = ns->ctrl;
	while (cb->args[0] < ns->nr_stats) {
		unsigned int bucket = cb->args[2];
		void *head = genlmsg_put(skb, NETLINK_CB(cb->skb).portid,
					 cb->nlh->nlmsg_seq, &rflash_family,
					 NLM_F_MULTI, RFLASH_CMD_STATS_GET);

		ret = head ? rflash_stats_fill(skb, cb->args[0] + 1,
					       cb->args[1],
					       &ns->stats[cb->args[0]].dir[cb->args[1]],
					       &bucket) : -EMSGSIZE;
		if (ret) {
			if (head)
				genlmsg_cancel(skb, head);
			break;
		}
		genlmsg_end(skb, head);
		cb->args[2] = bucket;
		if (bucket < RFLASH_HIST_BUCKETS)
			continue;
		cb->args[2] = 0;
		if (++cb->args[1] == __RFLASH_STATS_DIRS) {
			cb->args[1] = 0;
			cb->args[0]++;
		}
	}
	mutex_unlock(&ctrl->ns_lock);
	rflash_ctrl_put(ctrl);
	return skb->len ? skb->len : ret;
}

static const struct genl_ops rflash_genl_ops[] = {
	{
		.cmd	= RFLASH_CMD_CONNECT,
		.flags	= GENL_ADMIN_PERM,
		.policy	= rflash_connect_policy,
		.maxattr = RFLASH_A_MAX,
		.doit	= rflash_connect_doit,
	}, {
		.cmd	= RFLASH_CMD_DISCONNECT,
		.flags	= GENL_ADMIN_PERM,
		.policy	= rflash_id_policy,
		.maxattr = RFLASH_A_MAX,
		.doit	= rflash_disconnect_doit,
	}, {
		.cmd	= RFLASH_CMD_CTRL_GET,
		.policy	= rflash_id_policy,
		.maxattr = RFLASH_A_MAX,
		.doit	= rflash_ctrl_get_doit,
		.start	= rflash_ctrl_get_start,
		.dumpit	= rflash_ctrl_get_dumpit,
	}, {
		.cmd	= RFLASH_CMD_STATS_GET,
		.policy	= rflash_stats_policy,
		.maxattr = RFLASH_A_MAX,
		.dumpit	= rflash_stats_get_dumpit,
	},
};

static const struct genl_multicast_group rflash_mcgrps[] = {
	{ .name = RFLASH_GENL_MCGRP },
};

static struct genl_family rflash_family = {
	.name		= RFLASH_GENL_NAME,
	.version	= RFLASH_GENL_VERSION,
	.module		= THIS_MODULE,
	.netnsok	= true,
	/* A connect takes seconds; it must not keep others waiting. */
	.parallel_ops	= true,
	.ops		= rflash_genl_ops,
	.n_ops		= ARRAY_SIZE(rflash_genl_ops),
	.resv_start_op	= __RFLASH_CMD_MAX,
	.mcgrps		= rflash_mcgrps,
	.n_mcgrps	= ARRAY_SIZE(rflash_mcgrps),
};

/**
 * rflash_control_state_changed - tell those who listen; any context
 * @ctrl: the controller
 * @state: the new state
 */
void rflash_control_state_changed(struct rflash_ctrl *ctrl,
				  enum rflash_ctrl_state state)
{
	struct sk_buff *skb;
	void *head;

	/* While the module goes, the group is somebody else's. */
	if (!READ_ONCE(rflash_registered))
		return;
	skb = genlmsg_new(NLMSG_GOODSIZE, GFP_ATOMIC);
	if (!skb)
		return;
	head = genlmsg_put(skb, 0, 0, &rflash_family, 0, RFLASH_CMD_EVENT);
	if (!head || nla_put_u32(skb, RFLASH_A_CTRL_ID, ctrl->id) ||
	    nla_put_u32(skb, RFLASH_A_STATE, state)) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, head);
	genlmsg_multicast_netns(&rflash_family, ctrl->net, skb, 0, 0, GFP_ATOMIC);
}

int rflash_control_init(void)
{
	int ret = genl_register_family(&rflash_family);

	WRITE_ONCE(rflash_registered, !ret);
	return ret;
}

void rflash_control_exit(void)
{
	WRITE_ONCE(rflash_registered, false);
	genl_unregister_family(&rflash_family);
}
