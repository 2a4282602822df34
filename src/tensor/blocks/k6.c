/* Q6_K: 256 values in 16 groups of 16, x = d sub_scale (n - 32). In memory: 128 bytes of low nibbles in spans
 * of 64, 64 bytes of the high two bits in spans of 32, 16 signed bytes of sub-scales, f16 d. */
#include "tensor/blocks/bits.h"

void heed_q6_k_take(const uint8_t *block, heed_block_parts *parts)
{
    take_bits(block, 256, 4, 64, parts->level);
    add_bits(block + 128, 256, 2, 32, 4, parts->level);
    memcpy(parts->sub_scale, block + 192, 16);
    memset(parts->sub_offset, 0, sizeof parts->sub_offset);
    parts->d = take16(block + 208);
    parts->e = 0;
}

void heed_q6_k_put(const heed_block_parts *parts, uint8_t *block)
{
    memset(block, 0, 210);
    put_bits(parts->level, 256, 4, 64, 0, block);
    put_bits(parts->level, 256, 2, 32, 4, block + 128);
    memcpy(block + 192, parts->sub_scale, 16);
    put16(block + 208, parts->d);
}
