/* Layer norm without parameters on both sides: rows of mean 0 and length sqrt(D) are compared.
 *
 *     s(i, j) = scale LN(q_i) · LN(k_j),     LN(x) = (x - mean) / sqrt(variance + eps)
 *
 * As routing by clusters wants it. Roy et al.: Routing Transformers, 2020.
 */
#include "attend/score/rows.h"
#include "attend/score/scaled.h"

enum { SCALE, EPS };

static double mean_of(const float *x, int dim)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int d = 0; d < dim; d++)
        sum += (double)x[d];
    return sum / dim;
}

/* 1 / sqrt(variance + eps) */
static double inverse_of(const float *x, int dim, double mean, double eps)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int d = 0; d < dim; d++)
        sum += ((double)x[d] - mean) * ((double)x[d] - mean);
    return 1 / sqrt(sum / dim + eps);
}

static void prepare(const heed_form_state *form, const heed_rows *rows)
{
    for (int i = 0; i < rows->count; i++) {
        const float *x = rows->in + i * rows->in_stride;
        float *y = rows->out + i * rows->out_stride;
        const double mean = mean_of(x, rows->dim);
        const double inverse = inverse_of(x, rows->dim, mean, form->arg[EPS].number);
#pragma omp simd
        for (int d = 0; d < rows->dim; d++)
            y[d] = (float)(((double)x[d] - mean) * inverse);
    }
}

/* dx = (dy - mean(dy) - u mean(u dy)) / sqrt(variance + eps), u = LN(x) */
static void prepare_backward(const heed_form_state *form, const heed_rows *rows)
{
    for (int i = 0; i < rows->count; i++) {
        const float *x = rows->in + i * rows->in_stride, *dy = rows->out + i * rows->out_stride;
        float *dx = rows->din + i * rows->din_stride;
        if (row_is_zero(dy, rows->dim))
            continue;
        const double mean = mean_of(x, rows->dim), level = mean_of(dy, rows->dim);
        const double inverse = inverse_of(x, rows->dim, mean, form->arg[EPS].number);
        double along = 0;
#pragma omp simd reduction(+ : along)
        for (int d = 0; d < rows->dim; d++)
            along += ((double)x[d] - mean) * inverse * (double)dy[d];
        along /= rows->dim;
#pragma omp simd
        for (int d = 0; d < rows->dim; d++)
            dx[d] += (float)(((double)dy[d] - level - ((double)x[d] - mean) * inverse * along) * inverse);
    }
}

static const heed_arg args[] = {
    [SCALE] = {.name = "scale", .value = NAN, .computed = "1/sqrt(D)", .summary = "factor on the product"},
    [EPS] = {.name = "eps",
             .value = 1e-5,
             .least = 0.0,
             .most = 1e30,
             .above = true,
             .summary = "added to the variance of a row"},
    {0},
};

const heed_form HEED_FORM(score_layernorm) = {
    .name = "layernorm",
    .stage = HEED_SCORE,
    .summary = "product of query and key, each with mean 0 and variance 1",
    .formula = "s = scale LN(q) · LN(k)",
    .source = "Roy et al.: Routing Transformers, 2020",
    .row = "001.108",
    .args = args,
    .resolve = resolve_scale,
    .scale = scale,
    .prepare_query = prepare,
    .prepare_query_backward = prepare_backward,
    .prepare_key = prepare,
    .prepare_key_backward = prepare_backward,
};
