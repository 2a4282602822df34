/* Least frequently attended goes first.
 *
 *     score_j = number of queries so far that had j among their `top` strongest keys
 *
 * Queries of all heads that share the key count. Yang, Hua: Attendre: Wait To Attend By Retrieval With
 * Evicted Queries in Memory-Based Transformers, 2024; "attended" is read as being among the strongest.
 */
#include "attend/cache/judge.h"

enum { TOP = HEED_OWN_ARG };

static int top(const heed_form_state *form)
{
    return heed_arg_int(form, TOP);
}

static void observe(const heed_form_state *form, const heed_seen *seen, float *state, int64_t stride)
{
    const int most = heed_arg_int(form, TOP) < seen->top ? heed_arg_int(form, TOP) : seen->top;
    for (int64_t i = 0; i < seen->group * seen->queries; i++)
        for (int t = 0; t < most; t++) {
            const int32_t key = seen->top_key[i * seen->top + t];
            if (key >= 0)
                state[key * stride] += 1.0f;
        }
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
    {.name = "top", .kind = HEED_ARG_INT, .value = 32, .least = 1, .most = 256, .summary = "strongest keys"},
    {0},
};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_TOP, .top = top, .state_floats = 1, .observe = observe, .judge = judge};

const heed_form HEED_FORM(cache_lfa) = {
    .name = "lfa",
    .stage = HEED_CACHE,
    .summary = "keys by how many queries had them among their strongest",
    .formula = "score_j = number of queries with j among their `top` strongest keys",
    .source = "Yang, Hua: Attendre, 2024; the memory of keys and values",
    .row = "001.205",
    .args = args,
    .policy = &policy,
};
