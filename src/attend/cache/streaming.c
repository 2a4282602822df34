/* Attention sinks and a window: the first keys of the text and the newest ones.
 *
 *     kept: the first `first` keys held and the newest budget - first
 *
 * The first keys take weight that no other key is due; without them a model fails once they leave the window.
 * On all heads of a model this is StreamingLLM; on those that a prefix `heads` names, the streaming heads of
 * DuoAttention, beside retrieval heads that keep all. Xiao et al.: Efficient Streaming Language Models with
 * Attention Sinks, 2023; Xiao et al.: DuoAttention, 2024.
 */
#include "attend/cache/judge.h"

enum { FIRST = HEED_OWN_ARG };

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    *first = heed_arg_int(form, FIRST);
    *recent = budget > *first ? budget - *first : 0;
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = 0.0f;
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    HEED_COUNT_ARG("first", 0, 4, "keys at the beginning that stay"),
    {0},
};

static const heed_policy policy = {.ends = ends, .judge = judge};

const heed_form HEED_FORM(cache_streaming) = {
    .name = "streaming",
    .stage = HEED_CACHE,
    .summary = "the first keys (attention sinks) and a window of the newest",
    .formula = "keeps the first `first` and the newest budget - first keys",
    .source = "Xiao et al. 2023; as streaming heads: Xiao et al.: DuoAttention, 2024",
    .row = "001.229",
    .args = args,
    .policy = &policy,
};
