// SPDX-License-Identifier: GPL-2.0
/*
 * A queue as every transport has it: slots for the driver's own commands,
 * start and stop, faults. Block requests are in request.c.
 */
#define pr_fmt(fmt) "rflash: " fmt

#include <linux/slab.h>

#include "rflash.h"
#include "trace.h"

static unsigned int rflash_queue_nr_slots(u16 qid)
{
	return qid ? RFLASH_SLOT_SYNC + 1 : RFLASH_SLOTS;
}

static void rflash_queue_free_slots(struct rflash_queue *queue)
{
	unsigned int i;

	for (i = 0; i < RFLASH_SLOTS; i++)
		kfree(queue->slots[i]);
	kfree(queue->gens);
}

/**
 * rflash_queue_alloc - make ctrl->queues[qid], not started
 * @ctrl: the controller
 * @qid: queue id, 0 for the admin queue
 *
 * An I/O queue has ctrl->sqsize block requests, the admin queue has none.
 */
int rflash_queue_alloc(struct rflash_ctrl *ctrl, u16 qid)
{
	struct rflash_queue *queue = ctrl->ops->alloc_queue(ctrl, qid);
	unsigned int i;

	if (!queue)
		return -ENOMEM;
	queue->ctrl = ctrl;
	queue->qid = qid;
	queue->depth = qid ? ctrl->sqsize : 0;
	queue->tag_bits = rflash_tag_bits(queue->depth + RFLASH_SLOTS);
	mutex_init(&queue->lock);
	mutex_init(&queue->exec_lock);
	init_completion(&queue->sync_done);

	queue->gens = kcalloc(queue->depth + RFLASH_SLOTS, sizeof(u16),
			      GFP_KERNEL);
	if (!queue->gens)
		goto free_queue;
	for (i = 0; i < rflash_queue_nr_slots(qid); i++) {
		struct rflash_cmd *cmd = kzalloc(ctrl->ops->cmd_size, GFP_KERNEL);

		if (!cmd)
			goto free_slots;
		cmd->queue = queue;
		cmd->internal = true;
		cmd->cid = -1;
		ctrl->ops->init_cmd(cmd);
		queue->slots[i] = cmd;
	}
	ctrl->queues[qid] = queue;
	return 0;

free_slots:
	rflash_queue_free_slots(queue);
free_queue:
	ctrl->ops->free_queue(queue);
	return -ENOMEM;
}

void rflash_queue_free(struct rflash_ctrl *ctrl, u16 qid)
{
	struct rflash_queue *queue = ctrl->queues[qid];

	if (!queue)
		return;
	ctrl->queues[qid] = NULL;
	rflash_queue_free_slots(queue);
	ctrl->ops->free_queue(queue);
}

/**
 * rflash_queue_start - connect the transport of one queue
 * @queue: the queue
 *
 * Bounded by ctrl->connect_timeout. On failure ctrl->last_error says why.
 */
int rflash_queue_start(struct rflash_queue *queue)
{
	int ret;

	mutex_lock(&queue->lock);
	clear_bit(RFLASH_Q_FAILED, &queue->flags);
	ret = queue->ctrl->ops->start(queue);
	if (!ret)
		set_bit(RFLASH_Q_STARTED, &queue->flags);
	mutex_unlock(&queue->lock);
	return ret;
}

/* The queue is stopped: commands in slots will not be answered any more. */
static void rflash_queue_abort_slots(struct rflash_queue *queue)
{
	struct rflash_batch batch = { };
	unsigned int i;

	for (i = 0; i < rflash_queue_nr_slots(queue->qid); i++)
		if (queue->slots[i]->cid != -1)
			rflash_queue_complete(queue->slots[i],
					      RFLASH_STATUS_ABORTED, 0, &batch);
}

/**
 * rflash_queue_stop - nothing of this queue is in the transport any more
 * @queue: the queue
 *
 * The driver's own commands end as aborted; block requests, which must be
 * kept out by quiescing, stay for rflash_tagset_cancel(). Idempotent.
 */
void rflash_queue_stop(struct rflash_queue *queue)
{
	mutex_lock(&queue->lock);
	clear_bit(RFLASH_Q_LIVE, &queue->flags);
	if (test_and_clear_bit(RFLASH_Q_STARTED, &queue->flags)) {
		queue->ctrl->ops->stop(queue);
		rflash_queue_abort_slots(queue);
	}
	mutex_unlock(&queue->lock);
}

/**
 * rflash_queue_fault - a connection is of no more use
 * @queue: the queue
 * @fmt: the reason, as for printk()
 *
 * Says why (the first reason counts), wakes who waits for an answer, and
 * starts recovery. Any context.
 */
void rflash_queue_fault(struct rflash_queue *queue, const char *fmt, ...)
{
	char text[RFLASH_ERROR_LEN];
	va_list args;

	if (test_and_set_bit(RFLASH_Q_FAILED, &queue->flags))
		return;
	va_start(args, fmt);
	vscnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	trace_rflash_fault(queue->ctrl->id, text);
	/* When one connection goes the others follow; the first says why. */
	if (rflash_ctrl_state(queue->ctrl) != RFLASH_CTRL_RECOVERING)
		rflash_ctrl_error(queue->ctrl, "%s", text);
	/* Who waits for an answer must find the state changed. */
	rflash_ctrl_fault(queue->ctrl);
	complete(&queue->sync_done);
}

static void rflash_queue_submit_slot(struct rflash_queue *queue,
				     enum rflash_slot slot,
				     const struct nvme_command *c)
{
	struct rflash_cmd *cmd = queue->slots[slot];

	lockdep_assert_held(&queue->lock);

	memcpy(cmd->sqe, c, sizeof(*c));
	cmd->sqe->common.command_id = rflash_queue_next_cid(queue,
							    queue->depth + slot);
	queue->ctrl->ops->submit(queue, cmd);
	queue->ctrl->ops->kick(queue);
}

static void rflash_queue_sync_done(struct rflash_cmd *cmd)
{
	complete(&cmd->queue->sync_done);
}

/**
 * rflash_queue_exec - carry out one of the driver's own commands
 * @queue: a started queue
 * @c: the command; id and SGL are filled in here
 * @buf: data, from kmalloc, or NULL
 * @len: bytes of data
 * @write: the data goes to the controller
 * @result: where completion dwords 0 and 1 go, or NULL
 * @timeout: jiffies
 *
 * Return: 0, an NVMe status (positive), or -ENOTCONN, -ECONNRESET (the
 * connection broke), -ETIMEDOUT. In the last two cases the queue has been
 * stopped, so that @buf is the caller's again.
 */
int rflash_queue_exec(struct rflash_queue *queue, const struct nvme_command *c,
		      void *buf, u32 len, bool write, u64 *result,
		      unsigned long timeout)
{
	struct rflash_cmd *cmd = queue->slots[RFLASH_SLOT_SYNC];
	bool answered;
	int ret;

	mutex_lock(&queue->exec_lock);
	mutex_lock(&queue->lock);
	ret = -ENOTCONN;
	if (!test_bit(RFLASH_Q_STARTED, &queue->flags))
		goto unlock;

	reinit_completion(&queue->sync_done);
	if (test_bit(RFLASH_Q_FAILED, &queue->flags))
		goto unlock;
	cmd->data_len = len;
	cmd->write = write;
	cmd->done = rflash_queue_sync_done;
	if (len)
		bvec_set_virt(&cmd->bvec, buf, len);
	rflash_queue_submit_slot(queue, RFLASH_SLOT_SYNC, c);
	mutex_unlock(&queue->lock);

	answered = wait_for_completion_timeout(&queue->sync_done, timeout);
	if (!answered)
		rflash_queue_fault(queue, "queue %u: command 0x%02x was not answered in %u ms",
				   queue->qid, c->common.opcode,
				   jiffies_to_msecs(timeout));
	/* A fault wakes us too; then the command may still be in flight. */
	if (smp_load_acquire(&cmd->cid) != -1)
		rflash_queue_stop(queue);

	if (cmd->status == RFLASH_STATUS_ABORTED) {
		ret = answered ? -ECONNRESET : -ETIMEDOUT;
	} else {
		ret = cmd->status;
		if (result)
			*result = cmd->result;
	}
	mutex_unlock(&queue->exec_lock);
	return ret;

unlock:
	mutex_unlock(&queue->lock);
	mutex_unlock(&queue->exec_lock);
	return ret;
}

/**
 * rflash_queue_exec_async - send a command without data and do not wait
 * @queue: the queue
 * @slot: where the command waits for its answer
 * @c: the command; id and SGL are filled in here
 * @done: called on completion, in any context
 *
 * Return: 0, -EBUSY (the slot's last command is unanswered) or -ENOTCONN.
 */
int rflash_queue_exec_async(struct rflash_queue *queue, enum rflash_slot slot,
			    const struct nvme_command *c,
			    void (*done)(struct rflash_cmd *cmd))
{
	struct rflash_cmd *cmd = queue->slots[slot];
	int ret = 0;

	mutex_lock(&queue->lock);
	if (!test_bit(RFLASH_Q_STARTED, &queue->flags)) {
		ret = -ENOTCONN;
	} else if (smp_load_acquire(&cmd->cid) != -1) { /* its result is read next */
		ret = -EBUSY;
	} else {
		cmd->data_len = 0;
		cmd->write = false;
		cmd->done = done;
		rflash_queue_submit_slot(queue, slot, c);
	}
	mutex_unlock(&queue->lock);
	return ret;
}
