/* Norms and softmax of a row, forward and backward. */
#include "nn/kernels/parts.h"

#include <heed/maths.h>

void heed_nn_norm_loop(const heed_norm_rows *how, const float *x, float *y, heed_row_moments *moments)
{
    const int64_t n = how->cols;
    float sum = 0.0f, squares = 0.0f;
    if (how->centred)
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++)
            sum += x[i];
    const float mean = sum / (float)n;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / sqrtf(squares / (float)n + how->eps);
    *moments = (heed_row_moments){mean, scale};
    if (!how->weight)
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * scale;
    else
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * scale * how->weight[i];
    if (how->bias)
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] += how->bias[i];
}

/* With z = (x - mean) scale and g = dy weight: dx = scale (g - mean(g) - z mean(g z)), without mean(g) for
 * the norm that does not centre. */
void heed_nn_norm_back_loop(const heed_norm_rows *how, const float *x, const float *dy,
                            const heed_row_moments *moments, float *dx, bool add, float *dweight,
                            float *dbias)
{
    const int64_t n = how->cols;
    const float mean = moments->mean, scale = moments->scale, *weight = how->weight;
    float sum = 0.0f, along = 0.0f;
    if (weight)
#pragma omp simd reduction(+ : sum, along)
        for (int64_t i = 0; i < n; i++) {
            const float g = dy[i] * weight[i];
            sum += g;
            along += g * (x[i] - mean);
        }
    else
#pragma omp simd reduction(+ : sum, along)
        for (int64_t i = 0; i < n; i++) {
            sum += dy[i];
            along += dy[i] * (x[i] - mean);
        }
    const float shift = how->centred ? sum / (float)n : 0.0f, slope = along * scale * scale / (float)n;
    if (dx && weight)
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dx[i] = scale * (dy[i] * weight[i] - shift - (x[i] - mean) * slope) + (add ? dx[i] : 0.0f);
    else if (dx)
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dx[i] = scale * (dy[i] - shift - (x[i] - mean) * slope) + (add ? dx[i] : 0.0f);
    if (dweight)
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dweight[i] += dy[i] * (x[i] - mean) * scale;
    if (dbias)
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dbias[i] += dy[i];
}

static float largest(const float *x, int64_t n)
{
    enum { LANES = 16 };
    float lane[LANES];
    for (int l = 0; l < LANES; l++)
        lane[l] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (; i < n; i++)
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int l = 1; l < LANES; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

float heed_nn_softmax_loop(const float *x, float *y, int64_t n)
{
    const float most = largest(x, n), base = most > -INFINITY ? most : 0.0f;
    float sum = 0.0f;
    if (!y) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++)
            sum += heed_exp(x[i] - base);
        return base + logf(sum);
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        const float e = heed_exp(x[i] - base);
        y[i] = e;
        sum += e;
    }
    const float factor = 1.0f / sum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] *= factor;
    return base + logf(sum);
}

void heed_nn_softmax_back_loop(const float *y, const float *dy, float *dx, bool add, int64_t n)
{
    float along = 0.0f;
#pragma omp simd reduction(+ : along)
    for (int64_t i = 0; i < n; i++)
        along += y[i] * dy[i];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] * (dy[i] - along) + (add ? dx[i] : 0.0f);
}

void heed_nn_cross_back_loop(const float *x, float lse, float share, float scale, float *dx, bool add,
                             int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = scale * (heed_exp(x[i] - lse) - share) + (add ? dx[i] : 0.0f);
}
