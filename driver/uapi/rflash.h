/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * rflash control interface: generic-netlink family "rflash", version 1.
 *
 * The family has one multicast group, "events", and these commands. All but
 * the two GETs need CAP_SYS_ADMIN and CAP_NET_ADMIN in the initial user
 * namespace. A controller belongs to the network namespace it was connected
 * from, and is seen and disconnected from there alone.
 *
 * RFLASH_CMD_CONNECT (do)
 *	Create a controller: connect to one NVMe subsystem and make its
 *	namespaces block devices. Returns when the devices are usable, or fails
 *	with nothing left behind. Each step (TCP connect, each command) is
 *	bounded by the keep-alive timeout, by RFLASH_KATO_DEFAULT where that is
 *	0; the first that is not answered ends the attempt.
 *
 *	Request:
 *	  RFLASH_A_TRANSPORT		string, "tcp" (required)
 *	  RFLASH_A_TRADDR		string, IPv4 or IPv6 literal, with a scope
 *					if link-local (required)
 *	  RFLASH_A_TRSVCID		string, port 1..65535 (default "4420")
 *	  RFLASH_A_SUBSYS_NQN		string, 1..223 bytes (required)
 *	  RFLASH_A_HOST_NQN		string, 1..223 bytes (required)
 *	  RFLASH_A_HOST_ID		binary, 16 bytes, not all zero (required)
 *	  RFLASH_A_HOST_TRADDR		string, local address to connect from
 *	  RFLASH_A_NR_IO_QUEUES		u32, 1..online CPUs (default: online CPUs;
 *					the target may grant fewer)
 *	  RFLASH_A_QUEUE_SIZE		u32, RFLASH_QUEUE_SIZE_MIN.._MAX entries
 *					(default 128; the target may grant fewer)
 *	  RFLASH_A_KATO			u32, seconds, 0 turns keep-alive off
 *					(default 5)
 *	  RFLASH_A_RECONNECT_DELAY	u32, seconds, 1..3600 (default 10)
 *	  RFLASH_A_CTRL_LOSS_TMO	s32, seconds without a connection after
 *					which the controller is removed; 0 never
 *					reconnects, -1 never gives up
 *					(default 600)
 *	  RFLASH_A_FAST_IO_FAIL_TMO	s32, seconds without a connection after
 *					which held I/O fails and new I/O fails at
 *					once; -1 never (default -1). Must not
 *					exceed RFLASH_A_CTRL_LOSS_TMO
 *	  RFLASH_A_HDR_DIGEST		flag, CRC32C over headers
 *	  RFLASH_A_DATA_DIGEST		flag, CRC32C over data
 *	  RFLASH_A_TENANT_CLASS		u32, enum rflash_tenant_class: the promise to
 *					ask the target for (default: none)
 *	  RFLASH_A_TENANT_P95_US	u32, 1..RFLASH_TENANT_P95_MAX microseconds
 *	  RFLASH_A_TENANT_IOPS		u32, 1..RFLASH_TENANT_IOPS_MAX per second
 *	  RFLASH_A_TENANT_READ_PCT	u32, 0..100 (these three are required of
 *					RFLASH_TENANT_LATENCY_CRITICAL)
 *	  RFLASH_A_TENANT_BLOCK		u32, bytes, RFLASH_TENANT_BLOCK_MIN.._MAX, a
 *					multiple of _MIN (default 4096; only of
 *					RFLASH_TENANT_LATENCY_CRITICAL)
 *	  RFLASH_A_TENANT_WEIGHT	u32, 1..RFLASH_TENANT_WEIGHT_MAX (default 100;
 *					only of RFLASH_TENANT_BEST_EFFORT)
 *
 *	A target that does not know tenants is used without a promise;
 *	RFLASH_A_TENANT_STATE in the reply says so. The promise is asked for
 *	again by every reconnect; one that is refused then does not keep the
 *	connection from being made.
 *
 *	Reply: one RFLASH_A_CTRL.
 *
 *	Errors (the extended ack says what was wrong and what would be right,
 *	and points at the attribute where one is to blame):
 *	  EINVAL	an attribute is missing, malformed or out of range, or the
 *			target refused the Connect parameters
 *	  EALREADY	this host is already connected to this subsystem at this
 *			address and port; the extended ack names the controller
 *	  ENXIO		the target has no such subsystem
 *	  EACCES	the target does not admit this host NQN
 *	  EBUSY		the target has no controller or queue free
 *	  EDQUOT	the target refused the promise that was asked for
 *	  ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT, ECONNRESET
 *			as connect(2)
 *	  EPROTO	the peer broke the protocol
 *	  EOPNOTSUPP	the target needs what this driver lacks
 *	  EIO		the target refused a command that every target must know
 *	  EINTR		the caller was killed
 *	  ECANCELED	it was disconnected while it was connecting
 *
 * RFLASH_CMD_DISCONNECT (do)
 *	Remove one controller and its devices. I/O that is already accepted is
 *	completed first while the target answers, and failed otherwise. Returns
 *	when the devices are gone.
 *	Request: RFLASH_A_CTRL_ID u32.
 *	Errors: ENODEV no such controller, or being removed by someone else.
 *
 * RFLASH_CMD_CTRL_GET (do with RFLASH_A_CTRL_ID, or dump)
 *	Reply: RFLASH_A_CTRL, one message each.
 *	Errors: ENODEV no such controller.
 *
 * RFLASH_CMD_STATS_GET (dump)
 *	Counters and latency histograms of one block device.
 *	Request: RFLASH_A_NS_INSTANCE u32 (the N of /dev/rflashN).
 *	Reply: messages of one RFLASH_A_STATS each; a (queue, direction) may be
 *	spread over several, whose buckets are to be joined: counters stand in
 *	each and are the same in each.
 *	Errors: ENODEV no such device.
 *
 * Multicast group "events": RFLASH_CMD_EVENT with RFLASH_A_CTRL_ID and
 *	RFLASH_A_STATE whenever a controller changes state.
 */
#ifndef _UAPI_LINUX_RFLASH_H
#define _UAPI_LINUX_RFLASH_H

#include <linux/types.h>

#define RFLASH_GENL_NAME	"rflash"
#define RFLASH_GENL_VERSION	1
#define RFLASH_GENL_MCGRP	"events"

/* Limits and defaults; times in seconds. */
#define RFLASH_NQN_MAX			223
#define RFLASH_HOSTID_LEN		16
#define RFLASH_QUEUE_SIZE_MIN		16
#define RFLASH_QUEUE_SIZE_MAX		1024
#define RFLASH_QUEUE_SIZE_DEFAULT	128
#define RFLASH_KATO_DEFAULT		5
#define RFLASH_KATO_MAX			3600
#define RFLASH_RECONNECT_DELAY_DEFAULT	10
#define RFLASH_RECONNECT_DELAY_MAX	3600
#define RFLASH_CTRL_LOSS_TMO_DEFAULT	600
#define RFLASH_FAST_IO_FAIL_TMO_DEFAULT	(-1)
#define RFLASH_TMO_MAX			(7 * 24 * 3600)
#define RFLASH_TENANT_P95_MAX		1000000		/* microseconds */
#define RFLASH_TENANT_IOPS_MAX		100000000
#define RFLASH_TENANT_BLOCK_MIN		512		/* bytes */
#define RFLASH_TENANT_BLOCK_MAX		1048576
#define RFLASH_TENANT_BLOCK_DEFAULT	4096
#define RFLASH_TENANT_WEIGHT_MAX	10000
#define RFLASH_TENANT_WEIGHT_DEFAULT	100
#define RFLASH_TCP_PORT			"4420"
#define RFLASH_TCP_DISC_PORT		"8009"

enum rflash_genl_cmd {
	RFLASH_CMD_UNSPEC,
	RFLASH_CMD_CONNECT,
	RFLASH_CMD_DISCONNECT,
	RFLASH_CMD_CTRL_GET,
	RFLASH_CMD_STATS_GET,
	RFLASH_CMD_EVENT,
	__RFLASH_CMD_MAX,
#define RFLASH_CMD_MAX (__RFLASH_CMD_MAX - 1)
};

/*
 * RFLASH_A_STATE, u32. What the block devices do in each state: LIVE serves;
 * RECOVERING and RECONNECTING hold I/O (until fast_io_fail_tmo); the others
 * fail it.
 */
enum rflash_ctrl_state {
	RFLASH_CTRL_NEW,		/* nothing sent yet */
	RFLASH_CTRL_CONNECTING,		/* first connect under way */
	RFLASH_CTRL_LIVE,
	RFLASH_CTRL_RECOVERING,		/* fault seen, old connections going down */
	RFLASH_CTRL_RECONNECTING,	/* waiting for, or trying, the next connect */
	RFLASH_CTRL_DELETING,		/* being removed */
	RFLASH_CTRL_DEAD,		/* removed; only references are left */
	__RFLASH_CTRL_STATES,
};

/* RFLASH_A_TENANT_CLASS, u32: whom the target makes which promise. */
enum rflash_tenant_class {
	RFLASH_TENANT_NONE,
	RFLASH_TENANT_LATENCY_CRITICAL,	/* p95 of reads at so many IOPS */
	RFLASH_TENANT_BEST_EFFORT,	/* a share, by weight, of what is left */
};

/* RFLASH_A_TENANT_STATE, u32: what came of asking, at the last connect. */
enum rflash_tenant_state {
	RFLASH_TENANT_STATE_UNASKED,
	RFLASH_TENANT_STATE_GRANTED,
	RFLASH_TENANT_STATE_REFUSED,	/* by a reconnect; it goes on without */
	RFLASH_TENANT_STATE_UNSUPPORTED, /* the target does not know tenants */
	__RFLASH_TENANT_STATES,
};

/* Top-level attributes; also those of the nest RFLASH_A_CTRL. */
enum rflash_attr {
	RFLASH_A_UNSPEC,
	RFLASH_A_PAD,
	RFLASH_A_CTRL,			/* nest of RFLASH_A_* */
	RFLASH_A_CTRL_ID,		/* u32 */
	RFLASH_A_TRANSPORT,		/* string */
	RFLASH_A_TRADDR,		/* string */
	RFLASH_A_TRSVCID,		/* string */
	RFLASH_A_HOST_TRADDR,		/* string */
	RFLASH_A_SUBSYS_NQN,		/* string */
	RFLASH_A_HOST_NQN,		/* string */
	RFLASH_A_HOST_ID,		/* binary, 16 bytes */
	RFLASH_A_NR_IO_QUEUES,		/* u32; in replies what was granted */
	RFLASH_A_NR_POLL_QUEUES,	/* u32; replies only */
	RFLASH_A_QUEUE_SIZE,		/* u32; in replies what was granted */
	RFLASH_A_KATO,			/* u32 */
	RFLASH_A_RECONNECT_DELAY,	/* u32 */
	RFLASH_A_CTRL_LOSS_TMO,		/* s32 */
	RFLASH_A_FAST_IO_FAIL_TMO,	/* s32 */
	RFLASH_A_HDR_DIGEST,		/* flag */
	RFLASH_A_DATA_DIGEST,		/* flag */
	RFLASH_A_STATE,			/* u32, enum rflash_ctrl_state */
	RFLASH_A_RECONNECTS,		/* u32, connections re-made since creation */
	RFLASH_A_LAST_ERROR,		/* string, why the last connection was lost
					 * or could not be made; absent if none
					 */
	RFLASH_A_MODEL,			/* string, from Identify Controller */
	RFLASH_A_SERIAL,		/* string */
	RFLASH_A_FIRMWARE,		/* string */
	RFLASH_A_CNTLID,		/* u32, the target's controller id */
	RFLASH_A_NS,			/* nest of RFLASH_NS_A_*, one per namespace */
	RFLASH_A_QUEUE,			/* nest of RFLASH_QUEUE_A_*, one per queue */
	RFLASH_A_NS_INSTANCE,		/* u32, the N of /dev/rflashN */
	RFLASH_A_STATS,			/* nest of RFLASH_STATS_A_* */
	RFLASH_A_TENANT_CLASS,		/* u32; in replies what was asked for, absent
					 * if nothing was; so are those that follow
					 */
	RFLASH_A_TENANT_P95_US,		/* u32, p95 of the latency of reads */
	RFLASH_A_TENANT_IOPS,		/* u32, reads and writes per second */
	RFLASH_A_TENANT_READ_PCT,	/* u32, reads among them */
	RFLASH_A_TENANT_BLOCK,		/* u32, bytes per read or write */
	RFLASH_A_TENANT_WEIGHT,		/* u32, share among the best-effort */
	RFLASH_A_TENANT_STATE,		/* u32, enum rflash_tenant_state; replies only */
	RFLASH_A_TENANT_GRANTED,	/* nest of the class and its numbers as above:
					 * what the target said is in force, asked for
					 * or by its own configuration; replies only,
					 * absent if it did not say
					 */
	__RFLASH_A_MAX,
#define RFLASH_A_MAX (__RFLASH_A_MAX - 1)
};

/* One namespace, in RFLASH_A_NS. */
enum rflash_ns_attr {
	RFLASH_NS_A_UNSPEC,
	RFLASH_NS_A_PAD,
	RFLASH_NS_A_INSTANCE,		/* u32, the N of /dev/rflashN */
	RFLASH_NS_A_NSID,		/* u32 */
	RFLASH_NS_A_WWID,		/* string, "uuid.…", "eui.…" or "nvme.…" */
	RFLASH_NS_A_SIZE_BYTES,		/* u64 */
	RFLASH_NS_A_BLOCK_SIZE,		/* u32, bytes */
	RFLASH_NS_A_READ_ONLY,		/* flag */
	__RFLASH_NS_A_MAX,
#define RFLASH_NS_A_MAX (__RFLASH_NS_A_MAX - 1)
};

/* One I/O queue, in RFLASH_A_QUEUE: what flow steering and pinning need. */
enum rflash_queue_attr {
	RFLASH_QUEUE_A_UNSPEC,
	RFLASH_QUEUE_A_QID,		/* u32, 1.. */
	RFLASH_QUEUE_A_CPUS,		/* string, CPU list such as "0-3,8" */
	RFLASH_QUEUE_A_SRC_ADDR,	/* string, local address */
	RFLASH_QUEUE_A_SRC_PORT,	/* u32, local port; 0 while not connected */
	__RFLASH_QUEUE_A_MAX,
#define RFLASH_QUEUE_A_MAX (__RFLASH_QUEUE_A_MAX - 1)
};

/* RFLASH_STATS_A_DIR, u32. Writes include discards and write zeroes in
 * ios and errors, not in bytes; flushes are counted in neither.
 */
enum rflash_stats_dir {
	RFLASH_STATS_READ,
	RFLASH_STATS_WRITE,
	__RFLASH_STATS_DIRS,
};

/* Counters of one queue and direction, in RFLASH_A_STATS. */
enum rflash_stats_attr {
	RFLASH_STATS_A_UNSPEC,
	RFLASH_STATS_A_PAD,
	RFLASH_STATS_A_QID,		/* u32 */
	RFLASH_STATS_A_DIR,		/* u32, enum rflash_stats_dir */
	RFLASH_STATS_A_IOS,		/* u64, requests completed, errors included */
	RFLASH_STATS_A_BYTES,		/* u64 */
	RFLASH_STATS_A_ERRORS,		/* u64 */
	RFLASH_STATS_A_LAT_SUM_NS,	/* u64, over the requests in the histogram */
	RFLASH_STATS_A_LAT_MAX_NS,	/* u64 */
	RFLASH_STATS_A_BUCKETS,		/* binary, array of struct rflash_bucket,
					 * only those that are not empty
					 */
	__RFLASH_STATS_A_MAX,
#define RFLASH_STATS_A_MAX (__RFLASH_STATS_A_MAX - 1)
};

/*
 * Log-linear latency histogram, in nanoseconds from the block layer's start
 * of the request to its completion. Each power of two is divided into
 * 2^RFLASH_HIST_SUB_BITS equal buckets, so that a bucket is at most 1/16
 * (6.25 %) wide; values below 2^RFLASH_HIST_SUB_BITS ns have one bucket
 * each.
 *
 *	ns < 16:	index = ns
 *	otherwise:	e = floor(log2(ns)); index = (e - 3) * 16 + ((ns >> (e - 4)) & 15)
 *
 * and what would lie beyond the last bucket is counted in the last.
 * Lower bound of bucket i >= 16: (16 + i % 16) << (i / 16 - 1) ns.
 */
#define RFLASH_HIST_SUB_BITS	4
#define RFLASH_HIST_BUCKETS	592	/* to 2^40 ns, 18 minutes */

struct rflash_bucket {
	__u32 index;
	__u32 reserved;			/* 0 */
	__u64 count;
};

#endif /* _UAPI_LINUX_RFLASH_H */
