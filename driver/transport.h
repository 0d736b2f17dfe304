/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The operations a transport provides. Controller, queue and namespace code
 * know nothing of sockets or verbs; a transport knows nothing of disks.
 */
#ifndef RFLASH_TRANSPORT_H
#define RFLASH_TRANSPORT_H

#include <linux/types.h>

struct rflash_cmd;
struct rflash_ctrl;
struct rflash_queue;
struct rflash_queue_endpoint;

/**
 * struct rflash_transport_ops - what a transport does for its queues
 * @name: as in RFLASH_A_TRANSPORT
 * @cmd_size: bytes of a command, struct rflash_cmd first
 *
 * @parse_addr: turn the strings of ctrl->opts into addresses; called once,
 *	before anything else. -EINVAL if they are no addresses. May sleep.
 * @alloc_queue: allocate a queue (struct rflash_queue first in it), zeroed,
 *	not connected; NULL if there is no memory. May sleep.
 * @free_queue: the counterpart; the queue is stopped.
 * @init_cmd: called once per command after it is allocated and zeroed: sets
 *	cmd->sqe. Must not fail.
 *
 * @start: connect one queue and bring it to where commands can be sent.
 *	Bounded by ctrl->connect_timeout. On failure the queue is as before,
 *	and ctrl->last_error says why. May sleep.
 * @stop: wait until no context is left in the transport for this queue: no
 *	command of it will be touched or completed afterwards. A peer that
 *	hangs must not delay it.
 *	The caller has seen to it that nobody calls @submit or @kick any more.
 *	What the peer has not received by then it never will over this
 *	connection. Idempotent. May sleep.
 *
 * @submit: take one command, whose SQE is complete but for its SGL. Calls
 *	rflash_queue_publish() when all that an answer needs is in place. Does
 *	not send before @kick unless it must. Any context but hard interrupt.
 *	Must not fail; what goes wrong later is reported by
 *	rflash_queue_fault().
 * @kick: send what was submitted, in the caller's context if possible.
 * @endpoint: report local address and port for flow steering.
 */
struct rflash_transport_ops {
	const char *name;
	size_t cmd_size;

	int (*parse_addr)(struct rflash_ctrl *ctrl);
	struct rflash_queue *(*alloc_queue)(struct rflash_ctrl *ctrl, u16 qid);
	void (*free_queue)(struct rflash_queue *queue);
	void (*init_cmd)(struct rflash_cmd *cmd);

	int (*start)(struct rflash_queue *queue);
	void (*stop)(struct rflash_queue *queue);

	void (*submit)(struct rflash_queue *queue, struct rflash_cmd *cmd);
	void (*kick)(struct rflash_queue *queue);
	void (*endpoint)(struct rflash_queue *queue,
			 struct rflash_queue_endpoint *ep);
};

extern const struct rflash_transport_ops rflash_tcp_ops;

#endif /* RFLASH_TRANSPORT_H */
