/* One row of whole numbers times a panel. The panel is read once from its first byte to its last and taken
 * apart in registers, so that memory sets the pace. */
#include "tensor/kernels/parts.h"

#define AHEAD 8192 /* bytes read ahead of their use */

/* Asks for what lies some blocks ahead, in the order of memory; scales and levels, being apart within a span,
 * look like no stream to the processor. */
INLINE void prefetch(const uint8_t *at, whole_kind kind)
{
    const int planes = kind.offsets ? 2 : 1;
    const int scales = kind.own ? (2 + HEED_MOST_VALUES / kind.group) * 32 * planes / 8 : 64 * planes;
    const int lines = (128 * kind.bits + scales + 63) / 64;
#pragma GCC unroll 20
    for (int i = 0; i < lines; i++)
        __builtin_prefetch(at + AHEAD + 64 * i, 0, 3);
}

WHOLE INLINE void few(whole_kind kind, const int fine, const heed_panel_layout *layout, const uint8_t *panel,
                      const whole_piece *piece, float *to)
{
    const bytes table = table_vector(layout->format);
    const int steps = kind.group / HEED_STEP, groups = HEED_WHOLE / kind.group;
    const int blocks = kind.own ? HEED_MOST_VALUES / HEED_WHOLE : 1; /* of a span */
    floats sum[PANEL_VECTORS];
#pragma GCC unroll 8
    for (int p = 0; p < PANEL_VECTORS; p++)
        sum[p] = (floats){0};
    for (int64_t block = 0; block < piece->blocks; block += blocks, panel += layout->bytes)
        for (int b = 0; b < blocks; b++) {
            const int8_t *x = piece->whole + (block + b) * HEED_WHOLE;
            const int8_t *x_low = fine ? piece->low + (block + b) * HEED_WHOLE : NULL;
            const uint8_t *level = panel + layout->levels + (size_t)b * layout->level_bytes;
            const floats scale = all(piece->scale[block + b]);
            prefetch(panel + layout->bytes * (size_t)b / (size_t)blocks, kind);
#pragma GCC unroll 2
            for (int g = 0; g < groups; g++) {
                const int64_t at = (block + b) * groups + g;
                ints whole[PANEL_VECTORS], low[PANEL_VECTORS];
#pragma GCC unroll 8
                for (int p = 0; p < PANEL_VECTORS; p++) {
                    low[p] = (ints){0} + piece->init[at];
                    whole[p] = fine ? (ints){0} : low[p];
                }
#pragma GCC unroll 8
                for (int s = g * steps; s < (g + 1) * steps; s++) {
                    const ints four_x = four(x + HEED_STEP * s);
#pragma GCC unroll 8
                    for (int p = 0; p < PANEL_VECTORS; p++) {
                        const bytes w = level_vector(kind, level, s, p, table);
                        whole[p] = dot(whole[p], w, four_x, kind_small(kind));
                        if (fine)
                            low[p] = dot(low[p], w, four(x_low + HEED_STEP * s), kind_small(kind));
                    }
                }
#pragma GCC unroll 8
                for (int p = 0; p < PANEL_VECTORS && fine; p++)
                    whole[p] = (whole[p] << 7) + low[p];
#pragma GCC unroll 8
                for (int p = 0; p < PANEL_VECTORS; p++) {
                    const floats w = scale_vector(kind, layout, panel, b * groups + g, p);
                    sum[p] += __builtin_convertvector(whole[p], floats) * w * scale;
                    if (kind.offsets)
                        sum[p] +=
                            offset_vector(kind, layout, panel, b * groups + g, p) * all(piece->shift[at]);
                }
            }
        }
#pragma GCC unroll 8
    for (int p = 0; p < PANEL_VECTORS; p++)
        *(floats_any *)(void *)(to + LANES * p) = sum[p];
}

#define FEW(type, ...)                                                                                       \
    WHOLE static void few_##type(const heed_panel_layout *layout, const uint8_t *panel,                      \
                                 const whole_piece *piece, float *to)                                        \
    {                                                                                                        \
        few((whole_kind){__VA_ARGS__}, 0, layout, panel, piece, to);                                         \
    }                                                                                                        \
    WHOLE static void fine_##type(const heed_panel_layout *layout, const uint8_t *panel,                     \
                                  const whole_piece *piece, float *to)                                       \
    {                                                                                                        \
        few((whole_kind){__VA_ARGS__}, 1, layout, panel, piece, to);                                         \
    }
WHOLE_KINDS(FEW)

#define NAME(type, ...) [HEED_##type] = {few_##type, fine_##type},
whole_few *const heed_whole_few[HEED_TYPES][2] = {WHOLE_KINDS(NAME)};
