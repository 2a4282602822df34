/* Taking the planes of a panel apart, for many rows at once and for products of floats. */
#include "tensor/kernels/parts.h"

INLINE void unpack(whole_kind kind, const heed_panel_layout *layout, const uint8_t *panel, int64_t first,
                   int64_t cols, const heed_product_work *to)
{
    const bytes table = table_vector(layout->format);
    const int span = kind.own ? HEED_MOST_VALUES : HEED_WHOLE;
    uint8_t *level = to->level;
    float *scale = to->scale, *offset = to->offset;
    for (int64_t c = first; c < first + cols; c += span) {
        const uint8_t *from = panel + (size_t)(c / span) * layout->bytes;
        for (int g = 0; g < span / kind.group; g++)
#pragma GCC unroll 8
            for (int p = 0; p < PANEL_VECTORS; p++) {
                *(floats *)(void *)scale = scale_vector(kind, layout, from, g, p);
                scale += LANES;
                if (kind.offsets)
                    *(floats *)(void *)offset = offset_vector(kind, layout, from, g, p);
                offset += LANES;
            }
        const uint8_t *planes = from + layout->levels;
        for (int b = 0; b < span / HEED_WHOLE; b++, planes += layout->level_bytes)
#pragma GCC unroll 8
            for (int s = 0; s < HEED_WHOLE / HEED_STEP; s++)
#pragma GCC unroll 8
                for (int p = 0; p < PANEL_VECTORS; p++) {
                    *(bytes *)(void *)level = level_vector(kind, planes, s, p, table);
                    level += BYTES;
                }
    }
}

#define UNPACK(type, bits, group, zero, offsets, own, table, bf16)                                           \
    static void unpack_##type(const heed_panel_layout *layout, const uint8_t *panel, int64_t first,          \
                              int64_t cols, const heed_product_work *to)                                     \
    {                                                                                                        \
        unpack((whole_kind){bits, group, zero, offsets, own, table, bf16}, layout, panel, first, cols, to);  \
    }
WHOLE_KINDS(UNPACK)

#define NAME(type, bits, group, zero, offsets, own, table, bf16) [HEED_##type] = unpack_##type,
whole_unpack *const heed_whole_unpack[HEED_TYPES] = {WHOLE_KINDS(NAME)};

/* Column c of four, as numbers. */
INLINE ints column(ints level, int c)
{
    if (SIGNED_LEVELS)
        return (level << (24 - 8 * c)) >> 24;
    return (level >> (8 * c)) & 255;
}

void heed_whole_floats(const heed_product_work *work, const whole_facts *facts, int64_t first, int64_t cols)
{
    for (int64_t c = first; c < first + cols; c += HEED_STEP)
        for (int p = 0; p < PANEL_VECTORS; p++) {
            const int64_t at = c / facts->group * HEED_PANEL + LANES * p;
            const floats scale = *(const floats *)(const void *)(work->scale + at);
            const ints level = *(const ints *)(const void *)(work->level + c * HEED_PANEL + BYTES * p);
            float *to = work->panel + (c - first) * HEED_PANEL + LANES * p;
#pragma GCC unroll 4
            for (int i = 0; i < HEED_STEP; i++) {
                floats x = __builtin_convertvector(column(level, i) - facts->zero, floats) * scale;
                if (facts->offsets)
                    x += *(const floats *)(const void *)(work->offset + at);
                *(floats *)(void *)(to + i * HEED_PANEL) = x;
            }
        }
}
