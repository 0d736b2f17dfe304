/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the rooms of the driver share. Data comes in through namespace.c, is
 * given a tag and a command in queue.c, becomes PDUs in tcp*.c, and its
 * completion takes the same way back. Control comes in through control.c and
 * acts on controller.c.
 */
#ifndef RFLASH_H
#define RFLASH_H

#include <linux/blk-mq.h>
#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/llist.h>
#include <linux/mempool.h>
#include <linux/mutex.h>
#include <linux/socket.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>

#include "uapi/rflash.h"
#include "wire.h"
#include "state.h"
#include "stats.h"
#include "tags.h"
#include "tenant.h"
#include "transport.h"

#define RFLASH_ERROR_LEN	320
#define RFLASH_WWID_LEN		160	/* "nvme." with serial and model in hex: 142 */
#define RFLASH_IO_TIMEOUT	(30 * HZ)
#define RFLASH_CMD_RETRIES	5
#define RFLASH_MAX_HW_SECTORS	8192u	/* 4 MiB; the controller may want less */
#define RFLASH_DSM_RANGES	256u	/* NVM command set, Dataset Management */
#define RFLASH_MAX_NAMESPACES	256u	/* disks per controller */

struct rflash_ns;

/**
 * struct rflash_cmd - one NVMe command, the unit that a transport moves
 *
 * Owned by whoever submitted it until rflash_queue_complete() is called, or
 * until the queue has been stopped. Nothing in it is shared between CPUs
 * while it is in flight except through the queue.
 *
 * @sqe: the submission queue entry, in the transport's own buffer
 * @queue: the queue it is in flight on
 * @node: the transport's list of commands to be sent
 * @data_len: bytes of data that belong to the command, 0 if none
 * @cid: wire command id (index and generation); -1 while not in flight, so
 *	that no completion matches
 * @status: NVMe status without phase bit, or RFLASH_STATUS_ABORTED
 * @retries: how often it has been sent again on the target's advice
 * @write: data goes to the controller
 * @internal: not a block request; @done is called on completion
 * @special: @bvec holds a discard page
 * @bvec: data of internal commands and of discards
 * @start_ns: when the block layer started the request
 * @result: completion dword 0 and 1
 * @done: of internal commands: called on completion, in any context
 */
struct rflash_cmd {
	struct nvme_command *sqe;
	struct rflash_queue *queue;
	struct llist_node node;
	u32 data_len;
	s32 cid;
	u16 status;
	u8 retries;
	bool write;
	bool internal;
	bool special;
	struct bio_vec bvec;
	u64 start_ns;
	u64 result;
	void (*done)(struct rflash_cmd *cmd);
};

/* Not on the wire: the command's fate is unknown, its connection is gone. */
#define RFLASH_STATUS_ABORTED	0xffff

/* Slots for commands that are not block requests, beyond the queue's tags. */
enum rflash_slot {
	RFLASH_SLOT_SYNC,	/* Connect, properties, Identify, ... */
	RFLASH_SLOT_KEEP_ALIVE,	/* admin queue only */
	RFLASH_SLOT_EVENT,	/* admin queue only: asynchronous event request */
	RFLASH_SLOTS,
};

enum {
	RFLASH_Q_STARTED,	/* the transport takes commands */
	RFLASH_Q_LIVE,		/* block requests may be sent */
	RFLASH_Q_FAILED,	/* a fault was seen on it since it was started */
};

/**
 * struct rflash_queue - one submission/completion queue pair, one connection
 *
 * @lock: serialises the submission of internal commands with start and stop.
 *	Block requests do not take it: they are kept out by quiescing.
 * @exec_lock: one synchronous command at a time; taken before @lock and held
 *	while waiting for the answer
 * @gens: generation of the last use, by index
 * @depth: block requests that may be in flight, 0 on the admin queue
 * @tag_bits: how many bits of a command id are the index
 * @inline_max: bytes of data that may travel in a command capsule
 * @tags: of the block requests
 * @slots: internal commands; index @depth + slot on the wire
 */
struct rflash_queue {
	struct rflash_ctrl *ctrl;
	unsigned long flags;
	u16 qid;
	u16 depth;
	u8 tag_bits;
	u32 inline_max;
	struct blk_mq_tags *tags;
	u16 *gens;
	struct rflash_cmd *slots[RFLASH_SLOTS];

	struct mutex lock;		/* see above */
	struct mutex exec_lock;		/* see above */
	struct completion sync_done;
};

struct rflash_queue_endpoint {
	char addr[64];
	u16 port;
};

/**
 * struct rflash_opts - what was asked for; constant once the controller exists
 * Strings are owned. Times in seconds, meanings in uapi/rflash.h.
 */
struct rflash_opts {
	char *traddr;
	char *trsvcid;
	char *host_traddr;
	char *subsys_nqn;
	char *host_nqn;
	uuid_t host_id;
	u32 nr_io_queues;
	u32 queue_size;
	u32 kato;
	u32 reconnect_delay;
	s32 ctrl_loss_tmo;
	s32 fast_io_fail_tmo;
	bool hdr_digest;
	bool data_digest;
	struct rflash_tenant tenant;
};

/**
 * struct rflash_batch - completions of one burst of received bytes
 * @iob: block requests that are completed together
 * @now: ktime in ns, read once per burst
 */
struct rflash_batch {
	struct io_comp_batch iob;
	u64 now;
};

/**
 * struct rflash_ctrl - the association with one remote controller
 *
 * @ref: held by the list of controllers until removal is done, by each
 *	namespace until its disk is freed, and by whoever looked it up
 * @lock: protects @state, @last_error, @error_logged, @tenant_state and
 *	@tenant_granted; a leaf, softirq-safe
 * @state: written by rflash_ctrl_event() alone
 * @io_failing: held and new I/O is to fail: fast_io_fail_tmo has passed, or
 *	the controller is being removed without a connection
 * @ns_lock: protects @namespaces and @io_quiesced. Not held across disk
 *	registration or removal, whose I/O may have to wait for a reconnect.
 * @io_quiesced: queue_rq is kept out of all namespaces
 *
 * @connection_lock: serialises bringing connections into use with taking them
 *	down; taken before @ns_lock and the queues' locks
 *
 * @tenant_version: of the tenant commands that the target has; 0: it has none
 * @tenant_state: what came of asking for opts.tenant, at the last connect
 * @tenant_granted: what the target then said is in force
 *
 * What one connection attempt learns (@cap to @oncs, @nr_io_queues) is
 * written by the connect path alone, of which there is one at a time.
 */
struct rflash_ctrl {
	struct kref ref;
	struct list_head entry;
	u32 id;
	const struct rflash_transport_ops *ops;
	struct rflash_opts opts;
	struct net *net;
	struct sockaddr_storage addr;
	struct sockaddr_storage host_addr;
	unsigned long connect_timeout;	/* jiffies, for one step */

	spinlock_t lock;		/* state, last_error, tenant_* */
	enum rflash_ctrl_state state;
	char last_error[RFLASH_ERROR_LEN];
	bool error_logged;		/* in this outage */
	bool io_failing;
	bool target_closed;		/* it was the target that hung up */
	u32 reconnects;
	unsigned long fault_jiffies;	/* when the present outage began */
	struct mutex connection_lock;	/* see above */

	struct rflash_queue **queues;	/* [0] admin, [1..max_io_queues] */
	u32 max_io_queues;		/* allocated */
	u32 nr_io_queues;		/* granted and in use */
	bool tagset_ready;
	struct blk_mq_tag_set tagset;
	mempool_t *discard_pool;

	u64 cap;
	u32 cntlid;
	u32 inline_max;			/* bytes of data in an I/O capsule */
	u32 max_hw_sectors;
	u32 oaes;
	u16 oncs;
	u16 vid;
	u16 sqsize;			/* 0-based, as in Connect */
	u16 tenant_version;		/* see above */
	bool vwc;
	bool tbkas;			/* traffic-based keep-alive */
	char model[41];
	char serial[21];
	char firmware[9];

	enum rflash_tenant_state tenant_state;	/* see above */
	struct rflash_tenant tenant_granted;	/* see above */

	struct mutex ns_lock;		/* namespaces, io_quiesced */
	struct list_head namespaces;
	bool io_quiesced;
	bool scan_failed;		/* by the target, not by the connection */

	struct work_struct recovery_work;
	struct delayed_work reconnect_work;
	struct delayed_work fast_fail_work;
	struct delayed_work keep_alive_work;
	struct work_struct event_work;
	struct work_struct scan_work;
	struct work_struct remove_work;
	struct completion scanned;	/* once, by the first scan */
	struct completion settled;	/* the first connect is over */
	struct completion removed;
	unsigned long keep_alive_sent;	/* jiffies; 0 if none is outstanding */
	u32 event_result;
};

/**
 * struct rflash_ns_info - what Identify says of a namespace
 */
struct rflash_ns_info {
	u32 nsid;
	u8 lba_shift;
	bool read_only;
	u64 nr_lbas;
	char wwid[RFLASH_WWID_LEN];
};

/**
 * struct rflash_ns - one namespace, one disk
 *
 * @stats: one per I/O queue, [0] for qid 1. Single writer: the receive path
 *	of that queue.
 * @quiesced: this disk's queue is quiesced; protected by ctrl->ns_lock
 * @removing: del_gendisk is under way
 * @max_hw_sectors, @oncs, @vwc: what the disk's limits were made from
 * @replaced: after a reconnect the target has another namespace under this id;
 *	I/O fails until the scan has removed the disk
 */
struct rflash_ns {
	struct list_head entry;
	struct rflash_ctrl *ctrl;
	struct gendisk *disk;
	u32 instance;
	struct rflash_ns_info info;
	bool quiesced;
	bool removing;
	bool replaced;
	bool vwc;
	u16 oncs;
	u32 max_hw_sectors;
	u32 nr_stats;
	struct rflash_queue_stats *stats;
};

/* controller.c */
extern struct workqueue_struct *rflash_wq;
extern struct workqueue_struct *rflash_slow_wq;
void rflash_opts_free(struct rflash_opts *opts);
int rflash_ctrl_create(struct net *net, const struct rflash_transport_ops *ops,
		       struct rflash_opts *opts, struct rflash_ctrl **created,
		       char *error);
int rflash_ctrl_delete(struct rflash_ctrl *ctrl);
void rflash_ctrl_delete_all(void);
struct rflash_ctrl *rflash_ctrl_find(const struct net *net, u32 id);
struct rflash_ctrl *rflash_ctrl_next(const struct net *net, u32 id);
void rflash_ctrl_put(struct rflash_ctrl *ctrl);
enum rflash_ctrl_state rflash_ctrl_state(struct rflash_ctrl *ctrl);
enum rflash_tenant_state rflash_ctrl_tenant(struct rflash_ctrl *ctrl,
					    struct rflash_tenant *granted);
bool rflash_ctrl_event(struct rflash_ctrl *ctrl, enum rflash_event event);
__printf(2, 3) void rflash_ctrl_error(struct rflash_ctrl *ctrl,
				      const char *fmt, ...);
int rflash_ctrl_init(void);
void rflash_ctrl_exit(void);

/* recovery.c */
void rflash_ctrl_fault(struct rflash_ctrl *ctrl);
int rflash_ctrl_connect(struct rflash_ctrl *ctrl);
void rflash_ctrl_live(struct rflash_ctrl *ctrl);
void rflash_ctrl_disconnect(struct rflash_ctrl *ctrl);
void rflash_ctrl_fail_io(struct rflash_ctrl *ctrl);
void rflash_recovery_init(struct rflash_ctrl *ctrl);
void rflash_recovery_cancel(struct rflash_ctrl *ctrl);

/* admin.c */
int rflash_admin_setup(struct rflash_ctrl *ctrl);
int rflash_admin_connect(struct rflash_queue *queue);
int rflash_admin_tenant(struct rflash_ctrl *ctrl);
int rflash_admin_set_queues(struct rflash_ctrl *ctrl, u32 *nr);
int rflash_admin_ns_list(struct rflash_ctrl *ctrl, u32 after, __le32 *list);
int rflash_admin_identify_ns(struct rflash_ctrl *ctrl, u32 nsid,
			     struct rflash_ns_info *info);
void rflash_admin_shutdown(struct rflash_ctrl *ctrl);
void rflash_admin_keep_alive_start(struct rflash_ctrl *ctrl);
void rflash_admin_events_start(struct rflash_ctrl *ctrl);
void rflash_admin_event_work(struct work_struct *work);
void rflash_admin_keep_alive_work(struct work_struct *work);

/* namespace.c */
void rflash_ns_quiesce_all(struct rflash_ctrl *ctrl);
void rflash_ns_unquiesce_all(struct rflash_ctrl *ctrl);
void rflash_ns_scan_work(struct work_struct *work);
int rflash_ns_revalidate(struct rflash_ctrl *ctrl);
void rflash_ns_remove_all(struct rflash_ctrl *ctrl);

/* queue.c */
int rflash_queue_alloc(struct rflash_ctrl *ctrl, u16 qid);
void rflash_queue_free(struct rflash_ctrl *ctrl, u16 qid);
int rflash_queue_start(struct rflash_queue *queue);
void rflash_queue_stop(struct rflash_queue *queue);
int rflash_queue_exec(struct rflash_queue *queue, const struct nvme_command *c,
		      void *buf, u32 len, bool write, u64 *result,
		      unsigned long timeout);
int rflash_queue_exec_async(struct rflash_queue *queue, enum rflash_slot slot,
			    const struct nvme_command *c,
			    void (*done)(struct rflash_cmd *cmd));
__printf(2, 3) void rflash_queue_fault(struct rflash_queue *queue,
				       const char *fmt, ...);

/**
 * rflash_queue_publish - from here on an answer to the command is accepted
 * @cmd: the command, ready to be sent
 */
static inline void rflash_queue_publish(struct rflash_cmd *cmd)
{
	/* pairs with the receive path's look-up: who finds it finds it ready */
	smp_store_release(&cmd->cid, cmd->sqe->common.command_id);
}

/* request.c */
int rflash_tagset_alloc(struct rflash_ctrl *ctrl);
void rflash_tagset_free(struct rflash_ctrl *ctrl);
void rflash_tagset_cancel(struct rflash_ctrl *ctrl);
struct rflash_cmd *rflash_queue_find(struct rflash_queue *queue, u16 cid);
void rflash_queue_complete(struct rflash_cmd *cmd, u16 status, u64 result,
			   struct rflash_batch *batch);
void rflash_batch_finish(struct rflash_batch *batch);
u16 rflash_queue_next_cid(struct rflash_queue *queue, u16 index);

/* control.c */
void rflash_control_state_changed(struct rflash_ctrl *ctrl,
				  enum rflash_ctrl_state state);
int rflash_control_init(void);
void rflash_control_exit(void);

/* tcp.c */
int rflash_tcp_init(void);
void rflash_tcp_exit(void);

#define rflash_log(ctrl, print, fmt, ...) do {				\
	const struct rflash_ctrl *__ctrl = (ctrl);			\
									\
	print("ctrl %u (%s at %s): " fmt "\n", __ctrl->id,		\
	      __ctrl->opts.subsys_nqn, __ctrl->opts.traddr, ##__VA_ARGS__); \
} while (0)
#define rflash_info(ctrl, fmt, ...) rflash_log(ctrl, pr_info, fmt, ##__VA_ARGS__)
#define rflash_warn(ctrl, fmt, ...) rflash_log(ctrl, pr_warn, fmt, ##__VA_ARGS__)

#endif /* RFLASH_H */
