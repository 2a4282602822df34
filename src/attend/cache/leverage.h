/* Leverage scores of keys: how much of its own direction a key supplies.
 *
 *     l_j = x_j (X^T X + r I)^-1 x_j^T,     x_j = k_j - mean key,     r = ridge trace(X^T X) / dim
 *
 * k_j are the keys before rotation, which tells apart what tokens say and not where they stand.
 */
#ifndef HEED_ATTEND_CACHE_LEVERAGE_H
#define HEED_ATTEND_CACHE_LEVERAGE_H

#include "attend/cache/judge.h"

/* Two products of each key with a matrix [dim][dim], in queries of 64 entries. */
enum { HEED_LEVERAGE_EFFORT = 64 };

static inline int64_t heed_leverage_floats(int64_t dim)
{
    return dim * dim + 2 * dim;
}

/* gram [dim][dim], lower half: of the centred keys, with the ridge on its diagonal. */
static inline void heed_gram(const heed_held *held, float ridge, float *gram, float *mean, float *row)
{
    const int64_t dim = held->dim, count = held->count;
    for (int64_t d = 0; d < dim; d++)
        mean[d] = 0.0f;
    for (int64_t j = 0; j < count; j++)
        for (int64_t d = 0; d < dim; d++)
            mean[d] += held->bare[j * dim + d] / (float)count;
    for (int64_t i = 0; i < dim * dim; i++)
        gram[i] = 0.0f;
    for (int64_t j = 0; j < count; j++) {
        for (int64_t d = 0; d < dim; d++)
            row[d] = held->bare[j * dim + d] - mean[d];
        for (int64_t d = 0; d < dim; d++) {
            float *restrict to = gram + d * dim;
#pragma omp simd
            for (int64_t e = 0; e <= d; e++)
                to[e] += row[d] * row[e];
        }
    }
    float trace = 0.0f;
    for (int64_t d = 0; d < dim; d++)
        trace += gram[d * (dim + 1)];
    const float r = ridge * trace / (float)dim;
    for (int64_t d = 0; d < dim; d++)
        gram[d * (dim + 1)] += r > 1e-30f ? r : 1e-30f;
}

/* The lower half of a symmetric matrix becomes its Cholesky factor. */
static inline void heed_cholesky(float *a, int64_t dim)
{
    for (int64_t d = 0; d < dim; d++) {
        for (int64_t e = 0; e <= d; e++) {
            const float rest = a[d * dim + e] - heed_row_dot(a + d * dim, a + e * dim, e);
            if (e < d)
                a[d * dim + e] = rest / a[e * dim + e];
            else
                a[d * dim + d] = sqrtf(rest > 1e-30f ? rest : 1e-30f);
        }
    }
}

/* score [count]; work heed_leverage_floats. */
static inline void heed_leverage(const heed_held *held, float ridge, float *score, float *work)
{
    const int64_t dim = held->dim;
    float *factor = work, *mean = work + dim * dim, *row = mean + dim;
    heed_gram(held, ridge, factor, mean, row);
    heed_cholesky(factor, dim);
    for (int64_t j = 0; j < held->count; j++) {
        for (int64_t d = 0; d < dim; d++) { /* L y = x, l = ||y||^2 */
            const float x = held->bare[j * dim + d] - mean[d];
            row[d] = (x - heed_row_dot(factor + d * dim, row, d)) / factor[d * (dim + 1)];
        }
        score[j] = heed_row_square(row, dim);
    }
}

#endif
