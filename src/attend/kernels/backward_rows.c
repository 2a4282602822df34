/* What the backward pass does with rows of one head around the main pass; see backward.h. */
#include "attend/kernels/backward.h"
#include "base/vectors.h"
#include <string.h>

heed_back_rows heed_take_back_rows(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline)
{
    heed_back_rows w = {.own = NULL};
    const size_t floats = HEED_KEYS * (size_t)heed_row_stride(plan, pipeline);
    w.rows = heed_take_row_work(arena, plan, HEED_KEYS);
    float **each[] = {&w.first, &w.second, &w.dfirst, &w.dsecond};
    for (int i = 0; i < 4; i++)
        *each[i] = heed_arena_take(arena, floats, sizeof(float));
    w.pos = heed_arena_take(arena, HEED_KEYS, sizeof(int32_t));
    return w;
}

static float *at_f32(const heed_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (float *)((char *)t->data + a * t->stride[0] + b * t->stride[1] + c * t->stride[2] +
                     d * t->stride[3]);
}

/* A row of a gradient, which may have any strides, as floats. */
static void read_row(const heed_tensor *from, int64_t b, int64_t h, int64_t i, float *to)
{
    const int64_t dim = from->shape[3];
    if (from->stride[3] == sizeof(float))
        memcpy(to, at_f32(from, b, h, i, 0), (size_t)dim * sizeof(float));
    else
        for (int64_t e = 0; e < dim; e++)
            to[e] = *at_f32(from, b, h, i, e);
}

void heed_back_output(const heed_backward_work *w, const heed_pipeline *own, int64_t b, int h,
                      const float *out)
{
    const heed_run *run = w->run;
    const heed_problem *p = &run->plan->problem;
    const heed_form_state *read = &own->form[own->read];
    for (int64_t i = 0; i < w->padded_queries; i++) {
        float *row = heed_dout(w, b, h, i);
        const int64_t known = i < run->query_count[b] ? p->value_dim : 0;
        memset(row + known, 0, (size_t)(w->value_stride - known) * sizeof(float));
        if (known == 0)
            continue;
        read_row(&run->gradients->dout, b, h, i, row);
        if (read->form->output_backward)
            read->form->output_backward(read, (int)b, h, i, 1,
                                        out + ((b * p->heads + h) * p->queries + i) * p->value_dim, row,
                                        w->value_stride);
    }
}

/* A row of floats times a row of a tensor, summed in double precision. */
static float row_product(const float *x, const heed_tensor *y, int64_t b, int64_t h, int64_t i)
{
    const int64_t dim = y->shape[3];
    double sum = 0.0;
    if (y->stride[3] == sizeof(float)) {
        const float *row = at_f32(y, b, h, i, 0);
#pragma omp simd reduction(+ : sum)
        for (int64_t e = 0; e < dim; e++)
            sum += (double)x[e] * (double)row[e];
    } else {
        for (int64_t e = 0; e < dim; e++)
            sum += (double)x[e] * (double)*at_f32(y, b, h, i, e);
    }
    return (float)sum;
}

void heed_back_queries(const heed_backward_work *w, heed_back_rows *mine, int64_t b, int h, int64_t query0,
                       const heed_tensor *out, const float *row_state)
{
    const heed_run *run = w->run;
    const heed_pipeline *pipeline = w->pipeline;
    const heed_problem *p = &run->plan->problem;
    const int64_t here = run->query_count[b] - query0, first = heed_padded_row(w, b, h, query0);
    const int rows = (int)(here < HEED_BACK_BLOCK ? here : HEED_BACK_BLOCK);
    if (rows <= 0)
        return;
    heed_query_block query = {.batch = (int)b,
                              .head = h,
                              .query0 = query0,
                              .rows = rows,
                              .pos = mine->pos,
                              .prepared = w->query + first * w->row_stride,
                              .aux = w->aux + first * pipeline->aux_floats};
    heed_prepare_queries(run, pipeline, &query, &mine->rows);
    w->finite[first / HEED_BACK_BLOCK] =
        heed_rows_finite(query.prepared, w->row_stride, rows, pipeline->row_dim) &&
        heed_rows_finite(heed_dout(w, b, h, query0), w->value_stride, rows, p->value_dim);
    const int64_t to = heed_state_row(w, b, h, query0), from = (b * p->heads + h) * p->queries + query0;
    for (int i = 0; i < rows; i++) {
        w->base[to + i] = row_state[2 * (from + i)];
        w->norm[to + i] = row_state[2 * (from + i) + 1];
        w->delta[to + i] = row_product(heed_dout(w, b, h, query0 + i), out, b, h, query0 + i);
    }
}

/* Gradient of prepared rows back to rows as given. `drow` is [rows][row_stride], changed; `to` receives
 * [rows][dim]. */
static float *prepares_backward(const heed_pipeline *own, bool keys, heed_rows rows, heed_back_rows *mine,
                                float *drow, int64_t stride)
{
    void (*hook[2])(const heed_form_state *, const heed_rows *) = {0};
    void (*back[2])(const heed_form_state *, const heed_rows *) = {0};
    const heed_form_state *state[2] = {0};
    int count = 0;
    for (int i = 0; i < own->prepares; i++) {
        const heed_form_state *form = &own->form[own->prepare[i]];
        hook[count] = keys ? form->form->prepare_key : form->form->prepare_query;
        back[count] = keys ? form->form->prepare_key_backward : form->form->prepare_query_backward;
        state[count] = form;
        count += hook[count] != NULL;
    }
    if (count == 0)
        return drow;
    const float *raw = rows.in;
    rows.out_stride = rows.din_stride = stride;
    if (count == 2) {
        rows.out = mine->first;
        hook[0](state[0], &rows);
        memset(mine->dsecond, 0, (size_t)(rows.count * stride) * sizeof(float));
        rows.in = mine->first;
        rows.out = drow;
        rows.din = mine->dsecond;
        back[1](state[1], &rows);
        drow = mine->dsecond;
    }
    memset(mine->dfirst, 0, (size_t)(rows.count * stride) * sizeof(float));
    rows.in = raw;
    rows.out = drow;
    rows.din = mine->dfirst;
    back[0](state[0], &rows);
    return mine->dfirst;
}

/* Into a gradient, which is written for the first time or added to. */
static void put_rows(const heed_tensor *to, bool add, int64_t b, int64_t h, int64_t first, int rows,
                     int64_t dim, const float *from, int64_t stride)
{
    for (int r = 0; r < rows; r++, from += stride) {
        float *row = at_f32(to, b, h, first + r, 0);
        if (to->stride[3] != sizeof(float))
            for (int64_t d = 0; d < dim; d++) {
                float *x = at_f32(to, b, h, first + r, d);
                *x = add ? *x + from[d] : from[d];
            }
        else if (add)
            heed_row_add(row, 1.0f, from, dim);
        else
            memcpy(row, from, (size_t)dim * sizeof(float));
    }
}

/* Rows that do not exist have a gradient of 0. */
static void clear_rows(const heed_tensor *to, int64_t b, int64_t h, int64_t first)
{
    for (int64_t i = first; i < to->shape[2]; i++)
        for (int64_t d = 0; d < to->shape[3]; d++)
            *at_f32(to, b, h, i, d) = 0.0f;
}

void heed_back_finish_queries(const heed_backward_work *w, heed_back_rows *mine, int64_t b, int h)
{
    const heed_run *run = w->run;
    const heed_plan *plan = run->plan;
    const heed_problem *p = &plan->problem;
    const heed_pipeline *own = mine->own;
    for (int64_t query0 = 0; query0 < run->query_count[b]; query0 += HEED_BACK_BLOCK) {
        const int64_t here = run->query_count[b] - query0;
        const int count = (int)(here < HEED_BACK_BLOCK ? here : HEED_BACK_BLOCK);
        const int32_t *pos = run->query_pos + b * p->queries + query0;
        float *drow = heed_dquery(w, 0, b, h, query0);
        if (own->prepares + own->auxes > 0)
            heed_load_rows(run, &run->q, false, b, h, query0, count, mine->rows.raw, w->row_stride);
        heed_rows rows = {.count = count,
                          .dim = (int)p->dim,
                          .batch = (int)b,
                          .head = h,
                          .pos = pos,
                          .contiguous = run->default_positions || heed_runs_by_one(pos, count),
                          .in = mine->rows.raw,
                          .in_stride = w->row_stride};
        if (own->pair < 0 && own->scale != 1.0f)
            for (int64_t n = 0; n < count * w->row_stride; n++)
                drow[n] *= own->scale;
        const heed_query_block block = {.rows = count};
        float *din = prepares_backward(own, false, rows, mine, drow, w->row_stride);
        for (int n = 0; n < own->auxes; n++) {
            const heed_form_state *form = &own->form[own->aux[n]];
            rows.out = heed_aux_of(own, own->aux[n], &block, heed_daux(w, 0, b, h, query0), 0);
            rows.out_stride = form->form->aux_floats(form);
            rows.din = din;
            rows.din_stride = w->row_stride;
            form->form->query_aux_backward(form, &rows);
        }
        const heed_form_state *normalise = &own->form[own->normalise];
        const int64_t at = heed_state_row(w, b, h, query0);
        if (w->norm && normalise->form->norm_backward) {
            float norm[HEED_BACK_BLOCK];
            for (int i = 0; i < count; i++)
                norm[i] = w->base[at + i] + w->norm[at + i];
            normalise->form->norm_backward(normalise, h, count, norm, w->delta + at);
        }
        if (run->gradients->dq.data)
            put_rows(&run->gradients->dq, plan->pipelines > 1, b, h, query0, count, p->dim, din,
                     w->row_stride);
    }
    if (run->gradients->dq.data && plan->pipelines == 1)
        clear_rows(&run->gradients->dq, b, h, run->query_count[b]);
}

void heed_back_finish_keys(const heed_backward_work *w, heed_back_rows *mine, int64_t b, int64_t g)
{
    const heed_run *run = w->run;
    const heed_plan *plan = run->plan;
    const heed_problem *p = &plan->problem;
    const heed_pipeline *own = mine->own;
    const bool by_head = own->keys_by_head, several = plan->pipelines > 1;
    const int first = by_head ? own->group_first[g] : 0, last = by_head ? own->group_first[g + 1] : 1;
    for (int64_t key0 = 0; key0 < run->key_count[b]; key0 += HEED_KEYS) {
        const int64_t here = run->key_count[b] - key0;
        const int count = (int)(here < HEED_KEYS ? here : HEED_KEYS);
        const int32_t *pos = heed_key_positions(run, b, g) + key0;
        if (own->prepares > 0)
            heed_load_rows(run, &run->k, false, b, g, key0, count, mine->rows.raw, w->row_stride);
        for (int n = first; n < last; n++) {
            const int64_t key_head = by_head ? own->head[n] : g;
            const heed_rows rows = {.count = count,
                                    .dim = (int)p->dim,
                                    .batch = (int)b,
                                    .head = (int)key_head,
                                    .pos = pos,
                                    .contiguous = run->default_positions || heed_runs_by_one(pos, count),
                                    .in = mine->rows.raw,
                                    .in_stride = w->row_stride};
            const float *din =
                prepares_backward(own, true, rows, mine, heed_dkey(w, 0, b, key_head, key0), w->row_stride);
            if (run->gradients->dk.data)
                put_rows(&run->gradients->dk, several || n > first, b, g, key0, count, p->dim, din,
                         w->row_stride);
        }
        if (run->gradients->dv.data)
            put_rows(&run->gradients->dv, several, b, g, key0, count, p->value_dim,
                     heed_dvalue(w, 0, b, g, key0), w->value_stride);
    }
    if (run->gradients->dk.data && !several)
        clear_rows(&run->gradients->dk, b, g, run->key_count[b]);
    if (run->gradients->dv.data && !several)
        clear_rows(&run->gradients->dv, b, g, run->key_count[b]);
}
