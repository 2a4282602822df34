/* CriticalKV: half of the room by score, the rest by score and value.
 *
 *     the stage * budget highest scores stay; of the others
 *     score_j := (score_j + eps) ||v_j||_1
 *
 * The bound that the paper minimises has the norm of W_o v_j, the value behind the output projection; a
 * policy sees no weights of the model, so the value itself stands for it. Behind a judge whose scores are
 * weights; before by_head. Feng et al.: Identify Critical KV Cache in LLM Inference from an Output
 * Perturbation Perspective, 2025.
 */
#include "attend/cache/best.h"
#include "attend/cache/judge.h"

#include <float.h>

enum { STAGE, EPS };

static void regroup_head(const heed_form_state *form, const heed_shares *shares, int g, float *work)
{
    const heed_held *held = &shares->held[g];
    const int64_t count = held->count, budget = shares->budget[g] < count ? shares->budget[g] : count;
    const int64_t first = shares->first[g] < count ? shares->first[g] : count;
    const int64_t end = shares->recent[g] < count - first ? count - shares->recent[g] : first;
    float *score = shares->score[g];
    int64_t best = (int64_t)(form->arg[STAGE].number * (double)budget + 1e-9) - first - (count - end);
    heed_score_cut cut = heed_cut_of(score + first, end - first, best, work);
    for (int64_t j = end - 1; j >= first; j--) {
        const bool tie = score[j] == cut.score && cut.ties > 0;
        cut.ties -= tie;
        if (score[j] > cut.score || tie)
            score[j] = FLT_MAX;
        else
            score[j] = (score[j] + heed_arg_float(form, EPS)) *
                       heed_row_l1(held->value + j * held->value_dim, held->value_dim);
    }
}

static void regroup(const heed_form_state *form, const heed_shares *shares, float *work)
{
    for (int g = 0; g < shares->kv_heads; g++)
        regroup_head(form, shares, g, work);
}

static const heed_arg args[] = {
    HEED_PART_ARG("stage", 0.5, "part of the budget that goes by score alone"),
    {.name = "eps", .value = 1e-4, .least = 0, .most = INFINITY, .summary = "added to scores"},
    {0},
};

static const heed_policy policy = {.observes = HEED_OBSERVES_VALUES, .regroup = regroup};

const heed_form HEED_FORM(cache_critical) = {
    .name = "critical",
    .stage = HEED_CACHE,
    .summary = "half of the room by score, the rest by score times the L1 norm of the value",
    .formula = "beyond the stage * budget best: score_j := (score_j + eps) ||v_j||_1",
    .source = "Feng et al.: Identify Critical KV Cache, 2025; v in place of W_o v",
    .args = args,
    .policy = &policy,
};
