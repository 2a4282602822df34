/* Sums and products of consecutive numbers, and the table of all loops. */
#include "nn/kernels/parts.h"

#define TWO_PLACE(name, result)                                                                              \
    static void name(const float *a, const float *b, float *y, int64_t n)                                    \
    {                                                                                                        \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = result;                                   \
    }
TWO_PLACE(add, a[i] + b[i])
TWO_PLACE(subtract, a[i] - b[i])
TWO_PLACE(multiply, a[i] * b[i])
TWO_PLACE(divide, a[i] / b[i])

static void scale(const float *x, float factor, float shift, float *y, bool more, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = factor * x[i] + shift + (more ? y[i] : 0.0f);
}

static void multiply_to(const float *a, const float *b, float *y, bool more, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i] + (more ? y[i] : 0.0f);
}

static void divide_to(const float *a, const float *b, float *y, bool more, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] / b[i] + (more ? y[i] : 0.0f);
}

static void divide_back(const float *a, const float *b, const float *c, float *y, bool more, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = -a[i] * c[i] / (b[i] * b[i]) + (more ? y[i] : 0.0f);
}

static float sum(const float *x, int64_t n)
{
    float all = 0.0f;
#pragma omp simd reduction(+ : all)
    for (int64_t i = 0; i < n; i++)
        all += x[i];
    return all;
}

static float dot(const float *a, const float *b, int64_t n)
{
    float all = 0.0f;
#pragma omp simd reduction(+ : all)
    for (int64_t i = 0; i < n; i++)
        all += a[i] * b[i];
    return all;
}

const heed_nn_kernels heed_nn_kernels_here = {
    .apply = heed_nn_apply_loop,
    .apply_back = heed_nn_apply_back_loop,
    .gate = heed_nn_gate_loop,
    .gate_back = heed_nn_gate_back_loop,
    .add = add,
    .subtract = subtract,
    .multiply = multiply,
    .divide = divide,
    .scale = scale,
    .multiply_to = multiply_to,
    .divide_to = divide_to,
    .divide_back = divide_back,
    .sum = sum,
    .dot = dot,
    .norm = heed_nn_norm_loop,
    .norm_back = heed_nn_norm_back_loop,
    .softmax = heed_nn_softmax_loop,
    .softmax_back = heed_nn_softmax_back_loop,
    .cross_back = heed_nn_cross_back_loop,
    .dropout = heed_nn_dropout_loop,
    .adamw = heed_nn_adamw_loop,
    .lion = heed_nn_lion_loop,
    .momentum = heed_nn_momentum_loop,
    .squares = heed_nn_squares_loop,
    .product = heed_nn_product_loop,
    .product16 = &heed_nn_product16_loop,
};
