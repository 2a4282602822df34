/* Q3_K: 256 values in 16 groups of 16, x = d sub_scale (n - 4). In memory: 32 bytes of third bits (bit b of
 * byte j belongs to value 32 b + j), 64 bytes of the low two bits in spans of 32, 12 bytes of 6-bit
 * sub-scales + 32, f16 d. Of the 12 bytes, the low nibbles of bytes 0..7 are the low 4 bits of sub-scales
 * 0..7, the high nibbles those of 8..15; bits 2 q.. of byte 8 + j are the high 2 bits of sub-scale 4 q + j.
 */
#include "tensor/blocks/bits.h"

void heed_q3_k_take(const uint8_t *block, heed_block_parts *parts)
{
    uint8_t scale[16];
    take_bits(block + 32, 256, 2, 32, parts->level);
    add_bits(block, 256, 1, 32, 2, parts->level);
    take_bits(block + 96, 16, 4, 8, scale);
    add_bits(block + 104, 16, 2, 4, 4, scale);
    for (int g = 0; g < 16; g++)
        parts->sub_scale[g] = (int8_t)(scale[g] - 32);
    memset(parts->sub_offset, 0, sizeof parts->sub_offset);
    parts->d = take16(block + 108);
    parts->e = 0;
}

void heed_q3_k_put(const heed_block_parts *parts, uint8_t *block)
{
    uint8_t scale[16];
    for (int g = 0; g < 16; g++)
        scale[g] = (uint8_t)(parts->sub_scale[g] + 32);
    memset(block, 0, 110);
    put_bits(parts->level, 256, 1, 32, 2, block);
    put_bits(parts->level, 256, 2, 32, 0, block + 32);
    put_bits(scale, 16, 4, 8, 0, block + 96);
    put_bits(scale, 16, 2, 4, 4, block + 104);
    put16(block + 108, parts->d);
}
