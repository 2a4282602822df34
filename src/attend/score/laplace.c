/* Laplace: as gaussian with the sum of absolute differences, so that one far entry counts less.
 *
 *     s(i, j) = -|q_i - k_j|_1 / sigma,     sigma = sqrt(D) unless given
 *
 * The slope at equal entries is taken as 0. Kim et al.: Attentive Neural Processes, 2019.
 */
#include "attend/score/pair.h"
#include "attend/score/rows.h"

static heed_status resolve(heed_form_state *form)
{
    if (!form->arg[0].given)
        form->arg[0].number = sqrt((double)form->sizes.dim);
    return HEED_OK;
}

static float factor(const heed_form_state *form)
{
    return held_factor(-1.0 / form->arg[0].number);
}

static inline float term(float query, float key)
{
    return fabsf(query - key);
}

static inline float slope(float query, float key, float value)
{
    const float sign = copysignf(1.0f, query - key);
    const float apart = value == 0.0f ? 0.0f : sign;
    return value != value ? value : apart;
}

static void compare(const heed_form_state *form, heed_tile *tile)
{
    pair_scores(tile, NULL, 0.0f, factor(form), term);
}

static void compare_backward(const heed_form_state *form, heed_tile *tile)
{
    pair_scores_backward(tile, NULL, NULL, factor(form), term, slope, -1.0f);
}

static const heed_arg args[] = {
    {.name = "sigma",
     .value = NAN,
     .computed = "sqrt(D)",
     .least = 0.0,
     .most = 1e30,
     .above = true,
     .summary = "width of the kernel"},
    {0},
};

const heed_form HEED_FORM(score_laplace) = {
    .name = "laplace",
    .stage = HEED_SCORE,
    .summary = "sum of absolute differences between query and key",
    .formula = "s = -|q - k|_1 / sigma",
    .source = "Kim et al. 2019",
    .args = args,
    .resolve = resolve,
    .pair = compare,
    .pair_backward = compare_backward,
};
