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

/* Levels of `bits` bits each, laid in spans: the first `span` levels are the lowest bits of `span` bytes, the
 * next `span` levels the bits above them, and so on until the bytes are full; then come the next `span`
 * bytes. Sets bits `up`.. of the levels. */
static inline void take_bits(const uint8_t *from, int count, int bits, int span, int up, uint8_t *level)
{
    const int mask = (1 << bits) - 1, layers = 8 / bits;
    for (int i = 0; i < count; i++) {
        const int layer = i / span % layers, byte = i / (span * layers) * span + i % span;
        level[i] = (uint8_t)(level[i] | (from[byte] >> (layer * bits) & mask) << up);
    }
}

/* The opposite; `to` is zero before. */
static inline void put_bits(const uint8_t *level, int count, int bits, int span, int up, uint8_t *to)
{
    const int mask = (1 << bits) - 1, layers = 8 / bits;
    for (int i = 0; i < count; i++) {
        const int layer = i / span % layers, byte = i / (span * layers) * span + i % span;
        to[byte] = (uint8_t)(to[byte] | (level[i] >> up & mask) << (layer * bits));
    }
}

/* The sub-scale and sub-offset of a block that is one group. */
static inline void single_group(heed_block_parts *parts, int offset)
{
    parts->sub_scale[0] = 1;
    parts->sub_offset[0] = (uint8_t)offset;
}

#endif
