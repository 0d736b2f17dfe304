// SPDX-License-Identifier: GPL-2.0
/*
 * Texts of formatted extended acks.
 */
#include <linux/atomic.h>
#include <linux/kernel.h>
#include <linux/stdarg.h>

/*
 * A text is needed from when a request handler sets it, right before it returns,
 * until netlink has copied it into the answer, right after. It is taken from a
 * ring and overwritten when so many other requests have failed in between.
 */
#define RFLASH_EXTACK_TEXTS	64
#define RFLASH_EXTACK_LEN	320

static char rflash_extack_texts[RFLASH_EXTACK_TEXTS][RFLASH_EXTACK_LEN];
static atomic_t rflash_extack_next = ATOMIC_INIT(-1);

/**
 * rflash_compat_extack_text - format a text that outlives the caller
 * @fmt: printf format
 *
 * Return: the text, cut off if it is too long; not to be freed.
 */
const char *rflash_compat_extack_text(const char *fmt, ...)
{
	unsigned int i = atomic_inc_return(&rflash_extack_next);
	char *text = rflash_extack_texts[i % RFLASH_EXTACK_TEXTS];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, RFLASH_EXTACK_LEN, fmt, args);
	va_end(args);
	return text;
}
