/* Q2_K: 256 values in 16 groups of 16, x = d sub_scale n - f sub_offset. In memory: 16 bytes of sub-scale
 * (low nibble) and sub-offset (high), 64 bytes of 2-bit levels in spans of 32, f16 d, f16 f. */
#include "tensor/blocks/bits.h"

void heed_q2_k_take(const uint8_t *block, heed_block_parts *parts)
{
    for (int g = 0; g < 16; g++) {
        parts->sub_scale[g] = (int8_t)(block[g] & 15);
        parts->sub_offset[g] = block[g] >> 4;
    }
    take_bits(block + 16, 256, 2, 32, parts->level);
    parts->d = take16(block + 80);
    parts->e = take16(block + 82) ^ 0x8000;
}

void heed_q2_k_put(const heed_block_parts *parts, uint8_t *block)
{
    memset(block, 0, 84);
    for (int g = 0; g < 16; g++)
        block[g] = (uint8_t)(parts->sub_scale[g] | parts->sub_offset[g] << 4);
    put_bits(parts->level, 256, 2, 32, 0, block + 16);
    put16(block + 80, parts->d);
    put16(block + 82, parts->e ^ 0x8000);
}
