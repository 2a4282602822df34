/* ReLU: scores above 0 are weights, shared out over the open keys.
 *
 *     w_j = max(0, s_j)^power / n,     n = keys open after `select`
 *
 * Wortsman et al.: Replacing softmax with ReLU in Vision Transformers, 2023.
 */
#include "attend/normalise/exponential.h"

/* max(0, s)^power, written so that NaN stays NaN. Powers 1 and 2 are constants to the loops. */
HEED_INLINE float raise(float s, float power)
{
    const float x = s < 0.0f ? 0.0f : s;
    if (power == 1.0f)
        return x;
    if (power == 2.0f)
        return x * x;
    const float y = heed_exp(power * heed_log(x));
    return x < 1.2e-38f ? 0.0f : y;
}

HEED_INLINE void raise_tile(const heed_tile *tile, const float *norm, float power)
{
    const int cols = tile->cols & ~15;
    for (int i = 0; i < tile->rows; i++) {
        float *x = tile->score + i * tile->stride;
        const float share = norm ? 1.0f / norm[i] : 1.0f;
        for (int j = 0; j < cols; j++) {
            const float w = raise(x[j], power) * share;
            x[j] = x[j] == -INFINITY ? 0.0f : w;
        }
    }
}

static void raise_all(const heed_form_state *form, const heed_tile *tile, const float *norm)
{
    const float power = heed_arg_float(form, 0);
    if (power == 1.0f)
        raise_tile(tile, norm, 1.0f);
    else if (power == 2.0f)
        raise_tile(tile, norm, 2.0f);
    else
        raise_tile(tile, norm, power);
}

static void online(const heed_form_state *form, heed_tile *tile, heed_row_sums *sums)
{
    heed_sum_tile(tile, 1.0f, sums, false);
    raise_all(form, tile, NULL);
}

/* The norm is n, or NaN where a NaN or +inf score made the row's sum NaN; nothing open counts as infinitely
 * many. */
static void finish(const heed_form_state *form, int head, int rows, const heed_row_sums *sums,
                   heed_row_end *end)
{
    (void)form, (void)head;
    for (int i = 0; i < rows; i++) {
        const float open = sums->count[i] > 0.0f ? sums->count[i] : INFINITY;
        end[i].norm = sums->sum[i] == sums->sum[i] ? open : NAN;
        end[i].scale = 1.0f / end[i].norm;
    }
}

static void weights(const heed_form_state *form, heed_tile *tile, const float *norm)
{
    raise_all(form, tile, norm);
}

/* ds = dw power s^(power-1) / n, and s^(power-1) = (w n)^((power-1)/power) */
HEED_INLINE void lower_tile(const heed_tile *tile, const float *norm, float power)
{
    const int cols = tile->cols & ~15;
    for (int i = 0; i < tile->rows; i++) {
        const float *w = tile->score + i * tile->stride;
        float *d = tile->dscore + i * tile->stride;
        const float n = norm[i], share = power / n;
#pragma omp simd
        for (int j = 0; j < cols; j++) {
            float slope = share;
            if (power == 2.0f)
                slope *= sqrtf(w[j] * n);
            else if (power != 1.0f)
                slope *= heed_exp((power - 1.0f) / power * heed_log(w[j] * n));
            const float g = d[j] * slope;
            d[j] = w[j] == 0.0f ? 0.0f : g;
        }
    }
}

static void weights_backward(const heed_form_state *form, heed_tile *tile, const float *norm,
                             const float *delta)
{
    (void)delta;
    const float power = heed_arg_float(form, 0);
    if (power == 1.0f)
        lower_tile(tile, norm, 1.0f);
    else if (power == 2.0f)
        lower_tile(tile, norm, 2.0f);
    else
        lower_tile(tile, norm, power);
}

static const heed_arg args[] = {
    {.name = "power",
     .value = 1.0,
     .least = 0.0,
     .most = 1e3,
     .above = true,
     .summary = "exponent of the scores"},
    {0},
};

const heed_form HEED_FORM(normalise_relu) = {
    .name = "relu",
    .stage = HEED_NORMALISE,
    .summary = "scores above 0, divided by the number of open keys",
    .formula = "w = max(0, s)^power / n",
    .source = "Wortsman et al. 2023",
    .flags = HEED_COUNTS_OPEN,
    .args = args,
    .online = online,
    .finish = finish,
    .weights = weights,
    .weights_backward = weights_backward,
};
