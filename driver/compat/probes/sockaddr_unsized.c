// SPDX-License-Identifier: GPL-2.0
/*
 * probe: sockaddr_unsized
 * kernels: 6.19 and later
 * what: kernel_connect() and kernel_bind() take a struct sockaddr_unsized
 */
#include <linux/net.h>

int probe(struct socket *sock, struct sockaddr_unsized *addr)
{
	return kernel_connect(sock, addr, sizeof(*addr), 0) ?:
	       kernel_bind(sock, addr, sizeof(*addr));
}
