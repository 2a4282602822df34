/* Norms and activations, as loops that vectorise. */
#include "nn/rows.h"
#include <heed/form.h>
#include <heed/maths.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#define heed_rows HEED_JOIN(heed_rows, HEED_ISA)

static void rms_norm(const heed_norm *norm, const float *x, float *out)
{
    float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < norm->n; i++)
        squares += x[i] * x[i];
    const float factor = 1.0f / sqrtf(squares / (float)norm->n + norm->eps);
#pragma omp simd
    for (int64_t i = 0; i < norm->n; i++)
        out[i] = x[i] * factor * norm->weight[i];
}

static void layer_norm(const heed_norm *norm, const float *x, float *out)
{
    float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < norm->n; i++)
        sum += x[i];
    const float mean = sum / (float)norm->n;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < norm->n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    const float factor = 1.0f / sqrtf(squares / (float)norm->n + norm->eps);
    const float *bias = norm->bias;
#pragma omp simd
    for (int64_t i = 0; i < norm->n; i++)
        out[i] = (x[i] - mean) * factor * norm->weight[i] + bias[i];
}

static void norm_row(const heed_norm *norm, const float *x, float *out)
{
    if (norm->kind == HEED_NORM_LAYER)
        layer_norm(norm, x, out);
    else
        rms_norm(norm, x, out);
}

static inline float silu(float x)
{
    return x * heed_sigmoid(x);
}

/* erf by 1 - (a1 t + ... + a5 t^5) e^(-x^2), t = 1 / (1 + p |x|): off by at most 1.5e-7 (Abramowitz and
 * Stegun, 7.1.26). */
static inline float gelu(float x)
{
    const float z = fabsf(x) * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const float tail = 0.5f * p * t * heed_exp(-z * z); /* of the normal distribution beyond |x| */
    return x * (x < 0.0f ? tail : 1.0f - tail);
}

static inline float gelu_tanh(float x)
{
    return 0.5f * x * (1.0f + heed_tanh(0.79788456f * (x + 0.044715f * x * x * x)));
}

static inline float relu(float x)
{
    return x > 0.0f ? x : 0.0f * x; /* NaN stays NaN */
}

#define ACTIVATE(function)                                                                                   \
    if (times)                                                                                               \
        for (int64_t i = 0; i < n; i++)                                                                      \
            out[i] = function(x[i]) * times[i];                                                              \
    else                                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                      \
            out[i] = function(x[i]);                                                                         \
    break

static void activate(heed_activation activation, const float *x, const float *times, float *out, int64_t n)
{
    switch (activation) {
    case HEED_SILU:
        ACTIVATE(silu);
    case HEED_GELU:
        ACTIVATE(gelu);
    case HEED_GELU_TANH:
        ACTIVATE(gelu_tanh);
    case HEED_RELU:
        ACTIVATE(relu);
    }
}

static void add(float *x, const float *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] += y[i];
}

static void scale(float *x, float factor, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

static void cap(float *x, float most, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = most * heed_tanh(x[i] / most);
}

static void to_f16(const float *x, uint16_t *to, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(x + i), 0));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
#endif
    if (i < n)
        heed_store(HEED_F16, x + i, to + i, n - i);
}

const heed_rows_table heed_rows = {norm_row, activate, add, scale, cap, to_f16};
