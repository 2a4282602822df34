/* Softmax with a 1 in the denominator: a head may attend to nothing.
 *
 *     w_j = exp(s_j) / (1 + sum exp(s))
 *
 * As softmax with one more key of score 0 and value 0. Miller: Attention Is Off By One, 2023.
 */
#include "attend/normalise/exponential.h"

static void online(const heed_form_state *form, heed_tile *tile, heed_row_sums *sums)
{
    (void)form;
    heed_sum_tile(tile, 1.0f, sums, true);
}

static void finish(const heed_form_state *form, int head, int rows, const heed_row_sums *sums,
                   heed_row_end *end)
{
    (void)form, (void)head;
    heed_exponential_finish(0.0f, rows, sums, end);
}

static void weights(const heed_form_state *form, heed_tile *tile, const float *norm)
{
    (void)form;
    heed_exponential_weights(tile, 1.0f, norm);
}

static void weights_backward(const heed_form_state *form, heed_tile *tile, const float *norm,
                             const float *delta)
{
    (void)form, (void)norm;
    heed_exponential_backward(tile, 1.0f, delta);
}

const heed_form HEED_FORM(normalise_softmax1) = {
    .name = "softmax1",
    .stage = HEED_NORMALISE,
    .summary = "softmax with a 1 in the denominator",
    .formula = "w = exp(s) / (1 + sum exp(s))",
    .source = "Miller 2023",
    .flags = HEED_KEEPS_MOMENT,
    .online = online,
    .finish = finish,
    .weights = weights,
    .weights_backward = weights_backward,
};
