/* Shaw: a learned vector for each clipped offset, which the query meets beside the key.
 *
 *     s(i, j) += scale q_i . r[clip(k_pos(j) - p(i), -max, max) + max]
 *
 * scale is that of the score form; q as given, not rotated. The products with all 2 max + 1 vectors are made
 * once a query and then only picked, so no tensor of queries x keys x D exists. r is shared by the heads.
 * Shaw, Uszkoreit, Vaswani: Self-Attention with Relative Position Representations, 2018; the table for values
 * is not part of this form.
 */
#include "attend/form.h"

static int vectors(const heed_form_state *form)
{
    return 2 * heed_arg_int(form, 0) + 1;
}

/* aux[m] = scale q . r[m] */
static void meet_vectors(const heed_form_state *form, const heed_rows *rows)
{
    const float scale = (float)form->sizes.score_scale;
    const int count = vectors(form), dim = rows->dim;
    for (int i = 0; i < rows->count; i++) {
        const float *q = rows->in + i * rows->in_stride;
        float *aux = rows->out + i * rows->out_stride;
        for (int m = 0; m < count; m++) {
            const float *r = form->param[0] + (int64_t)m * dim; /* [D] */
            float product = 0.0f;
#pragma omp simd reduction(+ : product)
            for (int d = 0; d < dim; d++)
                product += q[d] * r[d];
            aux[m] = scale * product;
        }
    }
}

/* An offset that no open pair has gives nothing, whatever q holds. */
static void meet_vectors_backward(const heed_form_state *form, const heed_rows *rows)
{
    const float scale = (float)form->sizes.score_scale;
    const int count = vectors(form), dim = rows->dim;
    for (int i = 0; i < rows->count; i++) {
        const float *q = rows->in + i * rows->in_stride;
        const float *daux = rows->out + i * rows->out_stride;
        float *dq = rows->din + i * rows->din_stride;
        for (int m = 0; m < count; m++) {
            if (daux[m] == 0.0f)
                continue;
            const float g = scale * daux[m];
            const float *r = form->param[0] + (int64_t)m * dim;
            for (int d = 0; d < dim; d++)
                dq[d] += g * r[d];
            if (!form->grad[0])
                continue;
            float *dr = form->grad[0] + (int64_t)m * dim;
            for (int d = 0; d < dim; d++)
                dr[d] += g * q[d];
        }
    }
}

/* Columns of a row whose positions go up by one: [0, first) lie at -max or before, [last, cols) at max or
 * beyond. */
typedef struct span {
    int first, last;
    int64_t shift; /* aux entry of column j between them: j + shift */
} span;

static span between(const heed_tile *tile, int i, int max)
{
    const int64_t offset = (int64_t)tile->key_pos[0] - tile->query_pos[i]; /* of column 0 */
    const int64_t first = -max - offset, last = max - offset + 1;
    const int64_t cols = tile->cols;
    return (span){.first = (int)(first < 0      ? 0
                                 : first > cols ? cols
                                                : first),
                  .last = (int)(last < 0      ? 0
                                : last > cols ? cols
                                              : last),
                  .shift = offset + max};
}

static inline int64_t entry_of(const heed_tile *tile, int i, int j, int64_t max)
{
    const int64_t offset = (int64_t)tile->key_pos[j] - tile->query_pos[i];
    return (offset < -max ? -max : offset > max ? max : offset) + max;
}

static void add_picked(const heed_form_state *form, heed_tile *tile)
{
    const int max = heed_arg_int(form, 0);
    for (int i = 0; i < tile->rows; i++) {
        float *score = tile->score + i * tile->stride;
        const float *aux = tile->aux + (int64_t)i * vectors(form);
        if (!tile->contiguous) {
            for (int j = 0; j < tile->cols; j++)
                score[j] += aux[entry_of(tile, i, j, max)];
            continue;
        }
        const span s = between(tile, i, max);
        for (int j = 0; j < s.first; j++)
            score[j] += aux[0];
        for (int j = s.first; j < s.last; j++)
            score[j] += aux[j + s.shift];
        for (int j = s.last; j < tile->cols; j++)
            score[j] += aux[2 * max];
    }
}

static float sum_of(const float *x, int from, int to)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int j = from; j < to; j++)
        sum += x[j];
    return sum;
}

static void add_picked_backward(const heed_form_state *form, heed_tile *tile)
{
    const int max = heed_arg_int(form, 0);
    for (int i = 0; i < tile->rows; i++) {
        const float *dscore = tile->dscore + i * tile->stride;
        float *daux = tile->daux + (int64_t)i * vectors(form);
        if (!tile->contiguous) {
            for (int j = 0; j < tile->cols; j++)
                daux[entry_of(tile, i, j, max)] += dscore[j];
            continue;
        }
        const span s = between(tile, i, max);
        daux[0] += sum_of(dscore, 0, s.first);
        for (int j = s.first; j < s.last; j++)
            daux[j + s.shift] += dscore[j];
        daux[2 * max] += sum_of(dscore, s.last, tile->cols);
    }
}

static const heed_arg args[] = {
    {.name = "max",
     .kind = HEED_ARG_INT,
     .value = 16,
     .least = 1,
     .most = 1 << 20,
     .summary = "offset from which on all share a vector"},
    {0},
};

static const heed_param params[] = {
    {.name = "r", .shape = "2*max+1,D", .summary = "a vector for each offset from -max to max"},
    {0},
};

const heed_form HEED_FORM(position_shaw) = {
    .name = "shaw",
    .stage = HEED_POSITION,
    .summary = "a learned vector for each clipped offset, compared with the query",
    .formula = "s + scale q.r[clip(-distance, -max, max) + max]",
    .source = "Shaw et al. 2018",
    .args = args,
    .params = params,
    .aux_floats = vectors,
    .query_aux = meet_vectors,
    .query_aux_backward = meet_vectors_backward,
    .adjust = add_picked,
    .adjust_backward = add_picked_backward,
};
