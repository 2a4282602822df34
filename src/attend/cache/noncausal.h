/* What keys receive from the last queries where none is hidden from them. */
#ifndef HEED_ATTEND_CACHE_NONCAUSAL_H
#define HEED_ATTEND_CACHE_NONCAUSAL_H

#include "attend/cache/judge.h"

/* Floats of work that heed_noncausal takes beside its rows of keys. */
static inline int64_t heed_noncausal_floats(const heed_held *largest)
{
    return largest->queries * (largest->dim + 3);
}

/* received_j += part sum_i exp(q_i . k_j + log m_j) / sum over all keys, of the queries of one head from
 * `first` on.
 */
static inline void heed_add_received(const heed_held *held, int head, int64_t first, float part,
                                     float *restrict received, float *work)
{
    const int64_t dim = held->dim, queries = held->queries - first;
    float *across = work, *restrict logit = work + dim * queries;
    float *restrict max = logit + queries, *restrict sum = max + queries;
    for (int64_t s = 0; s < queries; s++) {
        const float *query = held->compared + (head * held->queries + first + s) * dim;
        for (int64_t d = 0; d < dim; d++)
            across[d * queries + s] = query[d];
        max[s] = -INFINITY;
        sum[s] = 0.0f;
    }
    for (int64_t j = 0; j < held->count; j++) {
        const float mass = heed_log(held->mass[j]);
        heed_products(held->key + j * dim, across, dim, queries, logit);
#pragma omp simd
        for (int64_t s = 0; s < queries; s++) {
            const float x = logit[s] + mass, most = x > max[s] ? x : max[s];
            sum[s] = sum[s] * heed_exp(max[s] - most) + heed_exp(x - most);
            max[s] = most;
        }
    }
    for (int64_t j = 0; j < held->count; j++) {
        const float mass = heed_log(held->mass[j]);
        float weight = 0.0f;
        heed_products(held->key + j * dim, across, dim, queries, logit);
#pragma omp simd reduction(+ : weight)
        for (int64_t s = 0; s < queries; s++)
            weight += heed_exp(logit[s] + mass - max[s]) / sum[s];
        received[j] += part * weight;
    }
}

/* score_j = pool3(||v_j|| mean over heads of sum_i softmax_j(q_i . k_j)), less its mean, by its deviation.
 * received [count], work heed_noncausal_floats. */
static inline void heed_noncausal(const heed_held *held, int64_t window, float *score, float *received,
                                  float *work)
{
    const int64_t count = held->count, first = heed_first_query(held, window);
    for (int64_t j = 0; j < count; j++)
        received[j] = 0.0f;
    for (int h = 0; h < held->group && first < held->queries; h++)
        heed_add_received(held, h, first, 1.0f / (float)held->group, received, work);
    float mean = 0.0f, square = 0.0f;
    for (int64_t j = 0; j < count; j++)
        received[j] *= sqrtf(heed_row_square(held->value + j * held->value_dim, held->value_dim));
    for (int64_t j = 0; j < count; j++) {
        const float before = j ? received[j - 1] : 0.0f, after = j + 1 < count ? received[j + 1] : 0.0f;
        score[j] = (before + received[j] + after) / 3.0f;
        mean += score[j] / (float)count;
    }
    for (int64_t j = 0; j < count; j++)
        square += (score[j] - mean) * (score[j] - mean);
    const float deviation = sqrtf(square / (float)(count > 1 ? count - 1 : 1));
    for (int64_t j = 0; j < count; j++)
        score[j] = (score[j] - mean) / (deviation > 1e-6f ? deviation : 1e-6f);
}

#endif
