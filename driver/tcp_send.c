// SPDX-License-Identifier: GPL-2.0
/*
 * NVMe/TCP send: on the submitting CPU, without a context switch.
 *
 * Commands are put on a lock-free list. Whoever is told that a burst is over
 * takes the socket's spinlock and, if nobody owns the socket, sends all there
 * is: headers of commands without data are gathered into one sendmsg, data
 * goes by reference, MSG_MORE holds the pieces together and MSG_EOR lets the
 * last one go. Where the socket is owned, or full, the worker does it.
 */
#define pr_fmt(fmt) "rflash: " fmt

#include <linux/highmem.h>
#include <linux/sched/mm.h>

#include "tcp.h"
#include "trace.h"

#define RFLASH_TCP_FLAGS	(MSG_DONTWAIT | MSG_NOSIGNAL)

/* CRC32C over the next @len bytes of the data, which stay unsent. */
static __le32 rflash_tcp_data_digest(struct rflash_tcp_cmd *tcmd, u32 len)
{
	struct iov_iter saved_iter = tcmd->iter;
	struct bio *saved_bio = tcmd->bio;
	u32 crc = rflash_crc32c_init();

	while (len) {
		const struct bio_vec *bv;
		size_t start, n;
		void *addr;

		if (!iov_iter_count(&tcmd->iter))
			rflash_tcp_iter_next(tcmd, ITER_SOURCE);
		bv = tcmd->iter.bvec;
		start = bv->bv_offset + tcmd->iter.iov_offset;
		n = min3((size_t)len, iov_iter_count(&tcmd->iter),
			 (size_t)bv->bv_len - tcmd->iter.iov_offset);
		n = min(n, PAGE_SIZE - offset_in_page(start));
		addr = kmap_local_page(bv->bv_page + (start >> PAGE_SHIFT));
		crc = rflash_crc32c_update(crc, addr + offset_in_page(start), n);
		kunmap_local(addr);
		iov_iter_advance(&tcmd->iter, n);
		len -= n;
	}
	tcmd->iter = saved_iter;
	tcmd->bio = saved_bio;
	return rflash_crc32c_final(crc);
}

/* A header is in place: complete what goes around it. */
static void rflash_tcp_seal(struct rflash_tcp_queue *tq,
			    struct rflash_tcp_cmd *tcmd, u32 payload)
{
	struct nvme_tcp_hdr *hdr = &tcmd->hdr;

	tcmd->payload = payload;
	tcmd->head_len = rflash_pdu_head_len(hdr, tq->hdgst);
	if (unlikely(tcmd->head_len > hdr->hlen)) {
		memset(tcmd->head + hdr->hlen, 0, tcmd->head_len - hdr->hlen);
		if (tq->hdgst) {
			__le32 digest = rflash_pdu_hdgst(hdr, hdr->hlen);

			memcpy(tcmd->head + hdr->hlen, &digest, sizeof(digest));
		}
	}
	if (unlikely(tq->ddgst && payload))
		tcmd->ddgst = rflash_tcp_data_digest(tcmd, payload);
}

/* TCP can't take a reference on slab pages, which file systems' logs use. */
static bool rflash_tcp_can_splice(struct rflash_cmd *cmd)
{
	struct req_iterator iter;
	struct bio_vec bv;

	if (cmd->internal)
		return false;
	if (cmd->special)
		return true;
	rq_for_each_bvec(bv, blk_mq_rq_from_pdu(cmd), iter)
		if (!sendpages_ok(bv.bv_page, bv.bv_len, bv.bv_offset))
			return false;
	return true;
}

static void rflash_tcp_set_sgl(struct rflash_cmd *cmd, u32 inline_len)
{
	struct nvme_sgl_desc *sgl = &cmd->sqe->common.dptr.sgl;

	cmd->sqe->common.flags = NVME_CMD_SGL_METABUF;
	sgl->addr = 0;
	if (inline_len) {
		sgl->length = cpu_to_le32(inline_len);
		sgl->type = (NVME_SGL_FMT_DATA_DESC << 4) |
			    NVME_SGL_FMT_OFFSET;
	} else {
		sgl->length = cpu_to_le32(cmd->data_len);
		sgl->type = (NVME_TRANSPORT_SGL_DATA_DESC << 4) |
			    NVME_SGL_FMT_TRANSPORT_A;
	}
}

void rflash_tcp_submit(struct rflash_queue *queue, struct rflash_cmd *cmd)
{
	struct rflash_tcp_queue *tq = to_tcp_queue(queue);
	struct rflash_tcp_cmd *tcmd = to_tcp_cmd(cmd);
	u32 inline_max = cmd->internal ? RFLASH_TCP_ADMIN_INLINE :
					 queue->inline_max;
	u32 inline_len = 0;

	tcmd->done = 0;
	tcmd->ended = false;
	if (cmd->write && cmd->data_len) {
		if (cmd->data_len <= inline_max)
			inline_len = cmd->data_len;
		tcmd->splice = rflash_tcp_can_splice(cmd);
		rflash_tcp_iter_init(tcmd, ITER_SOURCE);
	}
	rflash_tcp_set_sgl(cmd, inline_len);
	rflash_pdu_cmd(&tcmd->hdr, tq->hdgst, tq->ddgst, tq->cpda, inline_len);
	rflash_tcp_seal(tq, tcmd, inline_len);
	tcmd->phase = RFLASH_TCP_CAPSULE;
	rflash_queue_publish(cmd);
	llist_add(&cmd->node, &tq->submitted);
}

/* The next H2CData PDU of the transfer that the controller asked for. */
static void rflash_tcp_next_h2c(struct rflash_tcp_queue *tq,
				struct rflash_tcp_cmd *tcmd)
{
	struct rflash_r2t *r2t = &tcmd->r2t;
	u32 len = min(r2t->length, tq->maxh2cdata);

	rflash_pdu_h2c_data(&tcmd->h2c, tq->hdgst, tq->ddgst, tq->cpda,
			    r2t->cid, r2t->ttag, r2t->offset, len,
			    len == r2t->length);
	r2t->offset += len;
	r2t->length -= len;
	rflash_tcp_seal(tq, tcmd, len);
}

/**
 * rflash_tcp_send_h2c - serve the R2T in tcmd->r2t
 * @tq: the connection
 * @tcmd: the command
 *
 * Called where it was received, where sending is not possible: the worker
 * sends. Context: the socket is locked.
 */
void rflash_tcp_send_h2c(struct rflash_tcp_queue *tq,
			 struct rflash_tcp_cmd *tcmd)
{
	tcmd->phase = RFLASH_TCP_H2C;
	rflash_tcp_next_h2c(tq, tcmd);
	llist_add(&tcmd->cmd.node, &tq->submitted);
	rflash_tcp_queue_work(tq);
}

static struct rflash_tcp_cmd *rflash_tcp_node_cmd(struct llist_node *node)
{
	return container_of(node, struct rflash_tcp_cmd, cmd.node);
}

/* The oldest command that waits to be sent, taken off the list, or NULL. */
static struct rflash_tcp_cmd *rflash_tcp_pop(struct rflash_tcp_queue *tq)
{
	struct llist_node *node = tq->pending;

	if (!node) {
		if (llist_empty(&tq->submitted))
			return NULL;
		node = llist_reverse_order(llist_del_all(&tq->submitted));
	}
	tq->pending = node->next;
	return rflash_tcp_node_cmd(node);
}

static bool rflash_tcp_more(struct rflash_tcp_queue *tq)
{
	return tq->pending || !llist_empty(&tq->submitted);
}

/*
 * The PDU is out, digest and all. Bytes spliced are still referenced by TCP;
 * see the head of tcp.h why that is no harm.
 */
static void rflash_tcp_pdu_sent(struct rflash_tcp_queue *tq,
				struct rflash_batch *batch)
{
	struct rflash_tcp_cmd *tcmd = tq->tx;

	tq->tx_stage = RFLASH_TCP_TX_HEAD;
	tq->tx_done = 0;
	tq->tx_pdus++;
	if (tcmd->phase == RFLASH_TCP_H2C && tcmd->r2t.length) {
		rflash_tcp_next_h2c(tq, tcmd);
		return;
	}
	tq->tx = NULL;
	tcmd->phase = RFLASH_TCP_SENT;
	if (unlikely(tcmd->ended)) {
		tcmd->phase = RFLASH_TCP_IDLE;
		rflash_queue_complete(&tcmd->cmd, tcmd->end_status,
				      tcmd->end_result, batch);
	}
}

/*
 * Send headers: that of the present PDU and, if no data follows it, of as many
 * further commands as there are up to and including the first with data.
 * Returns bytes sent or an error, with tx and pending moved on accordingly.
 */
static int rflash_tcp_send_heads(struct rflash_tcp_queue *tq,
				 struct rflash_batch *batch)
{
	struct kvec vec[RFLASH_TCP_GATHER];
	struct rflash_tcp_cmd *tcmd = tq->tx;
	struct llist_node *node = tq->pending;
	u32 skip = tq->tx_done, total = 0;
	unsigned int n = 0;
	bool more;
	int sent, left;

	for (;;) {
		vec[n].iov_base = tcmd->head + skip;
		vec[n].iov_len = tcmd->head_len - skip;
		total += vec[n].iov_len;
		skip = 0;
		n++;
		if (tcmd->payload) {
			more = true;
			break;
		}
		if (!node || n == RFLASH_TCP_GATHER) {
			more = node || !llist_empty(&tq->submitted);
			break;
		}
		tcmd = rflash_tcp_node_cmd(node);
		node = node->next;
	}

	sent = rflash_compat_send_kvecs(tq->sock->sk, vec, n, total,
					RFLASH_TCP_FLAGS |
					(more ? MSG_MORE : MSG_EOR));
	for (left = sent; left > 0; ) {
		u32 rest = tq->tx->head_len - tq->tx_done;

		if (left < rest) {
			tq->tx_done += left;
			break;
		}
		left -= rest;
		if (tq->tx->payload) {
			tq->tx_stage = RFLASH_TCP_TX_DATA;
			tq->tx_done = 0;
			break;
		}
		rflash_tcp_pdu_sent(tq, batch);
		if (left)
			tq->tx = rflash_tcp_pop(tq);
	}
	return sent;
}

static int rflash_tcp_send_data(struct rflash_tcp_queue *tq,
				struct rflash_batch *batch)
{
	struct rflash_tcp_cmd *tcmd = tq->tx;
	struct iov_iter *iter = &tcmd->iter;
	int flags = RFLASH_TCP_FLAGS;
	u32 len;
	int sent;

	if (!iov_iter_count(iter))
		rflash_tcp_iter_next(tcmd, ITER_SOURCE);
	len = min_t(size_t, tcmd->payload, iov_iter_count(iter));
	if (len < tcmd->payload || tq->ddgst || rflash_tcp_more(tq) ||
	    (tcmd->phase == RFLASH_TCP_H2C && tcmd->r2t.length))
		flags |= MSG_MORE;
	else
		flags |= MSG_EOR;

	sent = rflash_compat_send_bvecs(tq->sock->sk, iter->bvec, iter->nr_segs,
					iter->iov_offset, len, tcmd->splice,
					flags);
	if (sent <= 0)
		return sent;
	iov_iter_advance(iter, sent);
	tcmd->payload -= sent;
	tcmd->done += sent;
	if (tcmd->payload)
		return sent;
	if (tq->ddgst)
		tq->tx_stage = RFLASH_TCP_TX_DDGST;
	else
		rflash_tcp_pdu_sent(tq, batch);
	return sent;
}

static int rflash_tcp_send_ddgst(struct rflash_tcp_queue *tq,
				 struct rflash_batch *batch)
{
	struct rflash_tcp_cmd *tcmd = tq->tx;
	bool more = rflash_tcp_more(tq) ||
		    (tcmd->phase == RFLASH_TCP_H2C && tcmd->r2t.length);
	struct kvec vec = {
		.iov_base = (u8 *)&tcmd->ddgst + tq->tx_done,
		.iov_len = NVME_TCP_DIGEST_LENGTH - tq->tx_done,
	};
	int sent;

	sent = rflash_compat_send_kvecs(tq->sock->sk, &vec, 1, vec.iov_len,
					RFLASH_TCP_FLAGS |
					(more ? MSG_MORE : MSG_EOR));
	if (sent <= 0)
		return sent;
	tq->tx_done += sent;
	if (tq->tx_done == NVME_TCP_DIGEST_LENGTH)
		rflash_tcp_pdu_sent(tq, batch);
	return sent;
}

/**
 * rflash_tcp_send - send what there is, as far as the socket takes it
 * @tq: the connection
 *
 * Context: the socket is locked, bottom halves off or process context.
 *
 * Return: true if the caller should try again soon although the socket will
 * not call back: memory was short while nothing of ours was in flight.
 */
bool rflash_tcp_send(struct rflash_tcp_queue *tq)
{
	struct sock *sk = tq->sock->sk;
	struct rflash_batch batch = { };
	unsigned int noreclaim;
	u32 bytes = 0;
	bool again = false;
	int ret = 0;

	if (unlikely(test_bit(RFLASH_Q_FAILED, &tq->queue.flags)))
		return false;

	tq->tx_pdus = 0;
	/* Writeback may be waiting for us: we may use the reserves. */
	noreclaim = memalloc_noreclaim_save();
	while (tq->tx || (tq->tx = rflash_tcp_pop(tq))) {
		switch (tq->tx_stage) {
		case RFLASH_TCP_TX_HEAD:
			ret = rflash_tcp_send_heads(tq, &batch);
			break;
		case RFLASH_TCP_TX_DATA:
			ret = rflash_tcp_send_data(tq, &batch);
			break;
		default:
			ret = rflash_tcp_send_ddgst(tq, &batch);
			break;
		}
		if (unlikely(ret <= 0))
			break;
		bytes += ret;
	}
	memalloc_noreclaim_restore(noreclaim);

	trace_rflash_send(tq->queue.ctrl->id, tq->queue.qid, bytes, tq->tx_pdus);
	if (unlikely(ret == -EAGAIN || (ret == 0 && tq->tx)))
		again = sk_stream_is_writeable(sk);
	else if (unlikely(ret < 0))
		rflash_queue_fault(&tq->queue, "queue %u: sending failed (%d)",
				   tq->queue.qid, ret);
	rflash_batch_finish(&batch);
	return again;
}

/**
 * rflash_tcp_kick - a burst is over: send it
 * @queue: the queue
 *
 * In softirq we may be inside the receive path of this or another socket, whose
 * spinlock is held; to take one more here would invite a deadlock.
 */
void rflash_tcp_kick(struct rflash_queue *queue)
{
	struct rflash_tcp_queue *tq = to_tcp_queue(queue);
	struct sock *sk = tq->sock->sk;
	bool worker = true;

	if (unlikely(in_serving_softirq() || irqs_disabled()))
		goto out;
	local_bh_disable();
	bh_lock_sock_nested(sk);
	if (likely(!sock_owned_by_user(sk)))
		worker = rflash_tcp_send(tq);
	bh_unlock_sock(sk);
	local_bh_enable();
out:
	if (unlikely(worker))
		rflash_tcp_queue_work(tq);
}
