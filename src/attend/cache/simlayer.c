/* SimLayerKV: lazy layers keep little, the others all.
 *
 *     a layer is lazy if its heads' last `window` queries give, on average, at least `least` of their weight
 * to the first `first` and the newest `recent` keys; then these are all that it keeps
 *
 * All kv heads of the layer that have this policy decide together, whenever it acts: a layer may become lazy
 * later, and stays so. Zhang et al.: SimLayerKV: A Simple Framework for Layer-Level KV Cache Reduction, 2024.
 */
#include "attend/cache/judge.h"

enum { LEAST, FIRST, RECENT, WINDOW };

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

static bool is_end(const heed_form_state *form, const heed_held *held, int64_t j)
{
    return j < heed_arg_int(form, FIRST) || j >= held->count - heed_arg_int(form, RECENT);
}

static float weight_of_ends(const heed_form_state *form, const heed_held *held, float *work)
{
    float sum = 0.0f;
    heed_mean_weights(held, heed_arg_int(form, WINDOW), work);
    for (int64_t j = 0; j < held->count; j++)
        sum += is_end(form, held, j) ? work[j] : 0.0f;
    return sum;
}

static void choose(const heed_form_state *form, const heed_held *held, uint8_t *keep, float *work)
{
    float sum = 0.0f;
    for (int g = 0; g < held->besides; g++)
        sum += weight_of_ends(form, &held->beside[g], work) / (float)held->besides;
    if (sum >= heed_arg_float(form, LEAST))
        for (int64_t j = 0; j < held->count; j++)
            keep[j] = is_end(form, held, j);
}

static int64_t work_floats(const heed_form_state *form, const heed_held *largest)
{
    (void)form;
    return largest->count; /* of a head beside */
}

static const heed_arg args[] = {
    HEED_PART_ARG("least", 0.9, "weight of the ends from which a layer is lazy"),
    HEED_COUNT_ARG("first", 0, 4, "keys at the beginning"),
    HEED_COUNT_ARG("recent", 1, 1024, "newest keys"),
    HEED_COUNT_ARG("window", 1, 1, "last queries that judge"),
    {0},
};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_WEIGHTS, .window = window, .work_floats = work_floats, .choose = choose};

const heed_form HEED_FORM(cache_simlayer) = {
    .name = "simlayer",
    .stage = HEED_CACHE,
    .summary = "layers that look at the first and the newest keys only keep no others",
    .formula = "keeps the ends where their mean weight over the layer >= least, else all",
    .source = "Zhang et al.: SimLayerKV, 2024",
    .args = args,
    .policy = &policy,
};
