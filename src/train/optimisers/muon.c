/* Muon: the running mean of a matrix's gradients, made nearly orthogonal by five steps of Newton and Schulz:
 *
 *     m = beta1 m + (1 - beta1) g,     x = (1 - beta1) g + beta1 m,     x /= |x|
 *     five times x = 3.4445 x + (-4.775 a + 2.0315 a a) x,  a = x x^T
 *     w -= rate decay w,     w -= rate sqrt(max(1, rows / cols)) x
 *
 * Embeddings, the map to logits and what is no matrix take AdamW's step with `other_rate`. Jordan et al.:
 * Muon, 2024.
 */
#include "nn/gemm.h"
#include "train/optimiser.h"

#include <math.h>
#include <string.h>

static bool is_middle(const heed_parameter *parameter)
{
    return parameter->rank == 2 && !parameter->plain && !strstr(parameter->name, "embed") &&
           strncmp(parameter->name, "lm_head", 7) && strncmp(parameter->name, "score", 5);
}

static int64_t size_of(const heed_parameter *parameter, int slot)
{
    return slot == 1 && is_middle(parameter) ? 0 : parameter->count;
}

/* Two matrices, and two squares of the shorter side. */
static int64_t scratch_of(const heed_parameter *parameter)
{
    const int64_t rows = parameter->shape[0], cols = parameter->shape[1], side = rows < cols ? rows : cols;
    return is_middle(parameter) ? 2 * parameter->count + 2 * side * side : 0;
}

/* b a (rows longer than columns), or a b: `square` times `x`. */
static void times(const heed_update *update, bool tall, const float *square, const float *x, float *to)
{
    const int64_t rows = update->parameter->shape[0], cols = update->parameter->shape[1];
    const heed_gemm gemm = {.m = rows,
                            .n = cols,
                            .k = tall ? cols : rows,
                            .a = tall ? x : square,
                            .lda = tall ? cols : rows,
                            .b = tall ? square : x,
                            .ldb = cols,
                            .c = to,
                            .ldc = cols,
                            .add = true};
    heed_gemm_run(update->kernels, update->threads, &gemm);
}

/* a = x x^T, or x^T x where that is smaller; next = 3.4445 x + (-4.775 a + 2.0315 a a) x. */
static void make_more_orthogonal(const heed_update *update, const float *x, float *next, float *a, float *b)
{
    const int64_t rows = update->parameter->shape[0], cols = update->parameter->shape[1];
    const bool tall = rows > cols;
    const int64_t side = tall ? cols : rows, along = tall ? rows : cols;
    heed_gemm_run(update->kernels, update->threads,
                  &(heed_gemm){.m = side,
                               .n = side,
                               .k = along,
                               .a = x,
                               .lda = cols,
                               .transposed_a = tall,
                               .b = x,
                               .ldb = cols,
                               .transposed_b = !tall,
                               .c = a,
                               .ldc = side});
    heed_gemm_run(
        update->kernels, update->threads,
        &(heed_gemm){
            .m = side, .n = side, .k = side, .a = a, .lda = side, .b = a, .ldb = side, .c = b, .ldc = side});
    update->kernels->scale(b, 2.0315f, 0.0f, b, false, side * side);
    update->kernels->scale(a, -4.775f, 0.0f, b, true, side * side);
    update->kernels->scale(x, 3.4445f, 0.0f, next, false, rows * cols);
    times(update, tall, b, x, next);
}

static void update_muon(const heed_update *update)
{
    const heed_parameter *p = update->parameter;
    if (!is_middle(p)) {
        heed_update_adamw(update, update->other_rate);
        return;
    }
    const heed_nn_kernels *kernels = update->kernels;
    const int64_t rows = p->shape[0], cols = p->shape[1], n = p->count, side = rows < cols ? rows : cols;
    const float beta = update->how->beta1, rest = (1.0f - beta) * update->scale;
    float *m = update->state[0], *x = update->scratch, *next = x + n, *a = next + n, *b = a + side * side;
    kernels->scale(m, beta, 0.0f, m, false, n);
    kernels->scale(p->gradient, rest, 0.0f, m, true, n);
    kernels->scale(p->gradient, rest, 0.0f, x, false, n);
    kernels->scale(m, beta, 0.0f, x, true, n);
    const double length = sqrt(kernels->squares(x, n)) + 1e-7;
    kernels->scale(x, (float)(1.0 / length), 0.0f, x, false, n);
    for (int i = 0; i < 5; i++) {
        make_more_orthogonal(update, x, next, a, b);
        float *const swap = x;
        x = next;
        next = swap;
    }
    const float tall = rows > cols ? sqrtf((float)rows / (float)cols) : 1.0f;
    kernels->scale(p->value, 1.0f - update->rate * update->decay, 0.0f, p->value, false, n);
    kernels->scale(x, -update->rate * tall, 0.0f, p->value, true, n);
}

const heed_optimiser_kind heed_optimiser_muon = {
    .name = "muon",
    .source = "Jordan et al. 2024",
    .slot = {"mean", "square"},
    .size = size_of,
    .scratch = scratch_of,
    .update = update_muon,
    .usual =
        {.rate = 0.02f, .beta1 = 0.95f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f, .other_rate = 1e-3f},
};
