/* MXFP4 (OCP Microscaling Formats, 2023): 32 values with 1 bit of sign, 2 of exponent and 1 of mantissa, and
 * a power of two. In memory: a byte of exponent c, 16 bytes of nibbles, low ones values 0..15. The table
 * holds twice the 4-bit floats, so d = 2^(c - 128). As in GGUF, code 255 is no NaN.
 */
#include "tensor/blocks/bits.h"

const int8_t heed_mxfp4_table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void heed_mxfp4_take(const uint8_t *block, heed_block_parts *parts)
{
    /* 2^(c - 128) as bf16: below 2^-126 the exponent is no normal one */
    parts->d = (uint16_t)(block[0] < 2 ? 0x20 << block[0] : (block[0] - 1) << 7);
    parts->e = 0;
    single_group(parts, 0);
    take_bits(block + 1, 32, 4, 16, parts->level);
}

void heed_mxfp4_put(const heed_block_parts *parts, uint8_t *block)
{
    memset(block, 0, 17);
    block[0] = (uint8_t)(parts->d < 0x80 ? parts->d >= 0x40 : (parts->d >> 7) + 1);
    put_bits(parts->level, 32, 4, 16, 0, block + 1);
}
