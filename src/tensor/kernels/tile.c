/* Many rows of whole numbers times a panel. The panel's levels are taken apart once, a chunk of columns at a
 * time; then each tile of rows goes along the chunk with its sums in registers.
 *
 * For each group of columns: sum += float(whole sum) * scale * activation scale, then sum += offset * shift.
 * The row kernels of few.c do the same in the same order, so a row's result has the same bits either way.
 */
#include "tensor/kernels/parts.h"

#define PASSES (PANEL_VECTORS / TILE_VECTORS)

WHOLE INLINE void sums(whole_kind kind, const int rows, const heed_product_work *work,
                       const whole_piece *piece, bool fresh, int pass, float *to)
{
    const int steps = kind.group / HEED_STEP, groups = HEED_WHOLE / kind.group;
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
            sums((whole_kind){__VA_ARGS__}, rows, work, piece, fresh, pass, to);                             \
    }

#if TILE_ROWS == 6
#define SUMS(type, ...)                                                                                      \
    ROWS_SUMS(type, 1, __VA_ARGS__)                                                                          \
    ROWS_SUMS(type, 2, __VA_ARGS__)                                                                          \
    ROWS_SUMS(type, 3, __VA_ARGS__)                                                                          \
    ROWS_SUMS(type, 4, __VA_ARGS__) ROWS_SUMS(type, 5, __VA_ARGS__) ROWS_SUMS(type, 6, __VA_ARGS__)
#define NAMES(type, ...)                                                                                     \
    [HEED_##type] = {sums_##type##_1, sums_##type##_2, sums_##type##_3,                                      \
                     sums_##type##_4, sums_##type##_5, sums_##type##_6},
#else
#define SUMS(type, ...)                                                                                      \
    ROWS_SUMS(type, 1, __VA_ARGS__)                                                                          \
    ROWS_SUMS(type, 2, __VA_ARGS__) ROWS_SUMS(type, 3, __VA_ARGS__) ROWS_SUMS(type, 4, __VA_ARGS__)
#define NAMES(type, ...) [HEED_##type] = {sums_##type##_1, sums_##type##_2, sums_##type##_3, sums_##type##_4},
#endif

WHOLE_KINDS(SUMS)

whole_sums *const heed_whole_tile_sums[HEED_TYPES][TILE_ROWS] = {WHOLE_KINDS(NAMES)};
