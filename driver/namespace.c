// SPDX-License-Identifier: GPL-2.0
/*
 * Namespaces as disks: found, made, changed, removed.
 *
 * Only the scan adds and removes disks, and removal of the controller once the
 * scan is over, so the list changes in one context at a time. ctrl->ns_lock is
 * for those who walk it meanwhile.
 */
#define pr_fmt(fmt) "rflash: " fmt

#include <linux/blkdev.h>
#include <linux/idr.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "rflash.h"

#define RFLASH_NS_LIST_LEN	1024

static DEFINE_IDA(rflash_instances);

static struct rflash_ns *rflash_disk_ns(struct gendisk *disk)
{
	return disk->private_data;
}

static void rflash_ns_free(struct rflash_ns *ns)
{
	ida_free(&rflash_instances, ns->instance);
	rflash_ctrl_put(ns->ctrl);
	kvfree(ns->stats);
	kfree(ns);
}

/* The last user of the disk is gone. */
static void rflash_free_disk(struct gendisk *disk)
{
	rflash_ns_free(rflash_disk_ns(disk));
}

static const struct block_device_operations rflash_fops = {
	.owner		= THIS_MODULE,
	.free_disk	= rflash_free_disk,
};

static ssize_t wwid_show(struct device *dev, struct device_attribute *attr,
			 char *buf)
{
	return sysfs_emit(buf, "%s\n", rflash_disk_ns(dev_to_disk(dev))->info.wwid);
}
static DEVICE_ATTR_RO(wwid);

static ssize_t nsid_show(struct device *dev, struct device_attribute *attr,
			 char *buf)
{
	return sysfs_emit(buf, "%u\n", rflash_disk_ns(dev_to_disk(dev))->info.nsid);
}
static DEVICE_ATTR_RO(nsid);

static ssize_t nqn_show(struct device *dev, struct device_attribute *attr,
			char *buf)
{
	return sysfs_emit(buf, "%s\n",
			  rflash_disk_ns(dev_to_disk(dev))->ctrl->opts.subsys_nqn);
}
static DEVICE_ATTR_RO(nqn);

static ssize_t tenant_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	char text[RFLASH_TENANT_TEXT_LEN];
	struct rflash_tenant granted;

	rflash_ctrl_tenant(rflash_disk_ns(dev_to_disk(dev))->ctrl, &granted);
	rflash_tenant_text(&granted, text);
	return sysfs_emit(buf, "%s\n", text);
}
static DEVICE_ATTR_RO(tenant);

static struct attribute *rflash_ns_attrs[] = {
	&dev_attr_wwid.attr,
	&dev_attr_nsid.attr,
	&dev_attr_nqn.attr,
	&dev_attr_tenant.attr,
	NULL,
};

static const struct attribute_group rflash_ns_group = {
	.attrs = rflash_ns_attrs,
};

static const struct attribute_group *rflash_ns_groups[] = {
	&rflash_ns_group,
	NULL,
};

/**
 * rflash_ns_quiesce_all - keep block requests out of the transport
 * @ctrl: the controller
 *
 * Returns when no context is left in queue_rq.
 */
void rflash_ns_quiesce_all(struct rflash_ctrl *ctrl)
{
	struct rflash_ns *ns;

	mutex_lock(&ctrl->ns_lock);
	ctrl->io_quiesced = true;
	list_for_each_entry(ns, &ctrl->namespaces, entry) {
		if (!ns->quiesced) {
			ns->quiesced = true;
			blk_mq_quiesce_queue(ns->disk->queue);
		}
	}
	mutex_unlock(&ctrl->ns_lock);
}

/**
 * rflash_ns_unquiesce_all - let block requests in again, those held first
 * @ctrl: the controller
 */
void rflash_ns_unquiesce_all(struct rflash_ctrl *ctrl)
{
	struct rflash_ns *ns;

	mutex_lock(&ctrl->ns_lock);
	ctrl->io_quiesced = false;
	list_for_each_entry(ns, &ctrl->namespaces, entry) {
		if (ns->quiesced) {
			ns->quiesced = false;
			blk_mq_unquiesce_queue(ns->disk->queue);
			blk_mq_kick_requeue_list(ns->disk->queue);
		}
	}
	mutex_unlock(&ctrl->ns_lock);
}

static sector_t rflash_ns_sectors(const struct rflash_ns_info *info)
{
	return info->nr_lbas << (info->lba_shift - SECTOR_SHIFT);
}

static void rflash_ns_limits(struct rflash_ctrl *ctrl,
			     const struct rflash_ns_info *info,
			     struct queue_limits *lim)
{
	lim->logical_block_size = 1 << info->lba_shift;
	lim->physical_block_size = 1 << info->lba_shift;
	lim->max_hw_sectors = ctrl->max_hw_sectors;
	/* Data is copied from and to pages: their shape does not matter. */
	lim->max_segments = USHRT_MAX;
	lim->max_segment_size = UINT_MAX;
	lim->dma_alignment = 3;
	if (ctrl->vwc)
		lim->features |= BLK_FEAT_WRITE_CACHE | BLK_FEAT_FUA;
	if (ctrl->opts.data_digest)
		lim->features |= BLK_FEAT_STABLE_WRITES;
	if (ctrl->oncs & NVME_CTRL_ONCS_DSM) {
		lim->max_hw_discard_sectors = UINT_MAX;
		lim->max_discard_segments = RFLASH_DSM_RANGES;
		lim->discard_granularity = 1 << info->lba_shift;
	}
	/* The length of a command is counted in 16 bits. */
	if (ctrl->oncs & NVME_CTRL_ONCS_WRITE_ZEROES)
		lim->max_write_zeroes_sectors =
			min_t(u32, ctrl->max_hw_sectors,
			      65536u << (info->lba_shift - SECTOR_SHIFT));
	lim->max_hw_sectors = min_t(u32, lim->max_hw_sectors,
				    65536u << (info->lba_shift - SECTOR_SHIFT));
}

/* What the limits are made from; to be compared after a reconnect. */
static bool rflash_ns_note_limits(struct rflash_ns *ns,
				  const struct rflash_ctrl *ctrl)
{
	bool same = ns->vwc == ctrl->vwc && ns->oncs == ctrl->oncs &&
		    ns->max_hw_sectors == ctrl->max_hw_sectors;

	ns->vwc = ctrl->vwc;
	ns->oncs = ctrl->oncs;
	ns->max_hw_sectors = ctrl->max_hw_sectors;
	return same;
}

/* A target that came back with other abilities: the disk must know them. */
static void rflash_ns_update_limits(struct rflash_ns *ns)
{
	struct queue_limits lim;

	if (rflash_ns_note_limits(ns, ns->ctrl))
		return;
	lim = queue_limits_start_update(ns->disk->queue);
	lim.features &= ~(BLK_FEAT_WRITE_CACHE | BLK_FEAT_FUA);
	lim.max_hw_discard_sectors = 0;
	lim.max_write_zeroes_sectors = 0;
	rflash_ns_limits(ns->ctrl, &ns->info, &lim);
	if (queue_limits_commit_update_frozen(ns->disk->queue, &lim))
		rflash_warn(ns->ctrl, "%s keeps its old limits",
			    ns->disk->disk_name);
}

static struct rflash_ns *rflash_ns_alloc(struct rflash_ctrl *ctrl,
					 const struct rflash_ns_info *info)
{
	struct queue_limits lim = { };
	struct rflash_ns *ns;
	int instance;

	ns = kzalloc(sizeof(*ns), GFP_KERNEL);
	if (!ns)
		return NULL;
	ns->info = *info;
	ns->nr_stats = ctrl->nr_io_queues;
	ns->stats = kvcalloc(ns->nr_stats, sizeof(*ns->stats), GFP_KERNEL);
	if (!ns->stats)
		goto free_ns;
	instance = ida_alloc(&rflash_instances, GFP_KERNEL);
	if (instance < 0)
		goto free_stats;
	ns->instance = instance;

	rflash_ns_limits(ctrl, info, &lim);
	rflash_ns_note_limits(ns, ctrl);
	ns->disk = blk_mq_alloc_disk(&ctrl->tagset, &lim, ns);
	if (IS_ERR(ns->disk))
		goto free_instance;
	ns->ctrl = ctrl;
	kref_get(&ctrl->ref);
	ns->disk->fops = &rflash_fops;
	ns->disk->private_data = ns;
	snprintf(ns->disk->disk_name, DISK_NAME_LEN, "rflash%u", ns->instance);
	set_capacity(ns->disk, rflash_ns_sectors(info));
	set_disk_ro(ns->disk, info->read_only);
	return ns;

free_instance:
	ida_free(&rflash_instances, instance);
free_stats:
	kvfree(ns->stats);
free_ns:
	kfree(ns);
	return NULL;
}

static void rflash_ns_unlist(struct rflash_ns *ns)
{
	mutex_lock(&ns->ctrl->ns_lock);
	list_del(&ns->entry);
	mutex_unlock(&ns->ctrl->ns_lock);
}

static void rflash_ns_add(struct rflash_ctrl *ctrl,
			  const struct rflash_ns_info *info)
{
	struct rflash_ns *ns = rflash_ns_alloc(ctrl, info);
	int ret;

	if (!ns) {
		rflash_warn(ctrl, "no memory for a disk for namespace %u",
			    info->nsid);
		return;
	}
	/* Registration reads the partition table: a fault must reach us. */
	mutex_lock(&ctrl->ns_lock);
	list_add_tail(&ns->entry, &ctrl->namespaces);
	if (ctrl->io_quiesced) {
		ns->quiesced = true;
		blk_mq_quiesce_queue(ns->disk->queue);
	}
	mutex_unlock(&ctrl->ns_lock);

	ret = device_add_disk(NULL, ns->disk, rflash_ns_groups);
	if (ret) {
		rflash_warn(ctrl, "namespace %u could not be made a disk (%d)",
			    info->nsid, ret);
		rflash_ns_unlist(ns);
		put_disk(ns->disk);
		/* free_disk is not called for a disk that was never added. */
		rflash_ns_free(ns);
		return;
	}
	rflash_info(ctrl, "namespace %u is %s, %llu blocks of %u bytes%s",
		    info->nsid, ns->disk->disk_name, info->nr_lbas,
		    1 << info->lba_shift, info->read_only ? ", read-only" : "");
}

/*
 * Removed from the list only after del_gendisk, which waits for I/O: whoever
 * resumes or fails I/O meanwhile must find the disk.
 */
static void rflash_ns_remove(struct rflash_ns *ns)
{
	rflash_info(ns->ctrl, "namespace %u: %s removed", ns->info.nsid,
		    ns->disk->disk_name);
	WRITE_ONCE(ns->removing, true);
	/* Nothing can be written back: spare its users the attempt. */
	if (READ_ONCE(ns->ctrl->io_failing))
		blk_mark_disk_dead(ns->disk);
	del_gendisk(ns->disk);
	rflash_ns_unlist(ns);
	put_disk(ns->disk);
}

static struct rflash_ns *rflash_ns_find(struct rflash_ctrl *ctrl, u32 nsid)
{
	struct rflash_ns *ns;

	list_for_each_entry(ns, &ctrl->namespaces, entry)
		if (ns->info.nsid == nsid)
			return ns;
	return NULL;
}

/*
 * The same namespace, perhaps with another size or write protection. Anything
 * else makes it another disk, with which the old one's users must not go on.
 */
static void rflash_ns_update(struct rflash_ns *ns,
			     const struct rflash_ns_info *info)
{
	struct rflash_ctrl *ctrl = ns->ctrl;

	if (strcmp(ns->info.wwid, info->wwid) ||
	    ns->info.lba_shift != info->lba_shift) {
		rflash_warn(ctrl,
			    "namespace %u is another one now: %s with blocks of %u bytes, it was %s with %u",
			    info->nsid, info->wwid, 1 << info->lba_shift,
			    ns->info.wwid, 1 << ns->info.lba_shift);
		rflash_ns_remove(ns);
		rflash_ns_add(ctrl, info);
		return;
	}
	if (ns->info.nr_lbas != info->nr_lbas)
		rflash_info(ctrl, "namespace %u: %s has %llu blocks now, it had %llu",
			    info->nsid, ns->disk->disk_name, info->nr_lbas,
			    ns->info.nr_lbas);
	if (ns->info.read_only != info->read_only)
		set_disk_ro(ns->disk, info->read_only);
	ns->info.nr_lbas = info->nr_lbas;
	ns->info.read_only = info->read_only;
	rflash_ns_update_limits(ns);
	set_capacity_and_notify(ns->disk, rflash_ns_sectors(info));
}

static int rflash_ns_scan_one(struct rflash_ctrl *ctrl, u32 nsid)
{
	struct rflash_ns *ns = rflash_ns_find(ctrl, nsid);
	struct rflash_ns_info info;
	int ret;

	ret = rflash_admin_identify_ns(ctrl, nsid, &info);
	switch (ret) {
	case 0:
		if (ns)
			rflash_ns_update(ns, &info);
		else
			rflash_ns_add(ctrl, &info);
		return 0;
	case -ENODEV:
	case -EOPNOTSUPP:
	case -EPROTO:
		if (ns)
			rflash_ns_remove(ns);
		return 0;
	default:
		return ret;
	}
}

/* Disks whose namespace lies between two neighbours of the active list. */
static void rflash_ns_remove_between(struct rflash_ctrl *ctrl, u32 after,
				     u32 before)
{
	struct rflash_ns *ns, *next;

	list_for_each_entry_safe(ns, next, &ctrl->namespaces, entry)
		if (ns->info.nsid > after && ns->info.nsid < before)
			rflash_ns_remove(ns);
}

/*
 * Bring the disks in line with the target. If the connection is lost on the
 * way the next one scans again; until then nothing is taken for removed.
 *
 * Return: whether the scan came to its end.
 */
static bool rflash_ns_scan(struct rflash_ctrl *ctrl)
{
	bool done = false;
	u32 last = 0, count = 0, nsid, i;
	__le32 *list;

	list = kcalloc(RFLASH_NS_LIST_LEN, sizeof(*list), GFP_KERNEL);
	if (!list)
		return false;
	do {
		if (rflash_admin_ns_list(ctrl, last, list))
			goto out;
		for (i = 0; i < RFLASH_NS_LIST_LEN; i++) {
			nsid = le32_to_cpu(list[i]);
			if (!nsid)
				break;
			if (nsid <= last || nsid > NVME_NSID_ALL - 2) {
				rflash_warn(ctrl,
					    "the target's list of namespaces has %u after %u, ids must rise",
					    nsid, last);
				done = true;
				goto out;
			}
			if (rflash_ctrl_state(ctrl) != RFLASH_CTRL_LIVE)
				goto out;
			if (++count > RFLASH_MAX_NAMESPACES) {
				rflash_warn(ctrl,
					    "more than %u namespaces: those from %u on are left out",
					    RFLASH_MAX_NAMESPACES, nsid);
				done = true;
				goto out;
			}
			rflash_ns_remove_between(ctrl, last, nsid);
			if (rflash_ns_scan_one(ctrl, nsid))
				goto out;
			last = nsid;
		}
	} while (i == RFLASH_NS_LIST_LEN);
	rflash_ns_remove_between(ctrl, last, U32_MAX);
	done = true;
out:
	kfree(list);
	return done;
}

static void rflash_ns_check_replaced(struct rflash_ctrl *ctrl,
				     const struct rflash_ns_info *info,
				     bool unusable)
{
	struct rflash_ns *ns;

	mutex_lock(&ctrl->ns_lock);
	ns = rflash_ns_find(ctrl, info->nsid);
	if (ns && (unusable || strcmp(ns->info.wwid, info->wwid) ||
		   ns->info.lba_shift != info->lba_shift)) {
		rflash_warn(ctrl,
			    "namespace %u came back as another one: what was to be written to %s is refused",
			    info->nsid, ns->disk->disk_name);
		WRITE_ONCE(ns->replaced, true);
	}
	mutex_unlock(&ctrl->ns_lock);
}

/**
 * rflash_ns_revalidate - before I/O goes on after a reconnect
 * @ctrl: the controller
 *
 * Held writes are meant for the namespaces they were submitted to. Where the
 * target now has another one under the same id they must not reach it. One
 * that is gone needs no care: the target refuses its commands.
 *
 * Return: 0, or the connection's trouble.
 */
int rflash_ns_revalidate(struct rflash_ctrl *ctrl)
{
	struct rflash_ns_info info;
	u32 *nsids, nr = 0, i;
	struct rflash_ns *ns;
	int ret = 0;

	nsids = kcalloc(RFLASH_MAX_NAMESPACES, sizeof(*nsids), GFP_KERNEL);
	if (!nsids)
		return -ENOMEM;
	mutex_lock(&ctrl->ns_lock);
	list_for_each_entry(ns, &ctrl->namespaces, entry)
		if (nr < RFLASH_MAX_NAMESPACES)
			nsids[nr++] = ns->info.nsid;
	mutex_unlock(&ctrl->ns_lock);

	for (i = 0; i < nr; i++) {
		ret = rflash_admin_identify_ns(ctrl, nsids[i], &info);
		if (ret == -ENODEV)
			continue;
		if (ret && ret != -EOPNOTSUPP && ret != -EPROTO)
			goto out;
		rflash_ns_check_replaced(ctrl, &info, ret);
	}
	ret = 0;
out:
	kfree(nsids);
	return ret;
}

void rflash_ns_scan_work(struct work_struct *work)
{
	struct rflash_ctrl *ctrl = container_of(work, struct rflash_ctrl,
						scan_work);

	if (rflash_ctrl_state(ctrl) != RFLASH_CTRL_LIVE)
		return;
	/* Unless the connection was lost; then the next one scans again. */
	ctrl->scan_failed = !rflash_ns_scan(ctrl);
	if (!ctrl->scan_failed || rflash_ctrl_state(ctrl) == RFLASH_CTRL_LIVE)
		complete_all(&ctrl->scanned);
}

/**
 * rflash_ns_remove_all - the controller goes; the scan is over
 * @ctrl: the controller
 */
void rflash_ns_remove_all(struct rflash_ctrl *ctrl)
{
	struct rflash_ns *ns, *next;

	list_for_each_entry_safe(ns, next, &ctrl->namespaces, entry)
		rflash_ns_remove(ns);
}
