/* Many rows of whole numbers times a panel. The panel's levels are taken apart once, a chunk of columns at a
 * time; then each tile of rows goes along the chunk with its sums in registers.
 *
 * For each group of columns: sum += float(whole sum) * scale * activation scale, then sum += offset * shift.
 * The row kernels of few.c do the same in the same order, so a row's result has the same bits either way.
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

WHOLE INLINE void sums(whole_kind kind, const int rows, const int fine, const heed_product_work *work,
                       const whole_piece *piece, bool fresh, int pass, float *to)
{
    const int groups = HEED_WHOLE / kind.group;
    const uint8_t *level = work->level + pass * TILE_VECTORS * BYTES;
    const float *scale = work->scale + pass * TILE_VECTORS * LANES;
    const float *offset = work->offset + pass * TILE_VECTORS * LANES;
    const int8_t *x = piece->whole, *x_low = piece->low;
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
                    whole[r][p] = (ints){0} + (fine ? 0 : init[r]);
            add_steps(kind, rows, level, x, whole);
#pragma GCC unroll 8
            for (int r = 0; r < rows && fine; r++)
#pragma GCC unroll 8
                for (int p = 0; p < TILE_VECTORS; p++)
                    whole[r][p] = (whole[r][p] << 7) + init[r];
            if (fine && piece->deep[b])
                add_steps(kind, rows, level, x_low, whole);
            x_low += fine ? kind.group * rows : 0;
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
                    sum[r][p] += __builtin_convertvector(whole[r][p], floats) * w[p] * all(x_scale[r]);
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
                        sum[r][p] += w[p] * all(shift[r]);
                shift += rows;
            }
        }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int p = 0; p < TILE_VECTORS; p++)
            *(floats *)(void *)(to + r * HEED_PANEL + LANES * p) = sum[r][p];
}

#define ROWS_SUMS(type, rows, ...)                                                                           \
    WHOLE static void sums_##type##_##rows(const heed_product_work *work, const whole_piece *piece,          \
                                           bool fresh, float *to)                                            \
    {                                                                                                        \
        for (int pass = 0; pass < PASSES; pass++)                                                            \
            sums((whole_kind){__VA_ARGS__}, rows, 0, work, piece, fresh, pass, to);                          \
    }                                                                                                        \
    WHOLE static void fine_##type##_##rows(const heed_product_work *work, const whole_piece *piece,          \
                                           bool fresh, float *to)                                            \
    {                                                                                                        \
        for (int pass = 0; pass < PASSES; pass++)                                                            \
            sums((whole_kind){__VA_ARGS__}, rows, 1, work, piece, fresh, pass, to);                          \
    }

#define ROWS_NAMES(type, rows)                                                                               \
    {                                                                                                        \
        sums_##type##_##rows, fine_##type##_##rows                                                           \
    }

#if TILE_ROWS == 6
#define MORE_SUMS(type, ...) ROWS_SUMS(type, 5, __VA_ARGS__) ROWS_SUMS(type, 6, __VA_ARGS__)
#define MORE_NAMES(type) , ROWS_NAMES(type, 5), ROWS_NAMES(type, 6)
#else
#define MORE_SUMS(type, ...)
#define MORE_NAMES(type)
#endif
#define SUMS(type, ...)                                                                                      \
    ROWS_SUMS(type, 1, __VA_ARGS__)                                                                          \
    ROWS_SUMS(type, 2, __VA_ARGS__)                                                                          \
    ROWS_SUMS(type, 3, __VA_ARGS__) ROWS_SUMS(type, 4, __VA_ARGS__) MORE_SUMS(type, __VA_ARGS__)
#define NAMES(type)                                                                                          \
    {                                                                                                        \
        ROWS_NAMES(type, 1), ROWS_NAMES(type, 2), ROWS_NAMES(type, 3), ROWS_NAMES(type, 4) MORE_NAMES(type)  \
    }

/* Once levels are bytes, some formats differ in nothing. */
#define TILE_KINDS(each)                                                                                     \
    each(Q8, 8, 32, 128, 0, 0, 0, 0) each(Q4, 4, 32, 8, 0, 0, 0, 0) each(Q4_1, 4, 32, 0, 1, 0, 0, 0)         \
        each(Q5_0, 5, 32, 16, 0, 0, 0, 0) each(Q5_1, 5, 32, 0, 1, 0, 0, 0) each(Q2_K, 2, 16, 0, 1, 1, 0, 0)  \
            each(Q3_K, 3, 16, 4, 0, 1, 0, 0) each(Q6_K, 6, 16, 32, 0, 1, 0, 0)                               \
                each(MXFP4, 4, 32, 0, 0, 0, 1, 1)
TILE_KINDS(SUMS)

whole_sums *const heed_whole_tile_sums[HEED_TYPES][TILE_ROWS][2] = {
    [HEED_Q8] = NAMES(Q8),       [HEED_IQ4_NL] = NAMES(Q8), [HEED_IQ4_XS] = NAMES(Q8),
    [HEED_Q4] = NAMES(Q4),       [HEED_Q4_1] = NAMES(Q4_1), [HEED_Q4_K] = NAMES(Q4_1),
    [HEED_Q5_0] = NAMES(Q5_0),   [HEED_Q5_1] = NAMES(Q5_1), [HEED_Q5_K] = NAMES(Q5_1),
    [HEED_Q2_K] = NAMES(Q2_K),   [HEED_Q3_K] = NAMES(Q3_K), [HEED_Q6_K] = NAMES(Q6_K),
    [HEED_MXFP4] = NAMES(MXFP4),
};
