/* Functions of one number with their derivatives, a line each: name, f(x), f'(x). */
#ifndef HEED_NN_KERNELS_FUNCTIONS_H
#define HEED_NN_KERNELS_FUNCTIONS_H

#include <heed/maths.h>
#include <heed/nn.h>

/* Half the normal distribution beyond |x|, by 1 - erf = (a1 t + ... + a5 t^5) e^(-z^2), t = 1 / (1 + p z), z
 * = |x| / sqrt 2: off by at most 1.5e-7 (Abramowitz and Stegun, 7.1.26). */
static inline float normal_below(float x)
{
    const float z = fabsf(x) * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const float tail = 0.5f * p * t * heed_exp(-z * z);
    return x < 0.0f ? tail : 1.0f - tail;
}

static inline float normal_density(float x)
{
    return 0.39894228f * heed_exp(-0.5f * x * x);
}

static inline float tanh_part(float x)
{
    return heed_tanh(0.79788456f * (x + 0.044715f * x * x * x));
}

static inline float gelu_tanh_slope(float x)
{
    const float t = tanh_part(x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.79788456f * (1.0f + 0.134145f * x * x);
}

static inline float positive(float x)
{
    return x > 0.0f ? x : 0.0f * x; /* NaN stays NaN */
}

static inline float silu_slope(float x)
{
    const float s = heed_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

static inline float sigmoid_slope(float x)
{
    const float s = heed_sigmoid(x);
    return s * (1.0f - s);
}

static inline float softplus(float x)
{
    return positive(x) + heed_log1p(heed_exp(-fabsf(x)));
}

static inline float tanh_slope(float x)
{
    const float t = heed_tanh(x);
    return 1.0f - t * t;
}

static inline float sign_of(float x)
{
    return x == 0.0f ? 0.0f : copysignf(1.0f, x);
}

#define HEED_FUNCTION_LINES(each)                                                                            \
    each(HEED_FN_SILU, silu, x *heed_sigmoid(x), silu_slope(x))                                              \
        each(HEED_FN_GELU, gelu, x *normal_below(x), normal_below(x) + x * normal_density(x))                \
            each(HEED_FN_GELU_TANH, gelu_tanh, 0.5f * x * (1.0f + tanh_part(x)),                             \
                 gelu_tanh_slope(x)) each(HEED_FN_RELU, relu, positive(x), x > 0.0f ? 1.0f : 0.0f)           \
                each(HEED_FN_RELU2, relu2, positive(x) * positive(x), 2.0f * positive(x))                    \
                    each(HEED_FN_SIGMOID, sigmoid, heed_sigmoid(x), sigmoid_slope(x))                        \
                        each(HEED_FN_TANH, tanh, heed_tanh(x), tanh_slope(x))                                \
                            each(HEED_FN_EXP, exp, heed_exp(x), heed_exp(x))                                 \
                                each(HEED_FN_LOG, log, heed_log(x), 1.0f / x) each(HEED_FN_SQUARE, square,   \
                                                                                   x *x, 2.0f * x)           \
                                    each(HEED_FN_SQRT, sqrt, sqrtf(x), 0.5f / sqrtf(x))                      \
                                        each(HEED_FN_IDENTITY, identity, x, 1.0f + 0.0f * x)                 \
                                            each(HEED_FN_SOFTPLUS, softplus, softplus(x), heed_sigmoid(x))   \
                                                each(HEED_FN_SIN, sin, sinf(x), cosf(x))                     \
                                                    each(HEED_FN_COS, cos, cosf(x), -sinf(x))                \
                                                        each(HEED_FN_ERF, erf, erff(x),                      \
                                                             1.12837917f * heed_exp(-x * x))                 \
                                                            each(HEED_FN_ABS, abs, fabsf(x), sign_of(x))

#endif
