/* Soft cap: scores are bent so that none leaves (-c, c); the next form in the chain makes weights of them.
 *
 *     s := c tanh(s / c)
 *
 * A closed pair stays closed; +inf becomes NaN, as everywhere, although its tanh would be a number.
 * Bello et al. 2017; in language models: Gemma 2, 2024.
 */
#include "attend/form.h"

/* c tanh(x): a ratio of polynomials in x^2, minimax on |x| <= 8.3 with relative error 7.4e-8; beyond, tanh is
 * 1 within 1.3e-7. `above` holds the numerator's coefficients times c. */
static inline float capped(float x, const float above[5])
{
    const float most = x > 8.3f ? 8.3f : x;
    const float t = most < -8.3f ? -8.3f : most;
    const float y = t * t;
    float p = above[4];
    p = p * y + above[3];
    p = p * y + above[2];
    p = p * y + above[1];
    p = p * y + above[0];
    float q = y + 368.504375f;
    q = q * y + 26924.2235f;
    q = q * y + 472141.208f;
    q = q * y + 1006537.41f;
    return t * p / q;
}

/* 1 / c, finite, so that a score of 0 stays 0. */
static float inverse_cap(const heed_form_state *form)
{
    const double c = form->arg[0].number;
    return c < 3e-39 ? 3e38f : (float)(1.0 / c);
}

static void adjust(const heed_form_state *form, heed_tile *tile)
{
    const float c = heed_arg_float(form, 0), inverse = inverse_cap(form);
    const float above[5] = {c * 1006537.45f, c * 136628.373f, c * 3749.30339f, c * 24.5562109f,
                            c * 0.0187922134f};
    const int cols = tile->cols & ~15;
    for (int i = 0; i < tile->rows; i++) {
        float *score = tile->score + i * tile->stride;
#pragma omp simd
        for (int j = 0; j < cols; j++) {
            const float s = score[j];
            const float infinite = s - INFINITY; /* -inf, or NaN for +inf */
            const float z = capped(s * inverse, above);
            score[j] = fabsf(s) == INFINITY ? infinite : z;
        }
    }
}

/* ds = dz (1 - (z/c)^2), 0 where closed */
static void adjust_backward(const heed_form_state *form, heed_tile *tile)
{
    const float inverse = inverse_cap(form);
    const int cols = tile->cols & ~15;
    for (int i = 0; i < tile->rows; i++) {
        const float *z = tile->score + i * tile->stride;
        float *d = tile->dscore + i * tile->stride;
#pragma omp simd
        for (int j = 0; j < cols; j++) {
            const float t = z[j] * inverse;
            const float g = d[j] * (1.0f - t * t);
            d[j] = z[j] == -INFINITY ? 0.0f : g;
        }
    }
}

static const heed_arg args[] = {
    {.name = "c",
     .value = NAN,
     .least = 0.0,
     .most = 1e25,
     .above = true,
     .required = true,
     .summary = "bound of the scores"},
    {0},
};

const heed_form HEED_FORM(normalise_softcap) = {
    .name = "softcap",
    .stage = HEED_NORMALISE,
    .summary = "bends scores into (-c, c) before the next form",
    .formula = "s := c tanh(s/c)",
    .source = "Bello et al. 2017; Gemma 2, 2024",
    .flags = HEED_MODIFIER | HEED_KEEPS_OUTPUT,
    .args = args,
    .adjust = adjust,
    .adjust_backward = adjust_backward,
};
