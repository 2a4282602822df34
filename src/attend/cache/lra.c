/* Least recently attended goes first.
 *
 *     score_j = position of the last query that had j among its `top` strongest keys, or j's own, if later
 *
 * Queries of any head that shares the key count. Yang, Hua: Attendre: Wait To Attend By Retrieval With
 * Evicted Queries in Memory-Based Transformers, 2024; "attended" is read as being among the strongest.
 */
#include "attend/cache/judge.h"

enum { TOP = HEED_OWN_ARG };

static int top(const heed_form_state *form)
{
    return heed_arg_int(form, TOP);
}

/* state: 1 + that position, 0 for none. */
static void observe(const heed_form_state *form, const heed_seen *seen, float *state, int64_t stride)
{
    const int most = heed_arg_int(form, TOP) < seen->top ? heed_arg_int(form, TOP) : seen->top;
    for (int h = 0; h < seen->group; h++)
        for (int64_t i = 0; i < seen->queries; i++) {
            const int32_t *key = seen->top_key + (h * seen->queries + i) * seen->top;
            const float at = (float)(seen->first + i + 1);
            for (int t = 0; t < most; t++)
                if (key[t] >= 0 && at > state[key[t] * stride])
                    state[key[t] * stride] = at;
        }
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    (void)form;
    (void)work;
    for (int64_t j = 0; j < held->count; j++) {
        const float at = held->state[j * held->state_stride] - 1.0f, own = (float)held->pos[j];
        score[j] = at > own ? at : own;
    }
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    {.name = "top", .kind = HEED_ARG_INT, .value = 32, .least = 1, .most = 256, .summary = "strongest keys"},
    {0},
};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_TOP, .top = top, .state_floats = 1, .observe = observe, .judge = judge};

const heed_form HEED_FORM(cache_lra) = {
    .name = "lra",
    .stage = HEED_CACHE,
    .summary = "keys by when a query last had them among its strongest",
    .formula = "score_j = last position of a query with j among its `top` strongest keys",
    .source = "Yang, Hua: Attendre, 2024; the memory of keys and values",
    .row = "001.205",
    .args = args,
    .policy = &policy,
};
