/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Command identifiers: the tag's index in the low bits, a generation above it.
 *
 * A queue of depth d needs order_base_2(d) bits for the index; what is left of
 * the 16 counts how often that tag has been used. A completion whose generation
 * is not the tag's current one belongs to a command that is already gone (or to
 * none) and must be dropped. A stale completion is mistaken for a current one
 * only if it is late by an exact multiple of all generations. The index also
 * counts the driver's own commands, three at most: so there are 31 generations
 * at the greatest queue size, 1024, and 255 at 128.
 *
 * The generation of all ones is not used, so that no identifier is FFFFh, which
 * the specification sets aside for "no command" in the error log.
 */
#ifndef _RFLASH_TAGS_H
#define _RFLASH_TAGS_H

#include <linux/bits.h>
#include <linux/log2.h>
#include <linux/types.h>

#define RFLASH_CID_BITS		16

/**
 * rflash_tag_bits - how many bits of a command identifier are the index
 * @depth: number of tags, 1..32768
 *
 * Return: the @bits that the other functions here take.
 */
static inline u8 rflash_tag_bits(unsigned int depth)
{
	return order_base_2(depth);
}

/**
 * rflash_cid - make a command identifier
 * @bits: as rflash_tag_bits() gave it
 * @index: the tag's index, below 2^@bits
 * @gen: the tag's generation, as rflash_gen_next() gave it
 *
 * Return: the identifier, never FFFFh.
 */
static inline u16 rflash_cid(u8 bits, u16 index, u16 gen)
{
	return (u16)(gen << bits) | index;
}

/**
 * rflash_cid_index - the index in a command identifier
 * @bits: as rflash_tag_bits() gave it
 * @cid: command identifier, possibly from the peer
 *
 * Return: the index, which can exceed the depth unless that is a power of two:
 * the caller checks.
 */
static inline u16 rflash_cid_index(u8 bits, u16 cid)
{
	return cid & (u16)(BIT(bits) - 1);
}

/**
 * rflash_cid_gen - the generation in a command identifier
 * @bits: as rflash_tag_bits() gave it
 * @cid: command identifier, possibly from the peer
 *
 * Return: the generation, which can be the one that is not used.
 */
static inline u16 rflash_cid_gen(u8 bits, u16 cid)
{
	return cid >> bits;
}

/**
 * rflash_gen_next - the generation after this one
 * @bits: as rflash_tag_bits() gave it
 * @gen: the current generation
 *
 * Return: the next generation, never the one that is all ones.
 */
static inline u16 rflash_gen_next(u8 bits, u16 gen)
{
	u16 last = (u16)(BIT(RFLASH_CID_BITS - bits) - 2);

	return gen < last ? gen + 1 : 0;
}

#endif /* _RFLASH_TAGS_H */
