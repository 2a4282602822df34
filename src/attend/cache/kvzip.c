/* KVzip: keys by how much they help to write the text down once more, whatever will be asked.
 *
 *     score_j = max over the heads that share the key and all queries i of a repetition of w_ij
 *
 * The prompt is read a second time, behind itself: an instruction to repeat it, then its tokens, `chunk` at a
 * time. What those queries never look at says nothing that the rest does not say too. Keys that no text
 * repeated yet (answers, until the next prompt ends, which repeats them too) stay. Layers that see a window
 * keep what it holds: their keys lie out of sight of the repetition. Weights are over all keys held, where
 * the paper's are over those of a chunk to save time; budgets hold for each kv head, or among those of a
 * layer behind `by_head`, where the paper's hold among all layers. Kim et al.: KVzip, 2025.
 */
#include "attend/cache/judge.h"

enum { CHUNK = HEED_OWN_ARG, FIRST };

static int repeats(const heed_form_state *form)
{
    return heed_arg_int(form, CHUNK);
}

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    const int64_t sinks = heed_arg_int(form, FIRST);
    *first = sinks < budget ? sinks : budget;
    *recent = 0;
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 0; j < held->count; j++) {
        const float largest = held->state[j * held->state_stride];
        score[j] = largest > 0.0f ? largest : INFINITY;
    }
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    HEED_COUNT_ARG("chunk", 1, 2048, "tokens of the prompt that are repeated at a time"),
    HEED_COUNT_ARG("first", 0, 4, "keys at the beginning that stay"),
    {0},
};

static const heed_policy policy = {.repeats = repeats, .state_floats = 1, .ends = ends, .judge = judge};

const heed_form HEED_FORM(cache_kvzip) = {
    .name = "kvzip",
    .stage = HEED_CACHE,
    .summary = "keys that the text needs to be written down once more, whatever is asked later",
    .formula = "score_j = max of w_ij over all queries i of a repetition of the prompt",
    .source = "Kim et al.: KVzip, 2025",
    .args = args,
    .policy = &policy,
};
