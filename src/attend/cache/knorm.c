/* L2 norm of keys: short keys stay.
 *
 *     score_j = - ||k_j||
 *
 * Keys of little length tend to receive much attention. Needs nothing but the keys. Devoto et al.: A Simple
 * and Effective L2 Norm-Based Strategy for KV Cache Compression, 2024.
 */
#include "attend/cache/judge.h"

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = -sqrtf(heed_row_square(held->key + j * held->dim, held->dim));
}

static const heed_arg args[] = {HEED_BUDGET_ARGS, {0}};

static const heed_policy policy = {.observes = HEED_OBSERVES_KEYS, .judge = judge};

const heed_form HEED_FORM(cache_knorm) = {
    .name = "knorm",
    .stage = HEED_CACHE,
    .summary = "keys of small L2 norm",
    .formula = "score_j = -||k_j||",
    .source = "Devoto et al.: L2 Norm-Based Strategy for KV Cache Compression, 2024",
    .args = args,
    .policy = &policy,
};
