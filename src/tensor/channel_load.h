/* Reading keys by channel, as a loop that vectorises in the build for each instruction set; `type` is a
 * constant where this is called. */
#ifndef HEED_TENSOR_CHANNEL_LOAD_H
#define HEED_TENSOR_CHANNEL_LOAD_H

#include "tensor/channel.h"
#include "tensor/half.h"
#include <string.h>

static inline void heed_channel_load_rows(const heed_type type, const void *page, int64_t first,
                                          int64_t count, int64_t dim, float *to, int64_t stride)
{
    const int bits = type == HEED_CHANNEL_Q4 ? 4 : 2, each = 8 / bits, bytes = HEED_BLOCK / each,
              mask = (1 << bits) - 1;
    for (int64_t c0 = 0; c0 < dim; c0 += HEED_BLOCK) {
        const int width = dim - c0 < HEED_BLOCK ? (int)(dim - c0) : HEED_BLOCK;
        float scale[HEED_BLOCK], low[HEED_BLOCK];
        for (int64_t j = 0; j < count; j++) {
            const int64_t key = first + j;
            if (j == 0 || key % HEED_CHANNEL_GROUP == 0) {
                const uint16_t *half = (const uint16_t *)(const void *)heed_channel_scales(
                                           type, page, key / HEED_CHANNEL_GROUP, dim) +
                                       c0;
                for (int i = 0; i < HEED_BLOCK; i++) {
                    scale[i] = heed_float_from_f16(half[i]);
                    low[i] = heed_float_from_f16(half[i + heed_channel_dim(dim)]);
                }
            }
            const uint8_t *from =
                (const uint8_t *)heed_channel_levels(type, page, key, dim) + c0 / HEED_BLOCK * bytes;
            float x[HEED_BLOCK];
            for (int n = 0; n < each; n++)
                for (int i = 0; i < bytes; i++)
                    x[n * bytes + i] =
                        low[n * bytes + i] + scale[n * bytes + i] * (float)(from[i] >> (n * bits) & mask);
            memcpy(to + j * stride + c0, x, (size_t)width * sizeof *x);
        }
    }
}

#endif
