/* Gaussian: keys count by how near they lie to the query; after softmax the weights are those of a Gaussian
 * kernel.
 *
 *     s(i, j) = -|q_i - k_j|^2 / (2 sigma^2),     sigma = D^(1/4) unless given
 *
 * With that sigma the q.k in the square has dot's scale. The differences are summed as they are: |q|^2 +
 * |k|^2 - 2 q.k would lose the small distances of long rows. Kernel view: Tsai et al.: Transformer
 * Dissection, 2019.
 */
#include "attend/score/pair.h"
#include "attend/score/rows.h"

static heed_status resolve(heed_form_state *form)
{
    if (!form->arg[0].given)
        form->arg[0].number = sqrt(sqrt((double)form->sizes.dim));
    return HEED_OK;
}

static float factor(const heed_form_state *form)
{
    const double sigma = form->arg[0].number;
    return held_factor(-0.5 / (sigma * sigma));
}

static inline float term(float query, float key)
{
    return (query - key) * (query - key);
}

static inline float slope(float query, float key, float value)
{
    (void)value;
    return 2.0f * (query - key);
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
     .computed = "D^(1/4)",
     .least = 0.0,
     .most = 1e30,
     .above = true,
     .summary = "width of the kernel"},
    {0},
};

const heed_form HEED_FORM(score_gaussian) = {
    .name = "gaussian",
    .stage = HEED_SCORE,
    .summary = "squared distance between query and key",
    .formula = "s = -|q - k|^2 / (2 sigma^2)",
    .source = "Tsai et al. 2019",
    .args = args,
    .resolve = resolve,
    .pair = compare,
    .pair_backward = compare_backward,
};
