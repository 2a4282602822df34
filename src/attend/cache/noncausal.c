/* Non-causal attention: what keys receive from the last queries when no key is hidden from them.
 *
 *     a_j     = sum over the last `window` queries i of softmax_j(q_i . k_j), the later keys included; the
 * mean over the heads that share the key score_j = mean of ||v|| a over j and its two neighbours, less the
 * mean of all, by their deviation
 *
 * A causal mask favours early keys; without it all compete alike. The paper lets the queries of each stretch
 * of 256 look at their own stretch; here the last `window` queries look at all keys held, which with
 * `chunked(256)` comes to it for new keys and lets old ones compete again. Chari, Van Durme: Compactor, 2025.
 */
#include "attend/cache/noncausal.h"

enum { WINDOW = HEED_OWN_ARG };

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    heed_noncausal(held, heed_arg_int(form, WINDOW), score, work, work + 4 * held->count);
}

static int64_t work_floats(const heed_form_state *form, const heed_held *largest)
{
    (void)form;
    return heed_noncausal_floats(largest);
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    HEED_COUNT_ARG("window", 1, 256, "last queries that judge"),
    {0},
};

static const heed_policy policy = {.observes =
                                       HEED_OBSERVES_KEYS | HEED_OBSERVES_VALUES | HEED_OBSERVES_QUERIES,
                                   .window = window,
                                   .work_floats = work_floats,
                                   .judge = judge};

const heed_form HEED_FORM(cache_noncausal) = {
    .name = "noncausal",
    .stage = HEED_CACHE,
    .summary = "keys by what the last queries give them when no key is hidden",
    .formula = "score = pool3(||v_j|| sum_i softmax_j(q_i.k_j)), normalised, without a causal mask",
    .source = "Chari, Van Durme: Compactor, 2025",
    .args = args,
    .policy = &policy,
};
