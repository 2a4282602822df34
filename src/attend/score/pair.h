/* Scores that are sums over entries of a function of both rows:
 *
 *     s(i, j) = start + factor sum_a weight_a term(q_ia, k_ja)
 *
 * Keys are transposed, so a loop runs over columns. Two queries and four entries share a pass: the tile of
 * scores is loaded and stored once for four terms, and a key is loaded once for two queries.
 */
#ifndef HEED_SCORE_PAIR_H
#define HEED_SCORE_PAIR_H

#include "attend/form.h"

typedef float (*pair_term)(float query, float key);

/* Derivatives of a term by the query's entry; the key's is this times `sign`. `value` is the term. */
typedef float (*pair_slope)(float query, float key, float value);

#define HEED_INLINE static inline __attribute__((always_inline))

enum { PAIR_ENTRIES = 8 };

/* Adds `entries` (1 or PAIR_ENTRIES) terms to the scores of `queries` (1 or 2) rows. */
HEED_INLINE void add_terms(const heed_tile *tile, const float *weight, pair_term term, int row, int queries,
                           int entry, int entries)
{
    const int cols = tile->cols & ~15;
    const int64_t stride = tile->key_stride;
    const float *key = tile->key + entry * stride; /* [entries][stride] */
    const float *first = tile->query + row * tile->query_stride + entry;
    const float *second = first + (queries - 1) * tile->query_stride;
    float *score0 = tile->score + row * tile->stride;
    float *score1 = score0 + (queries - 1) * tile->stride;
    float q0[PAIR_ENTRIES], q1[PAIR_ENTRIES], w[PAIR_ENTRIES];
    for (int a = 0; a < entries; a++) {
        q0[a] = first[a];
        q1[a] = second[a];
        w[a] = weight ? weight[entry + a] : 1.0f;
    }
#pragma omp simd
    for (int j = 0; j < cols; j++) {
        float sum0 = 0.0f, sum1 = 0.0f;
#pragma GCC unroll 8
        for (int a = 0; a < entries; a++) {
            const float k = key[a * stride + j];
            sum0 += w[a] * term(q0[a], k);
            if (queries == 2)
                sum1 += w[a] * term(q1[a], k);
        }
        score0[j] += sum0;
        if (queries == 2)
            score1[j] += sum1;
    }
}

HEED_INLINE void pair_scores(const heed_tile *tile, const float *weight, float start, float factor,
                             pair_term term)
{
    const int cols = tile->cols & ~15, whole = tile->dim - tile->dim % PAIR_ENTRIES;
    for (int i = 0; i < tile->rows; i += 2) {
        const bool two = i + 1 < tile->rows;
        for (int r = i; r < i + 1 + two; r++)
            memset(tile->score + r * tile->stride, 0, sizeof(float) * (size_t)cols);
        for (int a = 0; a < whole; a += PAIR_ENTRIES) {
            if (two)
                add_terms(tile, weight, term, i, 2, a, PAIR_ENTRIES);
            else
                add_terms(tile, weight, term, i, 1, a, PAIR_ENTRIES);
        }
        for (int a = whole; a < tile->dim; a++) {
            if (two)
                add_terms(tile, weight, term, i, 2, a, 1);
            else
                add_terms(tile, weight, term, i, 1, a, 1);
        }
        for (int r = i; r < i + 1 + two; r++) {
            float *score = tile->score + r * tile->stride;
            for (int j = 0; j < cols; j++)
                score[j] = start + factor * score[j];
        }
    }
}

/* Adds the gradients of one entry of one row. A closed pair (dscore 0) may hold NaN and gives nothing. */
HEED_INLINE void pair_entry_backward(const heed_tile *tile, float weight, float *dweight, float factor,
                                     pair_term term, pair_slope slope, float sign, int row, int entry)
{
    const int cols = tile->cols & ~15;
    const float q = tile->query[row * tile->query_stride + entry];
    const float *key = tile->key + entry * tile->key_stride;
    const float *dscore = tile->dscore + row * tile->stride;
    float *dkey = tile->dkey + entry * tile->key_stride;
    float dquery = 0.0f, dw = 0.0f;
#pragma omp simd reduction(+ : dquery, dw)
    for (int j = 0; j < cols; j++) {
        const float g = factor * dscore[j];
        const float value = term(q, key[j]);
        const float through = g * weight * slope(q, key[j], value);
        const float kept = g == 0.0f ? 0.0f : through;
        dquery += kept;
        dkey[j] += sign * kept;
        dw += g == 0.0f ? 0.0f : g * value;
    }
    tile->dquery[row * tile->query_stride + entry] += dquery;
    if (dweight)
        *dweight += dw;
}

HEED_INLINE void pair_scores_backward(const heed_tile *tile, const float *weight, float *dweight,
                                      float factor, pair_term term, pair_slope slope, float sign)
{
    for (int a = 0; a < tile->dim; a++)
        for (int i = 0; i < tile->rows; i++)
            pair_entry_backward(tile, weight ? weight[a] : 1.0f, dweight ? dweight + a : NULL, factor, term,
                                slope, sign, i, a);
}

#endif
