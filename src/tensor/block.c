/* The table of block formats, and reading them. */
#include "tensor/block.h"
#include "tensor/half.h"

#define BITS(name) heed_##name##_take, heed_##name##_put
#define ONE_SCALE                                                                                            \
    {                                                                                                        \
        1, 1, 0                                                                                              \
    }
#define ONE_OFFSET                                                                                           \
    {                                                                                                        \
        1, 1, 1                                                                                              \
    }

/* clang-format off */
static const heed_block_format formats[] = {
    /* type        values bytes group bits zero  sub-scales, offsets lowers table            d */
    {HEED_Q8,         32,  34,  32,   8,  128,  ONE_SCALE,          false, NULL,             HEED_F16,  BITS(q8_0)},
    {HEED_Q4,         32,  18,  32,   4,    8,  ONE_SCALE,          false, NULL,             HEED_F16,  BITS(q4_0)},
    {HEED_Q4_1,       32,  20,  32,   4,    0,  ONE_OFFSET,         false, NULL,             HEED_F16,  BITS(q4_1)},
    {HEED_Q5_0,       32,  22,  32,   5,   16,  ONE_SCALE,          false, NULL,             HEED_F16,  BITS(q5_0)},
    {HEED_Q5_1,       32,  24,  32,   5,    0,  ONE_OFFSET,         false, NULL,             HEED_F16,  BITS(q5_1)},
    {HEED_Q2_K,      256,  84,  16,   2,    0,  {0, 15, 15},        true,  NULL,             HEED_F16,  BITS(q2_k)},
    {HEED_Q3_K,      256, 110,  16,   3,    4,  {-32, 31, 0},       false, NULL,             HEED_F16,  BITS(q3_k)},
    {HEED_Q4_K,      256, 144,  32,   4,    0,  {0, 63, 63},        true,  NULL,             HEED_F16,  BITS(q4_k)},
    {HEED_Q5_K,      256, 176,  32,   5,    0,  {0, 63, 63},        true,  NULL,             HEED_F16,  BITS(q5_k)},
    {HEED_Q6_K,      256, 210,  16,   6,   32,  {-128, 127, 0},     false, NULL,             HEED_F16,  BITS(q6_k)},
    {HEED_IQ4_NL,     32,  18,  32,   4,    0,  ONE_SCALE,          false, heed_iq4_table,   HEED_F16,  BITS(iq4_nl)},
    {HEED_IQ4_XS,    256, 136,  32,   4,    0,  {-32, 31, 0},       false, heed_iq4_table,   HEED_F16,  BITS(iq4_xs)},
    {HEED_MXFP4,      32,  17,  32,   4,    0,  ONE_SCALE,          false, heed_mxfp4_table, HEED_BF16, BITS(mxfp4)},
};
/* clang-format on */

const heed_block_format *heed_block_format_of(heed_type type)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].type == type)
            return &formats[i];
    return NULL;
}

float heed_block_d(const heed_block_format *format, const heed_block_parts *parts)
{
    return format->d_type == HEED_BF16 ? heed_float_from_bf16(parts->d) : heed_float_from_f16(parts->d);
}

float heed_block_e(const heed_block_parts *parts)
{
    return heed_float_from_f16(parts->e);
}

void heed_block_values(const heed_block_format *format, const heed_block_parts *parts, float *x)
{
    const float d = heed_block_d(format, parts), e = heed_block_e(parts);
    for (int g = 0; g < format->values / format->group; g++) {
        const float scale = d * (float)parts->sub_scale[g], offset = e * (float)parts->sub_offset[g];
        for (int i = g * format->group; i < (g + 1) * format->group; i++) {
            const float product = scale * (float)heed_block_level(format, parts->level[i]);
            x[i] = format->sub.most_offset > 0 ? product + offset : product;
        }
    }
}

void heed_block_load(const heed_block_format *format, const uint8_t *block, float *x)
{
    heed_block_parts parts;
    format->take(block, &parts);
    heed_block_values(format, &parts, x);
}
