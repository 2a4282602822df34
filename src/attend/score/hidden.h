/* What additive and mlp share: a hidden layer that sees both rows,
 *
 *     s(i, j) = u . f(Wq q_i + Wk k_j + b)
 *
 * Its two halves are prepared once a row: Wq q + b and Wk k [A]; what is left for a pair is f and the sum
 * with u. Parameters belong to the query head, so keys are prepared for each query head.
 */
#ifndef HEED_SCORE_HIDDEN_H
#define HEED_SCORE_HIDDEN_H

#include "attend/score/pair.h"
#include "attend/score/rows.h"

enum { WQ, WK, BIAS, U, C };

static inline heed_status resolve_hidden(heed_form_state *form)
{
    if (!form->arg[0].given)
        form->arg[0].number = (double)form->sizes.dim;
    return HEED_OK;
}

static inline int hidden_dim(const heed_form_state *form, int dim)
{
    (void)dim;
    return heed_arg_int(form, 0);
}

static inline void fill_diagonal(const heed_form_state *form, float *w)
{
    const int64_t heads = form->sizes.heads, width = heed_arg_int(form, 0), dim = form->sizes.dim;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t a = 0; a < width; a++)
            for (int64_t d = 0; d < dim; d++)
                w[(h * width + a) * dim + d] = a == d;
}

static inline void fill_mean(const heed_form_state *form, float *u)
{
    const int64_t width = heed_arg_int(form, 0);
    for (int64_t i = 0; i < form->sizes.heads * width; i++)
        u[i] = (float)(1.0 / sqrt((double)width));
}

/* out = W in + b; `bias` is -1 where there is none. */
static inline void project(const heed_form_state *form, const heed_rows *rows, int matrix, int bias)
{
    const int64_t width = heed_arg_int(form, 0), dim = rows->dim;
    const float *w = form->param[matrix] + rows->head * width * dim; /* [A, D] */
    const float *b = bias < 0 ? NULL : form->param[bias] + rows->head * width;
    for (int i = 0; i < rows->count; i++) {
        const float *in = rows->in + i * rows->in_stride;
        float *out = rows->out + i * rows->out_stride;
        for (int64_t a = 0; a < width; a++) {
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t d = 0; d < dim; d++)
                sum += w[a * dim + d] * in[d];
            out[a] = b ? sum + b[a] : sum;
        }
    }
}

static inline void project_backward(const heed_form_state *form, const heed_rows *rows, int matrix, int bias)
{
    const int64_t width = heed_arg_int(form, 0), dim = rows->dim;
    const float *w = form->param[matrix] + rows->head * width * dim;
    float *dw = form->grad[matrix] ? form->grad[matrix] + rows->head * width * dim : NULL;
    float *db = bias >= 0 && form->grad[bias] ? form->grad[bias] + rows->head * width : NULL;
    for (int i = 0; i < rows->count; i++) {
        const float *in = rows->in + i * rows->in_stride;
        const float *dout = rows->out + i * rows->out_stride;
        float *din = rows->din + i * rows->din_stride;
        if (row_is_zero(dout, width))
            continue;
        for (int64_t a = 0; a < width; a++) {
#pragma omp simd
            for (int64_t d = 0; d < dim; d++)
                din[d] += w[a * dim + d] * dout[a];
            if (db)
                db[a] += dout[a];
            if (!dw)
                continue;
#pragma omp simd
            for (int64_t d = 0; d < dim; d++)
                dw[a * dim + d] += dout[a] * in[d];
        }
    }
}

static inline void prepare_query(const heed_form_state *form, const heed_rows *rows)
{
    project(form, rows, WQ, BIAS);
}

static inline void prepare_query_backward(const heed_form_state *form, const heed_rows *rows)
{
    project_backward(form, rows, WQ, BIAS);
}

static inline void prepare_key(const heed_form_state *form, const heed_rows *rows)
{
    project(form, rows, WK, -1);
}

static inline void prepare_key_backward(const heed_form_state *form, const heed_rows *rows)
{
    project_backward(form, rows, WK, -1);
}

static const heed_arg hidden_args[] = {
    {.name = "dim",
     .kind = HEED_ARG_INT,
     .value = NAN,
     .computed = "D",
     .least = 1,
     .most = 65536,
     .summary = "width A of the hidden layer"},
    {0},
};

#define HEED_HIDDEN_PARAMS                                                                                   \
    [WQ] = {.name = "Wq", .shape = "H,dim,D", .fill = fill_diagonal, .summary = "query to hidden"},          \
    [WK] = {.name = "Wk", .shape = "H,dim,D", .fill = fill_diagonal, .summary = "key to hidden"},            \
    [BIAS] = {.name = "b", .shape = "H,dim", .summary = "bias of the hidden layer"},                         \
    [U] = {.name = "u", .shape = "H,dim", .fill = fill_mean, .summary = "hidden to score"}

#endif
