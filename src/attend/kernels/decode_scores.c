/* Products of few queries with keys that are read where they lie.
 *
 *     score[r][j] = sum_d query[r][d] key[j][d]
 *
 * The entries of a row lie along a vector, so each pair keeps a vector of partial sums. Those of four keys
 * are added up crosswise until each run of four lanes holds a part of all four; when HEED_WIDTH keys have
 * come that far, the runs are added up crosswise too, into one vector of scores a query.
 */
#define HEED_NARROW
#include "attend/kernels/decode.h"
#include "attend/kernels/decode_load.h"

#define KEYS 4  /* whose sums go together */
#define RUN 16  /* keys for which the queries are gone through */
#define STEP 64 /* entries of a key gone through without a branch */

/* Lanes by their place in a run of n lanes: of the first vector in the first half of the run, else of the
 * second (KEPT); the halves of each run exchanged (SWAPPED). */
#define KEPT(i, n) ((i) % (n) < (n) / 2 ? (i) : (i) + HEED_WIDTH)
#define SWAPPED(i, n) ((i) ^ (n) / 2)

/* a in the first half of each run, b in the second. */
#if HEED_WIDTH == 8
#define MERGE(a, b, n)                                                                                       \
    ((heed_vec)_mm256_blend_ps((__m256)(a), (__m256)(b), (n) == 2 ? 0xaa : (n) == 4 ? 0xcc : 0xf0))
#else
#define MERGE(a, b, n) heed_vec_shuffle(a, b, HEED_LANES(KEPT, n))
#endif

/* In every run of n lanes: its two halves added up, those of a in the first half, those of b in the second.
 * Half of the terms stay in their lanes, which costs less than to shuffle them. */
#define FOLD(a, b, n) (MERGE(a, b, n) + swap(MERGE(b, a, n), HEED_LANES(SWAPPED, n)))

HEED_INLINE heed_vec swap(heed_vec x, heed_ivec lanes)
{
    return heed_vec_shuffle(x, x, lanes);
}

/* In every run of four lanes: the four vectors summed over that run. */
HEED_INLINE heed_vec add_in_runs(const heed_vec x[KEYS])
{
    const heed_vec even = FOLD(x[0], x[2], 4), odd = FOLD(x[1], x[3], 4); /* 0 0 2 2, 1 1 3 3 */
    return FOLD(even, odd, 2);
}

/* Runs of four lanes added up; lanes 4 i... of the result are those of x[i]. */
HEED_INLINE heed_vec add_runs(const heed_vec x[HEED_WIDTH / 4])
{
#if HEED_WIDTH == 8
    return FOLD(x[0], x[1], 8);
#else
    return x[0];
#endif
}

/* Keys that share the loads of a query, as the registers allow. */
#define TOGETHER(rows) (HEED_REGISTERS > 16 ? 4 : 2)

/* The products of a few quantised keys; false where a scale is not finite. */
HEED_INLINE bool multiply_blocks(const heed_type type, const int rows, const char *const *row, int dim,
                                 const float *query, int64_t stride, heed_vec *sum)
{
    const int together = TOGETHER(rows);
    heed_vec total[4][KEYS];
    bool odd = false;
    int64_t at = 0; /* bytes */
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++)
        total[r][0] = total[r][1] = total[r][2] = total[r][3] = (heed_vec){0};
    for (int d = 0; d < dim; d += HEED_BLOCK, at += heed_step_bytes(type)) {
        float scale[KEYS];
#pragma GCC unroll 4
        for (int j = 0; j < together; j++)
            scale[j] = heed_is_blocks(type) ? heed_load_scale(row[j] + at, &odd) : 1.0f;
        for (int i = 0; i < HEED_BLOCK_VECTORS; i++) {
            heed_vec left[4];
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                left[r] = heed_vec_load(query + r * stride + d + i * HEED_WIDTH);
#pragma GCC unroll 4
            for (int j = 0; j < together; j++) {
                const heed_vec right = heed_load_block_vec(type, row[j] + at, i) * scale[j];
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++)
                    total[r][j] += left[r] * right;
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int j = 0; j < together; j++)
            sum[r * KEYS + j] = total[r][j];
    return !odd;
}

/* The compiler takes a pointer for a new one: it would load all of the queries before the first key, for
 * which there are too few registers. */
#define FORGET(pointer) __asm__ volatile("" : "+r"(pointer))

/* A vector that is used several times is loaded once: as an operand in memory it would be loaded each time.
 */
#if defined(__AVX512F__)
#define IN_REGISTER(x) __asm__("" : "+v"(x))
#else
#define IN_REGISTER(x) ((void)0)
#endif

/* One vector of a few keys: entries d.. of which `part` are there, or all where that is 0. */
HEED_INLINE void multiply_vector(const heed_type type, const int rows, const char *const *row, int d,
                                 int part, const float *query, int64_t stride, heed_vec (*total)[KEYS])
{
    const int together = TOGETHER(rows);
    heed_vec right[KEYS];
#pragma GCC unroll 4
    for (int j = 0; j < together; j++) {
        const char *at = row[j] + d * heed_step_bytes(type);
        right[j] = part ? heed_load_part(type, at, part) : heed_load_vec(type, at);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        heed_vec left = heed_vec_load(query + r * stride + d);
        IN_REGISTER(left);
#pragma GCC unroll 4
        for (int j = 0; j < together; j++)
            total[r][j] += left * right[j];
    }
}

/* The products of a few floating-point keys, read from end to end: a processor sees what comes next in memory
 * only where addresses rise. ahead: so many keys on lie those to ask for on the way, 0 for none. Two chains
 * of sums hide the time that an addition takes. */
HEED_INLINE void multiply_keys(const heed_type type, const int rows, const char *const *row, int ahead,
                               int dim, const float *query, int64_t stride, heed_vec *sum)
{
    const int together = TOGETHER(rows), chains = rows > 2 ? 1 : 2;
    const int64_t bytes = heed_step_bytes(type);
    heed_vec total[2][4][KEYS];
#pragma GCC unroll 2
    for (int c = 0; c < 2; c++)
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++)
            total[c][r][0] = total[c][r][1] = total[c][r][2] = total[c][r][3] = (heed_vec){0};
    int d = 0;
    for (; d + STEP <= dim; d += STEP) {
        for (int j = 0; ahead && j < together; j++)
            for (int64_t at = 0; at < STEP * bytes; at += 64)
                heed_fetch_far(row[ahead + j] + d * bytes + at);
#pragma GCC unroll 16
        for (int i = 0; i < STEP; i += HEED_WIDTH)
            multiply_vector(type, rows, row, d + i, 0, query, stride, total[i / HEED_WIDTH % chains]);
    }
    for (; d < dim; d += HEED_WIDTH)
        multiply_vector(type, rows, row, d, d + HEED_WIDTH <= dim ? 0 : dim - d, query, stride, total[0]);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int j = 0; j < together; j++) {
            sum[r * KEYS + j] = total[0][r][j];
            if (chains > 1)
                sum[r * KEYS + j] += total[1][r][j];
        }
}

/* The products of KEYS keys, of each query summed in runs of four lanes. */
HEED_INLINE bool score_keys(const heed_type type, const int rows, const int dim, const heed_decode_rows *keys,
                            int first, bool fetch, const float *query, int64_t stride, heed_vec *part)
{
    heed_vec sum[4 * KEYS];
    bool fine = true;
    FORGET(query);
    const char *const *row = keys->row + first;
    for (int j = 0; heed_is_levels(type) && fetch && j < KEYS; j++)
        heed_fetch_rows(keys, first + j);
#pragma GCC unroll 4
    for (int j = 0; j < KEYS; j += TOGETHER(rows)) {
        if (heed_is_levels(type))
            fine &= multiply_blocks(type, rows, row + j, dim, query, stride, sum + j);
        else
            multiply_keys(type, rows, row + j, fetch ? keys->far : 0, dim, query, stride, sum + j);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        part[r * (HEED_WIDTH / 4)] = add_in_runs(sum + r * KEYS);
    return fine;
}

/* RUN keys; `fetch`: those ahead of them are asked for on the way. False where a scale is not finite. */
HEED_INLINE bool score_run(const heed_type type, const int rows, const int dim, const heed_decode_rows *keys,
                           int first, bool fetch, const float *query, int64_t stride, float *score)
{
    bool fine = true;
    for (int j = first; j < first + RUN; j += HEED_WIDTH) {
        heed_vec part[4 * (HEED_WIDTH / 4)];
#pragma GCC unroll 2
        for (int i = 0; i < HEED_WIDTH / 4; i++)
            fine &= score_keys(type, rows, dim, keys, j + KEYS * i, fetch, query, stride, part + i);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            heed_vec_store(score + r * HEED_KEYS + j, add_runs(part + r * (HEED_WIDTH / 4)));
    }
    return fine;
}

typedef bool run_of_keys(const heed_decode_rows *keys, int first, bool fetch, const float *query,
                         int64_t stride, float *score);

/* The usual size gets a copy of the code; an instrumented one would take long to compile and show nothing
 * new. */
#ifdef HEED_SANITIZED
#define IS_USUAL(dim, stride) false
#else
#define IS_USUAL(dim, stride) ((dim) == 64 && (stride) == 64)
#endif

#define SCORE_RUN(type, rows)                                                                                \
    static __attribute__((noinline)) bool score_##type##_##rows(const heed_decode_rows *keys, int first,     \
                                                                bool fetch, const float *query,              \
                                                                int64_t stride, float *score)                \
    {                                                                                                        \
        if (IS_USUAL(keys->dim, stride))                                                                     \
            return score_run(HEED_##type, rows, 64, keys, first, fetch, query, 64, score);                   \
        return score_run(HEED_##type, rows, keys->dim, keys, first, fetch, query, stride, score);            \
    }

#define SCORE_RUNS(type)                                                                                     \
    SCORE_RUN(type, 1)                                                                                       \
    SCORE_RUN(type, 2)                                                                                       \
    SCORE_RUN(type, 3)                                                                                       \
    SCORE_RUN(type, 4)

SCORE_RUNS(F32)
SCORE_RUNS(F16)
SCORE_RUNS(BF16)
SCORE_RUNS(Q8)
SCORE_RUNS(Q4)
SCORE_RUNS(CHANNEL_Q4)

static run_of_keys *const runs[HEED_TYPES][4] = {
    [HEED_F32] = {score_F32_1, score_F32_2, score_F32_3, score_F32_4},
    [HEED_F16] = {score_F16_1, score_F16_2, score_F16_3, score_F16_4},
    [HEED_BF16] = {score_BF16_1, score_BF16_2, score_BF16_3, score_BF16_4},
    [HEED_Q8] = {score_Q8_1, score_Q8_2, score_Q8_3, score_Q8_4},
    [HEED_Q4] = {score_Q4_1, score_Q4_2, score_Q4_3, score_Q4_4},
    [HEED_CHANNEL_Q4] = {score_CHANNEL_Q4_1, score_CHANNEL_Q4_2, score_CHANNEL_Q4_3, score_CHANNEL_Q4_4},
};

bool heed_decode_scores(const heed_decode_rows *keys, int rows, const float *query, int64_t stride,
                        float *score)
{
    run_of_keys *const *run = runs[keys->type];
    bool fine = true;
    for (int j = 0; j < keys->count; j += RUN)
        for (int r = 0; r < rows; r += 4) {
            const int here = rows - r < 4 ? rows - r : 4;
            fine &= run[here - 1](keys, j, r == 0, query + r * stride, stride, score + r * HEED_KEYS);
        }
    return fine;
}
