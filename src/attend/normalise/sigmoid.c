/* Sigmoid: every key is weighed by itself, without competition.
 *
 *     w_j = 1 / (1 + exp(-(s_j + bias))),     bias = -log M unless given, M the keys that exist
 *
 * That bias makes the weights of M equal scores of 0 sum to about 1. Ramapuram et al.: Theory, Analysis, and
 * Best Practices for Sigmoid Self-Attention, 2024.
 */
#include "attend/normalise/alone.h"
#include "attend/normalise/exponential.h"

/* Known only tile by tile, because sequences of a batch may differ in length. */
static float bias(const heed_form_state *form, const heed_tile *tile)
{
    if (form->arg[0].given)
        return heed_arg_float(form, 0);
    const double keys = (double)tile->inputs->key_count[tile->batch];
    return keys > 1.0 ? (float)-log(keys) : 0.0f;
}

static void online(const heed_form_state *form, heed_tile *tile, heed_row_sums *sums)
{
    const float b = bias(form, tile);
    const int cols = tile->cols & ~15;
    heed_sum_tile(tile, 1.0f, sums, false);
    for (int i = 0; i < tile->rows; i++) {
        float *x = tile->score + i * tile->stride;
        for (int j = 0; j < cols; j++)
            x[j] = heed_sigmoid(x[j] + b);
    }
}

static void weights(const heed_form_state *form, heed_tile *tile, const float *norm)
{
    const float b = bias(form, tile);
    const int cols = tile->cols & ~15;
    for (int i = 0; i < tile->rows; i++) {
        float *x = tile->score + i * tile->stride;
        const float shift = b + norm[i];
        for (int j = 0; j < cols; j++) {
            const float w = heed_sigmoid(x[j] + shift);
            x[j] = x[j] == -INFINITY ? 0.0f : w;
        }
    }
}

/* ds = dw w (1 - w) */
static void weights_backward(const heed_form_state *form, heed_tile *tile, const float *norm,
                             const float *delta)
{
    (void)form, (void)norm, (void)delta;
    const int cols = tile->cols & ~15;
    for (int i = 0; i < tile->rows; i++) {
        const float *w = tile->score + i * tile->stride;
        float *d = tile->dscore + i * tile->stride;
#pragma omp simd
        for (int j = 0; j < cols; j++) {
            const float g = d[j] * w[j] * (1.0f - w[j]);
            d[j] = w[j] == 0.0f ? 0.0f : g;
        }
    }
}

static const heed_arg args[] = {
    {.name = "bias", .value = NAN, .computed = "-log M", .summary = "added to every score"},
    {0},
};

const heed_form HEED_FORM(normalise_sigmoid) = {
    .name = "sigmoid",
    .stage = HEED_NORMALISE,
    .summary = "each key weighed by itself, by a sigmoid",
    .formula = "w = 1 / (1 + exp(-(s + bias)))",
    .source = "Ramapuram et al. 2024",
    .args = args,
    .online = online,
    .finish = heed_finish_alone,
    .weights = weights,
    .weights_backward = weights_backward,
};
