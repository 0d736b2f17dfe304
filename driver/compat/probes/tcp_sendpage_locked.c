// SPDX-License-Identifier: GPL-2.0
/*
 * probe: tcp_sendpage_locked
 * kernels: before 6.5
 * what: pages are sent by reference one at a time with their own function;
 *	later, many at once with MSG_SPLICE_PAGES, which older kernels define
 *	but TCP ignores
 */
#include <net/tcp.h>

int probe(struct sock *sk, struct page *page)
{
	return tcp_sendpage_locked(sk, page, 0, PAGE_SIZE, MSG_DONTWAIT);
}
