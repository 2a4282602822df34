#include "nn/linear.h"
#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* Rows whose bytes go through the weights together, each as two; more rows go through twice, which spares a
 * copy of the results. */
enum { TOGETHER = 2 };

heed_status heed_linear_pack(heed_linear *linear, const heed_tensor *const *weights, int count, float *bias,
                             bool fine, const heed_packing *packing)
{
    bool rounded = false;
    *linear = (heed_linear){.bias = bias, .cols = weights[0]->shape[1], .table = heed_rows_of(packing->isa)};
    for (int i = 0; i < count; i++) {
        linear->rows += weights[i]->shape[0];
        rounded |= packing->kind == HEED_PRODUCT_FAST && heed_type_block(weights[i]->type) > 1;
    }
    linear->fine = fine && rounded;
    const heed_status status =
        heed_matrix_pack(&linear->matrix, weights, count, packing->kind, packing->isa, packing->threads);
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

/* The parts of a fine product's scratch. */
typedef struct fine_work {
    float *split; /* [2][n][cols] hi, then lo */
    float *both;  /* [2 TOGETHER][rows] results of few rows */
    void *product;
} fine_work;

static fine_work take_fine(const heed_linear *linear, int64_t n, int threads, heed_arena *arena)
{
    fine_work work;
    const int64_t rows = 2 * TOGETHER > n ? 2 * TOGETHER : n;
    work.split = heed_arena_take(arena, 2 * (size_t)n, (size_t)linear->cols * sizeof(float));
    work.both = heed_arena_take(arena, 2 * TOGETHER, (size_t)linear->rows * sizeof(float));
    const size_t bytes = heed_product_scratch(linear->matrix, rows, threads);
    work.product = heed_arena_take(arena, bytes, 1);
    return work;
}

size_t heed_linear_scratch(const heed_linear *linear, int64_t n, int threads)
{
    if (!linear->matrix)
        return 0;
    if (!linear->fine)
        return heed_product_scratch(linear->matrix, n, threads);
    heed_arena arena = {0};
    take_fine(linear, n, threads, &arena);
    return arena.overflow ? SIZE_MAX : arena.used;
}

/* out = (out +) hi + lo + bias, in this order however many rows there are. */
static void put_together(const heed_linear *linear, const float *both, int64_t n, float *out, int64_t stride,
                         bool add)
{
    for (int64_t r = 0; r < n; r++) {
        float *to = out + r * stride;
        if (add)
            linear->table->add(to, both + r * linear->rows, linear->rows);
        else
            memcpy(to, both + r * linear->rows, (size_t)linear->rows * sizeof *to);
        linear->table->add(to, both + (n + r) * linear->rows, linear->rows);
    }
}

static void apply_fine(const heed_linear *linear, const float *x, int64_t x_stride, int64_t n, float *out,
                       int64_t out_stride, bool add, const heed_linear_work *work)
{
    heed_arena arena = {.base = work->scratch};
    const fine_work own = take_fine(linear, n, work->threads, &arena);
    const int64_t cols = linear->cols;
    float *hi = own.split, *lo = own.split + n * cols;
#pragma omp parallel for schedule(static) num_threads(work->threads) if (n * cols > 1 << 15)
    for (int64_t r = 0; r < n; r++)
        linear->table->split(x + r * x_stride, hi + r * cols, lo + r * cols, cols);
    heed_product_call call = {
        .x = hi, .n = n, .x_stride = cols, .scratch = own.product, .threads = work->threads};
    if (n <= TOGETHER) {
        call.n = 2 * n;
        call.out = own.both;
        call.out_stride = linear->rows;
        heed_product(linear->matrix, &call);
        put_together(linear, own.both, n, out, out_stride, add);
    } else {
        call.out = out;
        call.out_stride = out_stride;
        call.add = add;
        heed_product(linear->matrix, &call);
        call.x = lo;
        call.add = true;
        heed_product(linear->matrix, &call);
    }
#pragma omp parallel for schedule(static) num_threads(work->threads) if (n * linear->rows > 1 << 16)
    for (int64_t r = 0; r < (linear->bias ? n : 0); r++)
        linear->table->add(out + r * out_stride, linear->bias, linear->rows);
}

void heed_linear_apply(const heed_linear *linear, const float *x, int64_t x_stride, int64_t n, float *out,
                       int64_t out_stride, bool add, const heed_linear_work *work)
{
    if (linear->fine) {
        apply_fine(linear, x, x_stride, n, out, out_stride, add, work);
        return;
    }
    const heed_product_call call = {.x = x,
                                    .out = out,
                                    .n = n,
                                    .x_stride = x_stride,
                                    .out_stride = out_stride,
                                    .bias = linear->bias,
                                    .add = add,
                                    .scratch = work->scratch,
                                    .threads = work->threads};
    heed_product(linear->matrix, &call);
}
