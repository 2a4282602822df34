/* TOVA, token omission via attention: keys by the weight that the newest query gives them.
 *
 *     score_j = mean over the heads h that share the key of w[h][last][j]
 *
 * The paper takes the mean over all heads of a layer, so that they keep the same tokens: `tova(...) >
 * together`. The newest key stays. Oren et al.: Transformers are Multi-State RNNs, 2024.
 */
#include "attend/cache/judge.h"

static int window(const heed_form_state *form)
{
    (void)form;
    return 1;
}

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    (void)form;
    (void)budget;
    *first = 0;
    *recent = 1;
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    (void)work;
    heed_mean_weights(held, 1, score);
}

static const heed_arg args[] = {HEED_BUDGET_ARGS, {0}};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_WEIGHTS, .window = window, .ends = ends, .judge = judge};

const heed_form HEED_FORM(cache_tova) = {
    .name = "tova",
    .stage = HEED_CACHE,
    .summary = "keys by the weight that the newest query gives them",
    .formula = "score_j = w_ij of the newest query i",
    .source = "Oren et al.: Transformers are Multi-State RNNs, 2024",
    .args = args,
    .policy = &policy,
};
