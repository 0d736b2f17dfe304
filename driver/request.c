// SPDX-License-Identifier: GPL-2.0
/*
 * Block requests: from blk-mq to NVMe commands and back.
 *
 * queue_rq runs on the submitting CPU and hands commands to the transport,
 * which sends them when blk-mq says that no more are coming (bd->last or
 * commit_rqs). Completions arrive in the transport's receive context, are
 * collected in a batch and ended together.
 */
#define pr_fmt(fmt) "rflash: " fmt

#include <linux/blkdev.h>
#include <linux/ktime.h>

#include "rflash.h"
#include "trace.h"

static blk_status_t rflash_status_to_blk(u16 status)
{
	switch (status & 0x7ff) {
	case NVME_SC_SUCCESS:
		return BLK_STS_OK;
	case NVME_SC_CAP_EXCEEDED:
		return BLK_STS_NOSPC;
	case NVME_SC_LBA_RANGE:
	case NVME_SC_NS_NOT_READY:
	case NVME_SC_INVALID_NS:
		return BLK_STS_TARGET;
	case NVME_SC_BAD_ATTRIBUTES:
	case NVME_SC_INVALID_OPCODE:
	case NVME_SC_INVALID_FIELD:
		return BLK_STS_NOTSUPP;
	case NVME_SC_WRITE_FAULT:
	case NVME_SC_READ_ERROR:
	case NVME_SC_UNWRITTEN_BLOCK:
	case NVME_SC_ACCESS_DENIED:
	case NVME_SC_READ_ONLY:
	case NVME_SC_COMPARE_FAILED:
		return BLK_STS_MEDIUM;
	case NVME_SC_GUARD_CHECK:
	case NVME_SC_APPTAG_CHECK:
	case NVME_SC_REFTAG_CHECK:
	case NVME_SC_INVALID_PI:
		return BLK_STS_PROTECTION;
	default:
		return BLK_STS_IOERR;
	}
}

u16 rflash_queue_next_cid(struct rflash_queue *queue, u16 index)
{
	u16 gen = rflash_gen_next(queue->tag_bits, queue->gens[index]);

	queue->gens[index] = gen;
	return rflash_cid(queue->tag_bits, index, gen);
}

static u64 rflash_ns_lba(struct rflash_ns *ns, sector_t sector)
{
	return sector >> (ns->info.lba_shift - SECTOR_SHIFT);
}

static void rflash_setup_rw(struct rflash_ns *ns, struct request *rq,
			    struct rflash_cmd *cmd, u8 opcode)
{
	struct nvme_rw_command *rw = &cmd->sqe->rw;
	u16 control = 0;

	if (rq->cmd_flags & REQ_FUA)
		control |= NVME_RW_FUA;
	if (rq->cmd_flags & (REQ_FAILFAST_DEV | REQ_RAHEAD))
		control |= NVME_RW_LR;

	rw->opcode = opcode;
	rw->nsid = cpu_to_le32(ns->info.nsid);
	rw->slba = cpu_to_le64(rflash_ns_lba(ns, blk_rq_pos(rq)));
	rw->length = cpu_to_le16((blk_rq_bytes(rq) >> ns->info.lba_shift) - 1);
	rw->control = cpu_to_le16(control);
}

static blk_status_t rflash_setup_discard(struct rflash_ns *ns,
					 struct request *rq,
					 struct rflash_cmd *cmd)
{
	unsigned int nr = blk_rq_nr_discard_segments(rq), n = 0;
	struct nvme_dsm_range *range;
	struct page *page;
	struct bio *bio;

	page = mempool_alloc(ns->ctrl->discard_pool, GFP_ATOMIC);
	if (!page)
		return BLK_STS_RESOURCE;
	range = page_address(page);

	if (queue_max_discard_segments(rq->q) == 1) {
		range[0].cattr = 0;
		range[0].slba = cpu_to_le64(rflash_ns_lba(ns, blk_rq_pos(rq)));
		range[0].nlb = cpu_to_le32(blk_rq_bytes(rq) >> ns->info.lba_shift);
		n = 1;
	} else {
		__rq_for_each_bio(bio, rq) {
			if (n < nr && n < RFLASH_DSM_RANGES) {
				range[n].cattr = 0;
				range[n].slba =
					cpu_to_le64(rflash_ns_lba(ns, bio->bi_iter.bi_sector));
				range[n].nlb = cpu_to_le32(bio->bi_iter.bi_size >>
							   ns->info.lba_shift);
			}
			n++;
		}
	}
	if (WARN_ON_ONCE(n != nr)) {
		mempool_free(page, ns->ctrl->discard_pool);
		return BLK_STS_IOERR;
	}

	bvec_set_page(&cmd->bvec, page, nr * sizeof(*range), 0);
	cmd->special = true;
	cmd->data_len = nr * sizeof(*range);
	cmd->write = true;
	cmd->sqe->dsm.opcode = nvme_cmd_dsm;
	cmd->sqe->dsm.nsid = cpu_to_le32(ns->info.nsid);
	cmd->sqe->dsm.nr = cpu_to_le32(nr - 1);
	cmd->sqe->dsm.attributes = cpu_to_le32(NVME_DSMGMT_AD);
	return BLK_STS_OK;
}

static blk_status_t rflash_setup_cmd(struct rflash_ns *ns, struct request *rq,
				     struct rflash_cmd *cmd)
{
	blk_status_t ret = BLK_STS_OK;

	memset(cmd->sqe, 0, sizeof(*cmd->sqe));
	cmd->data_len = 0;
	cmd->write = false;
	if (!(rq->rq_flags & RQF_DONTPREP)) {
		cmd->retries = 0;
		rq->rq_flags |= RQF_DONTPREP;
	}

	switch (req_op(rq)) {
	case REQ_OP_READ:
		rflash_setup_rw(ns, rq, cmd, nvme_cmd_read);
		cmd->data_len = blk_rq_bytes(rq);
		break;
	case REQ_OP_WRITE:
		rflash_setup_rw(ns, rq, cmd, nvme_cmd_write);
		cmd->data_len = blk_rq_bytes(rq);
		cmd->write = true;
		break;
	case REQ_OP_FLUSH:
		cmd->sqe->common.opcode = nvme_cmd_flush;
		cmd->sqe->common.nsid = cpu_to_le32(ns->info.nsid);
		break;
	case REQ_OP_DISCARD:
		ret = rflash_setup_discard(ns, rq, cmd);
		break;
	case REQ_OP_WRITE_ZEROES:
		rflash_setup_rw(ns, rq, cmd, nvme_cmd_write_zeroes);
		break;
	default:
		return BLK_STS_NOTSUPP;
	}
	if (unlikely(ret))
		return ret;

	cmd->start_ns = rq->start_time_ns;
	if (unlikely(!cmd->start_ns))	/* queue/iostats is off */
		cmd->start_ns = ktime_get_ns();
	cmd->sqe->common.command_id = rflash_queue_next_cid(cmd->queue, rq->tag);
	return BLK_STS_OK;
}

static void rflash_account(struct rflash_cmd *cmd, struct request *rq,
			   u64 now, bool error)
{
	struct rflash_ns *ns = rq->q->queuedata;
	struct rflash_queue_stats *stats = &ns->stats[cmd->queue->qid - 1];
	enum rflash_stats_dir dir = RFLASH_STATS_READ;
	u32 bytes = 0;

	switch (req_op(rq)) {
	case REQ_OP_READ:
		bytes = cmd->data_len;
		break;
	case REQ_OP_WRITE:
		bytes = cmd->data_len;
		fallthrough;
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES:
		dir = RFLASH_STATS_WRITE;
		break;
	default:
		return;
	}
	rflash_stats_account(&stats->dir[dir], bytes, now - cmd->start_ns,
			     error);
}

/*
 * The queue has no connection. blk-mq asks again in a few milliseconds, until
 * the queue is quiesced or has a connection again; unless waiting is over.
 */
static blk_status_t rflash_not_live(struct rflash_cmd *cmd, struct request *rq)
{
	if (!READ_ONCE(cmd->queue->ctrl->io_failing))
		return BLK_STS_RESOURCE;
	rflash_account(cmd, rq, 0, true);
	return BLK_STS_TRANSPORT;
}

static blk_status_t rflash_queue_rq(struct blk_mq_hw_ctx *hctx,
				    const struct blk_mq_queue_data *bd)
{
	struct rflash_queue *queue = hctx->driver_data;
	struct rflash_ns *ns = hctx->queue->queuedata;
	struct rflash_ctrl *ctrl = queue->ctrl;
	struct request *rq = bd->rq;
	struct rflash_cmd *cmd = blk_mq_rq_to_pdu(rq);
	blk_status_t ret;

	if (unlikely(!test_bit(RFLASH_Q_LIVE, &queue->flags)))
		return rflash_not_live(cmd, rq);

	if (unlikely(READ_ONCE(ns->replaced))) {
		rflash_account(cmd, rq, 0, true);
		return BLK_STS_IOERR;
	}
	ret = rflash_setup_cmd(ns, rq, cmd);
	if (unlikely(ret))
		return ret;

	blk_mq_start_request(rq);
	trace_rflash_submit(ctrl->id, queue->qid,
			    cmd->sqe->common.command_id,
			    cmd->sqe->common.opcode,
			    le32_to_cpu(cmd->sqe->common.nsid),
			    blk_rq_pos(rq), blk_rq_bytes(rq));
	ctrl->ops->submit(queue, cmd);
	if (bd->last)
		ctrl->ops->kick(queue);
	return BLK_STS_OK;
}

static void rflash_commit_rqs(struct blk_mq_hw_ctx *hctx)
{
	struct rflash_queue *queue = hctx->driver_data;

	/*
	 * Without LIVE the transport may be stopping: it no longer wants to be
	 * called, and what was submitted is about to be cancelled.
	 */
	if (test_bit(RFLASH_Q_LIVE, &queue->flags))
		queue->ctrl->ops->kick(queue);
}

static void rflash_cmd_cleanup(struct rflash_cmd *cmd)
{
	if (unlikely(cmd->special)) {
		mempool_free(cmd->bvec.bv_page, cmd->queue->ctrl->discard_pool);
		cmd->special = false;
	}
}

/*
 * The slow end of a request: it failed, its connection was lost, or it can't
 * be batched.
 */
static void rflash_complete_rq(struct request *rq)
{
	struct rflash_cmd *cmd = blk_mq_rq_to_pdu(rq);
	struct rflash_ctrl *ctrl = cmd->queue->ctrl;
	u16 status = cmd->status;
	blk_status_t error = BLK_STS_OK;
	bool again = false;

	rflash_cmd_cleanup(cmd);

	if (status == RFLASH_STATUS_ABORTED) {
		again = !READ_ONCE(ctrl->io_failing) && !blk_noretry_request(rq);
		error = BLK_STS_TRANSPORT;
	} else if (status) {
		again = !(status & NVME_STATUS_DNR) && !blk_noretry_request(rq) &&
			cmd->retries < RFLASH_CMD_RETRIES;
		cmd->retries += again;
		error = rflash_status_to_blk(status);
	}

	if (again) {
		blk_mq_requeue_request(rq, true);
		return;
	}
	if (error && status != RFLASH_STATUS_ABORTED && !(rq->rq_flags & RQF_QUIET))
		pr_warn_ratelimited("%s: %s at sector %llu: NVMe status 0x%x\n",
				    rq->q->disk->disk_name,
				    req_op(rq) == REQ_OP_READ ? "read" : "write",
				    (u64)blk_rq_pos(rq), status);
	rflash_account(cmd, rq, ktime_get_ns(), error);
	blk_mq_end_request(rq, error);
}

/**
 * rflash_queue_complete - a command has come to its end
 * @cmd: found by rflash_queue_find(), or from a slot
 * @status: NVMe status without the phase bit, or RFLASH_STATUS_ABORTED
 * @result: completion dwords 0 and 1
 * @batch: of the present burst
 *
 * The transport must not touch @cmd afterwards. Context: the queue's receive
 * path, or anywhere once the queue is stopped.
 */
void rflash_queue_complete(struct rflash_cmd *cmd, u16 status, u64 result,
			   struct rflash_batch *batch)
{
	struct rflash_queue *queue = cmd->queue;
	struct request *rq;

	trace_rflash_complete(queue->ctrl->id, queue->qid, cmd->cid, status,
			      result);
	cmd->status = status;
	cmd->result = result;
	/* Who sees that the command is not in flight must see how it ended. */
	smp_store_release(&cmd->cid, -1);
	if (unlikely(cmd->internal)) {
		cmd->done(cmd);
		return;
	}

	rq = blk_mq_rq_from_pdu(cmd);
	if (likely(!status) &&
	    blk_mq_add_to_batch(rq, &batch->iob, false,
				blk_mq_end_request_batch)) {
		rflash_cmd_cleanup(cmd);
		if (!batch->now)
			batch->now = ktime_get_ns();
		rflash_account(cmd, rq, batch->now, false);
		return;
	}
	if (!blk_mq_complete_request_remote(rq))
		rflash_complete_rq(rq);
}

/**
 * rflash_batch_finish - end what a burst has collected
 * @batch: of the present burst
 */
void rflash_batch_finish(struct rflash_batch *batch)
{
	if (batch->iob.complete)
		batch->iob.complete(&batch->iob);
}

/**
 * rflash_queue_find - the command that a wire command id stands for
 * @queue: the queue
 * @cid: as received
 *
 * NULL if there is none in flight under this index and generation: the id is
 * forged, or late, or was answered before. Context: the queue's receive path.
 */
struct rflash_cmd *rflash_queue_find(struct rflash_queue *queue, u16 cid)
{
	u16 index = rflash_cid_index(queue->tag_bits, cid);
	struct rflash_cmd *cmd;
	struct request *rq;

	if (likely(index < queue->depth)) {
		rq = blk_mq_tag_to_rq(queue->tags, index);
		if (unlikely(!rq || !blk_mq_request_started(rq)))
			return NULL;
		cmd = blk_mq_rq_to_pdu(rq);
	} else {
		index -= queue->depth;
		if (index >= RFLASH_SLOTS || !queue->slots[index])
			return NULL;
		cmd = queue->slots[index];
	}
	return likely(cmd->cid == cid) ? cmd : NULL;
}

static enum blk_eh_timer_return rflash_timeout(struct request *rq)
{
	struct rflash_cmd *cmd = blk_mq_rq_to_pdu(rq);

	/*
	 * Whether the command will still be executed is unknown, so it can't
	 * be ended here: the connection goes, and recovery decides.
	 */
	rflash_queue_fault(cmd->queue, "queue %u: a %s of %u bytes was not answered in %u s",
			   cmd->queue->qid,
			   req_op(rq) == REQ_OP_READ ? "read" : "write",
			   cmd->data_len, rq->timeout / HZ);
	return BLK_EH_RESET_TIMER;
}

static int rflash_init_request(struct blk_mq_tag_set *set, struct request *rq,
			       unsigned int hctx_idx,
			       rflash_compat_numa_node_t numa_node)
{
	struct rflash_ctrl *ctrl = set->driver_data;
	struct rflash_cmd *cmd = blk_mq_rq_to_pdu(rq);

	cmd->queue = ctrl->queues[hctx_idx + 1];
	cmd->cid = -1;
	ctrl->ops->init_cmd(cmd);
	return 0;
}

static int rflash_init_hctx(struct blk_mq_hw_ctx *hctx, void *data,
			    unsigned int hctx_idx)
{
	struct rflash_ctrl *ctrl = data;

	hctx->driver_data = ctrl->queues[hctx_idx + 1];
	return 0;
}

static const struct blk_mq_ops rflash_mq_ops = {
	.queue_rq	= rflash_queue_rq,
	.commit_rqs	= rflash_commit_rqs,
	.complete	= rflash_complete_rq,
	.timeout	= rflash_timeout,
	.init_request	= rflash_init_request,
	.init_hctx	= rflash_init_hctx,
};

/**
 * rflash_tagset_alloc - tags and commands for nr_io_queues queues
 * @ctrl: the controller
 */
int rflash_tagset_alloc(struct rflash_ctrl *ctrl)
{
	struct blk_mq_tag_set *set = &ctrl->tagset;
	u32 i;
	int ret;

	memset(set, 0, sizeof(*set));
	set->ops = &rflash_mq_ops;
	set->nr_hw_queues = ctrl->nr_io_queues;
	set->queue_depth = ctrl->sqsize;	/* a full queue has one entry free */
	set->numa_node = NUMA_NO_NODE;
	set->cmd_size = ctrl->ops->cmd_size;
	set->timeout = RFLASH_IO_TIMEOUT;
	set->flags = BLK_MQ_F_NO_SCHED_BY_DEFAULT | RFLASH_COMPAT_MQ_FLAGS;
	set->driver_data = ctrl;

	ret = blk_mq_alloc_tag_set(set);
	if (ret)
		return ret;
	if (set->nr_hw_queues != ctrl->nr_io_queues ||
	    set->queue_depth != ctrl->sqsize) {
		/* blk-mq scales down when memory is short or in a crash kernel */
		blk_mq_free_tag_set(set);
		return -ENOMEM;
	}
	for (i = 0; i < ctrl->nr_io_queues; i++)
		ctrl->queues[i + 1]->tags = set->tags[i];
	/* Who looks at the queues, control.c, may do so from here on. */
	mutex_lock(&ctrl->connection_lock);
	ctrl->tagset_ready = true;
	mutex_unlock(&ctrl->connection_lock);
	return 0;
}

void rflash_tagset_free(struct rflash_ctrl *ctrl)
{
	if (!ctrl->tagset_ready)
		return;
	ctrl->tagset_ready = false;
	blk_mq_free_tag_set(&ctrl->tagset);
}

static bool rflash_cancel_rq(struct request *rq, void *data)
{
	struct rflash_cmd *cmd = blk_mq_rq_to_pdu(rq);

	if (!blk_mq_request_started(rq) || blk_mq_request_completed(rq))
		return true;
	cmd->cid = -1;
	cmd->status = RFLASH_STATUS_ABORTED;
	blk_mq_complete_request(rq);
	return true;
}

/**
 * rflash_tagset_cancel - take back what was in flight
 * @ctrl: the controller
 *
 * The queues are quiesced and stopped. Requests are put aside to be sent
 * again, or failed if ctrl->io_failing.
 */
void rflash_tagset_cancel(struct rflash_ctrl *ctrl)
{
	if (!ctrl->tagset_ready)
		return;
	blk_mq_tagset_busy_iter(&ctrl->tagset, rflash_cancel_rq, NULL);
	blk_mq_tagset_wait_completed_request(&ctrl->tagset);
}
