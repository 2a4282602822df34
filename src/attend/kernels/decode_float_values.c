/* Weighted sums of floating-point values that are read where they lie.
 *
 *     sum[r][e] += sum_j weight[r][j] value[j][e]
 *
 * A vector of a row is converted once for up to three or four queries, whose sums stay in registers over a
 * run of rows. A few columns of the run meet all queries, then the next few.
 */
#define HEED_NARROW
#include "attend/kernels/decode.h"
#include "attend/kernels/decode_load.h"

#define RUN HEED_SUB /* rows over which sums stay in registers */
#define STEP 64      /* columns that stay in the first cache while all queries meet them */

/* The compiler takes a pointer for a new one. It then forms addresses where they are needed instead of
 * keeping them in registers, of which there are too few. */
#define FORGET(pointer) __asm__ volatile("" : "+r"(pointer))

/* Up to STEP columns of RUN rows. */
typedef struct columns {
    const char *const *row;  /* [RUN] */
    const char *const *next; /* [RUN] rows to ask for on the way, */
    int64_t ahead;           /* and so many bytes on from the columns that are read */
    int first, count;
} columns;

/* `vectors` vectors of them from column c on; or `part` columns, where that is not 0. */
HEED_INLINE void add_vectors(const heed_type type, const int rows, const int vectors, const columns *from,
                             int c, int part, const float *weight, float *sum, int64_t stride)
{
    const int64_t at = (from->first + c) * heed_step_bytes(type);
    const int64_t bytes = vectors * HEED_WIDTH * heed_step_bytes(type), ahead = at + from->ahead;
    heed_vec total[4][8];
    sum += c;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++)
            total[r][i] = heed_vec_load(sum + r * stride + i * HEED_WIDTH);
    for (int j = 0; j < RUN; j++) {
        const char *row = from->row[j] + at, *next = from->next[j] + ahead;
        FORGET(row);
#pragma GCC unroll 8
        for (int64_t b = 0; b < bytes; b += 64)
            heed_fetch_far(next + b);
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++) {
            heed_vec value;
            if (part)
                value = heed_load_part(type, row, part);
            else
                value = heed_load_vec(type, row + i * HEED_WIDTH * heed_step_bytes(type));
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                total[r][i] += weight[r * HEED_KEYS + j] * value;
        }
    }
    FORGET(sum);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++)
            heed_vec_store(sum + r * stride + i * HEED_WIDTH, total[r][i]);
}

/* `vectors` at a time. */
HEED_INLINE void add_columns(const heed_type type, const int rows, const int vectors, const columns *from,
                             const float *weight, float *sum, int64_t stride)
{
    const int part = from->count % HEED_WIDTH, whole = from->count - part;
    int c = 0;
#define ADD(n)                                                                                               \
    for (; c + (n)*HEED_WIDTH <= whole; c += (n)*HEED_WIDTH)                                                 \
    add_vectors(type, rows, n, from, c, 0, weight, sum, stride)
    ADD(vectors);
    if (vectors > 4)
        ADD(4);
    if (vectors > 2)
        ADD(2);
    ADD(1);
#undef ADD
    if (part)
        add_vectors(type, rows, 1, from, c, part, weight, sum, stride);
}

#define ADD_RUN(type, rows, vectors)                                                                         \
    static __attribute__((noinline)) void add_##type##_##rows(const columns *from, const float *weight,      \
                                                              float *sum, int64_t stride)                    \
    {                                                                                                        \
        add_columns(HEED_##type, rows, vectors, from, weight, sum, stride);                                  \
    }
/* As many vectors of sums as leave registers for the values. */
#define MANY (HEED_REGISTERS > 16 ? 8 : 4)
#define ADD_RUNS(type)                                                                                       \
    ADD_RUN(type, 1, MANY)                                                                                   \
    ADD_RUN(type, 2, MANY)                                                                                   \
    ADD_RUN(type, 3, (HEED_REGISTERS > 16 ? 8 : 2))                                                          \
    ADD_RUN(type, 4, 2)

ADD_RUNS(F32)
ADD_RUNS(F16)
ADD_RUNS(BF16)

typedef void add_run(const columns *from, const float *weight, float *sum, int64_t stride);

static add_run *const add_runs[HEED_TYPES][4] = {
    [HEED_F32] = {add_F32_1, add_F32_2, add_F32_3, add_F32_4},
    [HEED_F16] = {add_F16_1, add_F16_2, add_F16_3, add_F16_4},
    [HEED_BF16] = {add_BF16_1, add_BF16_2, add_BF16_3, add_BF16_4},
};

/* Queries that go together, of so many left: four of them would leave registers for the sums of half a step.
 */
static int together(int left)
{
    const int most = HEED_REGISTERS > 16 ? 3 : 4;
    return left == 4 && most == 3 ? 2 : left < most ? left : most;
}

void heed_decode_float_values(const heed_decode_rows *values, int rows, const float *weight, float *sum,
                              int64_t stride)
{
    add_run *const *run = add_runs[values->type];
    const int64_t bytes = heed_step_bytes(values->type);
    for (int j = 0; j < values->count; j += RUN) {
        const char *const *row = values->row + j;
        for (int d = 0; d < values->dim; d += STEP) {
            const int left = values->dim - d;
            columns from = {row, row + values->far, 0, d, left < STEP ? left : STEP};
            for (int r = 0, here; r < rows; r += here) {
                here = together(rows - r);
                /* The last queries, who find all in the first cache, ask for what will be read next. */
                if (r > 0) {
                    from.next = r + here < rows ? row : left > STEP ? row : row + RUN;
                    from.ahead = r + here < rows ? 0 : left > STEP ? STEP * bytes : -d * bytes;
                }
                run[here - 1](&from, weight + r * HEED_KEYS + j, sum + r * stride + d, stride);
            }
        }
    }
}
