/* Many rows of whole numbers times a panel. The panel's levels are taken apart once, a chunk of columns at a
 * time; then each tile of rows goes along the chunk with its sums in registers.
 *
 * For each group of columns: sum += float(whole sum) * scale * activation scale, then sum += offset * shift.
 * Second bytes have a sum of their own, added to the other one at the end. The row kernels of few.c do the
 * same in the same order, so a row's result has the same bits either way.
 */
#include "tensor/kernels/parts.h"

#define PASSES (PANEL_VECTORS / TILE_VECTORS)

/* whole += levels times activations along a group of columns. */
WHOLE INLINE void add_steps(whole_kind kind, const int rows, const uint8_t *level, const int8_t *x,
                            ints whole[TILE_ROWS][TILE_VECTORS])
{
    const int steps = kind.group / HEED_STEP;
#if BY_PAIRS
    const int run = kind_run(kind) < steps ? kind_run(kind) : steps;
#pragma GCC unroll 8
    for (int s = 0; s < steps; s += run) {
        signed_shorts pair[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 8
        for (int i = 0; i < run; i++) {
            bytes w[TILE_VECTORS];
#pragma GCC unroll 8
            for (int p = 0; p < TILE_VECTORS; p++)
                w[p] = load_bytes(level + BYTES * p);
            level += HEED_PANEL * HEED_STEP;
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                const ints four_x = four(x + HEED_STEP * r);
#pragma GCC unroll 8
                for (int p = 0; p < TILE_VECTORS; p++) {
                    const signed_shorts more = pairs(w[p], four_x, kind_small(kind));
                    pair[r][p] = i == 0 ? more : (signed_shorts)(pair[r][p] + more);
                }
            }
            x += HEED_STEP * rows;
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int p = 0; p < TILE_VECTORS; p++)
                whole[r][p] = add_pairs(whole[r][p], pair[r][p]);
    }
#else
#pragma GCC unroll 8
    for (int s = 0; s < steps; s++) {
        bytes w[TILE_VECTORS];
#pragma GCC unroll 8
        for (int p = 0; p < TILE_VECTORS; p++)
            w[p] = load_bytes(level + BYTES * p);
        level += HEED_PANEL * HEED_STEP;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const ints four_x = four(x + HEED_STEP * r);
#pragma GCC unroll 8
            for (int p = 0; p < TILE_VECTORS; p++)
                whole[r][p] = dot(whole[r][p], w[p], four_x, kind_small(kind));
        }
        x += HEED_STEP * rows;
    }
#endif
}

WHOLE INLINE void sums(whole_kind kind, const int rows, const heed_product_work *work,
                       const whole_piece *piece, bool fresh, int pass, float *to)
{
    const int groups = HEED_WHOLE / kind.group;
    const uint8_t *level = work->level + pass * TILE_VECTORS * BYTES;
    const float *scale = work->scale + pass * TILE_VECTORS * LANES;
    const float *offset = work->offset + pass * TILE_VECTORS * LANES;
    const int8_t *x = piece->whole;
    const float *x_scale = piece->scale, *shift = piece->shift;
    const int32_t *init = piece->init;
    floats sum[TILE_ROWS][TILE_VECTORS];
    to += pass * TILE_VECTORS * LANES;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int p = 0; p < TILE_VECTORS; p++)
            sum[r][p] =
                fresh ? (floats){0} : *(const floats *)(const void *)(to + r * HEED_PANEL + LANES * p);
    for (int64_t b = 0; b < piece->blocks; b++, x_scale += rows)
        for (int g = 0; g < groups; g++) {
            ints whole[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
                for (int p = 0; p < TILE_VECTORS; p++)
                    whole[r][p] = (ints){0} + init[r];
            add_steps(kind, rows, level, x, whole);
            level += kind.group * HEED_PANEL;
            x += kind.group * rows;
            floats w[TILE_VECTORS];
#pragma GCC unroll 8
            for (int p = 0; p < TILE_VECTORS; p++)
                w[p] = *(const floats *)(const void *)(scale + LANES * p);
            scale += HEED_PANEL;
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
                for (int p = 0; p < TILE_VECTORS; p++)
                    sum[r][p] = add_product(sum[r][p], __builtin_convertvector(whole[r][p], floats) * w[p],
                                            all(x_scale[r]));
            init += rows;
            if (kind.offsets) {
#pragma GCC unroll 8
                for (int p = 0; p < TILE_VECTORS; p++)
                    w[p] = *(const floats *)(const void *)(offset + LANES * p);
                offset += HEED_PANEL;
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
                    for (int p = 0; p < TILE_VECTORS; p++)
                        sum[r][p] = add_product(sum[r][p], w[p], all(shift[r]));
                shift += rows;
            }
        }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int p = 0; p < TILE_VECTORS; p++)
            *(floats *)(void *)(to + r * HEED_PANEL + LANES * p) = sum[r][p];
}

/* The same for one block of second bytes. */
WHOLE INLINE void low_block(whole_kind kind, const heed_product_work *work, const heed_deep_block *deep,
                            int64_t block, int pass, float *to)
{
    const int groups = HEED_WHOLE / kind.group, at = pass * TILE_VECTORS;
    int32_t init[2];
    float shift[2];
    deep_sums(kind, deep, init, shift);
    const uint8_t *level = work->level + block * HEED_WHOLE * HEED_PANEL + at * BYTES;
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
        ints whole[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 8
        for (int p = 0; p < TILE_VECTORS; p++)
            whole[0][p] = (ints){0} + init[g];
        add_steps(kind, 1, level + g * kind.group * HEED_PANEL, deep->low + g * kind.group, whole);
        const int64_t scales = (block * groups + g) * HEED_PANEL + at * LANES;
#pragma GCC unroll 8
        for (int p = 0; p < TILE_VECTORS; p++) {
            floats *sum = (floats *)(void *)(to + (at + p) * LANES);
            const floats w = *(const floats *)(const void *)(work->scale + scales + LANES * p);
            *sum = add_product(*sum, __builtin_convertvector(whole[0][p], floats) * w, all(deep->scale));
            if (kind.offsets)
                *sum = add_product(*sum, *(const floats *)(const void *)(work->offset + scales + LANES * p),
                                   all(shift[g]));
        }
    }
}

WHOLE INLINE void low_sums(whole_kind kind, const heed_product_work *work, const heed_whole_tile *tile,
                           int64_t first, int64_t blocks, float *to)
{
    for (const heed_deep_block *deep = tile->deep; deep < tile->deep + tile->deeps; deep++)
        if (deep->block >= first && deep->block < first + blocks)
            for (int pass = 0; pass < PASSES; pass++)
                low_block(kind, work, deep, deep->block - first, pass, to + deep->row * HEED_PANEL);
}

#define ROWS_SUMS(type, rows, ...)                                                                           \
    WHOLE static void sums_##type##_##rows(const heed_product_work *work, const whole_piece *piece,          \
                                           bool fresh, float *to)                                            \
    {                                                                                                        \
        for (int pass = 0; pass < PASSES; pass++)                                                            \
            sums((whole_kind){__VA_ARGS__}, rows, work, piece, fresh, pass, to);                             \
    }

#if TILE_ROWS == 6
#define MORE_SUMS(type, ...) ROWS_SUMS(type, 5, __VA_ARGS__) ROWS_SUMS(type, 6, __VA_ARGS__)
#define MORE_NAMES(type) , sums_##type##_5, sums_##type##_6
#else
#define MORE_SUMS(type, ...)
#define MORE_NAMES(type)
#endif
#define SUMS(type, ...)                                                                                      \
    ROWS_SUMS(type, 1, __VA_ARGS__)                                                                          \
    ROWS_SUMS(type, 2, __VA_ARGS__)                                                                          \
    ROWS_SUMS(type, 3, __VA_ARGS__)                                                                          \
    ROWS_SUMS(type, 4, __VA_ARGS__)                                                                          \
    MORE_SUMS(type, __VA_ARGS__)                                                                             \
    WHOLE static void low_##type(const heed_product_work *work, const heed_whole_tile *tile, int64_t first,  \
                                 int64_t blocks, float *to)                                                  \
    {                                                                                                        \
        low_sums((whole_kind){__VA_ARGS__}, work, tile, first, blocks, to);                                  \
    }

/* Once levels are bytes, some formats differ in nothing. */
#define TILE_KINDS(each)                                                                                     \
    each(Q8, 8, 32, 128, 0, 0, 0, 0) each(Q4, 4, 32, 8, 0, 0, 0, 0) each(Q4_1, 4, 32, 0, 1, 0, 0, 0)         \
        each(Q5_0, 5, 32, 16, 0, 0, 0, 0) each(Q5_1, 5, 32, 0, 1, 0, 0, 0) each(Q2_K, 2, 16, 0, 1, 1, 0, 0)  \
            each(Q3_K, 3, 16, 4, 0, 1, 0, 0) each(Q6_K, 6, 16, 32, 0, 1, 0, 0)                               \
                each(MXFP4, 4, 32, 0, 0, 0, 1, 1)
TILE_KINDS(SUMS)

#define SAME_AS(each)                                                                                        \
    each(Q8, Q8) each(IQ4_NL, Q8) each(IQ4_XS, Q8) each(Q4, Q4) each(Q4_1, Q4_1) each(Q4_K, Q4_1)            \
        each(Q5_0, Q5_0) each(Q5_1, Q5_1) each(Q5_K, Q5_1) each(Q2_K, Q2_K) each(Q3_K, Q3_K)                 \
            each(Q6_K, Q6_K) each(MXFP4, MXFP4)
#define SUMS_NAME(type, as)                                                                                  \
    [HEED_##type] = {sums_##as##_1, sums_##as##_2, sums_##as##_3, sums_##as##_4 MORE_NAMES(as)},
#define LOW_NAME(type, as) [HEED_##type] = low_##as,

whole_sums *const heed_whole_tile_sums[HEED_TYPES][TILE_ROWS] = {SAME_AS(SUMS_NAME)};
whole_low *const heed_whole_tile_low[HEED_TYPES] = {SAME_AS(LOW_NAME)};
