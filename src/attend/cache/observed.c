/* Observed attention: the mean weight that a key received from the queries that could see it.
 *
 *     score_j = sum_i w_ij / (queries that have seen j),     the mean over the heads that share the key
 *
 * H2O's sums without their favour for old keys. On a layer with a window a key is seen by as many queries as
 * the window is wide. As in kvpress's ObservedAttentionPress; after Zhang et al.: H2O, 2023.
 */
#include "attend/cache/judge.h"

static void observe(const heed_form_state *form, const heed_seen *seen, float *state, int64_t stride)
{
    (void)form;
    heed_add_sums(seen, state, stride);
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 0; j < held->count; j++) {
        const int64_t age = held->read - held->pos[j]; /* its own query counts */
        const int64_t queries = age < 1 ? 1 : age < held->visible ? age : held->visible;
        score[j] = held->state[j * held->state_stride] / (float)(held->group * queries);
    }
}

static const heed_arg args[] = {HEED_BUDGET_ARGS, {0}};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_SUMS, .state_floats = 1, .observe = observe, .judge = judge};

const heed_form HEED_FORM(cache_observed) = {
    .name = "observed",
    .stage = HEED_CACHE,
    .summary = "keys by the mean weight that they received from all queries that saw them",
    .formula = "score_j = sum_i w_ij / (queries that have seen j)",
    .source = "kvpress; after Zhang et al.: H2O, 2023",
    .args = args,
    .policy = &policy,
};
