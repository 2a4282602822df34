/* Sink: a learnt logit, one a query head, takes part in the denominator and has no value.
 *
 *     w_j = exp(s_j) / (exp(sink_h) + sum exp(s))
 *
 * sink = -inf is softmax, 0 is softmax1. What the sink itself weighs, p = exp(sink - norm), moves its
 * gradient: dsink = -sum over rows of p sum_j w_j dw_j. Xiao et al.: Efficient Streaming Language Models with
 * Attention Sinks, 2024, as a logit in OpenAI: gpt-oss, 2025.
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
    heed_exponential_finish(form->param[0][head], rows, sums, end);
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

static void norm_backward(const heed_form_state *form, int head, int rows, const float *norm,
                          const float *delta)
{
    if (!form->grad[0])
        return;
    const float sink = form->param[0][head];
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < rows; i++) {
        const float p = heed_exp_down(sink - norm[i]);
        sum += delta[i] == 0.0f ? 0.0f : p * delta[i];
    }
    form->grad[0][head] -= sum;
}

static const heed_param params[] = {
    {.name = "sink", .shape = "H", .summary = "logit that takes weight away from the keys"},
    {0},
};

const heed_form HEED_FORM(normalise_sink) = {
    .name = "sink",
    .stage = HEED_NORMALISE,
    .summary = "softmax with a learnt logit that holds no value",
    .formula = "w = exp(s) / (exp(sink) + sum exp(s))",
    .source = "OpenAI gpt-oss 2025; Xiao et al. 2024",
    .flags = HEED_KEEPS_MOMENT,
    .params = params,
    .online = online,
    .finish = finish,
    .weights = weights,
    .weights_backward = weights_backward,
    .norm_backward = norm_backward,
};
