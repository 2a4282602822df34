/* Key difference: keys that point elsewhere than the rest stay.
 *
 *     score_j = - cos(k_j, m),     m = mean over the keys held of k_i / ||k_i||
 *
 * Needs nothing but the keys, as they are compared. Park et al.: KeyDiff: Key Similarity-Based KV Cache
 * Eviction, 2025.
 */
#include "attend/cache/judge.h"

#define LEAST 1e-12f /* length below which a direction is none */

static float length(const float *x, int64_t n)
{
    const float norm = sqrtf(heed_row_square(x, n));
    return norm > LEAST ? norm : LEAST;
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    const int64_t dim = held->dim;
    for (int64_t d = 0; d < dim; d++)
        work[d] = 0.0f;
    for (int64_t j = 0; j < held->count; j++) {
        const float *restrict key = held->key + j * dim;
        const float part = 1.0f / (length(key, dim) * (float)held->count);
#pragma omp simd
        for (int64_t d = 0; d < dim; d++)
            work[d] += part * key[d];
    }
    const float mean = length(work, dim);
    for (int64_t j = 0; j < held->count; j++) {
        const float *key = held->key + j * dim;
        score[j] = -heed_row_dot(key, work, dim) / (length(key, dim) * mean);
    }
}

static int64_t work_floats(const heed_form_state *form, const heed_held *largest)
{
    (void)form;
    return largest->dim;
}

static const heed_arg args[] = {HEED_BUDGET_ARGS, {0}};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_KEYS, .work_floats = work_floats, .judge = judge};

const heed_form HEED_FORM(cache_keydiff) = {
    .name = "keydiff",
    .stage = HEED_CACHE,
    .summary = "keys that differ most from the mean direction of all",
    .formula = "score_j = -cos(k_j, mean of k_i / ||k_i||)",
    .source = "Park et al.: KeyDiff, 2025",
    .args = args,
    .policy = &policy,
};
