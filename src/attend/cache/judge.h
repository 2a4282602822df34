/* What judges of keys share: sums over rows, and the weights that the last queries gave. */
#ifndef HEED_ATTEND_CACHE_JUDGE_H
#define HEED_ATTEND_CACHE_JUDGE_H

#include "attend/form.h"
#include "attend/kernels/vector.h"
#include <heed/policy.h>

/* Arguments of a judge's own stand behind HEED_BUDGET_ARGS. */
enum { HEED_OWN_ARG = 2 };

/* An argument that counts queries or keys. */
#define HEED_COUNT_ARG(word, least_value, default_value, words)                                              \
    {                                                                                                        \
        .name = word, .kind = HEED_ARG_INT, .value = default_value, .least = least_value, .most = INFINITY,  \
        .summary = words                                                                                     \
    }

/* An argument between 0 and 1. */
#define HEED_PART_ARG(word, default_value, words)                                                            \
    {                                                                                                        \
        .name = word, .value = default_value, .least = 0, .most = 1, .summary = words                        \
    }

static inline float heed_row_dot(const float *restrict x, const float *restrict y, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* Sum of absolute entries. */
static inline float heed_row_l1(const float *x, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += fabsf(x[i]);
    return sum;
}

/* Sum of squares. */
static inline float heed_row_square(const float *x, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

/* out [count] = key [dim] times each of `count` queries, which lie side by side: across [dim][count]. */
static inline void heed_products(const float *restrict key, const float *restrict across, int64_t dim,
                                 int64_t count, float *restrict out)
{
    int64_t s0 = 0;
    for (; s0 + 4 * HEED_WIDTH <= count; s0 += 4 * HEED_WIDTH) {
        heed_vec sum[4] = {{0.0f}};
        for (int64_t d = 0; d < dim; d++)
            for (int v = 0; v < 4; v++)
                sum[v] += key[d] * heed_vec_load(across + d * count + s0 + v * HEED_WIDTH);
        for (int v = 0; v < 4; v++)
            heed_vec_store(out + s0 + v * HEED_WIDTH, sum[v]);
    }
    for (int64_t s = s0; s < count; s++)
        out[s] = 0.0f;
    for (int64_t d = 0; d < dim; d++) {
        const float x = key[d], *restrict row = across + d * count;
#pragma omp simd
        for (int64_t s = s0; s < count; s++)
            out[s] += x * row[s];
    }
}

/* The first of the last `window` queries that are shown. */
static inline int64_t heed_first_query(const heed_held *held, int64_t window)
{
    return held->queries > window ? held->queries - window : 0;
}

static inline const float *heed_weights_of(const heed_held *held, int head, int64_t query)
{
    return held->weight + (head * held->queries + query) * held->count;
}

/* score[j] = mean of w[h][i][j] over the heads that share the keys and the last `window` queries; 0 without
 * queries. */
static inline void heed_mean_weights(const heed_held *held, int64_t window, float *restrict score)
{
    const int64_t first = heed_first_query(held, window);
    const float part = 1.0f / (float)(held->group * (held->queries > first ? held->queries - first : 1));
    for (int64_t j = 0; j < held->count; j++)
        score[j] = 0.0f;
    for (int h = 0; h < held->group; h++)
        for (int64_t i = first; i < held->queries; i++) {
            const float *restrict weight = heed_weights_of(held, h, i);
#pragma omp simd
            for (int64_t j = 0; j < held->count; j++)
                score[j] += part * weight[j];
        }
}

/* The lot of the key at position `pos`, in [0, 1): the same in every round, whatever else is held. */
static inline uint64_t heed_mixed_bits(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static inline float heed_lot(uint64_t seed, const heed_held *held, int32_t pos)
{
    uint64_t x = heed_mixed_bits(seed + 0x9E3779B97F4A7C15u);
    x = heed_mixed_bits(x + (uint64_t)held->layer);
    x = heed_mixed_bits(x + (uint64_t)held->kv_head);
    return (float)(heed_mixed_bits(x + (uint64_t)(uint32_t)pos) >> 40) / 16777216.0f;
}

/* state[0] of every key takes in what all heads that share it gave. */
static inline void heed_add_sums(const heed_seen *seen, float *state, int64_t stride)
{
    if (stride == 1) { /* the usual case, a vector at a time */
        for (int64_t j = 0; j < seen->count; j++)
            state[j] += seen->sum[j];
        return;
    }
    for (int64_t j = 0; j < seen->count; j++)
        state[j * stride] += seen->sum[j];
}

#endif
