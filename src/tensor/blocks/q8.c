/* Q8_0: f16 d, then 32 signed bytes. x = d n. */
#include "tensor/blocks/bits.h"

void heed_q8_0_take(const uint8_t *block, heed_block_parts *parts)
{
    parts->d = take16(block);
    parts->e = 0;
    single_group(parts, 0);
    const uint8_t *restrict from = block + 2;
    uint8_t *restrict level = parts->level;
    for (int i = 0; i < 32; i++)
        level[i] = from[i] ^ 0x80;
}

void heed_q8_0_put(const heed_block_parts *parts, uint8_t *block)
{
    put16(block, parts->d);
    for (int i = 0; i < 32; i++)
        block[2 + i] = parts->level[i] ^ 0x80;
}
