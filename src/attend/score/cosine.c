/* Cosine: only the angle between query and key counts, not their lengths.
 *
 *     s(i, j) = scale (q_i . k_j) / (max(|q_i|, eps) max(|k_j|, eps))
 *
 * Both sides are normalised while they are prepared. The length is summed in double precision, so that no row
 * that float can hold overflows. Henry et al.: Query-Key Normalization for Transformers, 2020.
 */
#include "attend/score/rows.h"

enum { SCALE, EPS };

static double length(const float *x, int dim)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int d = 0; d < dim; d++)
        sum += (double)x[d] * (double)x[d];
    return sqrt(sum);
}

/* y = factor x / max(|x|, eps) */
static void normalise(const heed_rows *rows, double factor, double eps)
{
    for (int i = 0; i < rows->count; i++) {
        const float *x = rows->in + i * rows->in_stride;
        float *y = rows->out + i * rows->out_stride;
        const double norm = length(x, rows->dim);
        const double inverse = factor / (norm < eps ? eps : norm);
#pragma omp simd
        for (int d = 0; d < rows->dim; d++)
            y[d] = (float)(x[d] * inverse);
    }
}

/* dx = factor (dy - u (u . dy)) / |x|, u = x / |x|; below eps the length is a constant. */
static void normalise_backward(const heed_rows *rows, double factor, double eps)
{
    for (int i = 0; i < rows->count; i++) {
        const float *x = rows->in + i * rows->in_stride;
        const float *dy = rows->out + i * rows->out_stride;
        float *dx = rows->din + i * rows->din_stride;
        if (row_is_zero(dy, rows->dim))
            continue;
        const double norm = length(x, rows->dim);
        const double inverse = 1.0 / (norm < eps ? eps : norm);
        double along = 0.0; /* u . dy */
#pragma omp simd reduction(+ : along)
        for (int d = 0; d < rows->dim; d++)
            along += x[d] * inverse * dy[d];
        along = norm < eps ? 0.0 : along;
#pragma omp simd
        for (int d = 0; d < rows->dim; d++)
            dx[d] += (float)((dy[d] - x[d] * inverse * along) * inverse * factor);
    }
}

static void prepare_query(const heed_form_state *form, const heed_rows *rows)
{
    normalise(rows, form->arg[SCALE].number, form->arg[EPS].number);
}

static void prepare_query_backward(const heed_form_state *form, const heed_rows *rows)
{
    normalise_backward(rows, form->arg[SCALE].number, form->arg[EPS].number);
}

static void prepare_key(const heed_form_state *form, const heed_rows *rows)
{
    normalise(rows, 1.0, form->arg[EPS].number);
}

static void prepare_key_backward(const heed_form_state *form, const heed_rows *rows)
{
    normalise_backward(rows, 1.0, form->arg[EPS].number);
}

static const heed_arg args[] = {
    [SCALE] = {.name = "scale", .value = 10.0, .summary = "factor on the cosine"},
    [EPS] = {.name = "eps",
             .value = 1e-6,
             .least = 0.0,
             .most = 1e30,
             .above = true,
             .summary = "least length that a row is divided by"},
    {0},
};

const heed_form HEED_FORM(score_cosine) = {
    .name = "cosine",
    .stage = HEED_SCORE,
    .summary = "cosine of the angle between query and key",
    .formula = "s = scale q.k / (max(|q|, eps) max(|k|, eps))",
    .source = "Henry et al. 2020",
    .flags = HEED_SCALES_ROWS,
    .args = args,
    .prepare_query = prepare_query,
    .prepare_query_backward = prepare_query_backward,
    .prepare_key = prepare_key,
    .prepare_key_backward = prepare_key_backward,
};
