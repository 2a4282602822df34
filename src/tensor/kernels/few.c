/* One row of whole numbers times a panel. The panel is read once from its first byte to its last and taken
 * apart in registers, so that memory sets the pace. */
#include "tensor/kernels/parts.h"

#define AHEAD 8192 /* bytes read ahead of their use */

/* Steps of a group that are unrolled. Where the compiler writes vectors out as scalars or short vectors,
 * longer code only is slower. */
#if defined(__AVX2__) || defined(__ARM_NEON)
enum { STEPS = 8 };
#else
enum { STEPS = 1 };
#endif

/* Whether lines that far ahead go straight into the first cache. Small blocks in the order of memory stay
 * there until their use, which suits AVX-512, and so do bytes in the time that AVX2 takes for them; others
 * would be pushed out again. So the second cache gets those, and the first one two blocks ahead of their use.
 * On Zen 4, AVX-512: Q4_K and Q6_K 16 -> 21 GB/s, Q8 22 -> 27, Q4_1 the other way round 20 -> 23. */
INLINE int straight(whole_kind kind)
{
#if defined(__AVX512F__)
    return kind.bits == 4 && !kind.own;
#else
    return kind.bits == 8;
#endif
}

/* Asks for what lies some blocks ahead, in the order of memory; scales and levels, being apart within a span,
 * look like no stream to the processor. */
INLINE void prefetch(const uint8_t *at, whole_kind kind)
{
    const int planes = kind.offsets ? 2 : 1;
    const int scales = kind.own ? (2 + HEED_MOST_VALUES / kind.group) * 32 * planes / 8 : 64 * planes;
    const int block = 128 * kind.bits + scales, lines = (block + 63) / 64;
#pragma GCC unroll 20
    for (int i = 0; i < lines; i++) {
        if (straight(kind)) {
            __builtin_prefetch(at + AHEAD + 64 * i, 0, 3);
        } else {
            __builtin_prefetch(at + AHEAD + 64 * i, 0, 2);
            __builtin_prefetch(at + 2 * block + 64 * i, 0, 3);
        }
    }
}

/* Adds block b of a span. `x` are its 32 activations, init and shift those of its groups. */
WHOLE INLINE void add_block(whole_kind kind, const heed_panel_layout *layout, const uint8_t *span, int b,
                            bytes table, const int8_t *x, float x_scale, const int32_t *init,
                            const float *shift, floats sum[PANEL_VECTORS])
{
    const int steps = kind.group / HEED_STEP, groups = HEED_WHOLE / kind.group;
    const uint8_t *level = span + layout->levels + (size_t)b * layout->level_bytes;
    const floats scale = all(x_scale);
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
        ints whole[PANEL_VECTORS];
#pragma GCC unroll 8
        for (int p = 0; p < PANEL_VECTORS; p++)
            whole[p] = (ints){0} + init[g];
#pragma GCC unroll STEPS
        for (int s = g * steps; s < (g + 1) * steps; s++) {
            const ints four_x = four(x + HEED_STEP * s);
#pragma GCC unroll 8
            for (int p = 0; p < PANEL_VECTORS; p++)
                whole[p] = dot(whole[p], level_vector(kind, level, s, p, table), four_x, kind_small(kind));
        }
#pragma GCC unroll 8
        for (int p = 0; p < PANEL_VECTORS; p++) {
            const floats w = scale_vector(kind, layout, span, b * groups + g, p);
            sum[p] = add_product(sum[p], __builtin_convertvector(whole[p], floats) * w, scale);
            if (kind.offsets)
                sum[p] =
                    add_product(sum[p], offset_vector(kind, layout, span, b * groups + g, p), all(shift[g]));
        }
    }
}

/* Blocks of a span. */
INLINE int blocks_of(whole_kind kind)
{
    return kind.own ? HEED_MOST_VALUES / HEED_WHOLE : 1;
}

WHOLE INLINE void few(whole_kind kind, const heed_panel_layout *layout, const uint8_t *panel,
                      const whole_piece *piece, float *to)
{
    const bytes table = table_vector(layout->format);
    const int groups = HEED_WHOLE / kind.group, blocks = blocks_of(kind);
    floats sum[PANEL_VECTORS];
#pragma GCC unroll 8
    for (int p = 0; p < PANEL_VECTORS; p++)
        sum[p] = (floats){0};
    for (int64_t block = 0; block < piece->blocks; block += blocks, panel += layout->bytes)
        for (int b = 0; b < blocks; b++) {
            const int64_t at = block + b;
            int32_t init[2];
            for (int g = 0; g < groups; g++)
                init[g] = -kind_zero(kind) * piece->sum[at * groups + g];
            prefetch(panel + layout->bytes * (size_t)b / (size_t)blocks, kind);
            add_block(kind, layout, panel, b, table, piece->whole + at * HEED_WHOLE, piece->scale[at], init,
                      piece->shift + at * groups, sum);
        }
#pragma GCC unroll 8
    for (int p = 0; p < PANEL_VECTORS; p++)
        *(floats_any *)(void *)(to + LANES * p) = sum[p];
}

WHOLE INLINE void few_low(whole_kind kind, const heed_panel_layout *layout, const uint8_t *panel,
                          const heed_deep_block *deep, int64_t deeps, float *to)
{
    const bytes table = table_vector(layout->format);
    floats sum[PANEL_VECTORS];
#pragma GCC unroll 8
    for (int p = 0; p < PANEL_VECTORS; p++)
        sum[p] = *(const floats_any *)(const void *)(to + LANES * p);
    for (const heed_deep_block *d = deep; d < deep + deeps; d++) {
        int32_t init[2];
        float shift[2];
        deep_sums(kind, d, init, shift);
        add_block(kind, layout, panel + (size_t)(d->block / blocks_of(kind)) * layout->bytes,
                  d->block % blocks_of(kind), table, d->low, d->scale, init, shift, sum);
    }
#pragma GCC unroll 8
    for (int p = 0; p < PANEL_VECTORS; p++)
        *(floats_any *)(void *)(to + LANES * p) = sum[p];
}

#define FEW(type, ...)                                                                                       \
    WHOLE static void few_##type(const heed_panel_layout *layout, const uint8_t *panel,                      \
                                 const whole_piece *piece, float *to)                                        \
    {                                                                                                        \
        const heed_panel_layout fixed = kind_layout((whole_kind){__VA_ARGS__}, layout->format);              \
        few((whole_kind){__VA_ARGS__}, &fixed, panel, piece, to);                                            \
    }                                                                                                        \
    WHOLE static void low_##type(const heed_panel_layout *layout, const uint8_t *panel,                      \
                                 const heed_deep_block *deep, int64_t deeps, float *to)                      \
    {                                                                                                        \
        const heed_panel_layout fixed = kind_layout((whole_kind){__VA_ARGS__}, layout->format);              \
        few_low((whole_kind){__VA_ARGS__}, &fixed, panel, deep, deeps, to);                                  \
    }
WHOLE_KINDS(FEW)

#define FEW_NAME(type, ...) [HEED_##type] = few_##type,
#define LOW_NAME(type, ...) [HEED_##type] = low_##type,
whole_few *const heed_whole_few[HEED_TYPES] = {WHOLE_KINDS(FEW_NAME)};
whole_few_low *const heed_whole_few_low[HEED_TYPES] = {WHOLE_KINDS(LOW_NAME)};
