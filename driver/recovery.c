// SPDX-License-Identifier: GPL-2.0
/*
 * How a controller gets its connections, loses them, and gets them back.
 *
 * There is one way in, rflash_ctrl_connect(), for the first connect and every
 * later one, and one funnel for all that goes wrong, rflash_ctrl_fault(). In
 * between stand these timers, none of which needs to be exact:
 *
 *	recovery_work	at once after a fault: takes the connections down and
 *			holds the I/O
 *	reconnect_work	every reconnect_delay seconds until it succeeds, and
 *			once more when ctrl_loss_tmo is over, to give up
 *	fast_fail_work	fast_io_fail_tmo after the fault: fails the held I/O
 *	keep_alive_work	(admin.c) finds a dead peer
 */
#define pr_fmt(fmt) "rflash: " fmt

#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "rflash.h"
#include "trace.h"

/**
 * rflash_ctrl_fault - something is wrong with a connection
 * @ctrl: the controller
 *
 * The caller has said what, by rflash_queue_fault(). While connecting this
 * does nothing, since the connect path finds out by itself. Any context.
 */
void rflash_ctrl_fault(struct rflash_ctrl *ctrl)
{
	if (rflash_ctrl_event(ctrl, RFLASH_EV_FAULT) ||
	    rflash_ctrl_state(ctrl) == RFLASH_CTRL_DELETING)
		queue_work(rflash_wq, &ctrl->recovery_work);
}

/**
 * rflash_ctrl_fail_io - from now on I/O fails instead of waiting
 * @ctrl: the controller
 */
void rflash_ctrl_fail_io(struct rflash_ctrl *ctrl)
{
	WRITE_ONCE(ctrl->io_failing, true);
	rflash_ns_unquiesce_all(ctrl);
}

/**
 * rflash_ctrl_disconnect - take all connections down and the I/O back
 * @ctrl: the controller
 *
 * Afterwards no context is left in the transport and nothing is in flight:
 * requests are held, or failed if ctrl->io_failing. Idempotent.
 */
void rflash_ctrl_disconnect(struct rflash_ctrl *ctrl)
{
	u32 i;

	mutex_lock(&ctrl->connection_lock);
	for (i = 1; i <= ctrl->max_io_queues; i++)
		if (ctrl->queues[i])
			clear_bit(RFLASH_Q_LIVE, &ctrl->queues[i]->flags);
	rflash_ns_quiesce_all(ctrl);

	for (i = 0; i <= ctrl->max_io_queues; i++)
		if (ctrl->queues[i])
			rflash_queue_stop(ctrl->queues[i]);
	rflash_tagset_cancel(ctrl);

	if (READ_ONCE(ctrl->io_failing))
		rflash_ns_unquiesce_all(ctrl);
	mutex_unlock(&ctrl->connection_lock);
}

/* I/O queues: as many as the target grants, at least as many as are in use. */
static int rflash_connect_io(struct rflash_ctrl *ctrl)
{
	bool first = !ctrl->tagset_ready;
	u32 nr = first ? ctrl->opts.nr_io_queues : ctrl->nr_io_queues;
	u32 asked = nr, i;
	int ret;

	ret = rflash_admin_set_queues(ctrl, &nr);
	if (ret)
		return ret;
	if (!first && nr < asked) {
		rflash_ctrl_error(ctrl,
				  "the target now grants %u I/O queues, %u are in use: disconnect and connect again",
				  nr, asked);
		return -ENOSPC;
	}
	ctrl->nr_io_queues = nr;

	for (i = 1; i <= nr; i++) {
		if (!ctrl->queues[i]) {
			ret = rflash_queue_alloc(ctrl, i);
			if (ret)
				return ret;
		}
		ret = rflash_queue_start(ctrl->queues[i]);
		if (!ret)
			ret = rflash_admin_connect(ctrl->queues[i]);
		if (ret)
			return ret;
		if (rflash_ctrl_state(ctrl) == RFLASH_CTRL_DELETING)
			return -ECANCELED;
	}
	return first ? rflash_tagset_alloc(ctrl) : 0;
}

/**
 * rflash_ctrl_connect - make all connections of a controller
 * @ctrl: the controller
 *
 * The first time and every time after. On failure all is down again and
 * ctrl->last_error says why.
 *
 * Return: 0 or a negative errno as in uapi/rflash.h.
 */
int rflash_ctrl_connect(struct rflash_ctrl *ctrl)
{
	int ret;

	ret = rflash_queue_start(ctrl->queues[0]);
	if (!ret)
		ret = rflash_admin_connect(ctrl->queues[0]);
	if (!ret)
		ret = rflash_admin_setup(ctrl);
	if (!ret)
		ret = rflash_admin_tenant(ctrl);
	if (!ret)
		ret = rflash_connect_io(ctrl);
	if (!ret)
		ret = rflash_ns_revalidate(ctrl);
	if (ret)
		rflash_ctrl_disconnect(ctrl);
	return ret;
}

/**
 * rflash_ctrl_live - all connections are there: serve
 * @ctrl: the controller
 *
 * Return after this the controller is LIVE, or a fault was seen meanwhile and
 * recovery is on its way, or it is being removed.
 */
void rflash_ctrl_live(struct rflash_ctrl *ctrl)
{
	u32 i;

	cancel_delayed_work_sync(&ctrl->fast_fail_work);
	mutex_lock(&ctrl->connection_lock);
	WRITE_ONCE(ctrl->io_failing, false);
	if (!rflash_ctrl_event(ctrl, RFLASH_EV_CONNECTED)) {
		mutex_unlock(&ctrl->connection_lock);
		/* Removal has overtaken us and waits for this work to end. */
		rflash_ctrl_disconnect(ctrl);
		return;
	}
	for (i = 1; i <= ctrl->nr_io_queues; i++)
		set_bit(RFLASH_Q_LIVE, &ctrl->queues[i]->flags);
	ctrl->error_logged = false;
	ctrl->target_closed = false;
	rflash_ns_unquiesce_all(ctrl);
	rflash_admin_keep_alive_start(ctrl);
	mutex_unlock(&ctrl->connection_lock);
	rflash_admin_events_start(ctrl);
	queue_work(rflash_slow_wq, &ctrl->scan_work);

	/* A fault before the state was LIVE has not counted as one. */
	for (i = 0; i <= ctrl->nr_io_queues; i++)
		if (test_bit(RFLASH_Q_FAILED, &ctrl->queues[i]->flags))
			rflash_ctrl_fault(ctrl);
}

/* Seconds of ctrl_loss_tmo that are left; -1 without a limit. */
static s32 rflash_loss_left(struct rflash_ctrl *ctrl)
{
	s32 tmo = ctrl->opts.ctrl_loss_tmo;
	unsigned long gone = (jiffies - ctrl->fault_jiffies) / HZ;

	if (tmo < 0)
		return -1;
	return gone >= tmo ? 0 : tmo - gone;
}

static void rflash_schedule_reconnect(struct rflash_ctrl *ctrl)
{
	unsigned long gone = (jiffies - ctrl->fault_jiffies) / HZ;
	s32 left = rflash_loss_left(ctrl);
	u32 quiet = ctrl->opts.kato * (ctrl->tbkas ? 2 : 1);
	u32 delay = ctrl->opts.reconnect_delay;

	/*
	 * Unless the target hung up, it may not know yet that the association
	 * is over, and still carry out what it has of it. It does know once the
	 * keep-alive timeout has passed; twice that where any command counts as a
	 * sign of life. Only then are writes sent again.
	 */
	if (!ctrl->target_closed && gone < quiet)
		delay = max_t(u32, delay, quiet - gone);
	if (left >= 0)
		delay = min_t(u32, delay, left);
	queue_delayed_work(rflash_wq, &ctrl->reconnect_work, delay * HZ);
}

static void rflash_recovery_work(struct work_struct *work)
{
	struct rflash_ctrl *ctrl = container_of(work, struct rflash_ctrl,
						recovery_work);
	unsigned int noio = memalloc_noio_save();

	if (rflash_ctrl_state(ctrl) == RFLASH_CTRL_DELETING)
		WRITE_ONCE(ctrl->io_failing, true);
	ctrl->fault_jiffies = jiffies;
	rflash_ctrl_disconnect(ctrl);
	cancel_delayed_work_sync(&ctrl->keep_alive_work);

	if (rflash_ctrl_event(ctrl, RFLASH_EV_TORN_DOWN)) {
		if (ctrl->opts.fast_io_fail_tmo >= 0)
			queue_delayed_work(rflash_wq, &ctrl->fast_fail_work,
					   ctrl->opts.fast_io_fail_tmo * HZ);
		rflash_schedule_reconnect(ctrl);
	} else {
		/* Being removed: nobody will come back for what is held. */
		rflash_ctrl_fail_io(ctrl);
	}
	memalloc_noio_restore(noio);
}

static void rflash_reconnect_work(struct work_struct *work)
{
	struct rflash_ctrl *ctrl = container_of(to_delayed_work(work),
						struct rflash_ctrl,
						reconnect_work);
	unsigned int noio;
	int ret;

	if (rflash_ctrl_state(ctrl) != RFLASH_CTRL_RECONNECTING)
		return;
	if (rflash_loss_left(ctrl) == 0) {
		rflash_warn(ctrl, "no connection for %d s (ctrl_loss_tmo): removing it",
			    ctrl->opts.ctrl_loss_tmo);
		rflash_ctrl_fail_io(ctrl);
		rflash_ctrl_delete(ctrl);
		return;
	}
	/* Memory reclaim may be waiting for the I/O that we hold. */
	noio = memalloc_noio_save();
	ret = rflash_ctrl_connect(ctrl);
	memalloc_noio_restore(noio);
	if (!ret) {
		ctrl->reconnects++;
		rflash_ctrl_live(ctrl);
		rflash_info(ctrl, "connected again after %lu s",
			    (jiffies - ctrl->fault_jiffies) / HZ);
	} else {
		rflash_schedule_reconnect(ctrl);
	}
}

static void rflash_fast_fail_work(struct work_struct *work)
{
	struct rflash_ctrl *ctrl = container_of(to_delayed_work(work),
						struct rflash_ctrl,
						fast_fail_work);

	rflash_warn(ctrl, "no connection for %d s (fast_io_fail_tmo): I/O fails until there is one",
		    ctrl->opts.fast_io_fail_tmo);
	rflash_ctrl_fail_io(ctrl);
}

void rflash_recovery_init(struct rflash_ctrl *ctrl)
{
	INIT_WORK(&ctrl->recovery_work, rflash_recovery_work);
	INIT_DELAYED_WORK(&ctrl->reconnect_work, rflash_reconnect_work);
	INIT_DELAYED_WORK(&ctrl->fast_fail_work, rflash_fast_fail_work);
}

/**
 * rflash_recovery_cancel - no reconnect from here on
 * @ctrl: the controller
 *
 * The state is DELETING. A connect under way ends first.
 */
void rflash_recovery_cancel(struct rflash_ctrl *ctrl)
{
	cancel_work_sync(&ctrl->recovery_work);
	cancel_delayed_work_sync(&ctrl->reconnect_work);
	cancel_delayed_work_sync(&ctrl->fast_fail_work);
}
