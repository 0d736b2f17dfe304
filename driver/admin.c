// SPDX-License-Identifier: GPL-2.0
/*
 * What the driver itself asks of a controller: Connect, properties, Identify,
 * features, keep-alive, asynchronous events (NVMe base 2.0, NVMe-oF 1.1).
 */
#define pr_fmt(fmt) "rflash: " fmt

#include <linux/delay.h>
#include <linux/slab.h>

#include "rflash.h"

#define RFLASH_ADMIN_SQSIZE	31	/* 0-based */
#define RFLASH_EVENT_PAUSE_MS	100	/* between two events */
#define RFLASH_PAGE_SIZE	4096	/* CC.MPS 0, and the size of Identify data */

static int rflash_admin_exec(struct rflash_ctrl *ctrl,
			     const struct nvme_command *c, void *buf, u32 len,
			     u64 *result)
{
	return rflash_queue_exec(ctrl->queues[0], c, buf, len, false, result,
				 ctrl->connect_timeout);
}

/*
 * An NVMe status as an errno, with a sentence for the user. Negative values
 * are of the connection, which has said what is wrong.
 */
static int rflash_admin_failed(struct rflash_ctrl *ctrl, const char *what,
			       int status)
{
	if (status <= 0)
		return status;
	rflash_ctrl_error(ctrl, "the target refused %s with NVMe status 0x%x",
			  what, status);
	return -EIO;
}

static int rflash_connect_failed(struct rflash_queue *queue, int status,
				 u64 result)
{
	struct rflash_ctrl *ctrl = queue->ctrl;
	struct rflash_opts *opts = &ctrl->opts;
	u16 offset = result & 0xffff;
	bool in_data = result & BIT(16);

	switch (status & 0x7ff) {
	case NVME_SC_CONNECT_INVALID_PARAM:
		if (in_data && offset == offsetof(struct nvmf_connect_data, subsysnqn)) {
			rflash_ctrl_error(ctrl, "the target has no subsystem %s for this host",
					  opts->subsys_nqn);
			return -ENXIO;
		}
		if (in_data && offset == offsetof(struct nvmf_connect_data, hostnqn)) {
			rflash_ctrl_error(ctrl, "the target does not accept the host NQN %s",
					  opts->host_nqn);
			return -EACCES;
		}
		rflash_ctrl_error(ctrl,
				  "the target refused queue %u: it does not like the %s at offset %u of Connect",
				  queue->qid, in_data ? "data" : "parameter",
				  offset);
		return -EINVAL;
	case NVME_SC_CONNECT_INVALID_HOST:
		rflash_ctrl_error(ctrl, "the target does not admit host %s to subsystem %s",
				  opts->host_nqn, opts->subsys_nqn);
		return -EACCES;
	case NVME_SC_CONNECT_CTRL_BUSY:
		rflash_ctrl_error(ctrl, "the target has no controller free for queue %u",
				  queue->qid);
		return -EBUSY;
	case NVME_SC_CONNECT_FORMAT:
		rflash_ctrl_error(ctrl, "the target does not know this format of Connect");
		return -EPROTO;
	case NVME_SC_AUTH_REQUIRED:
		rflash_ctrl_error(ctrl,
				  "the target asks for authentication, which is not supported");
		return -EACCES;
	default:
		rflash_ctrl_error(ctrl,
				  "the target refused to connect queue %u with NVMe status 0x%x",
				  queue->qid, status);
		return -EIO;
	}
}

/**
 * rflash_admin_connect - the fabrics Connect command of one queue
 * @queue: the queue
 *
 * The admin queue asks for any controller and learns its id; I/O queues join it.
 */
int rflash_admin_connect(struct rflash_queue *queue)
{
	struct rflash_ctrl *ctrl = queue->ctrl;
	struct nvmf_connect_data *data;
	struct nvme_command c = { };
	u64 result = 0;
	int ret;

	data = kzalloc(sizeof(*data), GFP_KERNEL);
	if (!data)
		return -ENOMEM;
	uuid_copy(&data->hostid, &ctrl->opts.host_id);
	data->cntlid = cpu_to_le16(queue->qid ? ctrl->cntlid : 0xffff);
	strscpy(data->subsysnqn, ctrl->opts.subsys_nqn, NVMF_NQN_SIZE);
	strscpy(data->hostnqn, ctrl->opts.host_nqn, NVMF_NQN_SIZE);

	c.connect.opcode = nvme_fabrics_command;
	c.connect.fctype = nvme_fabrics_type_connect;
	c.connect.qid = cpu_to_le16(queue->qid);
	c.connect.sqsize = cpu_to_le16(queue->qid ? ctrl->sqsize :
						    RFLASH_ADMIN_SQSIZE);
	/*
	 * More commands than a queue holds are never in flight, so the target
	 * need not tell us its queue head, nor send a response only for that.
	 */
	c.connect.cattr = NVME_CONNECT_DISABLE_SQFLOW;
	if (!queue->qid)
		c.connect.kato = cpu_to_le32(ctrl->opts.kato * 1000);

	ret = rflash_queue_exec(queue, &c, data, sizeof(*data), true, &result,
				ctrl->connect_timeout);
	kfree(data);
	if (ret > 0)
		return rflash_connect_failed(queue, ret, result);
	if (!ret && !queue->qid)
		ctrl->cntlid = result & 0xffff;
	return ret;
}

static int rflash_property_get(struct rflash_ctrl *ctrl, u32 offset, bool wide,
			       u64 *value)
{
	struct nvme_command c = { };
	int ret;

	c.prop_get.opcode = nvme_fabrics_command;
	c.prop_get.fctype = nvme_fabrics_type_property_get;
	c.prop_get.attrib = wide;
	c.prop_get.offset = cpu_to_le32(offset);
	ret = rflash_admin_exec(ctrl, &c, NULL, 0, value);
	if (!wide)
		*value &= U32_MAX;
	return ret;
}

static int rflash_property_set(struct rflash_ctrl *ctrl, u32 offset, u32 value)
{
	struct nvme_command c = { };

	c.prop_set.opcode = nvme_fabrics_command;
	c.prop_set.fctype = nvme_fabrics_type_property_set;
	c.prop_set.offset = cpu_to_le32(offset);
	c.prop_set.value = cpu_to_le64(value);
	return rflash_admin_exec(ctrl, &c, NULL, 0, NULL);
}

/* Poll CSTS until (value & mask) == want; fatal status ends it, too. */
static int rflash_wait_csts(struct rflash_ctrl *ctrl, u32 mask, u32 want,
			    unsigned long timeout)
{
	unsigned long end = jiffies + timeout;
	u64 csts = 0;
	int ret;

	for (;;) {
		ret = rflash_property_get(ctrl, NVME_REG_CSTS, false, &csts);
		if (ret)
			return rflash_admin_failed(ctrl, "to show its status", ret);
		if ((csts & mask) == want)
			return 0;
		if (csts & NVME_CSTS_CFS) {
			rflash_ctrl_error(ctrl, "the controller reports a fatal status");
			return -EIO;
		}
		if (time_after(jiffies, end)) {
			rflash_ctrl_error(ctrl,
					  "the controller did not become ready in %u s (CSTS 0x%llx)",
					  (u32)(timeout / HZ), csts);
			return -ETIMEDOUT;
		}
		msleep(20);
	}
}

static int rflash_enable(struct rflash_ctrl *ctrl)
{
	unsigned long timeout;
	u32 cc;
	int ret;

	ret = rflash_property_get(ctrl, NVME_REG_CAP, true, &ctrl->cap);
	if (ret)
		return rflash_admin_failed(ctrl, "to show its capabilities", ret);
	if (NVME_CAP_MPSMIN(ctrl->cap) > 0) {
		rflash_ctrl_error(ctrl,
				  "the controller needs memory pages of %u bytes or more, 4096 are supported",
				  RFLASH_PAGE_SIZE << NVME_CAP_MPSMIN(ctrl->cap));
		return -EOPNOTSUPP;
	}
	cc = NVME_CC_ENABLE | NVME_CC_CSS_NVM | NVME_CC_AMS_RR |
	     NVME_CC_SHN_NONE | NVME_CC_IOSQES | NVME_CC_IOCQES;
	ret = rflash_property_set(ctrl, NVME_REG_CC, cc);
	if (ret)
		return rflash_admin_failed(ctrl, "to be enabled", ret);
	/* CAP.TO counts half seconds; we do not wait longer than for the rest. */
	timeout = min_t(unsigned long, ctrl->connect_timeout,
			(NVME_CAP_TIMEOUT(ctrl->cap) + 1) * HZ / 2);
	return rflash_wait_csts(ctrl, NVME_CSTS_RDY, NVME_CSTS_RDY, timeout);
}

/* Identify strings are padded with blanks and may hold anything. */
static void rflash_copy_text(char *to, const char *from, size_t len)
{
	size_t i;

	while (len && (from[len - 1] == ' ' || !from[len - 1]))
		len--;
	for (i = 0; i < len; i++)
		to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
	to[len] = '\0';
}

static int rflash_identify(struct rflash_ctrl *ctrl, u8 cns, u32 nsid,
			   void *buf)
{
	struct nvme_command c = { };

	c.identify.opcode = nvme_admin_identify;
	c.identify.nsid = cpu_to_le32(nsid);
	c.identify.cns = cns;
	return rflash_admin_exec(ctrl, &c, buf, RFLASH_PAGE_SIZE, NULL);
}

/*
 * How large a queue may be: what was asked, what CAP.MQES allows, what the
 * controller can keep in flight. Constant once there are tags.
 */
static int rflash_set_sqsize(struct rflash_ctrl *ctrl, u16 maxcmd)
{
	u32 size = min_t(u32, ctrl->opts.queue_size, NVME_CAP_MQES(ctrl->cap) + 1);

	if (maxcmd)
		size = min_t(u32, size, maxcmd);
	if (size < 2) {
		rflash_ctrl_error(ctrl, "the controller allows queues of %u entries, 2 are needed",
				  size);
		return -EPROTO;
	}
	if (ctrl->tagset_ready && size - 1 < ctrl->sqsize) {
		rflash_ctrl_error(ctrl,
				  "the target now allows queues of %u entries, %u are in use: disconnect and connect again",
				  size, ctrl->sqsize + 1);
		return -ENOSPC;
	}
	if (!ctrl->tagset_ready)
		ctrl->sqsize = size - 1;
	return 0;
}

static int rflash_use_identity(struct rflash_ctrl *ctrl,
			       const struct nvme_id_ctrl *id)
{
	u32 ioccsz = le32_to_cpu(id->ioccsz) * 16;

	if (ioccsz < sizeof(struct nvme_command)) {
		rflash_ctrl_error(ctrl,
				  "the controller takes I/O capsules of %u bytes, %zu are needed: is it a discovery controller?",
				  ioccsz, sizeof(struct nvme_command));
		return -EPROTO;
	}
	/* Nothing but the start of the capsule's data is defined for TCP. */
	ctrl->inline_max = id->icdoff ? 0 :
		min_t(u32, ioccsz - sizeof(struct nvme_command), SZ_1M);
	ctrl->max_hw_sectors = RFLASH_MAX_HW_SECTORS;
	if (id->mdts && id->mdts < 20)
		ctrl->max_hw_sectors = min_t(u32, ctrl->max_hw_sectors,
					     (RFLASH_PAGE_SIZE << id->mdts) >>
					     SECTOR_SHIFT);
	ctrl->oncs = le16_to_cpu(id->oncs);
	ctrl->oaes = le32_to_cpu(id->oaes);
	ctrl->vwc = id->vwc & NVME_CTRL_VWC_PRESENT;
	ctrl->tbkas = le32_to_cpu(id->ctratt) & NVME_CTRL_ATTR_TBKAS;
	ctrl->vid = le16_to_cpu(id->vid);
	ctrl->tenant_version = rflash_tenant_version((const void *)id->vs);
	rflash_copy_text(ctrl->model, id->mn, sizeof(id->mn));
	rflash_copy_text(ctrl->serial, id->sn, sizeof(id->sn));
	rflash_copy_text(ctrl->firmware, id->fr, sizeof(id->fr));
	return rflash_set_sqsize(ctrl, le16_to_cpu(id->maxcmd));
}

/**
 * rflash_admin_setup - from a connected admin queue to a known controller
 * @ctrl: the controller
 */
int rflash_admin_setup(struct rflash_ctrl *ctrl)
{
	struct nvme_id_ctrl *id;
	int ret;

	ret = rflash_enable(ctrl);
	if (ret)
		return ret;
	id = kzalloc(sizeof(*id), GFP_KERNEL);
	if (!id)
		return -ENOMEM;
	ret = rflash_identify(ctrl, NVME_ID_CNS_CTRL, 0, id);
	if (ret)
		ret = rflash_admin_failed(ctrl, "to identify itself", ret);
	else
		ret = rflash_use_identity(ctrl, id);
	kfree(id);
	return ret;
}

static int rflash_tenant_exec(struct rflash_ctrl *ctrl, u8 opcode,
			      struct rflash_tenant_data *data)
{
	struct nvme_command c = { };

	c.common.opcode = opcode;
	c.common.cdw10 = cpu_to_le32(sizeof(*data) / sizeof(u32));
	return rflash_queue_exec(ctrl->queues[0], &c, data, sizeof(*data),
				 opcode == RFLASH_ADMIN_TENANT_SET, NULL,
				 ctrl->connect_timeout);
}

/* Ask for the promise. Return: a state, or a negative errno. */
static int rflash_tenant_set(struct rflash_ctrl *ctrl,
			     struct rflash_tenant_data *data)
{
	char text[RFLASH_TENANT_TEXT_LEN];
	int ret;

	rflash_tenant_encode(&ctrl->opts.tenant, data);
	ret = rflash_tenant_exec(ctrl, RFLASH_ADMIN_TENANT_SET, data);
	if (ret < 0)
		return ret;
	if (!ret)
		return RFLASH_TENANT_STATE_GRANTED;
	if ((ret & 0x7ff) == NVME_SC_INVALID_OPCODE)
		return RFLASH_TENANT_STATE_UNSUPPORTED;

	rflash_tenant_text(&ctrl->opts.tenant, text);
	/* Disks that are in use are better served without it than not at all. */
	if (ctrl->tagset_ready) {
		if (ctrl->tenant_state != RFLASH_TENANT_STATE_REFUSED)
			rflash_warn(ctrl,
				    "the target now refuses the promise (NVMe status 0x%x): I/O goes on without %s",
				    ret, text);
		return RFLASH_TENANT_STATE_REFUSED;
	}
	rflash_ctrl_error(ctrl, "the target refused the promise with NVMe status 0x%x: %s",
			  ret, text);
	return -EDQUOT;
}

/* What is in force; of no class if the target does not say. */
static int rflash_tenant_get(struct rflash_ctrl *ctrl,
			     struct rflash_tenant_data *data,
			     struct rflash_tenant *granted)
{
	struct rflash_tenant said;
	const char *bad;
	u32 value;
	int ret;

	memset(data, 0, sizeof(*data));
	ret = rflash_tenant_exec(ctrl, RFLASH_ADMIN_TENANT_GET, data);
	if (ret || !memchr_inv(data, 0, sizeof(*data)))
		return min(ret, 0);
	bad = rflash_tenant_decode(data, &said, &value);
	if (bad)
		rflash_warn(ctrl, "the target shows a promise that can't be read: %s is %u",
			    bad, value);
	else
		*granted = said;
	return 0;
}

static void rflash_tenant_publish(struct rflash_ctrl *ctrl,
				  enum rflash_tenant_state state,
				  const struct rflash_tenant *granted)
{
	enum rflash_tenant_state before;
	char text[RFLASH_TENANT_TEXT_LEN];
	unsigned long flags;

	spin_lock_irqsave(&ctrl->lock, flags);
	before = ctrl->tenant_state;
	ctrl->tenant_state = state;
	ctrl->tenant_granted = *granted;
	spin_unlock_irqrestore(&ctrl->lock, flags);
	if (state == before)
		return;
	rflash_tenant_text(&ctrl->opts.tenant, text);
	if (state == RFLASH_TENANT_STATE_UNSUPPORTED)
		rflash_warn(ctrl, "the target does not know tenants: it is used without the promise of %s",
			    text);
	else if (state == RFLASH_TENANT_STATE_GRANTED &&
		 before != RFLASH_TENANT_STATE_UNASKED)
		rflash_info(ctrl, "the target promises %s again", text);
}

/**
 * rflash_admin_tenant - ask for the promise, and learn what is in force
 * @ctrl: the controller, identified; its I/O queues are not connected yet
 *
 * Nothing is sent to a target that has not said that it knows tenants.
 *
 * Return: 0; -EDQUOT if the first connect is refused the promise; else the
 * connection's trouble.
 */
int rflash_admin_tenant(struct rflash_ctrl *ctrl)
{
	bool asked = ctrl->opts.tenant.class != RFLASH_TENANT_NONE;
	struct rflash_tenant granted = { };
	struct rflash_tenant_data *data;
	int ret, state = asked ? RFLASH_TENANT_STATE_UNSUPPORTED :
				 RFLASH_TENANT_STATE_UNASKED;

	if (!ctrl->tenant_version)
		goto publish;
	data = kzalloc(sizeof(*data), GFP_KERNEL);
	if (!data)
		return -ENOMEM;
	if (asked)
		state = rflash_tenant_set(ctrl, data);
	if (state == RFLASH_TENANT_STATE_GRANTED)
		granted = ctrl->opts.tenant;
	ret = state < 0 ? state : rflash_tenant_get(ctrl, data, &granted);
	kfree(data);
	if (ret)
		return ret;
publish:
	rflash_tenant_publish(ctrl, state, &granted);
	return 0;
}

static int rflash_set_features(struct rflash_ctrl *ctrl, u8 fid, u32 value,
			       u64 *result)
{
	struct nvme_command c = { };

	c.features.opcode = nvme_admin_set_features;
	c.features.fid = cpu_to_le32(fid);
	c.features.dword11 = cpu_to_le32(value);
	return rflash_admin_exec(ctrl, &c, NULL, 0, result);
}

/**
 * rflash_admin_set_queues - ask for I/O queues
 * @ctrl: the controller
 * @nr: how many are wanted; becomes how many there are, at most that
 */
int rflash_admin_set_queues(struct rflash_ctrl *ctrl, u32 *nr)
{
	u32 want = *nr - 1;
	u64 result = 0;
	int ret;

	ret = rflash_set_features(ctrl, NVME_FEAT_NUM_QUEUES,
				  want | want << 16, &result);
	if (ret)
		return rflash_admin_failed(ctrl, "to grant I/O queues", ret);
	*nr = min3(*nr, (u32)(result & 0xffff) + 1,
		   (u32)(result >> 16 & 0xffff) + 1);
	return 0;
}

/**
 * rflash_admin_ns_list - active namespaces
 * @ctrl: the controller
 * @after: the list begins behind this namespace id
 * @list: 1024 ids in rising order, ended by 0 if there are fewer
 */
int rflash_admin_ns_list(struct rflash_ctrl *ctrl, u32 after, __le32 *list)
{
	return rflash_admin_failed(ctrl, "to list its namespaces",
				   rflash_identify(ctrl, NVME_ID_CNS_NS_ACTIVE_LIST,
						   after, list));
}

/* The identifier that says most: UUID, NGUID or EUI-64 (base 2.0, 4.1.5). */
static void rflash_ns_wwid(struct rflash_ctrl *ctrl, const u8 *desc,
			   const struct nvme_id_ns *id,
			   struct rflash_ns_info *info)
{
	size_t pos = 0;
	int best = 0;

	snprintf(info->wwid, sizeof(info->wwid), "nvme.%04x-%*phN-%*phN-%08x",
		 ctrl->vid, (int)strlen(ctrl->serial), ctrl->serial,
		 (int)strnlen(ctrl->model, 40), ctrl->model, info->nsid);
	if (memchr_inv(id->eui64, 0, sizeof(id->eui64)))
		snprintf(info->wwid, sizeof(info->wwid), "eui.%8phN", id->eui64);
	if (memchr_inv(id->nguid, 0, sizeof(id->nguid)))
		snprintf(info->wwid, sizeof(info->wwid), "eui.%16phN", id->nguid);

	while (desc && pos + sizeof(struct nvme_ns_id_desc) < RFLASH_PAGE_SIZE) {
		const struct nvme_ns_id_desc *d = (const void *)(desc + pos);
		const u8 *nid = desc + pos + sizeof(*d);

		if (!d->nidl || pos + sizeof(*d) + d->nidl > RFLASH_PAGE_SIZE)
			break;
		if (d->nidt == NVME_NIDT_UUID && d->nidl == 16 && best < 3) {
			snprintf(info->wwid, sizeof(info->wwid), "uuid.%pU", nid);
			best = 3;
		} else if (d->nidt == NVME_NIDT_NGUID && d->nidl == 16 && best < 2) {
			snprintf(info->wwid, sizeof(info->wwid), "eui.%16phN", nid);
			best = 2;
		} else if (d->nidt == NVME_NIDT_EUI64 && d->nidl == 8 && best < 1) {
			snprintf(info->wwid, sizeof(info->wwid), "eui.%8phN", nid);
			best = 1;
		}
		pos += sizeof(*d) + d->nidl;
	}
}

static int rflash_use_ns(struct rflash_ctrl *ctrl, const struct nvme_id_ns *id,
			 struct rflash_ns_info *info)
{
	u8 format = (id->flbas & 0xf) | (id->flbas >> 5 & 3) << 4;
	const struct nvme_lbaf *lbaf;

	if (format > id->nlbaf || format >= ARRAY_SIZE(id->lbaf)) {
		rflash_warn(ctrl, "namespace %u left out: its format %u is none of its %u",
			    info->nsid, format, id->nlbaf + 1);
		return -EPROTO;
	}
	lbaf = &id->lbaf[format];
	if (lbaf->ms) {
		rflash_warn(ctrl,
			    "namespace %u left out: %u bytes of metadata per block, none are supported",
			    info->nsid, le16_to_cpu(lbaf->ms));
		return -EOPNOTSUPP;
	}
	if (lbaf->ds < SECTOR_SHIFT || lbaf->ds > 12) {
		rflash_warn(ctrl,
			    "namespace %u left out: blocks of 2^%u bytes, 512 to 4096 are supported",
			    info->nsid, lbaf->ds);
		return -EOPNOTSUPP;
	}
	info->lba_shift = lbaf->ds;
	info->nr_lbas = le64_to_cpu(id->nsze);
	info->read_only = id->nsattr & NVME_NS_ATTR_RO;
	if (info->nr_lbas > LLONG_MAX >> info->lba_shift) {
		rflash_warn(ctrl,
			    "namespace %u left out: %llu blocks of %u bytes are more than a disk can have",
			    info->nsid, info->nr_lbas, 1 << info->lba_shift);
		return -EPROTO;
	}
	return 0;
}

/**
 * rflash_admin_identify_ns - what a namespace is
 * @ctrl: the controller
 * @nsid: namespace id
 * @info: filled in
 *
 * Return: 0; -ENODEV if it is not active; -EOPNOTSUPP or -EPROTO if it can't
 * be a disk, which has been logged; else the connection's trouble.
 */
int rflash_admin_identify_ns(struct rflash_ctrl *ctrl, u32 nsid,
			     struct rflash_ns_info *info)
{
	struct nvme_id_ns *id;
	u8 *desc;
	int ret;

	memset(info, 0, sizeof(*info));
	info->nsid = nsid;
	id = kzalloc(sizeof(*id), GFP_KERNEL);
	desc = kzalloc(RFLASH_PAGE_SIZE, GFP_KERNEL);
	ret = -ENOMEM;
	if (!id || !desc)
		goto out;

	ret = rflash_identify(ctrl, NVME_ID_CNS_NS, nsid, id);
	if (ret > 0)
		ret = (ret & 0x7ff) == NVME_SC_INVALID_NS ? -ENODEV :
			rflash_admin_failed(ctrl, "to identify a namespace", ret);
	if (!ret && !id->nsze)
		ret = -ENODEV;
	if (ret)
		goto out;
	ret = rflash_use_ns(ctrl, id, info);
	if (ret)
		goto out;

	ret = rflash_identify(ctrl, NVME_ID_CNS_NS_DESC_LIST, nsid, desc);
	switch (ret > 0 ? ret & 0x7ff : ret) {
	case 0:
		rflash_ns_wwid(ctrl, desc, id, info);
		break;
	case NVME_SC_INVALID_FIELD:
	case NVME_SC_INVALID_OPCODE:
		/* Not there before NVMe 1.3: what @id has must do. */
		rflash_ns_wwid(ctrl, NULL, id, info);
		ret = 0;
		break;
	default:
		ret = rflash_admin_failed(ctrl, "to describe a namespace", ret);
		break;
	}
out:
	kfree(desc);
	kfree(id);
	return ret;
}

/**
 * rflash_admin_shutdown - tell the controller that we leave
 * @ctrl: the controller
 *
 * A controller that does not answer is left without goodbye.
 */
void rflash_admin_shutdown(struct rflash_ctrl *ctrl)
{
	struct rflash_queue *queue = ctrl->queues[0];
	u32 cc = NVME_CC_ENABLE | NVME_CC_IOSQES | NVME_CC_IOCQES |
		 NVME_CC_SHN_NORMAL;

	if (!queue || !test_bit(RFLASH_Q_STARTED, &queue->flags) ||
	    test_bit(RFLASH_Q_FAILED, &queue->flags))
		return;
	if (!rflash_property_set(ctrl, NVME_REG_CC, cc))
		rflash_wait_csts(ctrl, NVME_CSTS_SHST_MASK, NVME_CSTS_SHST_CMPLT,
				 ctrl->connect_timeout);
}

static void rflash_keep_alive_done(struct rflash_cmd *cmd)
{
	WRITE_ONCE(cmd->queue->ctrl->keep_alive_sent, 0);
}

/*
 * One keep-alive every half of the timeout; one that has no answer for the
 * whole of it means that the peer, or the way to it, is dead.
 */
void rflash_admin_keep_alive_work(struct work_struct *work)
{
	struct rflash_ctrl *ctrl = container_of(to_delayed_work(work),
						struct rflash_ctrl,
						keep_alive_work);
	unsigned long sent = READ_ONCE(ctrl->keep_alive_sent);
	unsigned long kato = ctrl->opts.kato * HZ, delay = kato / 2;
	struct nvme_command c = { };
	int ret;

	if (sent) {
		if (time_after_eq(jiffies, sent + kato)) {
			rflash_queue_fault(ctrl->queues[0],
					   "the target did not answer a keep-alive in %u s",
					   ctrl->opts.kato);
			return;
		}
		delay = sent + kato - jiffies;
	} else {
		c.common.opcode = nvme_admin_keep_alive;
		WRITE_ONCE(ctrl->keep_alive_sent, jiffies | 1);
		ret = rflash_queue_exec_async(ctrl->queues[0],
					      RFLASH_SLOT_KEEP_ALIVE, &c,
					      rflash_keep_alive_done);
		if (ret == -ENOTCONN) {
			rflash_ctrl_fault(ctrl);
			return;
		}
	}
	queue_delayed_work(rflash_wq, &ctrl->keep_alive_work,
			   max(delay, 1UL));
}

static void rflash_event_done(struct rflash_cmd *cmd)
{
	struct rflash_ctrl *ctrl = cmd->queue->ctrl;

	if (cmd->status == RFLASH_STATUS_ABORTED)
		return;
	WRITE_ONCE(ctrl->event_result, cmd->status ? 0 : cmd->result);
	if (cmd->status)
		rflash_warn(ctrl,
			    "the target refused an event request with NVMe status 0x%x: changes of namespaces will not be noticed",
			    cmd->status);
	else
		queue_work(rflash_slow_wq, &ctrl->event_work);
}

static void rflash_ask_event(struct rflash_ctrl *ctrl)
{
	struct nvme_command c = { };

	c.common.opcode = nvme_admin_async_event;
	rflash_queue_exec_async(ctrl->queues[0], RFLASH_SLOT_EVENT, &c,
				rflash_event_done);
}

/* Reading the list of changed namespaces lets the next such event come. */
static void rflash_clear_ns_event(struct rflash_ctrl *ctrl)
{
	u32 dwords = RFLASH_PAGE_SIZE / 4 - 1;
	struct nvme_command c = { };
	void *log;

	log = kzalloc(RFLASH_PAGE_SIZE, GFP_KERNEL);
	if (!log)
		return;
	c.get_log_page.opcode = nvme_admin_get_log_page;
	c.get_log_page.nsid = cpu_to_le32(NVME_NSID_ALL);
	c.get_log_page.lid = NVME_LOG_CHANGED_NS;
	c.get_log_page.numdl = cpu_to_le16(dwords);
	rflash_admin_exec(ctrl, &c, log, RFLASH_PAGE_SIZE, NULL);
	kfree(log);
}

/**
 * rflash_admin_event_work - an asynchronous event has come
 * @work: embedded in the controller
 */
void rflash_admin_event_work(struct work_struct *work)
{
	struct rflash_ctrl *ctrl = container_of(work, struct rflash_ctrl,
						event_work);
	u32 result = READ_ONCE(ctrl->event_result);
	u8 type = result & 0x7, info = result >> 8;

	if (type == NVME_AER_NOTICE && info == NVME_AER_NOTICE_NS_CHANGED) {
		rflash_clear_ns_event(ctrl);
		queue_work(rflash_slow_wq, &ctrl->scan_work);
	} else {
		pr_info_ratelimited("ctrl %u: the target reports event 0x%x\n",
				    ctrl->id, result);
	}
	/* A target that never stops reporting gets no more than its share. */
	msleep(RFLASH_EVENT_PAUSE_MS);
	rflash_ask_event(ctrl);
}

/**
 * rflash_admin_events_start - tell the target which events we want
 * @ctrl: the controller
 *
 * Without that there may be none.
 */
void rflash_admin_events_start(struct rflash_ctrl *ctrl)
{
	u32 events = ctrl->oaes & NVME_AEN_CFG_NS_ATTR;

	if (!events)
		return;
	if (rflash_set_features(ctrl, NVME_FEAT_ASYNC_EVENT, events, NULL) == 0)
		rflash_ask_event(ctrl);
}

/**
 * rflash_admin_keep_alive_start - the controller is live: see that it stays so
 * @ctrl: the controller
 */
void rflash_admin_keep_alive_start(struct rflash_ctrl *ctrl)
{
	WRITE_ONCE(ctrl->keep_alive_sent, 0);
	if (ctrl->opts.kato)
		queue_delayed_work(rflash_wq, &ctrl->keep_alive_work,
				   ctrl->opts.kato * HZ / 2);
}
