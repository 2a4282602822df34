/* What keys receive from the last queries where none is hidden from them. */
#ifndef HEED_ATTEND_CACHE_NONCAUSAL_H
#define HEED_ATTEND_CACHE_NONCAUSAL_H

#include "attend/cache/judge.h"

/* score_j = pool3(||v_j|| mean over heads of sum_i softmax_j(q_i . k_j)), less its mean, by its deviation.
 * work [3 count]. */
static inline void heed_noncausal(const heed_held *held, int64_t window, float *score, float *work)
{
    const int64_t count = held->count, dim = held->dim;
    float *received = work, *row = work + count;
    for (int64_t j = 0; j < count; j++)
        received[j] = 0.0f;
    for (int h = 0; h < held->group; h++)
        for (int64_t i = heed_first_query(held, window); i < held->queries; i++) {
            const float *query = held->compared + (h * held->queries + i) * dim;
            float max = -INFINITY, sum = 0.0f;
            for (int64_t j = 0; j < count; j++) {
                row[j] = heed_row_dot(query, held->key + j * dim, dim) + heed_log(held->mass[j]);
                max = row[j] > max ? row[j] : max;
            }
            for (int64_t j = 0; j < count; j++) {
                row[j] = heed_exp(row[j] - max);
                sum += row[j];
            }
            const float part = 1.0f / (sum * (float)held->group);
            for (int64_t j = 0; j < count; j++)
                received[j] += part * row[j];
        }
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
