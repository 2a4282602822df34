/* Weighted sums of quantised values that are read where they lie.
 *
 *     sum[r][e] += sum_j weight[r][j] value[j][e]
 *
 * A vector of a row is converted once for up to four queries, whose sums stay
 * in registers over a run of rows. Scales are multiplied into
 * the weights, so that values enter as whole numbers.
 */
#include "attend/kernels/decode.h"
#include "attend/kernels/decode_load.h"

#define RUN HEED_SUB /* rows over which sums stay in registers */

/* The compiler takes a pointer for a new one. It then forms addresses where
 * they are needed instead of keeping them in registers, of which there are too
 * few. */
#define FORGET(pointer) __asm__ volatile("" : "+r"(pointer))

/* Columns of RUN rows. */
typedef struct columns {
    const char *const *row; /* [RUN] rows */
    int64_t at;             /* bytes into each */
    uint16_t *half;         /* [RUN] where the scales of the RUN rows after these go; NULL at the end */
    int vector;             /* in blocks, the first vector */
} columns;

HEED_INLINE void add_columns(const heed_type type, const int rows, const int vectors, const columns from,
                             const float *weight, float *sum, int64_t stride)
{
    heed_vec total[4][8];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++)
            total[r][c] = heed_vec_load(sum + r * stride + c * HEED_WIDTH);
    /* With a pointer for each vector, weights become operands of the
     * multiplications where the instruction set has such: values that are whole
     * numbers leave no room for more instructions that write to registers. */
    const float *own[8];
#pragma GCC unroll 8
    for (int c = 0; c < vectors; c++) {
        own[c] = weight;
        if (HEED_WIDTH == 16)
            FORGET(own[c]);
    }
    for (int j = 0; j < RUN; j++) {
        const char *row = from.row[j] + from.at;
        FORGET(row);
        if (from.half)
            memcpy(&from.half[j], from.row[j + RUN] + from.at, sizeof *from.half);
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++) {
            const heed_vec value = heed_load_block_vec(type, row, from.vector + c);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                total[r][c] += own[c][r * RUN + j] * value;
        }
    }
    FORGET(sum);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++)
            heed_vec_store(sum + r * stride + c * HEED_WIDTH, total[r][c]);
}

/* One block of columns of quantised rows. */
HEED_INLINE void add_block(const heed_type type, const int rows, const int vectors, columns from,
                           const float *weight, float *sum, int64_t stride)
{
    const int together = vectors < HEED_BLOCK_VECTORS ? vectors : HEED_BLOCK_VECTORS;
#pragma GCC unroll 8
    for (int i = 0; i < HEED_BLOCK_VECTORS; i += together) {
        from.vector = i;
        add_columns(type, rows, together, from, weight, sum + i * HEED_WIDTH, stride);
    }
}

#define BLOCKS(type, rows, vectors)                                                                          \
    static __attribute__((noinline)) void add_##type##_##rows(const columns *from, const float *weight,      \
                                                              float *sum, int64_t stride)                    \
    {                                                                                                        \
        add_block(HEED_##type, rows, vectors, *from, weight, sum, stride);                                   \
    }
/* As many vectors of sums as leave registers for the values. */
#define BY_ROWS(each, type)                                                                                  \
    each(type, 1, (HEED_WIDTH == 16 ? 8 : 4)) each(type, 2, (HEED_WIDTH == 16 ? 8 : 4))                      \
        each(type, 3, (HEED_WIDTH == 16 ? 4 : 2)) each(type, 4, (HEED_WIDTH == 16 ? 4 : 2))

BY_ROWS(BLOCKS, Q8)
BY_ROWS(BLOCKS, Q4)

/* One block of columns of RUN rows. */
typedef void add_run(const columns *from, const float *weight, float *sum, int64_t stride);

static add_run *const add_runs[HEED_TYPES][4] = {
    [HEED_Q8] = {add_Q8_1, add_Q8_2, add_Q8_3, add_Q8_4},
    [HEED_Q4] = {add_Q4_1, add_Q4_2, add_Q4_3, add_Q4_4},
};

/* to [blocks][rows][RUN] = weights times the scales of RUN rows. */
static void scale_weights(const uint16_t *half, int blocks, int rows, const float *weight, float *restrict to)
{
    for (int b = 0; b < blocks; b++) {
        float scale[RUN];
        heed_load_f16(half + b * RUN, scale, RUN);
        for (int r = 0; r < rows; r++, to += RUN)
            for (int j = 0; j < RUN; j++)
                to[j] = weight[r * HEED_KEYS + j] * scale[j];
    }
}

static void gather_scales(const char *const *row, int blocks, int64_t bytes, uint16_t *restrict half)
{
    for (int j = 0; j < RUN; j++) {
        const char *block = row[j];
        for (int b = 0; b < blocks; b++, block += bytes)
            memcpy(&half[b * RUN + j], block, sizeof *half);
    }
}

/* Scales lie one by one between the numbers: they are picked up a run before
 * their turn, while there is nothing else to do for the units that load and
 * store. */
static void add_block_rows(const heed_decode_rows *values, int rows, const float *weight, float *work,
                           float *sum, int64_t stride)
{
    const int blocks = heed_row_blocks(values), share = RUN / blocks; /* rows to ask for in a step */
    const int64_t bytes = heed_step_bytes(values->type);
    add_run *const *run = add_runs[values->type];
    gather_scales(values->row, blocks, bytes, values->half);
    for (int j = 0, fetched = 0; j < values->count; j += RUN) {
        scale_weights(values->half, blocks, rows, weight + j, work);
        for (int b = 0; b < blocks; b++) {
            for (const int upto = b + 1 < blocks ? fetched + share : j + RUN; fetched < upto; fetched++)
                heed_fetch_rows(values, fetched);
            columns from = {.row = values->row + j, .at = b * bytes};
            from.half = j + RUN < values->count ? values->half + b * RUN : NULL;
            for (int r = 0; r < rows; r += 4) {
                const int here = rows - r < 4 ? rows - r : 4;
                run[here - 1](&from, work + (b * rows + r) * RUN, sum + r * stride + b * HEED_BLOCK, stride);
                from.half = NULL;
            }
        }
    }
}

void heed_decode_block(const heed_decode_rows *values, int rows, int block, const float *weight, float *work,
                       float *sum, int64_t stride)
{
    uint16_t half[RUN];
    for (int j = 0; j < values->count; j += RUN) {
        const columns from = {.row = values->row + j, .at = block * heed_step_bytes(values->type)};
        for (int i = 0; i < RUN; i++)
            memcpy(&half[i], from.row[i] + from.at, sizeof *half);
        scale_weights(half, 1, rows, weight + j, work);
        for (int r = 0; r < rows; r += 4) {
            const int here = rows - r < 4 ? rows - r : 4;
            add_runs[values->type][here - 1](&from, work + r * RUN, sum + r * stride, stride);
        }
    }
}

void heed_decode_values(const heed_decode_rows *values, int rows, const float *weight, float *work,
                        float *sum, int64_t stride)
{
#if HEED_WIDTH == 16
    if (values->whole && rows > 1 && heed_whole_values(values, rows, weight, work, sum, stride))
        return;
#endif
    if (heed_is_blocks(values->type))
        add_block_rows(values, rows, weight, work, sum, stride);
    else
        heed_decode_float_values(values, rows, weight, sum, stride);
}
