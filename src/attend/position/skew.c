/* Relative attention of the Music Transformer (row 004.003): a learnt vector of each head for each distance
 * back, which the query meets beside the key.
 *
 *     s(i, j) += scale q_i·E[h][min(p(i) - k_pos(j), max)]
 *
 * The products of a query with all max + 1 vectors are made once and picked by distance, which is what the
 * skew of the padded product does, in memory of queries x distances. With where=causal & (block(M) | ...) it
 * is the local version. position=shaw shares its vectors among heads and has both directions. Huang et al.:
 * Music Transformer, 2018.
 */
#include "attend/form.h"

static int vectors(const heed_form_state *form)
{
    return heed_arg_int(form, 0) + 1;
}

static const float *table_of(const heed_form_state *form, const float *all, int head)
{
    return all + (int64_t)head * vectors(form) * form->sizes.dim;
}

/* aux[m] = scale q·E[h][m] */
static void meet(const heed_form_state *form, const heed_rows *rows)
{
    const float scale = (float)form->sizes.score_scale, *table = table_of(form, form->param[0], rows->head);
    const int count = vectors(form), dim = rows->dim;
    for (int i = 0; i < rows->count; i++) {
        const float *q = rows->in + i * rows->in_stride;
        for (int m = 0; m < count; m++) {
            const float *e = table + (int64_t)m * dim;
            float product = 0.0f;
#pragma omp simd reduction(+ : product)
            for (int d = 0; d < dim; d++)
                product += q[d] * e[d];
            rows->out[i * rows->out_stride + m] = scale * product;
        }
    }
}

static void meet_backward(const heed_form_state *form, const heed_rows *rows)
{
    const float scale = (float)form->sizes.score_scale, *table = table_of(form, form->param[0], rows->head);
    float *dtable = form->grad[0] ? (float *)(uintptr_t)table_of(form, form->grad[0], rows->head) : NULL;
    const int count = vectors(form), dim = rows->dim;
    for (int i = 0; i < rows->count; i++) {
        const float *q = rows->in + i * rows->in_stride, *daux = rows->out + i * rows->out_stride;
        float *dq = rows->din + i * rows->din_stride;
        for (int m = 0; m < count; m++) {
            const float g = scale * daux[m];
            if (daux[m] == 0.0f) /* no open pair stands at this distance, whatever q holds */
                continue;
            for (int d = 0; d < dim; d++) {
                dq[d] += g * table[(int64_t)m * dim + d];
                if (dtable)
                    dtable[(int64_t)m * dim + d] += g * q[d];
            }
        }
    }
}

static inline int64_t entry_of(const heed_tile *tile, int i, int j, int64_t max)
{
    const int64_t back = (int64_t)tile->query_pos[i] - tile->key_pos[j];
    return back < 0 ? 0 : back > max ? max : back;
}

static void add_picked(const heed_form_state *form, heed_tile *tile)
{
    for (int i = 0; i < tile->rows; i++) {
        float *score = tile->score + i * tile->stride;
        const float *aux = tile->aux + (int64_t)i * vectors(form);
        for (int j = 0; j < tile->cols; j++)
            score[j] += aux[entry_of(tile, i, j, vectors(form) - 1)];
    }
}

static void add_picked_backward(const heed_form_state *form, heed_tile *tile)
{
    for (int i = 0; i < tile->rows; i++) {
        const float *dscore = tile->dscore + i * tile->stride;
        float *daux = tile->daux + (int64_t)i * vectors(form);
        for (int j = 0; j < tile->cols; j++)
            daux[entry_of(tile, i, j, vectors(form) - 1)] += dscore[j];
    }
}

static const heed_arg args[] = {
    {.name = "max",
     .kind = HEED_ARG_INT,
     .value = 128,
     .least = 1,
     .most = 1 << 20,
     .summary = "distance from which on all share a vector"},
    {0},
};

static const heed_param params[] = {
    {.name = "E", .shape = "H,max+1,D", .summary = "a vector of each head for each distance from 0 to max"},
    {0},
};

const heed_form HEED_FORM(position_skew) = {
    .name = "skew",
    .stage = HEED_POSITION,
    .summary = "a learnt vector of each head for each distance back, compared with the query",
    .formula = "s + scale q·E[h][min(distance, max)]",
    .source = "Huang et al.: Music Transformer, 2018",
    .row = "004.003",
    .flags = HEED_NEEDS_CAUSAL,
    .args = args,
    .params = params,
    .aux_floats = vectors,
    .query_aux = meet,
    .query_aux_backward = meet_backward,
    .adjust = add_picked,
    .adjust_backward = add_picked_backward,
};
