// SPDX-License-Identifier: GPL-2.0
/*
 * Sending to a TCP socket that the caller has locked.
 */
#include <linux/minmax.h>
#include <linux/mm.h>
#include <net/sock.h>
#include <net/tcp.h>

/**
 * rflash_compat_sendpages_ok - may the network keep references to these pages?
 * @page: first page
 * @len: bytes in the range
 * @offset: where it begins, counted from the start of @page; may lie in a later
 *	page
 *
 * Return: false if the range has to be copied to be sent.
 */
bool rflash_compat_sendpages_ok(struct page *page, size_t len, size_t offset)
{
	size_t end = offset_in_page(offset) + len, done;

	page += offset >> PAGE_SHIFT;
	for (done = 0; done < end; done += PAGE_SIZE, page++)
		if (!sendpage_ok(page))
			return false;
	return true;
}

static int rflash_send_iter(struct sock *sk, const struct bio_vec *bv,
			    unsigned int nr, size_t skip, size_t len, int flags)
{
	struct msghdr msg = { .msg_flags = flags };

	iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, bv, nr, skip + len);
	if (skip)
		iov_iter_advance(&msg.msg_iter, skip);
	return tcp_sendmsg_locked(sk, &msg, len);
}

#if RFLASH_HAS_TCP_SENDPAGE_LOCKED

/*
 * One call per page: a bvec can span pages that are contiguous but do not belong
 * together, and the network takes a reference to the page it is given, alone.
 */
static int rflash_send_pages(struct sock *sk, const struct bio_vec *bv,
			     unsigned int nr, size_t skip, size_t len,
			     int flags)
{
	int more = (flags & ~MSG_EOR) | MSG_MORE | MSG_SENDPAGE_NOTLAST;
	size_t sent = 0;

	while (sent < len) {
		size_t offset, n;
		int ret;

		if (skip >= bv->bv_len) {
			skip -= bv->bv_len;
			bv++;
			continue;
		}
		offset = bv->bv_offset + skip;
		n = min_t(size_t, bv->bv_len - skip, len - sent);
		n = min_t(size_t, n, PAGE_SIZE - offset_in_page(offset));
		ret = tcp_sendpage_locked(sk,
					  bv->bv_page + (offset >> PAGE_SHIFT),
					  offset_in_page(offset), n,
					  sent + n < len ? more : flags);
		if (ret <= 0)
			return sent ? sent : ret;
		sent += ret;
		skip += ret;
		if (ret < n)
			break;
	}
	return sent;
}

#else

static int rflash_send_pages(struct sock *sk, const struct bio_vec *bv,
			     unsigned int nr, size_t skip, size_t len,
			     int flags)
{
	return rflash_send_iter(sk, bv, nr, skip, len,
				flags | MSG_SPLICE_PAGES);
}

#endif

/**
 * rflash_compat_send_bvecs - send pages
 * @sk: TCP socket; the caller holds its lock or, with bottom halves off and the
 *	socket not owned by user, its spinlock
 * @bv: what to send
 * @nr: number of bvecs
 * @skip: bytes to skip at the start of @bv
 * @len: bytes to send after those; @bv has at least @skip + @len
 * @splice: by reference; sendpages_ok() holds for all of it. Otherwise the bytes
 *	are copied.
 * @flags: MSG_*; MSG_DONTWAIT where the caller must not sleep
 *
 * Return: bytes taken, at least 1 and maybe less than @len; or a negative errno,
 * -EAGAIN if there is no room.
 */
int rflash_compat_send_bvecs(struct sock *sk, const struct bio_vec *bv,
			     unsigned int nr, size_t skip, size_t len,
			     bool splice, int flags)
{
	if (splice)
		return rflash_send_pages(sk, bv, nr, skip, len, flags);
	return rflash_send_iter(sk, bv, nr, skip, len, flags);
}

/**
 * rflash_compat_send_kvecs - send memory by copying it
 * @sk: as for rflash_compat_send_bvecs()
 * @kv: what to send
 * @nr: number of kvecs
 * @len: bytes to send
 * @flags: MSG_*
 *
 * Return: as rflash_compat_send_bvecs().
 */
int rflash_compat_send_kvecs(struct sock *sk, struct kvec *kv, unsigned int nr,
			     size_t len, int flags)
{
	struct msghdr msg = { .msg_flags = flags };

	iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, kv, nr, len);
	return tcp_sendmsg_locked(sk, &msg, len);
}
