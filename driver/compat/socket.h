/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sockets.
 */
#ifndef _RFLASH_COMPAT_SOCKET_H
#define _RFLASH_COMPAT_SOCKET_H

#include <linux/bvec.h>
#include <linux/net.h>
#include <linux/socket.h>
#include <linux/uio.h>

struct sock;

#if !RFLASH_HAS_SOCKADDR_UNSIZED
/* kernel_connect() and kernel_bind() take the address family's own type. */
#define sockaddr_unsized	sockaddr
#endif

/*
 * The kernel's sendpages_ok(), where there is one, forgets the last page of a
 * range that does not begin at the start of one.
 */
bool rflash_compat_sendpages_ok(struct page *page, size_t len, size_t offset);
#define sendpages_ok	rflash_compat_sendpages_ok

int rflash_compat_send_bvecs(struct sock *sk, const struct bio_vec *bv,
			     unsigned int nr, size_t skip, size_t len,
			     bool splice, int flags);
int rflash_compat_send_kvecs(struct sock *sk, struct kvec *kv, unsigned int nr,
			     size_t len, int flags);

#endif /* _RFLASH_COMPAT_SOCKET_H */
