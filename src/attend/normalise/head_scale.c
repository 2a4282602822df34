/* Head scale (row 001.089): a learnt number of each head on its scores, before the next form makes weights.
 *
 *     s := max(lambda_h, least) s
 *
 * It sharpens the attention of models without positions on texts longer than those they learned from; one
 * number for all heads is softmax's temperature. Below `least` the gradient goes on as if it were there, so
 * that lambda can come back. Wang et al.: Length Generalization of Causal Transformers without Position
 * Encoding, 2024.
 */
#include "attend/form.h"

static float scale_of(const heed_form_state *form, int head)
{
    const float lambda = form->param[0][head], least = heed_arg_float(form, 0);
    return lambda < least ? least : lambda;
}

static heed_status begin(const heed_form_state *form)
{
    for (int64_t h = 0; h < form->sizes.heads; h++)
        if (!(scale_of(form, (int)h) > 0.0f && scale_of(form, (int)h) < INFINITY))
            return heed_fail(HEED_INVALID,
                             "normalise.head_scale.lambda of head %lld is %g; it must be above 0",
                             (long long)h, (double)form->param[0][h]);
    return HEED_OK;
}

static void adjust(const heed_form_state *form, heed_tile *tile)
{
    const float by = scale_of(form, tile->head);
    for (int i = 0; i < tile->rows; i++) {
        float *score = tile->score + i * tile->stride;
        for (int j = 0; j < tile->cols; j++)
            score[j] *= by;
    }
}

/* tile->score holds what came out */
static void adjust_backward(const heed_form_state *form, heed_tile *tile)
{
    const float by = scale_of(form, tile->head), inverse = 1.0f / by;
    float sum = 0.0f;
    for (int i = 0; i < tile->rows; i++) {
        const float *score = tile->score + i * tile->stride;
        float *d = tile->dscore + i * tile->stride;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < tile->cols; j++) {
            const float term = d[j] * (score[j] * inverse), g = d[j] * by;
            sum += d[j] == 0.0f ? 0.0f : term;
            d[j] = d[j] == 0.0f ? 0.0f : g;
        }
    }
    if (form->grad[0])
        form->grad[0][tile->head] += sum;
}

static const heed_arg args[] = {
    {.name = "least", .value = 1, .least = 0, .most = 1e6, .summary = "what lambda does not fall below"},
    {0},
};

static const heed_param params[] = {
    {.name = "lambda", .shape = "H", .initial = 1.0f, .summary = "factor on the scores of each head"},
    {0},
};

const heed_form HEED_FORM(normalise_head_scale) = {
    .name = "head_scale",
    .stage = HEED_NORMALISE,
    .summary = "a learnt number of each head on its scores, before the next form",
    .formula = "s := max(lambda_h, least) s",
    .source = "Wang et al.: Length Generalization of Causal Transformers without Position Encoding, 2024",
    .row = "001.089",
    .flags = HEED_MODIFIER | HEED_KEEPS_OUTPUT,
    .args = args,
    .params = params,
    .begin = begin,
    .adjust = adjust,
    .adjust_backward = adjust_backward,
};
