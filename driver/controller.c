// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a controller: created, found, removed; its state.
 *
 * Removal has two phases. First the state becomes DELETING: no connection is
 * made any more, nobody else can start a removal. Then remove_work takes away,
 * in this order, all who could still use the controller:
 *   1. recovery, reconnect and fast-fail work (cancelled and waited for)
 *   2. scan work (I/O is failed first if there is no connection, so that it
 *      can't wait for ever)
 *   3. the disks (del_gendisk waits for their I/O; a connection lost meanwhile
 *      ends in recovery_work, which in DELETING fails the I/O)
 *   4. keep-alive and event work, then the connections themselves
 *   5. the list of controllers
 * What may remain are open block devices and lookups under way. Both hold a
 * reference on the structure and use nothing but its memory.
 */
#define pr_fmt(fmt) "rflash: " fmt

#include <linux/idr.h>
#include <linux/slab.h>
#include <net/ipv6.h>

#include "rflash.h"
#include "trace.h"

/* Connections, timers. Never blocks on our own I/O; used in memory reclaim. */
struct workqueue_struct *rflash_wq;
/* Scans and removals, which may wait for I/O that recovery has to resume. */
struct workqueue_struct *rflash_slow_wq;

/* Protects the list, and that no two controllers are made for one target. */
static DEFINE_MUTEX(rflash_ctrls_lock);
static LIST_HEAD(rflash_ctrls);
static DEFINE_IDA(rflash_ctrl_ids);

void rflash_opts_free(struct rflash_opts *opts)
{
	kfree(opts->traddr);
	kfree(opts->trsvcid);
	kfree(opts->host_traddr);
	kfree(opts->subsys_nqn);
	kfree(opts->host_nqn);
}

static void rflash_ctrl_release(struct kref *ref)
{
	struct rflash_ctrl *ctrl = container_of(ref, struct rflash_ctrl, ref);

	mempool_destroy(ctrl->discard_pool);
	rflash_opts_free(&ctrl->opts);
	put_net(ctrl->net);
	ida_free(&rflash_ctrl_ids, ctrl->id);
	kfree(ctrl->queues);
	kfree(ctrl);
}

void rflash_ctrl_put(struct rflash_ctrl *ctrl)
{
	kref_put(&ctrl->ref, rflash_ctrl_release);
}

enum rflash_ctrl_state rflash_ctrl_state(struct rflash_ctrl *ctrl)
{
	return READ_ONCE(ctrl->state);
}

/**
 * rflash_ctrl_tenant - what the target promises, as of the last connect
 * @ctrl: the controller
 * @granted: filled in; its class is RFLASH_TENANT_NONE if the target said nothing
 *
 * Return: what came of asking. Any context.
 */
enum rflash_tenant_state rflash_ctrl_tenant(struct rflash_ctrl *ctrl,
					    struct rflash_tenant *granted)
{
	enum rflash_tenant_state state;
	unsigned long flags;

	spin_lock_irqsave(&ctrl->lock, flags);
	state = ctrl->tenant_state;
	*granted = ctrl->tenant_granted;
	spin_unlock_irqrestore(&ctrl->lock, flags);
	return state;
}

/**
 * rflash_ctrl_event - move the state: the only place that writes it
 * @ctrl: the controller
 * @event: what has happened
 *
 * Return: false if the table refuses; then nothing has changed, and the caller
 * must deal with it. Any context.
 */
bool rflash_ctrl_event(struct rflash_ctrl *ctrl, enum rflash_event event)
{
	enum rflash_ctrl_state from;
	unsigned long flags;
	int next;

	spin_lock_irqsave(&ctrl->lock, flags);
	from = ctrl->state;
	next = rflash_state_next(from, event);
	if (next >= 0)
		WRITE_ONCE(ctrl->state, next);
	spin_unlock_irqrestore(&ctrl->lock, flags);

	if (next < 0)
		return false;
	trace_rflash_state(ctrl->id, from, next);
	rflash_control_state_changed(ctrl, next);
	return true;
}

/**
 * rflash_ctrl_error - remember and log why a connection failed
 * @ctrl: the controller
 * @fmt: the reason, as for printk()
 *
 * Shown by the command, and returned to who asked for the connect. Within one
 * outage repeats of the same reason are not logged again. Any context.
 */
void rflash_ctrl_error(struct rflash_ctrl *ctrl, const char *fmt, ...)
{
	char text[RFLASH_ERROR_LEN];
	unsigned long flags;
	va_list args;
	bool news;

	va_start(args, fmt);
	vscnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	spin_lock_irqsave(&ctrl->lock, flags);
	news = !ctrl->error_logged || strcmp(ctrl->last_error, text);
	ctrl->error_logged = true;
	strscpy(ctrl->last_error, text, sizeof(ctrl->last_error));
	spin_unlock_irqrestore(&ctrl->lock, flags);
	if (news)
		rflash_warn(ctrl, "%s", text);
}

/**
 * rflash_ctrl_find - the controller with this id
 * @net: it must be of this network namespace
 * @id: its id
 *
 * Return: with a reference, or NULL.
 */
struct rflash_ctrl *rflash_ctrl_find(const struct net *net, u32 id)
{
	struct rflash_ctrl *ctrl = rflash_ctrl_next(net, id);

	if (!ctrl || ctrl->id == id)
		return ctrl;
	rflash_ctrl_put(ctrl);
	return NULL;
}

/**
 * rflash_ctrl_next - the controller with the smallest id of @id or more
 * @net: of this network namespace; NULL for any
 * @id: smallest id wanted
 *
 * Return: with a reference, or NULL.
 */
struct rflash_ctrl *rflash_ctrl_next(const struct net *net, u32 id)
{
	struct rflash_ctrl *ctrl, *best = NULL;

	mutex_lock(&rflash_ctrls_lock);
	list_for_each_entry(ctrl, &rflash_ctrls, entry)
		if ((!net || net_eq(ctrl->net, net)) && ctrl->id >= id &&
		    (!best || ctrl->id < best->id))
			best = ctrl;
	if (best)
		kref_get(&best->ref);
	mutex_unlock(&rflash_ctrls_lock);
	return best;
}

static bool rflash_same_addr(const struct sockaddr_storage *a,
			     const struct sockaddr_storage *b)
{
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;
	const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET6)
		return ipv6_addr_equal(&a6->sin6_addr, &b6->sin6_addr) &&
		       a6->sin6_port == b6->sin6_port &&
		       a6->sin6_scope_id == b6->sin6_scope_id;
	return a4->sin_addr.s_addr == b4->sin_addr.s_addr &&
	       a4->sin_port == b4->sin_port;
}

static struct rflash_ctrl *rflash_ctrl_twin(const struct rflash_ctrl *ctrl)
{
	const struct rflash_opts *a = &ctrl->opts;
	struct rflash_ctrl *twin;

	lockdep_assert_held(&rflash_ctrls_lock);

	list_for_each_entry(twin, &rflash_ctrls, entry) {
		const struct rflash_opts *b = &twin->opts;

		if (net_eq(ctrl->net, twin->net) &&
		    !strcmp(a->subsys_nqn, b->subsys_nqn) &&
		    !strcmp(a->host_nqn, b->host_nqn) &&
		    rflash_same_addr(&ctrl->addr, &twin->addr) &&
		    rflash_same_addr(&ctrl->host_addr, &twin->host_addr) &&
		    rflash_ctrl_state(twin) < RFLASH_CTRL_DELETING)
			return twin;
	}
	return NULL;
}

/*
 * Make it known, unless there is one like it. If that is still connecting, wait
 * until its disks are there: who asks twice may count on them, too.
 */
static int rflash_ctrl_list(struct rflash_ctrl *ctrl, char *error)
{
	struct rflash_ctrl *twin;
	bool gone;

	do {
		mutex_lock(&rflash_ctrls_lock);
		twin = rflash_ctrl_twin(ctrl);
		kref_get(twin ? &twin->ref : &ctrl->ref);
		if (!twin)
			list_add_tail(&ctrl->entry, &rflash_ctrls);
		mutex_unlock(&rflash_ctrls_lock);
		if (!twin)
			return 0;

		wait_for_completion_timeout(&twin->scanned,
					    4 * twin->connect_timeout);
		gone = rflash_ctrl_state(twin) >= RFLASH_CTRL_DELETING;
		snprintf(error, RFLASH_ERROR_LEN,
			 "controller %u is already connected there as this host",
			 twin->id);
		rflash_ctrl_put(twin);
	} while (gone);
	return -EALREADY;
}

static void rflash_remove_work(struct work_struct *work)
{
	struct rflash_ctrl *ctrl = container_of(work, struct rflash_ctrl,
						remove_work);
	bool connected, served;
	u32 i;

	/* The first connect, if it is still under way, has the queues. */
	wait_for_completion(&ctrl->settled);
	rflash_recovery_cancel(ctrl);
	connected = ctrl->tagset_ready && !READ_ONCE(ctrl->io_failing) &&
		    test_bit(RFLASH_Q_LIVE, &ctrl->queues[1]->flags) &&
		    !test_bit(RFLASH_Q_FAILED, &ctrl->queues[0]->flags);
	for (i = 1; connected && i <= ctrl->nr_io_queues; i++)
		connected = !test_bit(RFLASH_Q_FAILED, &ctrl->queues[i]->flags);
	if (!connected) {
		WRITE_ONCE(ctrl->io_failing, true);
		rflash_ctrl_disconnect(ctrl);
	}
	cancel_work_sync(&ctrl->scan_work);
	complete_all(&ctrl->scanned);
	rflash_ns_remove_all(ctrl);

	cancel_delayed_work_sync(&ctrl->keep_alive_work);
	cancel_work_sync(&ctrl->event_work);
	rflash_admin_shutdown(ctrl);
	rflash_ctrl_disconnect(ctrl);
	/* A fault on the way here has queued it; there is nothing left to do. */
	cancel_work_sync(&ctrl->recovery_work);
	/* Stopping the queues has ended an event request, which queues work. */
	cancel_work_sync(&ctrl->event_work);

	served = ctrl->tagset_ready;
	mutex_lock(&ctrl->connection_lock);
	rflash_tagset_free(ctrl);
	for (i = 0; i <= ctrl->max_io_queues; i++)
		rflash_queue_free(ctrl, i);
	mutex_unlock(&ctrl->connection_lock);

	mutex_lock(&rflash_ctrls_lock);
	list_del(&ctrl->entry);
	mutex_unlock(&rflash_ctrls_lock);
	rflash_ctrl_event(ctrl, RFLASH_EV_DELETED);
	if (served)
		rflash_info(ctrl, "removed");
	complete_all(&ctrl->removed);
	rflash_ctrl_put(ctrl);
}

/**
 * rflash_ctrl_delete - begin to remove a controller; does not wait
 * @ctrl: the controller
 *
 * Wait for ctrl->removed to be sure. Return: -ENODEV if it is being removed
 * already.
 */
int rflash_ctrl_delete(struct rflash_ctrl *ctrl)
{
	if (!rflash_ctrl_event(ctrl, RFLASH_EV_DELETE))
		return -ENODEV;
	queue_work(rflash_slow_wq, &ctrl->remove_work);
	return 0;
}

void rflash_ctrl_delete_all(void)
{
	struct rflash_ctrl *ctrl;

	while ((ctrl = rflash_ctrl_next(NULL, 0))) {
		rflash_ctrl_delete(ctrl);
		wait_for_completion(&ctrl->removed);
		rflash_ctrl_put(ctrl);
	}
}

static struct rflash_ctrl *rflash_ctrl_alloc(struct net *net,
					     const struct rflash_transport_ops *ops,
					     struct rflash_opts *opts)
{
	struct rflash_ctrl *ctrl = kzalloc(sizeof(*ctrl), GFP_KERNEL);
	int id;

	if (!ctrl)
		return NULL;
	ctrl->max_io_queues = opts->nr_io_queues;
	ctrl->queues = kcalloc(ctrl->max_io_queues + 1, sizeof(*ctrl->queues),
			       GFP_KERNEL);
	if (!ctrl->queues)
		goto free_ctrl;
	ctrl->discard_pool = mempool_create_page_pool(2, 0);
	if (!ctrl->discard_pool)
		goto free_queues;
	id = ida_alloc(&rflash_ctrl_ids, GFP_KERNEL);
	if (id < 0)
		goto destroy_pool;

	ctrl->id = id;
	ctrl->ops = ops;
	ctrl->net = get_net(net);
	ctrl->state = RFLASH_CTRL_NEW;
	ctrl->connect_timeout = (opts->kato ? opts->kato :
				 RFLASH_KATO_DEFAULT) * HZ;
	kref_init(&ctrl->ref);
	spin_lock_init(&ctrl->lock);
	mutex_init(&ctrl->connection_lock);
	mutex_init(&ctrl->ns_lock);
	INIT_LIST_HEAD(&ctrl->namespaces);
	INIT_WORK(&ctrl->scan_work, rflash_ns_scan_work);
	INIT_WORK(&ctrl->event_work, rflash_admin_event_work);
	INIT_DELAYED_WORK(&ctrl->keep_alive_work, rflash_admin_keep_alive_work);
	INIT_WORK(&ctrl->remove_work, rflash_remove_work);
	init_completion(&ctrl->scanned);
	init_completion(&ctrl->settled);
	init_completion(&ctrl->removed);
	rflash_recovery_init(ctrl);
	/* From here on the strings are the controller's. */
	ctrl->opts = *opts;
	memset(opts, 0, sizeof(*opts));
	return ctrl;

destroy_pool:
	mempool_destroy(ctrl->discard_pool);
free_queues:
	kfree(ctrl->queues);
free_ctrl:
	kfree(ctrl);
	return NULL;
}

/* The first connect and the first scan. */
static int rflash_ctrl_setup(struct rflash_ctrl *ctrl)
{
	int ret;

	rflash_ctrl_event(ctrl, RFLASH_EV_CONNECT);
	ret = rflash_queue_alloc(ctrl, 0);
	if (!ret)
		ret = rflash_ctrl_connect(ctrl);
	if (!ret)
		rflash_ctrl_live(ctrl);
	complete_all(&ctrl->settled);
	if (ret)
		return ret;
	if (!wait_for_completion_timeout(&ctrl->scanned,
					 4 * ctrl->connect_timeout)) {
		rflash_ctrl_error(ctrl, "the namespaces could not be read in %u s",
				  (u32)(4 * ctrl->connect_timeout / HZ));
		return -ETIMEDOUT;
	}
	if (rflash_ctrl_state(ctrl) >= RFLASH_CTRL_DELETING) {
		rflash_ctrl_error(ctrl, "it was removed while it was connecting");
		return -ECANCELED;
	}
	if (ctrl->scan_failed)
		return -EIO;
	return 0;
}

/**
 * rflash_ctrl_create - connect to a subsystem and make its disks
 * @ops: the transport
 * @net: the network namespace that the connections live in
 * @opts: validated; its strings are taken over, or freed
 * @created: the controller, with a reference for the caller
 * @error: RFLASH_ERROR_LEN bytes for the reason of a failure
 *
 * Return: 0 when the disks are usable, or a negative errno with nothing left
 * behind.
 */
int rflash_ctrl_create(struct net *net, const struct rflash_transport_ops *ops,
		       struct rflash_opts *opts, struct rflash_ctrl **created,
		       char *error)
{
	struct rflash_ctrl *ctrl = rflash_ctrl_alloc(net, ops, opts);
	int ret;

	if (!ctrl) {
		rflash_opts_free(opts);
		strscpy(error, "out of memory", RFLASH_ERROR_LEN);
		return -ENOMEM;
	}
	ret = ops->parse_addr(ctrl);
	if (ret) {
		strscpy(error, ctrl->last_error, RFLASH_ERROR_LEN);
		goto put_ctrl;
	}
	ret = rflash_ctrl_list(ctrl, error);
	if (ret)
		goto put_ctrl;

	ret = rflash_ctrl_setup(ctrl);
	if (ret) {
		strscpy(error, ctrl->last_error[0] ? ctrl->last_error :
			"out of memory", RFLASH_ERROR_LEN);
		if (rflash_ctrl_event(ctrl, RFLASH_EV_GIVE_UP) ||
		    rflash_ctrl_event(ctrl, RFLASH_EV_DELETE))
			queue_work(rflash_slow_wq, &ctrl->remove_work);
		wait_for_completion(&ctrl->removed);
		goto put_ctrl;
	}
	rflash_info(ctrl, "connected, %u I/O queues of %u entries",
		    ctrl->nr_io_queues, ctrl->sqsize + 1);
	*created = ctrl;
	return 0;

put_ctrl:
	rflash_ctrl_put(ctrl);
	return ret;
}

int rflash_ctrl_init(void)
{
	rflash_wq = alloc_workqueue("rflash", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!rflash_wq)
		return -ENOMEM;
	rflash_slow_wq = alloc_workqueue("rflash_slow", WQ_UNBOUND, 0);
	if (!rflash_slow_wq) {
		destroy_workqueue(rflash_wq);
		return -ENOMEM;
	}
	return 0;
}

void rflash_ctrl_exit(void)
{
	destroy_workqueue(rflash_slow_wq);
	destroy_workqueue(rflash_wq);
	ida_destroy(&rflash_ctrl_ids);
}
