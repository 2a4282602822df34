/* Blocks of 32 values with 4 or 5 bits each, in this order in memory:
 *
 *     Q4_0  f16 d,        16 bytes of nibbles              x = d (n - 8)
 *     Q4_1  f16 d, f16 e, 16 bytes of nibbles              x = d n + e
 *     Q5_0  f16 d,        4 bytes of fifth bits, nibbles   x = d (n - 16)
 *     Q5_1  f16 d, f16 e, 4 bytes of fifth bits, nibbles   x = d n + e
 *
 * Low nibbles are values 0..15, high ones 16..31. The fifth bit of value i is bit i of the 4 bytes.
 */
#include "tensor/blocks/bits.h"

static inline __attribute__((always_inline)) void take(const uint8_t *block, bool offset, bool fifth,
                                                       heed_block_parts *parts)
{
    parts->d = take16(block);
    parts->e = offset ? take16(block + 2) : 0;
    single_group(parts, offset);
    block += offset ? 4 : 2;
    take_bits(block + (fifth ? 4 : 0), 32, 4, 16, parts->level);
    for (int i = 0; i < 4 && fifth; i++) {
        uint64_t eight;
        memcpy(&eight, parts->level + 8 * i, sizeof eight);
        eight |= spread_bits(block[i]) << 4;
        memcpy(parts->level + 8 * i, &eight, sizeof eight);
    }
}

static inline __attribute__((always_inline)) void put(const heed_block_parts *parts, bool offset, bool fifth,
                                                      uint8_t *block)
{
    memset(block, 0, 18u + 2 * offset + 4 * fifth);
    put16(block, parts->d);
    if (offset)
        put16(block + 2, parts->e);
    block += offset ? 4 : 2;
    if (fifth) {
        for (int i = 0; i < 32; i++)
            block[i / 8] = (uint8_t)(block[i / 8] | (parts->level[i] >> 4 & 1) << i % 8);
        block += 4;
    }
    put_bits(parts->level, 32, 4, 16, 0, block);
}

#define FORMAT(name, offset, fifth)                                                                          \
    void heed_##name##_take(const uint8_t *block, heed_block_parts *parts)                                   \
    {                                                                                                        \
        take(block, offset, fifth, parts);                                                                   \
    }                                                                                                        \
    void heed_##name##_put(const heed_block_parts *parts, uint8_t *block)                                    \
    {                                                                                                        \
        put(parts, offset, fifth, block);                                                                    \
    }

FORMAT(q4_0, false, false)
FORMAT(q4_1, true, false)
FORMAT(q5_0, false, true)
FORMAT(q5_1, true, true)
