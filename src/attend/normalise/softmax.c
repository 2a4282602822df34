/* Softmax: weights are exponentials that sum to 1.
 *
 *     w_j = exp(s_j / temperature) / sum exp(s / temperature)
 *
 * A low temperature sharpens towards the largest score, a high one flattens.
 */
#include "attend/normalise/exponential.h"

static void online(const heed_form_state *form, heed_tile *tile, heed_row_sums *sums)
{
    const float inverse = heed_inverse(form->arg[0].number);
    if (inverse == 1.0f)
        heed_sum_tile(tile, 1.0f, sums, true);
    else
        heed_sum_tile(tile, inverse, sums, true);
}

static void finish(const heed_form_state *form, int head, int rows, const heed_row_sums *sums,
                   heed_row_end *end)
{
    (void)form, (void)head;
    heed_exponential_finish(-INFINITY, rows, sums, end);
}

static void weights(const heed_form_state *form, heed_tile *tile, const float *norm)
{
    heed_exponential_weights(tile, heed_inverse(form->arg[0].number), norm);
}

static void weights_backward(const heed_form_state *form, heed_tile *tile, const float *norm,
                             const float *delta)
{
    (void)norm;
    heed_exponential_backward(tile, heed_inverse(form->arg[0].number), delta);
}

static const heed_arg args[] = {
    {.name = "temperature",
     .value = 1.0,
     .least = 0.0,
     .most = 1e30,
     .above = true,
     .summary = "what scores are divided by"},
    {0},
};

const heed_form HEED_FORM(normalise_softmax) = {
    .name = "softmax",
    .stage = HEED_NORMALISE,
    .summary = "exponentials that sum to 1",
    .formula = "w = exp(s/T) / sum exp(s/T)",
    .source = "Vaswani et al. 2017; tile by tile: Milakov and Gimelshein 2018, Rabe and Staats 2021",
    .row = "001.120",
    .flags = HEED_KEEPS_MOMENT,
    .args = args,
    .online = online,
    .finish = finish,
    .weights = weights,
    .weights_backward = weights_backward,
};
