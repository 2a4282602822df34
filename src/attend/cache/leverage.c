/* Leverage scores: keys that supply a direction of their own stay.
 *
 *     score_j = x_j (X^T X + r I)^-1 x_j^T,     x_j = k_j - mean key,     r = ridge trace(X^T X) / dim
 *
 * k_j are the keys before rotation. Exact, where the paper's are approximated by a random sketch of them.
 * Chari, Van Durme: Compactor, 2025.
 */
#include "attend/cache/leverage.h"

enum { RIDGE = HEED_OWN_ARG };

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    heed_leverage(held, heed_arg_float(form, RIDGE), score, work + 4 * held->count);
}

static int64_t work_floats(const heed_form_state *form, const heed_held *largest)
{
    (void)form;
    return heed_leverage_floats(largest->dim);
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    {.name = "ridge", .value = 1e-3, .least = 0, .most = INFINITY, .summary = "relative to the mean square"},
    {0},
};

static const heed_policy policy = {.observes = HEED_OBSERVES_BARE,
                                   .effort = HEED_LEVERAGE_EFFORT,
                                   .work_floats = work_floats,
                                   .judge = judge};

const heed_form HEED_FORM(cache_leverage) = {
    .name = "leverage",
    .stage = HEED_CACHE,
    .summary = "keys of high statistical leverage: few others point their way",
    .formula = "score_j = x_j (X^T X + r I)^-1 x_j^T, x_j = k_j - mean key",
    .source = "Chari, Van Durme: Compactor, 2025",
    .args = args,
    .policy = &policy,
};
