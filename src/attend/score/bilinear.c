/* Bilinear: a learnt matrix stands between query and key, one a query head.
 *
 *     s(i, j) = scale q_i^T W_h k_j,     W [H, D, D] starts as the identity, so as dot
 *
 * Queries are prepared as q' = W^T q; the product is then that of dot. "General" in Luong, Pham, Manning:
 * Effective Approaches to Attention-based Neural Machine Translation, 2015.
 */
#include "attend/score/rows.h"
#include "attend/score/scaled.h"

static void identity(const heed_form_state *form, float *w)
{
    const int64_t heads = form->shape[0][0], dim = form->shape[0][1];
    for (int64_t h = 0; h < heads; h++)
        for (int64_t a = 0; a < dim; a++)
            for (int64_t b = 0; b < dim; b++)
                w[(h * dim + a) * dim + b] = a == b;
}

/* q'_b = sum_a q_a W_ab */
static void multiply(const heed_form_state *form, const heed_rows *rows)
{
    const int64_t dim = rows->dim;
    const float *w = form->param[0] + rows->head * dim * dim; /* [D, D] */
    for (int i = 0; i < rows->count; i++) {
        const float *q = rows->in + i * rows->in_stride;
        float *out = rows->out + i * rows->out_stride;
        for (int64_t b = 0; b < dim; b++)
            out[b] = q[0] * w[b];
        for (int64_t a = 1; a < dim; a++)
#pragma omp simd
            for (int64_t b = 0; b < dim; b++)
                out[b] += q[a] * w[a * dim + b];
    }
}

/* dq_a = sum_b W_ab dq'_b,  dW_ab = q_a dq'_b */
static void multiply_backward(const heed_form_state *form, const heed_rows *rows)
{
    const int64_t dim = rows->dim;
    const float *w = form->param[0] + rows->head * dim * dim;
    float *dw = form->grad[0] ? form->grad[0] + rows->head * dim * dim : NULL;
    for (int i = 0; i < rows->count; i++) {
        const float *q = rows->in + i * rows->in_stride;
        const float *dout = rows->out + i * rows->out_stride;
        float *dq = rows->din + i * rows->din_stride;
        if (row_is_zero(dout, dim))
            continue;
        for (int64_t a = 0; a < dim; a++) {
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t b = 0; b < dim; b++)
                sum += w[a * dim + b] * dout[b];
            dq[a] += sum;
        }
        for (int64_t a = 0; dw && a < dim; a++)
#pragma omp simd
            for (int64_t b = 0; b < dim; b++)
                dw[a * dim + b] += q[a] * dout[b];
    }
}

static const heed_arg args[] = {
    {.name = "scale", .value = NAN, .computed = "1/sqrt(D)", .summary = "factor on the product"},
    {0},
};

static const heed_param params[] = {
    {.name = "W", .shape = "H,D,D", .fill = identity, .summary = "matrix between query and key"},
    {0},
};

const heed_form HEED_FORM(score_bilinear) = {
    .name = "bilinear",
    .stage = HEED_SCORE,
    .summary = "product of query and key through a learnt matrix",
    .formula = "s = scale q^T W k",
    .source = "Luong et al. 2015",
    .args = args,
    .params = params,
    .resolve = resolve_scale,
    .flags = HEED_SHARES_SCALE,
    .scale = scale,
    .prepare_query = multiply,
    .prepare_query_backward = multiply_backward,
};
