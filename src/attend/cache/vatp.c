/* Value-aware token pruning: a weight counts as much as the value that it brings.
 *
 *     score_j := score_j ||v_j||_1
 *
 * Behind a judge whose scores are weights: `h2o(...) > vatp`. Guo, Kamigaito, Watanabe: Attention Score is
 * not All You Need for Token Importance Indicator in KV Cache Reduction: Value Also Matters, 2024.
 */
#include "attend/cache/judge.h"

static void regroup(const heed_form_state *form, const heed_shares *shares, float *work)
{
    (void)form;
    (void)work;
    for (int g = 0; g < shares->kv_heads; g++) {
        const heed_held *held = &shares->held[g];
        for (int64_t j = 0; j < held->count; j++)
            shares->score[g][j] *= heed_row_l1(held->value + j * held->value_dim, held->value_dim);
    }
}

static const heed_policy policy = {.observes = HEED_OBSERVES_VALUES, .regroup = regroup};

const heed_form HEED_FORM(cache_vatp) = {
    .name = "vatp",
    .stage = HEED_CACHE,
    .summary = "scores times the L1 norm of the values",
    .formula = "score_j := score_j ||v_j||_1",
    .source = "Guo, Kamigaito, Watanabe: Value Also Matters, 2024",
    .policy = &policy,
};
