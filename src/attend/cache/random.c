/* Random keys: what a policy must beat.
 *
 *     score_j = hash(seed, layer, kv head, position of j) in 0..1
 *
 * A key's luck is its own, so that it stays or goes alike in every round, whatever else is held.
 */
#include "attend/cache/judge.h"

enum { SEED = HEED_OWN_ARG };

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)work;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = heed_lot((uint64_t)heed_arg_int(form, SEED), held, held->pos[j]);
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    {.name = "seed",
     .kind = HEED_ARG_INT,
     .value = 0,
     .least = 0,
     .most = INFINITY,
     .summary = "of the hash"},
    {0},
};

static const heed_policy policy = {.judge = judge};

const heed_form HEED_FORM(cache_random) = {
    .name = "random",
    .stage = HEED_CACHE,
    .summary = "keys at random, to compare with",
    .formula = "score_j = hash(seed, layer, kv head, position)",
    .args = args,
    .policy = &policy,
};
