#include "nn/linear.h"

#include <stdlib.h>

heed_status heed_linear_pack(heed_linear *linear, const heed_tensor *const *weights, int count, float *bias,
                             bool fine, const heed_packing *packing)
{
    *linear = (heed_linear){.bias = bias, .cols = weights[0]->shape[1], .fine = fine};
    for (int i = 0; i < count; i++)
        linear->rows += weights[i]->shape[0];
    const heed_status status = heed_matrix_pack_in(packing->pool, &linear->matrix, weights, count,
                                                   packing->kind, packing->isa, packing->threads);
    if (status)
        heed_linear_free(linear);
    return status;
}

void heed_linear_free(heed_linear *linear)
{
    if (linear->matrix)
        heed_matrix_free(linear->matrix);
    free(linear->bias);
    *linear = (heed_linear){.rows = 0};
}

size_t heed_linear_bytes(const heed_linear *linear)
{
    const size_t bias = linear->bias ? (size_t)linear->rows * sizeof(float) : 0;
    return bias + (linear->matrix ? heed_matrix_bytes(linear->matrix) : 0);
}

size_t heed_linear_scratch(const heed_linear *linear, int64_t n, int threads)
{
    return linear->matrix ? heed_product_scratch(linear->matrix, n, threads) : 0;
}

void heed_linear_apply(const heed_linear *linear, const float *x, int64_t x_stride, int64_t n, float *out,
                       int64_t out_stride, bool add, const heed_linear_work *work)
{
    const heed_product_call call = {.x = x,
                                    .out = out,
                                    .n = n,
                                    .x_stride = x_stride,
                                    .out_stride = out_stride,
                                    .bias = linear->bias,
                                    .add = add,
                                    .fine = linear->fine,
                                    .scratch = work->scratch,
                                    .threads = work->threads};
    heed_product(linear->matrix, &call);
}
