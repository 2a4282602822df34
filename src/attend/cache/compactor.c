/* Compactor: outliers among the keys, and what is looked at.
 *
 *     score_j = blend z(leverage_j) + noncausal_j,     z(x) = (x - mean) / deviation
 *
 * leverage and noncausal as the forms of those names have them. The first 8 and the last 4 keys stay. Chari,
 * Van Durme: Compactor: Calibrated Query-Agnostic KV Cache Compression with Approximate Leverage Scores,
 * 2025.
 */
#include "attend/cache/leverage.h"
#include "attend/cache/noncausal.h"

enum { BLEND = HEED_OWN_ARG, WINDOW, FIRST, RECENT };

#define RIDGE 1e-3f
#define LEAST 1e-4f /* deviation below which leverage, 0..1, tells keys apart by rounding only */

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    (void)budget;
    *first = heed_arg_int(form, FIRST);
    *recent = heed_arg_int(form, RECENT);
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    const int64_t count = held->count;
    float *leverage = work + 3 * count, mean = 0.0f, square = 0.0f;
    heed_noncausal(held, heed_arg_int(form, WINDOW), score, work, work + 4 * count);
    heed_leverage(held, RIDGE, leverage, work + 4 * count);
    for (int64_t j = 0; j < count; j++)
        mean += leverage[j] / (float)count;
    for (int64_t j = 0; j < count; j++)
        square += (leverage[j] - mean) * (leverage[j] - mean);
    const float deviation = sqrtf(square / (float)(count > 1 ? count - 1 : 1));
    const float blend = heed_arg_float(form, BLEND) / (deviation > LEAST ? deviation : LEAST);
    for (int64_t j = 0; j < count; j++)
        score[j] += blend * (leverage[j] - mean);
}

static int64_t work_floats(const heed_form_state *form, const heed_held *largest)
{
    (void)form;
    const int64_t a = heed_leverage_floats(largest->dim), b = heed_noncausal_floats(largest);
    return a > b ? a : b;
}

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    {.name = "blend", .value = 0.35, .least = 0, .most = INFINITY, .summary = "factor of the leverage"},
    HEED_COUNT_ARG("window", 1, 256, "last queries that judge"),
    HEED_COUNT_ARG("first", 0, 8, "keys at the beginning that stay"),
    HEED_COUNT_ARG("recent", 0, 4, "newest keys that stay"),
    {0},
};

static const heed_policy policy = {.observes = HEED_OBSERVES_KEYS | HEED_OBSERVES_BARE |
                                               HEED_OBSERVES_VALUES | HEED_OBSERVES_QUERIES,
                                   .window = window,
                                   .effort = HEED_LEVERAGE_EFFORT,
                                   .work_floats = work_floats,
                                   .judge = judge,
                                   .ends = ends};

const heed_form HEED_FORM(cache_compactor) = {
    .name = "compactor",
    .stage = HEED_CACHE,
    .summary = "leverage scores and non-causal attention together",
    .formula = "score_j = blend z(leverage_j) + noncausal_j",
    .source = "Chari, Van Durme: Compactor, 2025",
    .args = args,
    .policy = &policy,
};
