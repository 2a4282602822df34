/* Q4_K and Q5_K: 256 values in 8 groups of 32, x = d sub_scale n - f sub_offset. In memory:
 *
 *     f16 d, f16 f, 12 bytes of 6-bit sub-scales and sub-offsets, (Q5_K: 32 bytes of fifth bits,) 128 bytes
 * of nibbles
 *
 * Byte j of the nibbles' q-th 32 bytes holds values 64 q + j (low) and 64 q + 32 + j (high). Bit g of byte j
 * of the fifth bits belongs to value 32 g + j. Of the 12 bytes, the low 6 bits of bytes 0..3 are sub-scales
 * 0..3, those of bytes 4..7 sub-offsets 0..3. Groups 4..7 have their low 4 bits in the nibbles of bytes 8..11
 * (scale below offset) and their high 2 bits in the top bits of bytes 0..3 and 4..7.
 */
#include "tensor/blocks/bits.h"

static void take_subs(const uint8_t *from, heed_block_parts *parts)
{
    for (int g = 0; g < 4; g++) {
        parts->sub_scale[g] = (int8_t)(from[g] & 63);
        parts->sub_offset[g] = from[4 + g] & 63;
        parts->sub_scale[4 + g] = (int8_t)((from[8 + g] & 15) | from[g] >> 6 << 4);
        parts->sub_offset[4 + g] = (uint8_t)(from[8 + g] >> 4 | from[4 + g] >> 6 << 4);
    }
}

static void put_subs(const heed_block_parts *parts, uint8_t *to)
{
    for (int g = 0; g < 4; g++) {
        const int scale = parts->sub_scale[4 + g], offset = parts->sub_offset[4 + g];
        to[g] = (uint8_t)(parts->sub_scale[g] | scale >> 4 << 6);
        to[4 + g] = (uint8_t)(parts->sub_offset[g] | offset >> 4 << 6);
        to[8 + g] = (uint8_t)((scale & 15) | (offset & 15) << 4);
    }
}

static inline __attribute__((always_inline)) void take(const uint8_t *block, bool fifth,
                                                       heed_block_parts *parts)
{
    parts->d = take16(block);
    parts->e = take16(block + 2) ^ 0x8000;
    take_subs(block + 4, parts);
    take_bits(block + (fifth ? 48 : 16), 256, 4, 32, parts->level);
    if (fifth)
        add_bits(block + 16, 256, 1, 32, 4, parts->level);
}

static inline __attribute__((always_inline)) void put(const heed_block_parts *parts, bool fifth,
                                                      uint8_t *block)
{
    memset(block, 0, fifth ? 176 : 144);
    put16(block, parts->d);
    put16(block + 2, parts->e ^ 0x8000);
    put_subs(parts, block + 4);
    if (fifth)
        put_bits(parts->level, 256, 1, 32, 4, block + 16);
    put_bits(parts->level, 256, 4, 32, 0, block + (fifth ? 48 : 16));
}

void heed_q4_k_take(const uint8_t *block, heed_block_parts *parts)
{
    take(block, false, parts);
}

void heed_q4_k_put(const heed_block_parts *parts, uint8_t *block)
{
    put(parts, false, block);
}

void heed_q5_k_take(const uint8_t *block, heed_block_parts *parts)
{
    take(block, true, parts);
}

void heed_q5_k_put(const heed_block_parts *parts, uint8_t *block)
{
    put(parts, true, block);
}
