/* IQ4_NL and IQ4_XS: 4-bit levels at unequal distances, denser around 0. In memory:
 *
 *     IQ4_NL   32 values: f16 d, 16 bytes of nibbles                                x = d table[n]
 *     IQ4_XS  256 values: f16 d, high 2 bits of 8 sub-scales + 32 (2 bytes), their  x = d sub_scale table[n]
 *             low nibbles (4 bytes), 128 bytes of nibbles
 *
 * In each 16 bytes of nibbles the low ones are values 0..15 of a group of 32, the high ones 16..31.
 */
#include "tensor/blocks/bits.h"

const int8_t heed_iq4_table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void heed_iq4_nl_take(const uint8_t *block, heed_block_parts *parts)
{
    parts->d = take16(block);
    parts->e = 0;
    single_group(parts, 0);
    take_bits(block + 2, 32, 4, 16, parts->level);
}

void heed_iq4_nl_put(const heed_block_parts *parts, uint8_t *block)
{
    memset(block, 0, 18);
    put16(block, parts->d);
    put_bits(parts->level, 32, 4, 16, 0, block + 2);
}

void heed_iq4_xs_take(const uint8_t *block, heed_block_parts *parts)
{
    parts->d = take16(block);
    parts->e = 0;
    const unsigned high = take16(block + 2);
    for (int g = 0; g < 8; g++)
        parts->sub_scale[g] =
            (int8_t)((int)((block[4 + g / 2] >> 4 * (g % 2) & 15) | (high >> 2 * g & 3) << 4) - 32);
    memset(parts->sub_offset, 0, sizeof parts->sub_offset);
    take_bits(block + 8, 256, 4, 16, parts->level);
}

void heed_iq4_xs_put(const heed_block_parts *parts, uint8_t *block)
{
    unsigned high = 0;
    memset(block, 0, 136);
    put16(block, parts->d);
    for (int g = 0; g < 8; g++) {
        const unsigned scale = (unsigned)(parts->sub_scale[g] + 32);
        block[4 + g / 2] = (uint8_t)(block[4 + g / 2] | (scale & 15) << 4 * (g % 2));
        high |= scale >> 4 << 2 * g;
    }
    put16(block + 2, (uint16_t)high);
    put_bits(parts->level, 256, 4, 16, 0, block + 8);
}
