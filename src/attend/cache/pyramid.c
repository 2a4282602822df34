/* A pyramid of budgets: much for the first layers, little for the last, where attention is narrow.
 *
 *     budget of the last layer  = budget / beta
 *     budget of the first layer = 2 budget - that of the last,     the others on the line between
 *
 * so that the mean over the layers is `budget`; where the first would get more than it can see, it gets that
 * and the last 2 budget less that. With one layer it is `budget`. Cai et al.: PyramidKV: Dynamic KV Cache
 * Compression based on Pyramidal Information Funneling, 2024; there the window of SnapKV comes on top of the
 * pyramid, here it is inside.
 */
#include "attend/cache/judge.h"

enum { BETA };

static int64_t layer_budget(const heed_form_state *form, int64_t layer, int64_t layers, int64_t budget,
                            int64_t visible)
{
    if (layers < 2)
        return budget;
    const double least = (double)budget / form->arg[BETA].number, most = 2.0 * (double)budget - least;
    const double first = most < (double)visible ? most : (double)visible, last = 2.0 * (double)budget - first;
    return (int64_t)(first + (last - first) * (double)layer / (double)(layers - 1) + 0.5);
}

static const heed_arg args[] = {
    {.name = "beta",
     .value = 20,
     .least = 1,
     .most = INFINITY,
     .summary = "budget over that of the last layer"},
    {0},
};

static const heed_policy policy = {.layer_budget = layer_budget};

const heed_form HEED_FORM(cache_pyramid) = {
    .name = "pyramid",
    .stage = HEED_CACHE,
    .summary = "budgets that fall from the first layer to the last",
    .formula = "from 2 budget - budget/beta down to budget/beta on a line",
    .source = "Cai et al.: PyramidKV, 2024",
    .args = args,
    .policy = &policy,
};
