/* Fields of a block: 16-bit numbers, and levels packed several to a byte. */
#ifndef HEED_TENSOR_BLOCKS_BITS_H
#define HEED_TENSOR_BLOCKS_BITS_H

#include "tensor/block.h"
#include <string.h>

static inline uint16_t take16(const uint8_t *from)
{
    return (uint16_t)(from[0] | from[1] << 8);
}

static inline void put16(uint8_t *to, uint16_t x)
{
    to[0] = (uint8_t)x;
    to[1] = (uint8_t)(x >> 8);
}

/* 8 bits as 8 bytes, 0 or 1. */
static inline uint64_t spread_bits(uint8_t bits)
{
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t own = bits * ones & 0x8040201008040201u; /* byte i keeps bit i */
    return (own + 127 * ones) >> 7 & ones;
}

/* Levels of `bits` bits each, laid in spans: the first `span` levels are the lowest bits of `span` bytes, the
 * next `span` levels the bits above them, and so on until the bytes are full; then come the next `span`
 * bytes. */
static inline __attribute__((always_inline)) void take_bits(const uint8_t *restrict from, int count, int bits,
                                                            int span, uint8_t *restrict level)
{
    const int mask = (1 << bits) - 1, layers = 8 / bits;
    for (int i = 0; i < count; i += span * layers, from += span)
        for (int layer = 0; layer < layers; layer++, level += span)
            for (int j = 0; j < span; j++)
                level[j] = (uint8_t)(from[j] >> (layer * bits) & mask);
}

/* The same, into bits `up`.. of levels whose lower bits are there. */
static inline __attribute__((always_inline)) void add_bits(const uint8_t *restrict from, int count, int bits,
                                                           int span, int up, uint8_t *restrict level)
{
    const int mask = (1 << bits) - 1, layers = 8 / bits;
    for (int i = 0; i < count; i += span * layers, from += span)
        for (int layer = 0; layer < layers; layer++, level += span)
            for (int j = 0; j < span; j++)
                level[j] = (uint8_t)(level[j] | (from[j] >> (layer * bits) & mask) << up);
}

/* The opposite; `to` is zero before. */
static inline __attribute__((always_inline)) void put_bits(const uint8_t *restrict level, int count, int bits,
                                                           int span, int up, uint8_t *to)
{
    const int mask = (1 << bits) - 1, layers = 8 / bits;
    for (int i = 0; i < count; i += span * layers, to += span)
        for (int layer = 0; layer < layers; layer++, level += span)
            for (int j = 0; j < span; j++)
                to[j] = (uint8_t)(to[j] | (level[j] >> up & mask) << (layer * bits));
}

/* The sub-scale and sub-offset of a block that is one group. */
static inline void single_group(heed_block_parts *parts, int offset)
{
    parts->sub_scale[0] = 1;
    parts->sub_offset[0] = (uint8_t)offset;
}

#endif
