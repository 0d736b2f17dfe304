// SPDX-License-Identifier: GPL-2.0
/*
 * NVMe/TCP connections: made, watched and ended.
 */
#define pr_fmt(fmt) "rflash: " fmt

#include <linux/blkdev.h>
#include <linux/inet.h>
#include <linux/slab.h>

#include "tcp.h"

struct workqueue_struct *rflash_tcp_wq;

/*
 * Our sockets are locked under queues that file systems write through, those of
 * user programs above them: lockdep has to tell the two kinds apart.
 */
static void rflash_tcp_reclassify(struct socket *sock)
{
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	static struct lock_class_key slock_key[2], sk_key[2];
	struct sock *sk = sock->sk;
	int v6 = sk->sk_family == AF_INET6;

	if (WARN_ON_ONCE(!sock_allow_reclassification(sk)))
		return;
	sock_lock_init_class_and_name(sk,
				      v6 ? "slock-AF_INET6-RFLASH" :
					   "slock-AF_INET-RFLASH",
				      &slock_key[v6],
				      v6 ? "sk_lock-AF_INET6-RFLASH" :
					   "sk_lock-AF_INET-RFLASH",
				      &sk_key[v6]);
#endif
}

/* Walk the data of a command: one bio at a time, or its own bvec. */
void rflash_tcp_iter_init(struct rflash_tcp_cmd *tcmd, unsigned int dir)
{
	struct rflash_cmd *cmd = &tcmd->cmd;

	tcmd->bio = NULL;
	if (cmd->internal || cmd->special) {
		iov_iter_bvec(&tcmd->iter, dir, &cmd->bvec, 1, cmd->data_len);
		return;
	}
	rflash_tcp_iter_next(tcmd, dir);
}

void rflash_tcp_iter_next(struct rflash_tcp_cmd *tcmd, unsigned int dir)
{
	struct bio *bio = tcmd->bio ? tcmd->bio->bi_next :
				      blk_mq_rq_from_pdu(&tcmd->cmd)->bio;
	const struct bio_vec *bvec = __bvec_iter_bvec(bio->bi_io_vec,
						      bio->bi_iter);
	struct bvec_iter bi = bio->bi_iter;
	unsigned int nr = 0;
	struct bio_vec bv;

	if (bio->bi_iter.bi_size + bi.bi_bvec_done <= bvec->bv_len)
		nr = 1;
	else
		bio_for_each_bvec(bv, bio, bi)
			nr++;
	tcmd->bio = bio;
	iov_iter_bvec(&tcmd->iter, dir, bvec, nr, bio->bi_iter.bi_size);
	tcmd->iter.iov_offset = bio->bi_iter.bi_bvec_done;
}

static void rflash_tcp_init_cmd(struct rflash_cmd *cmd)
{
	cmd->sqe = &to_tcp_cmd(cmd)->pdu.cmd;
}

/*
 * The worker: sends and receives where the fast paths could not. Bounded by
 * the receive budget, then it queues itself again behind others.
 */
static void rflash_tcp_work(struct work_struct *work)
{
	struct rflash_tcp_queue *tq = container_of(work, struct rflash_tcp_queue,
						   work);
	struct sock *sk = tq->sock->sk;
	bool again;

	lock_sock(sk);
	again = rflash_tcp_receive(tq);
	again |= rflash_tcp_send(tq);
	release_sock(sk);
	if (again)
		rflash_tcp_queue_work(tq);
}

/*
 * TCP's call-backs. All run with the socket locked, so that sk_user_data, which
 * is changed under that lock, is either ours or NULL throughout.
 */
static void rflash_tcp_data_ready(struct sock *sk)
{
	struct rflash_tcp_queue *tq = sk->sk_user_data;

	if (likely(tq) && unlikely(rflash_tcp_receive(tq)))
		rflash_tcp_queue_work(tq);
}

static void rflash_tcp_write_space(struct sock *sk)
{
	struct rflash_tcp_queue *tq = sk->sk_user_data;

	if (tq && sk_stream_is_writeable(sk)) {
		clear_bit(SOCK_NOSPACE, &sk->sk_socket->flags);
		rflash_tcp_queue_work(tq);
	}
}

static void rflash_tcp_state_change(struct sock *sk)
{
	struct rflash_tcp_queue *tq = sk->sk_user_data;

	if (!tq)
		return;
	switch (sk->sk_state) {
	case TCP_CLOSE:
	case TCP_CLOSE_WAIT:
	case TCP_LAST_ACK:
	case TCP_FIN_WAIT1:
	case TCP_FIN_WAIT2:
		/* Not so if it was our own TCP that gave up. */
		if (!tq->queue.qid && sk->sk_err != ETIMEDOUT)
			WRITE_ONCE(tq->queue.ctrl->target_closed, true);
		rflash_queue_fault(&tq->queue, sk->sk_err == ECONNRESET ?
				   "queue %u: the target reset the connection" :
				   sk->sk_err == ETIMEDOUT ?
				   "queue %u: the connection timed out" :
				   "queue %u: the target closed the connection",
				   tq->queue.qid);
		break;
	default:
		break;
	}
	tq->saved_state_change(sk);
}

static void rflash_tcp_take_callbacks(struct rflash_tcp_queue *tq)
{
	struct sock *sk = tq->sock->sk;

	lock_sock(sk);
	write_lock_bh(&sk->sk_callback_lock);
	tq->saved_data_ready = sk->sk_data_ready;
	tq->saved_state_change = sk->sk_state_change;
	tq->saved_write_space = sk->sk_write_space;
	sk->sk_user_data = tq;
	sk->sk_data_ready = rflash_tcp_data_ready;
	sk->sk_state_change = rflash_tcp_state_change;
	sk->sk_write_space = rflash_tcp_write_space;
	write_unlock_bh(&sk->sk_callback_lock);
	/* What happened before nobody has told us. */
	if (sk->sk_state != TCP_ESTABLISHED)
		rflash_tcp_state_change(sk);
	release_sock(sk);
}

static void rflash_tcp_give_callbacks(struct rflash_tcp_queue *tq)
{
	struct sock *sk = tq->sock->sk;

	lock_sock(sk);
	write_lock_bh(&sk->sk_callback_lock);
	if (sk->sk_user_data == tq) {
		sk->sk_user_data = NULL;
		sk->sk_data_ready = tq->saved_data_ready;
		sk->sk_state_change = tq->saved_state_change;
		sk->sk_write_space = tq->saved_write_space;
	}
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
}

static int rflash_tcp_recv_icresp(struct rflash_tcp_queue *tq,
				  struct nvme_tcp_icresp_pdu *icresp)
{
	unsigned long end = jiffies + tq->queue.ctrl->connect_timeout;
	size_t have = 0;

	while (have < sizeof(*icresp)) {
		struct kvec vec = {
			.iov_base = (u8 *)icresp + have,
			.iov_len = sizeof(*icresp) - have,
		};
		struct msghdr msg = { };
		int ret;

		/* One limit for all of it, however small the pieces are. */
		if (time_after_eq(jiffies, end))
			return -ETIMEDOUT;
		WRITE_ONCE(tq->sock->sk->sk_rcvtimeo, end - jiffies);
		ret = kernel_recvmsg(tq->sock, &msg, &vec, 1, vec.iov_len, 0);
		if (ret == 0)
			return -ECONNRESET;
		if (ret == -EAGAIN)
			return -ETIMEDOUT;
		if (ret < 0)
			return ret;
		have += ret;
	}
	return 0;
}

/* ICReq and ICResp: protocol version, digests, limits (TCP transport 3.6.2.2). */
static int rflash_tcp_handshake(struct rflash_tcp_queue *tq)
{
	struct rflash_ctrl *ctrl = tq->queue.ctrl;
	struct rflash_pdu_error err;
	struct rflash_icresp granted;
	struct msghdr msg = { .msg_flags = MSG_NOSIGNAL };
	struct nvme_tcp_icresp_pdu *icresp;
	struct nvme_tcp_icreq_pdu *icreq;
	struct kvec vec;
	int ret;

	/* Both PDUs have the same length, and are not needed at the same time. */
	icreq = kzalloc(sizeof(*icreq), GFP_KERNEL);
	if (!icreq)
		return -ENOMEM;
	rflash_pdu_icreq(icreq, ctrl->opts.hdr_digest, ctrl->opts.data_digest);
	vec.iov_base = icreq;
	vec.iov_len = sizeof(*icreq);
	ret = kernel_sendmsg(tq->sock, &msg, &vec, 1, vec.iov_len);
	if (ret >= 0)
		ret = ret == sizeof(*icreq) ? 0 : -EIO;
	icresp = (struct nvme_tcp_icresp_pdu *)icreq;
	if (!ret)
		ret = rflash_tcp_recv_icresp(tq, icresp);
	if (ret) {
		if (ret == -ERESTARTSYS || ret == -EINTR) {
			rflash_ctrl_error(ctrl, "interrupted while connecting");
			ret = -EINTR;
		} else if (ret == -ETIMEDOUT) {
			rflash_ctrl_error(ctrl,
					  "queue %u: the target accepted the connection but did not answer in %u s",
					  tq->queue.qid,
					  (u32)(ctrl->connect_timeout / HZ));
		} else {
			rflash_ctrl_error(ctrl,
					  "queue %u: the target closed the connection at once: is it an NVMe/TCP port?",
					  tq->queue.qid);
		}
		goto out;
	}
	ret = rflash_pdu_parse_icresp(icresp, ctrl->opts.hdr_digest,
				      ctrl->opts.data_digest, &granted, &err);
	if (ret) {
		rflash_ctrl_error(ctrl,
				  "queue %u: %s is 0x%llx in the initialization response, expected %s",
				  tq->queue.qid, err.field, err.value,
				  err.expected);
		goto out;
	}
	tq->hdgst = granted.hdgst;
	tq->ddgst = granted.ddgst;
	tq->cpda = granted.cpda;
	tq->maxh2cdata = granted.maxh2cdata;
out:
	kfree(icreq);
	return ret;
}

static size_t rflash_addr_len(const struct sockaddr_storage *addr)
{
	return addr->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
					     sizeof(struct sockaddr_in);
}

static int rflash_tcp_connect_sock(struct rflash_tcp_queue *tq)
{
	struct rflash_ctrl *ctrl = tq->queue.ctrl;
	struct sock *sk = tq->sock->sk;
	int ret;

	rflash_tcp_reclassify(tq->sock);
	tcp_sock_set_nodelay(sk);
	/*
	 * Closing must discard what is unsent: an old write that is delivered
	 * after we have reconnected would overwrite newer data.
	 */
	sock_no_linger(sk);
	/* We send with spinlocks held, and for the sake of memory reclaim. */
	sk->sk_allocation = GFP_ATOMIC;
	sk->sk_use_task_frag = false;
	/*
	 * Never taken back: that would patch the kernel's text on all CPUs each
	 * time the last connection goes and the first comes.
	 */
	sk_set_memalloc(sk);
	WRITE_ONCE(sk->sk_rcvtimeo, ctrl->connect_timeout);
	WRITE_ONCE(sk->sk_sndtimeo, ctrl->connect_timeout);

	if (ctrl->opts.host_traddr) {
		ret = kernel_bind(tq->sock,
				  (struct sockaddr_unsized *)&ctrl->host_addr,
				  rflash_addr_len(&ctrl->host_addr));
		if (ret) {
			rflash_ctrl_error(ctrl,
					  "queue %u: no connection can be made from %s (%d): it is not an address of this host",
					  tq->queue.qid, ctrl->opts.host_traddr,
					  ret);
			return ret;
		}
	}
	ret = kernel_connect(tq->sock, (struct sockaddr_unsized *)&ctrl->addr,
			     rflash_addr_len(&ctrl->addr), 0);
	if (ret == -EINPROGRESS || ret == -EAGAIN)
		ret = -ETIMEDOUT;
	switch (ret) {
	case 0:
		break;
	case -ECONNREFUSED:
		rflash_ctrl_error(ctrl, "connection refused: nothing listens at %s port %s",
				  ctrl->opts.traddr, ctrl->opts.trsvcid);
		break;
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		rflash_ctrl_error(ctrl, "no route to %s", ctrl->opts.traddr);
		break;
	case -ERESTARTSYS:
	case -EINTR:
		rflash_ctrl_error(ctrl, "interrupted while connecting");
		ret = -EINTR;
		break;
	case -ETIMEDOUT:
		rflash_ctrl_error(ctrl, "%s port %s did not answer in %u s",
				  ctrl->opts.traddr, ctrl->opts.trsvcid,
				  (u32)(ctrl->connect_timeout / HZ));
		break;
	default:
		rflash_ctrl_error(ctrl, "connecting to %s port %s failed (%d)",
				  ctrl->opts.traddr, ctrl->opts.trsvcid, ret);
		break;
	}
	return ret;
}

/* sock_no_linger(): resets the connection and drops what is unsent. */
static void rflash_tcp_release_sock(struct rflash_tcp_queue *tq)
{
	sock_release(tq->sock);
	tq->sock = NULL;
}

static int rflash_tcp_start(struct rflash_queue *queue)
{
	struct rflash_tcp_queue *tq = to_tcp_queue(queue);
	struct rflash_ctrl *ctrl = queue->ctrl;
	int ret;

	ret = sock_create_kern(ctrl->net, ctrl->addr.ss_family, SOCK_STREAM,
			       IPPROTO_TCP, &tq->sock);
	if (ret) {
		rflash_ctrl_error(ctrl, "no socket could be made (%d)", ret);
		return ret;
	}
	ret = rflash_tcp_connect_sock(tq);
	if (ret)
		goto release_sock;
	ret = rflash_tcp_handshake(tq);
	if (ret)
		goto release_sock;

	queue->inline_max = queue->qid ? ctrl->inline_max :
					 RFLASH_TCP_ADMIN_INLINE;
	init_llist_head(&tq->submitted);
	tq->pending = NULL;
	tq->tx = NULL;
	tq->tx_stage = RFLASH_TCP_TX_HEAD;
	tq->tx_done = 0;
	rflash_tcp_recv_reset(tq);
	tq->stopping = false;
	rflash_tcp_take_callbacks(tq);
	return 0;

release_sock:
	rflash_tcp_release_sock(tq);
	return ret;
}

static void rflash_tcp_stop(struct rflash_queue *queue)
{
	struct rflash_tcp_queue *tq = to_tcp_queue(queue);

	if (!tq->sock)
		return;
	WRITE_ONCE(tq->stopping, true);
	rflash_tcp_give_callbacks(tq);
	cancel_work_sync(&tq->work);
	rflash_tcp_release_sock(tq);
}

static void rflash_tcp_endpoint(struct rflash_queue *queue,
				struct rflash_queue_endpoint *ep)
{
	struct rflash_tcp_queue *tq = to_tcp_queue(queue);
	struct sockaddr_storage addr;

	ep->addr[0] = '\0';
	ep->port = 0;
	/* Held for seconds while connecting: then there is no endpoint yet. */
	if (!mutex_trylock(&queue->lock))
		return;
	if (tq->sock &&
	    kernel_getsockname(tq->sock, (struct sockaddr *)&addr) >= 0) {
		if (addr.ss_family == AF_INET6) {
			struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&addr;

			snprintf(ep->addr, sizeof(ep->addr), "%pI6c",
				 &in6->sin6_addr);
			ep->port = ntohs(in6->sin6_port);
		} else {
			struct sockaddr_in *in = (struct sockaddr_in *)&addr;

			snprintf(ep->addr, sizeof(ep->addr), "%pI4",
				 &in->sin_addr);
			ep->port = ntohs(in->sin_port);
		}
	}
	mutex_unlock(&queue->lock);
}

static struct rflash_queue *rflash_tcp_alloc_queue(struct rflash_ctrl *ctrl,
						   u16 qid)
{
	struct rflash_tcp_queue *tq = kzalloc(sizeof(*tq), GFP_KERNEL);

	if (!tq)
		return NULL;
	INIT_WORK(&tq->work, rflash_tcp_work);
	init_llist_head(&tq->submitted);
	return &tq->queue;
}

static void rflash_tcp_free_queue(struct rflash_queue *queue)
{
	kfree(to_tcp_queue(queue));
}

static int rflash_tcp_parse_addr(struct rflash_ctrl *ctrl)
{
	struct rflash_opts *opts = &ctrl->opts;

	if (inet_pton_with_scope(ctrl->net, AF_UNSPEC, opts->traddr,
				 opts->trsvcid, &ctrl->addr)) {
		rflash_ctrl_error(ctrl,
				  "%s port %s is no address of a target: give an IPv4 or IPv6 literal and a port of 1 to 65535",
				  opts->traddr, opts->trsvcid);
		return -EINVAL;
	}
	if (opts->host_traddr &&
	    inet_pton_with_scope(ctrl->net, ctrl->addr.ss_family,
				 opts->host_traddr, NULL, &ctrl->host_addr)) {
		rflash_ctrl_error(ctrl,
				  "%s is no address to connect from: give a literal of the same family as %s",
				  opts->host_traddr, opts->traddr);
		return -EINVAL;
	}
	return 0;
}

const struct rflash_transport_ops rflash_tcp_ops = {
	.name		= "tcp",
	.cmd_size	= sizeof(struct rflash_tcp_cmd),
	.parse_addr	= rflash_tcp_parse_addr,
	.alloc_queue	= rflash_tcp_alloc_queue,
	.free_queue	= rflash_tcp_free_queue,
	.init_cmd	= rflash_tcp_init_cmd,
	.start		= rflash_tcp_start,
	.stop		= rflash_tcp_stop,
	.submit		= rflash_tcp_submit,
	.kick		= rflash_tcp_kick,
	.endpoint	= rflash_tcp_endpoint,
};

int rflash_tcp_init(void)
{
	rflash_tcp_wq = alloc_workqueue("rflash_tcp", WQ_MEM_RECLAIM |
					WQ_HIGHPRI | WQ_PERCPU, 0);
	return rflash_tcp_wq ? 0 : -ENOMEM;
}

void rflash_tcp_exit(void)
{
	destroy_workqueue(rflash_tcp_wq);
}
