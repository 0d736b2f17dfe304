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

int rflash_compat_send_bvecs(struct sock *sk, struct bio_vec *bv,
			     unsigned int nr, size_t skip, size_t len,
			     int flags);
int rflash_compat_send_kvecs(struct sock *sk, struct kvec *kv, unsigned int nr,
			     size_t len, int flags);

#endif /* _RFLASH_COMPAT_SOCKET_H */
