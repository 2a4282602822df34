/* Heavy hitters: the newest keys, and those that have received most attention so far.
 *
 *     score_j = sum over all queries i so far and the heads h that share the key of w[h][i][j]
 *
 * Half of the budget goes to the newest keys, as published. A key's sum starts when it is read; ageing below
 * 1 multiplies the sums by ageing^n when n queries have been read at once, so that old favours fade. Zhang et
 * al.: H2O: Heavy-Hitter Oracle, 2023; ageing as in Jo, Shin: A2SF, 2024.
 */
#include "attend/cache/judge.h"

enum { RECENT = HEED_OWN_ARG, AGEING };

static void observe(const heed_form_state *form, const heed_seen *seen, float *state, int64_t stride)
{
    const float ageing = powf(heed_arg_float(form, AGEING), (float)seen->queries);
    for (int64_t j = 0; ageing != 1.0f && j < seen->count; j++)
        state[j * stride] *= ageing;
    heed_add_sums(seen, state, stride);
}

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    *first = 0;
    *recent = (int64_t)(form->arg[RECENT].number * (double)budget + 1e-9);
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = held->state[j * held->state_stride];
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    HEED_PART_ARG("recent", 0.5, "part of the budget for the newest keys"),
    HEED_PART_ARG("ageing", 1, "factor on the sums at each query"),
    {0},
};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_SUMS, .state_floats = 1, .observe = observe, .ends = ends, .judge = judge};

const heed_form HEED_FORM(cache_h2o) = {
    .name = "h2o",
    .stage = HEED_CACHE,
    .summary = "the newest keys and those that received most attention from all queries",
    .formula = "score_j = sum_i w_ij of all queries, half of the budget for the newest",
    .source = "Zhang et al.: H2O, 2023",
    .args = args,
    .policy = &policy,
};
