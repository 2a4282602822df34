#include "tensor/channel_load.h"
#include "tensor/half.h"
#include <string.h>

static int bits_of(heed_type type)
{
    return type == HEED_CHANNEL_Q4 ? 4 : 2;
}

/* Scale and minimum of one channel as f16; NaN where it has no levels. */
static void fit(const float *x, int64_t stride, int levels, uint16_t *scale, uint16_t *minimum)
{
    float low = x[0], high = x[0], odd = 0.0f;
    for (int j = 0; j < HEED_CHANNEL_GROUP; j++) {
        const float value = x[j * stride];
        low = value < low ? value : low;
        high = value > high ? value : high;
        odd += value * 0.0f;
    }
    *minimum = heed_f16_from_float(low);
    *scale = heed_f16_from_float((high - heed_float_from_f16(*minimum)) / (float)(levels - 1));
    const bool finite = odd == 0.0f && (*scale & 0x7c00u) != 0x7c00u && (*minimum & 0x7c00u) != 0x7c00u;
    *scale = finite ? *scale : 0x7e00u;
    *minimum = finite ? *minimum : 0x7e00u;
}

static void put_levels(const uint8_t level[HEED_BLOCK], int bits, uint8_t *to)
{
    const int each = 8 / bits, bytes = HEED_BLOCK / each;
    for (int i = 0; i < bytes; i++) {
        unsigned byte = 0;
        for (int n = 0; n < each; n++)
            byte |= (unsigned)level[i + n * bytes] << (n * bits);
        to[i] = (uint8_t)byte;
    }
}

static void store_group(heed_type type, const float *rows, int64_t stride, int64_t dim, char *group)
{
    const int bits = bits_of(type), levels = 1 << bits;
    const int64_t padded = heed_channel_dim(dim), bytes = heed_type_bytes(type, HEED_BLOCK);
    uint16_t *scale = (uint16_t *)(void *)group, *minimum = scale + padded;
    char *to = group + 4 * padded;
    for (int64_t c = 0; c < padded; c++) {
        scale[c] = minimum[c] = 0;
        if (c < dim)
            fit(rows + c, stride, levels, &scale[c], &minimum[c]);
    }
    for (int64_t c0 = 0; c0 < padded; c0 += HEED_BLOCK) {
        float low[HEED_BLOCK], inverse[HEED_BLOCK];
        for (int i = 0; i < HEED_BLOCK; i++) {
            const float by = heed_float_from_f16(scale[c0 + i]);
            low[i] = heed_float_from_f16(minimum[c0 + i]);
            inverse[i] = by > 0.0f ? 1.0f / by : 0.0f;
        }
        for (int64_t j = 0; j < HEED_CHANNEL_GROUP; j++) {
            uint8_t level[HEED_BLOCK] = {0};
            for (int i = 0; i < HEED_BLOCK && c0 + i < dim; i++) {
                const float n = (rows[j * stride + c0 + i] - low[i]) * inverse[i] + 0.5f;
                level[i] = (uint8_t)(n > 0.0f ? n < (float)levels ? n : (float)(levels - 1) : 0.0f);
            }
            put_levels(level, bits, (uint8_t *)to + (j * (padded / HEED_BLOCK) + c0 / HEED_BLOCK) * bytes);
        }
    }
}

void heed_channel_store(heed_type type, const float *rows, int64_t stride, int64_t keys, int64_t dim,
                        void *page)
{
    for (int64_t j = 0; j < keys; j += HEED_CHANNEL_GROUP)
        store_group(type, rows + j * stride, stride, dim, (char *)page + heed_channel_bytes(type, j, dim));
}

void heed_channel_load(heed_type type, const void *page, int64_t first, int64_t count, int64_t dim, float *to,
                       int64_t stride)
{
    if (type == HEED_CHANNEL_Q4)
        heed_channel_load_rows(HEED_CHANNEL_Q4, page, first, count, dim, to, stride);
    else
        heed_channel_load_rows(HEED_CHANNEL_Q2, page, first, count, dim, to, stride);
}
