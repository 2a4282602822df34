/* Weighted sums of values that are read where they lie.
 *
 *     sum[r][e] += sum_j weight[r][j] value[j][e]
 *
 * A vector of a row is converted once for up to four queries, whose sums stay in registers over a run of
 * rows. Scales of quantised rows are multiplied into the weights, so that values enter as whole numbers.
 */
#include "attend/kernels/decode.h"
#include "attend/kernels/decode_load.h"

#define RUN HEED_SUB /* rows over which sums stay in registers */

/* Rows first.. of RUN; `at`: bytes into the row; i: vector in a block; part: entries of a vector that is not
 * whole. */
HEED_INLINE void add_columns(const heed_type type, const int rows, const int vectors,
                             const heed_decode_rows *values, int first, int64_t at, int i, int part,
                             const float *weight, float *sum, int64_t stride)
{
    heed_vec total[4][8];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++)
            total[r][c] = heed_vec_load(sum + r * stride + c * HEED_WIDTH);
    for (int j = first; j < first + RUN; j++) {
        const char *row = values->row[j] + at;
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++) {
            heed_vec value;
            if (heed_is_blocks(type))
                value = heed_load_block_vec(type, row, i + c);
            else if (part)
                value = heed_load_part(type, row, part);
            else
                value = heed_load_vec(type, row + c * HEED_WIDTH * heed_step_bytes(type));
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                total[r][c] += weight[r * HEED_KEYS + j] * value;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++)
            heed_vec_store(sum + r * stride + c * HEED_WIDTH, total[r][c]);
}

/* All columns of a run of floating-point rows, `vectors` at a time. */
HEED_INLINE void add_floats(const heed_type type, const int rows, const int vectors,
                            const heed_decode_rows *values, int first, const float *weight, float *sum,
                            int64_t stride)
{
    const int whole = values->dim / HEED_WIDTH, part = values->dim % HEED_WIDTH;
    const int64_t bytes = HEED_WIDTH * heed_step_bytes(type);
    int c = 0;
    for (; c + vectors <= whole; c += vectors)
        add_columns(type, rows, vectors, values, first, c * bytes, 0, 0, weight, sum + c * HEED_WIDTH,
                    stride);
    for (; vectors > 4 && c + 4 <= whole; c += 4)
        add_columns(type, rows, 4, values, first, c * bytes, 0, 0, weight, sum + c * HEED_WIDTH, stride);
    for (; vectors > 2 && c + 2 <= whole; c += 2)
        add_columns(type, rows, 2, values, first, c * bytes, 0, 0, weight, sum + c * HEED_WIDTH, stride);
    for (; c < whole; c++)
        add_columns(type, rows, 1, values, first, c * bytes, 0, 0, weight, sum + c * HEED_WIDTH, stride);
    if (part)
        add_columns(type, rows, 1, values, first, c * bytes, 0, part, weight, sum + c * HEED_WIDTH, stride);
}

/* One block of columns of a run of quantised rows. */
HEED_INLINE void add_block(const heed_type type, const int rows, const int vectors,
                           const heed_decode_rows *values, int first, int block, const float *weight,
                           float *sum, int64_t stride)
{
    const int together = vectors < HEED_BLOCK_VECTORS ? vectors : HEED_BLOCK_VECTORS;
#pragma GCC unroll 8
    for (int i = 0; i < HEED_BLOCK_VECTORS; i += together)
        add_columns(type, rows, together, values, first, block * heed_step_bytes(type), i, 0, weight,
                    sum + block * HEED_BLOCK + i * HEED_WIDTH, stride);
}

#define FLOATS(type, rows, vectors)                                                                          \
    static __attribute__((noinline)) void add_##type##_##rows(const heed_decode_rows *values, int first,     \
                                                              int block, const float *weight, float *sum,    \
                                                              int64_t stride)                                \
    {                                                                                                        \
        (void)block;                                                                                         \
        add_floats(HEED_##type, rows, vectors, values, first, weight, sum, stride);                          \
    }
#define BLOCKS(type, rows, vectors)                                                                          \
    static __attribute__((noinline)) void add_##type##_##rows(const heed_decode_rows *values, int first,     \
                                                              int block, const float *weight, float *sum,    \
                                                              int64_t stride)                                \
    {                                                                                                        \
        add_block(HEED_##type, rows, vectors, values, first, block, weight, sum, stride);                    \
    }
/* As many vectors of sums as leave registers for the values. */
#define BY_ROWS(each, type)                                                                                  \
    each(type, 1, (HEED_WIDTH == 16 ? 8 : 4)) each(type, 2, (HEED_WIDTH == 16 ? 8 : 4))                      \
        each(type, 3, (HEED_WIDTH == 16 ? 4 : 2)) each(type, 4, (HEED_WIDTH == 16 ? 4 : 2))

BY_ROWS(FLOATS, F32)
BY_ROWS(FLOATS, F16)
BY_ROWS(FLOATS, BF16)
BY_ROWS(BLOCKS, Q8)
BY_ROWS(BLOCKS, Q4)

typedef void add_run(const heed_decode_rows *values, int first, int block, const float *weight, float *sum,
                     int64_t stride);

static add_run *const add_runs[HEED_TYPES][4] = {
    [HEED_F32] = {add_F32_1, add_F32_2, add_F32_3, add_F32_4},
    [HEED_F16] = {add_F16_1, add_F16_2, add_F16_3, add_F16_4},
    [HEED_BF16] = {add_BF16_1, add_BF16_2, add_BF16_3, add_BF16_4},
    [HEED_Q8] = {add_Q8_1, add_Q8_2, add_Q8_3, add_Q8_4},
    [HEED_Q4] = {add_Q4_1, add_Q4_2, add_Q4_3, add_Q4_4},
};

static void scale_weights(int rows, const float *weight, const float *scale, float *to)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < RUN; j++)
            to[r * HEED_KEYS + j] = weight[r * HEED_KEYS + j] * scale[j];
}

void heed_decode_values(const heed_decode_rows *values, int rows, const float *weight, float *work,
                        float *sum, int64_t stride)
{
    add_run *const *run = add_runs[values->type];
    const bool scaled = heed_is_blocks(values->type);
    const int blocks = scaled ? (values->dim + HEED_BLOCK - 1) / HEED_BLOCK : 1;
    for (int j = 0; j < values->count; j += RUN) {
        for (int i = j + values->ahead; i < j + values->ahead + RUN; i++)
            heed_fetch_row(values->row[i], values->lines);
        for (int b = 0; b < blocks; b++) {
            if (scaled)
                scale_weights(rows, weight + j, values->scale + b * HEED_KEYS + j, work + j);
            for (int r = 0; r < rows; r += 4) {
                const int here = rows - r < 4 ? rows - r : 4;
                run[here - 1](values, j, b, (scaled ? work : weight) + r * HEED_KEYS, sum + r * stride,
                              stride);
            }
        }
    }
}
