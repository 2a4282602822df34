/* Products of few queries with keys that are read where they lie.
 *
 *     score[r][j] = sum_d query[r][d] key[j][d]
 *
 * The entries of a row lie along a vector, so each pair keeps a vector of
 * partial sums; as many pairs go together as the registers hold, and HEED_WIDTH
 * such vectors are added up crosswise into one vector of scores.
 */
#include "attend/kernels/decode.h"
#include "attend/kernels/decode_load.h"

#define SUMS (HEED_WIDTH > 8 ? HEED_WIDTH : 8) /* pairs that go together */
#define RUN 16                                 /* keys for which the queries are gone through */

/* Sums of two vectors by pairs of lanes: `low` and `high` name lanes of a (0..)
 * and b (HEED_WIDTH..). */
HEED_INLINE heed_vec fold(heed_vec a, heed_vec b, heed_ivec low, heed_ivec high)
{
    return heed_vec_shuffle(a, b, low) + heed_vec_shuffle(a, b, high);
}

/* In every run of four lanes: a, b, c, d summed over that run. */
HEED_INLINE heed_vec add_four(heed_vec a, heed_vec b, heed_vec c, heed_vec d)
{
    heed_ivec low, high, first, last; /* a0 b0 a1 b1 + a2 b2 a3 b3, then the first
                                         halves + the last halves */
    for (int i = 0; i < HEED_WIDTH; i++) {
        const int run = i & ~3;
        low[i] = run + (i & 3) / 2 + (i & 1 ? HEED_WIDTH : 0);
        high[i] = low[i] + 2;
        first[i] = run + (i & 1) + (i & 2 ? HEED_WIDTH : 0);
        last[i] = first[i] + 2;
    }
    return fold(fold(a, b, low, high), fold(c, d, low, high), first, last);
}

/* Lane i of the result is the sum of the lanes of x[i]. */
HEED_INLINE heed_vec add_across(const heed_vec *x)
{
    const heed_vec a = add_four(x[0], x[1], x[2], x[3]);
#if HEED_WIDTH == 4
    return a;
#else
    const heed_vec b = add_four(x[4], x[5], x[6], x[7]);
#if HEED_WIDTH == 8
    return fold(a, b, (heed_ivec){0, 1, 2, 3, 8, 9, 10, 11}, (heed_ivec){4, 5, 6, 7, 12, 13, 14, 15});
#else
    const heed_vec c = add_four(x[8], x[9], x[10], x[11]), d = add_four(x[12], x[13], x[14], x[15]);
    const heed_ivec low = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}, high = low + 8;
    const heed_ivec even = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27}, odd = even + 4;
    return fold(fold(a, b, low, high), fold(c, d, low, high), even, odd);
#endif
#endif
}

/* sum[r pairs + j] += the products of vector i of the blocks that begin at `at`, of `rows` queries and
 * `pairs` keys. */
HEED_INLINE void multiply_blocks(const heed_type type, const int rows, const int pairs,
                                 const char *const *row, int64_t at, int i, const float *scale,
                                 const float *query, int64_t stride, heed_vec *sum)
{
    heed_vec left[4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        left[r] = heed_vec_load(query + r * stride);
#pragma GCC unroll 16
    for (int j = 0; j < pairs; j++) {
        const heed_vec right = heed_load_block_vec(type, row[j] + at, i) * scale[j];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            sum[r * pairs + j] += left[r] * right;
    }
}

/* False where a scale is not finite. */
HEED_INLINE bool score_blocks(const heed_type type, const int rows, const int pairs, const char *const *row,
                              int dim, const float *query, int64_t stride, heed_vec *sum)
{
    bool odd = false;
    int64_t at = 0; /* bytes */
#pragma GCC unroll 16
    for (int i = 0; i < rows * pairs; i++)
        sum[i] = (heed_vec){0};
    for (int d = 0; d < dim; d += HEED_BLOCK, at += heed_step_bytes(type)) {
        float scale[SUMS];
#pragma GCC unroll 16
        for (int j = 0; j < pairs; j++)
            scale[j] = heed_load_scale(row[j] + at, &odd);
        for (int i = 0; i < HEED_BLOCK_VECTORS; i++)
            multiply_blocks(type, rows, pairs, row, at, i, scale, query + d + i * HEED_WIDTH, stride, sum);
    }
    return !odd;
}

/* A vector that is used several times is loaded once: as an operand in memory it would be loaded each time.
 */
#if HEED_WIDTH == 16
#define IN_REGISTER(x) __asm__("" : "+v"(x))
#else
#define IN_REGISTER(x) ((void)0)
#endif
/* Neighbouring keys that share a load of the query. */
#define TOGETHER(rows) ((rows) == 1 ? 1 : (rows) > 2 && HEED_WIDTH == 16 ? 4 : 2)

/* sum[r pairs + j] = the products of a few keys, read from end to end: a processor sees what comes next
 * in memory only where addresses rise. Two chains of sums hide the time that an addition takes. */
HEED_INLINE void multiply_keys(const heed_type type, const int rows, const int pairs, const char *const *row,
                               const char *const *next, int dim, const float *query, int64_t stride,
                               heed_vec *sum)
{
    const int together = TOGETHER(rows), chains = rows > 2 ? 1 : 2;
    const int64_t bytes = heed_step_bytes(type);
    heed_vec total[2][4][4];
#pragma GCC unroll 2
    for (int c = 0; c < 2; c++)
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++)
            total[c][r][0] = total[c][r][1] = total[c][r][2] = total[c][r][3] = (heed_vec){0};
    int d = 0;
    for (; d + chains * HEED_WIDTH <= dim; d += chains * HEED_WIDTH) {
        if (next && (chains * HEED_WIDTH * bytes >= 64 || d * bytes % 64 == 0))
#pragma GCC unroll 4
            for (int j = 0; j < together; j++)
                heed_fetch_far(next[j] + d * bytes);
#pragma GCC unroll 2
        for (int c = 0; c < chains; c++) {
            heed_vec right[4];
#pragma GCC unroll 4
            for (int j = 0; j < together; j++)
                right[j] = heed_load_vec(type, row[j] + (d + c * HEED_WIDTH) * bytes);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                heed_vec left = heed_vec_load(query + r * stride + d + c * HEED_WIDTH);
                IN_REGISTER(left);
#pragma GCC unroll 4
                for (int j = 0; j < together; j++)
                    total[c][r][j] += left * right[j];
            }
        }
    }
    for (; d < dim; d += HEED_WIDTH)
#pragma GCC unroll 4
        for (int j = 0; j < together; j++) {
            heed_vec right;
            if (d + HEED_WIDTH <= dim)
                right = heed_load_vec(type, row[j] + d * bytes);
            else
                right = heed_load_part(type, row[j] + d * bytes, dim - d);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                total[0][r][j] += heed_vec_load(query + r * stride + d) * right;
        }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int j = 0; j < together; j++) {
            sum[r * pairs + j] = total[0][r][j];
            if (chains > 1)
                sum[r * pairs + j] += total[1][r][j];
        }
}

/* False where a scale is not finite. */
HEED_INLINE bool score_pairs(const heed_type type, const int rows, const int pairs, const char *const *row,
                             const char *const *next, int dim, const float *query, int64_t stride,
                             float *score)
{
    heed_vec sum[SUMS];
    bool fine = true;
#pragma GCC unroll 16
    for (int i = rows * pairs; i < SUMS; i++)
        sum[i] = (heed_vec){0};
    if (heed_is_blocks(type))
        fine = score_blocks(type, rows, pairs, row, dim, query, stride, sum);
    else
#pragma GCC unroll 16
        for (int j = 0; j < pairs; j += TOGETHER(rows))
            multiply_keys(type, rows, pairs, row + j, next ? next + j : NULL, dim, query, stride, sum + j);
    float out[SUMS];
#pragma GCC unroll 2
    for (int i = 0; i < SUMS; i += HEED_WIDTH)
        heed_vec_store(out + i, add_across(sum + i));
    for (int r = 0; r < rows; r++)
        memcpy(score + r * HEED_KEYS, out + r * pairs, pairs * sizeof(float));
    return fine;
}

/* RUN keys; `fetch`: those ahead of them are asked for on the way. */
#define SCORE_RUN(type, rows, pairs)                                                                         \
    static __attribute__((noinline)) bool score_##type##_##rows(const heed_decode_rows *keys, int first,     \
                                                                bool fetch, const float *query,              \
                                                                int64_t stride, float *score)                \
    {                                                                                                        \
        bool fine = true;                                                                                    \
        for (int j = first; j < first + RUN; j += pairs) {                                                   \
            for (int i = 0; heed_is_blocks(HEED_##type) && fetch && i < pairs; i++)                          \
                heed_fetch_rows(keys, j + i);                                                                \
            const char *const *row = keys->row + j, *const *next = fetch ? row + keys->far : NULL;           \
            fine &= score_pairs(HEED_##type, rows, pairs, row, next, keys->dim, query, stride, score + j);   \
        }                                                                                                    \
        return fine;                                                                                         \
    }

#define SCORE_RUNS(type)                                                                                     \
    SCORE_RUN(type, 1, SUMS)                                                                                 \
    SCORE_RUN(type, 2, SUMS / 2)                                                                             \
    SCORE_RUN(type, 3, SUMS / 4)                                                                             \
    SCORE_RUN(type, 4, SUMS / 4)

SCORE_RUNS(F32)
SCORE_RUNS(F16)
SCORE_RUNS(BF16)
SCORE_RUNS(Q8)
SCORE_RUNS(Q4)

typedef bool score_run(const heed_decode_rows *keys, int first, bool fetch, const float *query,
                       int64_t stride, float *score);

static score_run *const score_runs[HEED_TYPES][4] = {
    [HEED_F32] = {score_F32_1, score_F32_2, score_F32_3, score_F32_4},
    [HEED_F16] = {score_F16_1, score_F16_2, score_F16_3, score_F16_4},
    [HEED_BF16] = {score_BF16_1, score_BF16_2, score_BF16_3, score_BF16_4},
    [HEED_Q8] = {score_Q8_1, score_Q8_2, score_Q8_3, score_Q8_4},
    [HEED_Q4] = {score_Q4_1, score_Q4_2, score_Q4_3, score_Q4_4},
};

bool heed_decode_scores(const heed_decode_rows *keys, int rows, const float *query, int64_t stride,
                        float *score)
{
    score_run *const *run = score_runs[keys->type];
    bool fine = true;
    for (int j = 0; j < keys->count; j += RUN)
        for (int r = 0; r < rows; r += 4) {
            const int here = rows - r < 4 ? rows - r : 4;
            fine &= run[here - 1](keys, j, r == 0, query + r * stride, stride, score + r * HEED_KEYS);
        }
    return fine;
}
