// SPDX-License-Identifier: GPL-2.0
/*
 * NVMe/TCP receive: to completion, in the context in which the bytes arrive.
 *
 * TCP calls data_ready, which reads the stream in place: headers into the
 * queue, data from the socket buffers straight into the pages of the request.
 * Completions of one burst end together. Nothing the peer sent is used before
 * it was checked; what breaks the protocol costs the peer its connection.
 */
#define pr_fmt(fmt) "rflash: " fmt

#include "tcp.h"
#include "trace.h"

/* What the read actor of one burst needs; read_descriptor_t carries it. */
struct rflash_tcp_burst {
	struct rflash_tcp_queue *tq;
	struct rflash_batch batch;
};

void rflash_tcp_recv_reset(struct rflash_tcp_queue *tq)
{
	tq->rx_state = RFLASH_TCP_RX_HEAD;
	tq->rx_have = 0;
	tq->rx_cmd = NULL;
}

static int rflash_tcp_bad_pdu(struct rflash_tcp_queue *tq,
			      const struct rflash_pdu_error *err)
{
	rflash_queue_fault(&tq->queue,
			   "queue %u: %s is 0x%llx in a PDU of type 0x%02x, expected %s",
			   tq->queue.qid, err->field, err->value,
			   tq->rx_hdr.type, err->expected);
	return -EPROTO;
}

static int rflash_tcp_bad_cid(struct rflash_tcp_queue *tq, u16 cid)
{
	rflash_queue_fault(&tq->queue,
			   "queue %u: a PDU of type 0x%02x names command 0x%04x, which is not in flight",
			   tq->queue.qid, tq->rx_hdr.type, cid);
	return -EPROTO;
}

/*
 * The command a PDU names, if the PDU may come now. A command whose capsule
 * is not out yet can't have been answered by an honest peer.
 */
static struct rflash_tcp_cmd *rflash_tcp_find(struct rflash_tcp_queue *tq,
					      u16 cid)
{
	struct rflash_cmd *cmd = rflash_queue_find(&tq->queue, cid);
	struct rflash_tcp_cmd *tcmd;

	if (unlikely(!cmd))
		return NULL;
	tcmd = to_tcp_cmd(cmd);
	return likely(tcmd->phase >= RFLASH_TCP_SENT) && !tcmd->ended ?
		tcmd : NULL;
}

static int rflash_tcp_end(struct rflash_tcp_queue *tq,
			  struct rflash_tcp_cmd *tcmd, u16 status, u64 result,
			  struct rflash_batch *batch)
{
	struct rflash_cmd *cmd = &tcmd->cmd;

	if (likely(!status) && unlikely(tcmd->done != cmd->data_len)) {
		rflash_queue_fault(&tq->queue,
				   "queue %u: command 0x%04x succeeded after %u of %u bytes",
				   tq->queue.qid, (u16)cmd->cid, tcmd->done,
				   cmd->data_len);
		return -EPROTO;
	}
	if (unlikely(tcmd->phase == RFLASH_TCP_H2C)) {
		/* Its data is still being sent: the pages are not free yet. */
		tcmd->ended = true;
		tcmd->end_status = status;
		tcmd->end_result = result;
		return 0;
	}
	tcmd->phase = RFLASH_TCP_IDLE;
	rflash_queue_complete(cmd, status, result, batch);
	return 0;
}

static int rflash_tcp_recv_rsp(struct rflash_tcp_queue *tq,
			       struct rflash_batch *batch)
{
	struct rflash_tcp_cmd *tcmd;
	struct rflash_rsp rsp;

	rflash_pdu_parse_rsp(&tq->rx_rsp, &rsp);
	tcmd = rflash_tcp_find(tq, rsp.cid);
	if (unlikely(!tcmd))
		return rflash_tcp_bad_cid(tq, rsp.cid);
	return rflash_tcp_end(tq, tcmd, rsp.status, rsp.result, batch);
}

static int rflash_tcp_recv_c2h(struct rflash_tcp_queue *tq)
{
	struct rflash_c2h_data *c2h = &tq->rx_c2h;
	struct rflash_pdu_error err;
	struct rflash_tcp_cmd *tcmd;
	int ret;

	ret = rflash_pdu_parse_c2h_data(&tq->rx_data, tq->hdgst, tq->ddgst, c2h,
					&err);
	if (unlikely(ret))
		return rflash_tcp_bad_pdu(tq, &err);
	tcmd = rflash_tcp_find(tq, c2h->cid);
	if (unlikely(!tcmd))
		return rflash_tcp_bad_cid(tq, c2h->cid);

	if (unlikely(tcmd->cmd.write || c2h->offset != tcmd->done ||
		     c2h->length > tcmd->cmd.data_len - tcmd->done)) {
		rflash_queue_fault(&tq->queue,
				   "queue %u: C2HData of %u bytes at offset %u for a %s of %u bytes, of which %u have come",
				   tq->queue.qid, c2h->length, c2h->offset,
				   tcmd->cmd.write ? "write" : "read",
				   tcmd->cmd.data_len, tcmd->done);
		return -EPROTO;
	}
	if (!tcmd->done)
		rflash_tcp_iter_init(tcmd, ITER_DEST);
	tq->rx_cmd = tcmd;
	tq->rx_left = c2h->length;
	tq->rx_crc = rflash_crc32c_init();
	tq->rx_skip += c2h->pad;
	return 0;
}

static int rflash_tcp_recv_r2t(struct rflash_tcp_queue *tq)
{
	struct rflash_pdu_error err;
	struct rflash_tcp_cmd *tcmd;
	struct rflash_r2t r2t;
	int ret;

	ret = rflash_pdu_parse_r2t(&tq->rx_r2t, &r2t, &err);
	if (unlikely(ret))
		return rflash_tcp_bad_pdu(tq, &err);
	tcmd = rflash_tcp_find(tq, r2t.cid);
	if (unlikely(!tcmd))
		return rflash_tcp_bad_cid(tq, r2t.cid);

	/* We asked for one R2T at a time, and send data in order. */
	if (unlikely(!tcmd->cmd.write || tcmd->phase != RFLASH_TCP_SENT ||
		     r2t.offset != tcmd->done ||
		     r2t.length > tcmd->cmd.data_len - tcmd->done)) {
		rflash_queue_fault(&tq->queue,
				   "queue %u: R2T for %u bytes at offset %u of a %s of %u bytes, of which %u are sent%s",
				   tq->queue.qid, r2t.length, r2t.offset,
				   tcmd->cmd.write ? "write" : "read",
				   tcmd->cmd.data_len, tcmd->done,
				   tcmd->phase == RFLASH_TCP_H2C ?
				   " and an R2T is being served" : "");
		return -EPROTO;
	}
	tcmd->r2t = r2t;
	rflash_tcp_send_h2c(tq, tcmd);
	return 0;
}

static int rflash_tcp_recv_term(struct rflash_tcp_queue *tq)
{
	struct rflash_pdu_error err;
	struct rflash_term term;

	if (rflash_pdu_parse_term(&tq->rx_term, &term, &err))
		return rflash_tcp_bad_pdu(tq, &err);
	rflash_queue_fault(&tq->queue,
			   "queue %u: the target ended the connection: %s (status 0x%x, information 0x%x)",
			   tq->queue.qid, term.reason, term.fes, term.fei);
	return -ECONNRESET;
}

/* A whole header is there, digest checked: act on it. */
static int rflash_tcp_recv_head(struct rflash_tcp_queue *tq,
				struct rflash_batch *batch)
{
	switch (tq->rx_hdr.type) {
	case nvme_tcp_rsp:
		return rflash_tcp_recv_rsp(tq, batch);
	case nvme_tcp_c2h_data:
		return rflash_tcp_recv_c2h(tq);
	case nvme_tcp_r2t:
		return rflash_tcp_recv_r2t(tq);
	default:
		return rflash_tcp_recv_term(tq);
	}
}

/*
 * Collect a header. Every PDU that a host may get has at least 24 bytes of
 * it, which is all of it for the common ones.
 */
static int rflash_tcp_read_head(struct rflash_tcp_queue *tq,
				struct sk_buff *skb, unsigned int offset,
				size_t len, struct rflash_batch *batch)
{
	u32 want = RFLASH_TCP_HEAD_LEN + (tq->hdgst ? NVME_TCP_DIGEST_LENGTH : 0);
	u32 n = min_t(size_t, want - tq->rx_have, len);
	struct rflash_pdu_error err;
	int ret;

	ret = skb_copy_bits(skb, offset, tq->rx_head + tq->rx_have, n);
	if (unlikely(ret))
		return ret;
	tq->rx_have += n;
	/* A terminate request has no digest, and nothing may come after it. */
	if (tq->rx_have < want && (tq->rx_have < RFLASH_TCP_HEAD_LEN ||
				   tq->rx_hdr.type != nvme_tcp_c2h_term))
		return n;

	tq->rx_have = 0;
	ret = rflash_pdu_check_hdr(&tq->rx_hdr, tq->hdgst, tq->ddgst, &err);
	if (unlikely(ret < 0))
		return rflash_tcp_bad_pdu(tq, &err);
	if (unlikely(tq->rx_hdr.flags & NVME_TCP_F_HDGST) &&
	    !rflash_pdu_hdgst_ok(tq->rx_head, tq->rx_hdr.hlen)) {
		rflash_queue_fault(&tq->queue,
				   "queue %u: header digest of a PDU of type 0x%02x is wrong",
				   tq->queue.qid, tq->rx_hdr.type);
		return -EPROTO;
	}
	tq->rx_skip = 0;
	ret = rflash_tcp_recv_head(tq, batch);
	if (unlikely(ret))
		return ret;
	if (tq->rx_cmd)
		tq->rx_state = tq->rx_skip ? RFLASH_TCP_RX_SKIP :
					     RFLASH_TCP_RX_DATA;
	return n;
}

/* Copy from the stream into pages, and into the digest on the way. */
static int rflash_tcp_copy_crc(struct rflash_tcp_queue *tq, struct sk_buff *skb,
			       unsigned int offset, struct iov_iter *iter,
			       u32 len)
{
	struct skb_seq_state seq;
	const u8 *data;
	u32 done = 0;

	skb_prepare_seq_read(skb, offset, offset + len, &seq);
	while (done < len) {
		u32 n = skb_seq_read(done, &data, &seq);

		if (!n)
			break;
		n = min(n, len - done);
		tq->rx_crc = rflash_crc32c_update(tq->rx_crc, data, n);
		if (copy_to_iter(data, n, iter) != n)
			break;
		done += n;
	}
	skb_abort_seq_read(&seq);
	return done == len ? 0 : -EFAULT;
}

static int rflash_tcp_data_end(struct rflash_tcp_queue *tq,
			       struct rflash_batch *batch)
{
	struct rflash_tcp_cmd *tcmd = tq->rx_cmd;

	rflash_tcp_recv_reset(tq);
	if (tq->rx_c2h.success)
		return rflash_tcp_end(tq, tcmd, NVME_SC_SUCCESS, 0, batch);
	return 0;
}

static int rflash_tcp_read_data(struct rflash_tcp_queue *tq,
				struct sk_buff *skb, unsigned int offset,
				size_t len, struct rflash_batch *batch)
{
	struct rflash_tcp_cmd *tcmd = tq->rx_cmd;
	u32 n = min_t(size_t, tq->rx_left, len), done = 0;
	int ret;

	while (done < n) {
		u32 part;

		if (!iov_iter_count(&tcmd->iter))
			rflash_tcp_iter_next(tcmd, ITER_DEST);
		part = min_t(size_t, n - done, iov_iter_count(&tcmd->iter));
		if (tq->ddgst)
			ret = rflash_tcp_copy_crc(tq, skb, offset + done,
						  &tcmd->iter, part);
		else
			ret = skb_copy_datagram_iter(skb, offset + done,
						     &tcmd->iter, part);
		if (unlikely(ret)) {
			rflash_queue_fault(&tq->queue,
					   "queue %u: received data could not be copied (%d)",
					   tq->queue.qid, ret);
			return ret;
		}
		done += part;
	}
	tcmd->done += n;
	tq->rx_left -= n;
	if (tq->rx_left)
		return n;

	if (tq->ddgst) {
		tq->rx_state = RFLASH_TCP_RX_DDGST;
		return n;
	}
	ret = rflash_tcp_data_end(tq, batch);
	return ret ? ret : n;
}

static int rflash_tcp_read_ddgst(struct rflash_tcp_queue *tq,
				 struct sk_buff *skb, unsigned int offset,
				 size_t len, struct rflash_batch *batch)
{
	u32 n = min_t(size_t, NVME_TCP_DIGEST_LENGTH - tq->rx_have, len);
	int ret;

	ret = skb_copy_bits(skb, offset, (u8 *)&tq->rx_ddgst + tq->rx_have, n);
	if (unlikely(ret))
		return ret;
	tq->rx_have += n;
	if (tq->rx_have < NVME_TCP_DIGEST_LENGTH)
		return n;

	if (unlikely(tq->rx_ddgst != rflash_crc32c_final(tq->rx_crc))) {
		rflash_queue_fault(&tq->queue,
				   "queue %u: data digest is 0x%08x, expected 0x%08x, at offset %u of command 0x%04x",
				   tq->queue.qid, le32_to_cpu(tq->rx_ddgst),
				   le32_to_cpu(rflash_crc32c_final(tq->rx_crc)),
				   tq->rx_c2h.offset, tq->rx_c2h.cid);
		return -EPROTO;
	}
	ret = rflash_tcp_data_end(tq, batch);
	return ret ? ret : n;
}

/* tcp_read_sock() calls this for each piece of the stream. */
static int rflash_tcp_actor(read_descriptor_t *desc, struct sk_buff *skb,
			    unsigned int offset, size_t len)
{
	struct rflash_tcp_burst *burst = desc->arg.data;
	struct rflash_tcp_queue *tq = burst->tq;
	size_t left = len;
	int n;

	while (left) {
		switch (tq->rx_state) {
		case RFLASH_TCP_RX_HEAD:
			n = rflash_tcp_read_head(tq, skb, offset, left,
						 &burst->batch);
			break;
		case RFLASH_TCP_RX_SKIP:
			n = min_t(size_t, tq->rx_skip, left);
			tq->rx_skip -= n;
			if (!tq->rx_skip)
				tq->rx_state = RFLASH_TCP_RX_DATA;
			break;
		case RFLASH_TCP_RX_DATA:
			n = rflash_tcp_read_data(tq, skb, offset, left,
						 &burst->batch);
			break;
		default:
			n = rflash_tcp_read_ddgst(tq, skb, offset, left,
						  &burst->batch);
			break;
		}
		if (unlikely(n < 0)) {
			rflash_queue_fault(&tq->queue, "queue %u: receiving failed (%d)",
					   tq->queue.qid, n);
			desc->count = 0;
			return n;
		}
		offset += n;
		left -= n;
	}
	desc->count -= min(desc->count, len);
	return len;
}

/**
 * rflash_tcp_receive - take in what the socket has
 * @tq: the connection
 *
 * Context: the socket is locked, see tcp.h.
 *
 * Return: true if the budget is spent and there may be more.
 */
bool rflash_tcp_receive(struct rflash_tcp_queue *tq)
{
	struct rflash_tcp_burst burst = { .tq = tq };
	read_descriptor_t desc = {
		.arg.data = &burst,
		.count = RFLASH_TCP_RECV_BUDGET,
	};
	int bytes;

	if (unlikely(test_bit(RFLASH_Q_FAILED, &tq->queue.flags)))
		return false;
	bytes = tcp_read_sock(tq->sock->sk, &desc, rflash_tcp_actor);
	if (bytes > 0)
		trace_rflash_recv(tq->queue.ctrl->id, tq->queue.qid, bytes);
	rflash_batch_finish(&burst.batch);
	return !desc.count && !test_bit(RFLASH_Q_FAILED, &tq->queue.flags);
}
