#include "nn/linear.h"

#include <stdlib.h>

heed_status heed_linear_pack(heed_linear *linear, const heed_tensor *const *weights, int count, float *bias,
                             const heed_packing *packing)
{
    *linear = (heed_linear){.bias = bias, .cols = weights[0]->shape[1]};
    for (int i = 0; i < count;) {
        int next = i + 1;
        int64_t rows = weights[i]->shape[0];
        for (; next < count && weights[next]->type == weights[i]->type; next++)
            rows += weights[next]->shape[0];
        heed_matrix **matrix = &linear->matrix[linear->matrices];
        const heed_status status = heed_matrix_pack(matrix, weights + i, next - i, packing->kind,
                                                    packing->isa, packing->threads);
        if (status) {
            heed_linear_free(linear);
            return status;
        }
        linear->first[linear->matrices++] = linear->rows;
        linear->rows += rows;
        i = next;
    }
    return HEED_OK;
}

void heed_linear_free(heed_linear *linear)
{
    for (int m = 0; m < linear->matrices; m++)
        heed_matrix_free(linear->matrix[m]);
    free(linear->bias);
    *linear = (heed_linear){.rows = 0};
}

size_t heed_linear_bytes(const heed_linear *linear)
{
    size_t bytes = linear->bias ? (size_t)linear->rows * sizeof(float) : 0;
    for (int m = 0; m < linear->matrices; m++)
        bytes += heed_matrix_bytes(linear->matrix[m]);
    return bytes;
}

size_t heed_linear_scratch(const heed_linear *linear, int64_t n, int threads)
{
    size_t most = 0;
    for (int m = 0; m < linear->matrices; m++) {
        const size_t bytes = heed_product_scratch(linear->matrix[m], n, threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

void heed_linear_apply(const heed_linear *linear, const float *x, int64_t x_stride, int64_t n, float *out,
                       int64_t out_stride, bool add, const heed_linear_work *work)
{
    for (int m = 0; m < linear->matrices; m++) {
        const heed_product_call call = {.x = x,
                                        .out = out + linear->first[m],
                                        .n = n,
                                        .x_stride = x_stride,
                                        .out_stride = out_stride,
                                        .bias = linear->bias ? linear->bias + linear->first[m] : NULL,
                                        .add = add,
                                        .scratch = work->scratch,
                                        .threads = work->threads};
        heed_product(linear->matrix[m], &call);
    }
}
