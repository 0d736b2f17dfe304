/* SPDX-License-Identifier: GPL-2.0 */
/*
 * NVMe/TCP, shared by tcp.c (connections), tcp_send.c and tcp_recv.c.
 *
 * Locking. The socket is the lock. Whoever sends or receives either owns the
 * socket (the worker, by lock_sock()), or holds its spinlock while nobody owns
 * it (submitters; softirq, which TCP calls into data_ready with it held). So
 * everything in struct rflash_tcp_queue below the mark is written by one context
 * at a time, without a lock of our own. @submitted alone is lock-free.
 *
 * Hazards:
 * - data_ready runs with the socket locked. What it completes may submit again,
 *   from the same CPU: a submitter in softirq therefore never takes a socket's
 *   spinlock but leaves the work to the worker.
 * - A command is completed while the bytes it still has in the send queue of the
 *   socket are referenced, not copied. That is sound only since the controller
 *   answers no command before it has all of it; rflash_tcp_recv checks that.
 */
#ifndef RFLASH_TCP_H
#define RFLASH_TCP_H

#include <linux/net.h>
#include <linux/sizes.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "rflash.h"
#include "tcp_pdu.h"

/* In-capsule data that every controller takes with fabrics and admin commands
 * (TCP transport 1.0, section 3.3.2.2).
 */
#define RFLASH_TCP_ADMIN_INLINE	8192u

/* Bytes received in one go before others on this CPU get their turn. */
#define RFLASH_TCP_RECV_BUDGET	SZ_1M

enum rflash_tcp_phase {
	RFLASH_TCP_IDLE,	/* not in flight */
	RFLASH_TCP_CAPSULE,	/* command capsule is to be sent, or part of it */
	RFLASH_TCP_SENT,	/* sent; a response or R2T may come */
	RFLASH_TCP_H2C,		/* an R2T was received, data is to be sent */
};

/**
 * struct rflash_tcp_cmd - a command and where it stands on the wire
 * @cmd: must be first
 * @phase: see enum rflash_tcp_phase
 * @ended: the response came while data was still to be sent; the command ends
 *	when that is done, with @end_status and @end_result
 * @splice: all data pages may be handed to TCP by reference
 * @bio: the bio that @iter walks over; NULL with cmd->bvec
 * @iter: data not yet sent or received, within @bio
 * @done: bytes of data received, or sent, so far
 * @head_len: bytes of @head to be sent: header, its digest, padding
 * @payload: bytes of data in the present PDU that are still to be sent
 * @ddgst: digest of those bytes
 * @r2t: transfer asked for, as far as no PDU has been made for it
 * @head: header of the PDU being sent; a capsule's holds cmd->sqe, which is of no
 *	more use once H2CData takes its place
 */
struct rflash_tcp_cmd {
	struct rflash_cmd cmd;
	u8 phase;
	bool ended;
	bool splice;
	u16 head_len;
	u32 done;
	u32 payload;
	__le32 ddgst;
	struct bio *bio;
	struct iov_iter iter;
	struct rflash_r2t r2t;
	u16 end_status;
	u64 end_result;
	union {
		struct nvme_tcp_hdr hdr;
		struct nvme_tcp_cmd_pdu pdu;
		struct nvme_tcp_data_pdu h2c;
		u8 head[RFLASH_PDU_HEAD_MAX];
	};
};

enum rflash_tcp_rx_state {
	RFLASH_TCP_RX_HEAD,	/* 24 bytes that every PDU to a host has */
	RFLASH_TCP_RX_SKIP,	/* header digest, padding */
	RFLASH_TCP_RX_DATA,
	RFLASH_TCP_RX_DDGST,
};

enum rflash_tcp_tx_stage {
	RFLASH_TCP_TX_HEAD,
	RFLASH_TCP_TX_DATA,
	RFLASH_TCP_TX_DDGST,
};

enum {
	RFLASH_TCP_HEAD_LEN = sizeof(struct nvme_tcp_rsp_pdu),
	RFLASH_TCP_GATHER = 32,	/* headers in one sendmsg */
};

/**
 * struct rflash_tcp_queue - one connection
 * @queue: must be first
 * @submitted: commands not yet seen by a sender, newest first
 * @work: sends and receives where the fast paths can't
 * @stopping: no new work; set before the socket goes
 *
 * @pending: commands to be sent, oldest first
 * @tx: the command being sent; @tx_stage and @tx_done (bytes) say how far
 * @tx_pdus: sent in the present burst, for the tracepoint
 * @rx_head: header being received, @rx_have bytes of it
 * @rx_skip: bytes to be received into @rx_tail and ignored, but for the
 *	header digest at its start
 * @rx_cmd: whose data is being received, @rx_left bytes of it to come
 */
struct rflash_tcp_queue {
	struct rflash_queue queue;
	struct socket *sock;
	struct llist_head submitted;
	struct work_struct work;
	bool stopping;
	bool hdgst;
	bool ddgst;
	u8 cpda;
	u32 maxh2cdata;
	void (*saved_data_ready)(struct sock *sk);
	void (*saved_state_change)(struct sock *sk);
	void (*saved_write_space)(struct sock *sk);

	/* With the socket locked, see the head of this file. */
	struct llist_node *pending ____cacheline_aligned;
	struct rflash_tcp_cmd *tx;
	enum rflash_tcp_tx_stage tx_stage;
	u32 tx_done;
	u32 tx_pdus;

	enum rflash_tcp_rx_state rx_state;
	u32 rx_have;
	u32 rx_skip;
	u32 rx_left;
	u32 rx_crc;
	struct rflash_tcp_cmd *rx_cmd;
	struct rflash_c2h_data rx_c2h;
	union {
		struct nvme_tcp_hdr rx_hdr;
		struct nvme_tcp_rsp_pdu rx_rsp;
		struct nvme_tcp_data_pdu rx_data;
		struct nvme_tcp_r2t_pdu rx_r2t;
		struct nvme_tcp_term_pdu rx_term;
		u8 rx_head[RFLASH_TCP_HEAD_LEN + NVME_TCP_DIGEST_LENGTH];
	};
	__le32 rx_ddgst;
};

static inline struct rflash_tcp_queue *to_tcp_queue(struct rflash_queue *queue)
{
	return container_of(queue, struct rflash_tcp_queue, queue);
}

static inline struct rflash_tcp_cmd *to_tcp_cmd(struct rflash_cmd *cmd)
{
	return container_of(cmd, struct rflash_tcp_cmd, cmd);
}

extern struct workqueue_struct *rflash_tcp_wq;

static inline void rflash_tcp_queue_work(struct rflash_tcp_queue *tq)
{
	if (!READ_ONCE(tq->stopping))
		queue_work(rflash_tcp_wq, &tq->work);
}

/* tcp.c */
void rflash_tcp_iter_init(struct rflash_tcp_cmd *tcmd, unsigned int dir);
void rflash_tcp_iter_next(struct rflash_tcp_cmd *tcmd, unsigned int dir);

/* tcp_send.c */
void rflash_tcp_submit(struct rflash_queue *queue, struct rflash_cmd *cmd);
void rflash_tcp_kick(struct rflash_queue *queue);
bool rflash_tcp_send(struct rflash_tcp_queue *tq);
void rflash_tcp_send_h2c(struct rflash_tcp_queue *tq,
			 struct rflash_tcp_cmd *tcmd);

/* tcp_recv.c */
bool rflash_tcp_receive(struct rflash_tcp_queue *tq);
void rflash_tcp_recv_reset(struct rflash_tcp_queue *tq);

#endif /* RFLASH_TCP_H */
