/* The frame around the backward kernels; see backward.h. */
#include "attend/kernels/backward.h"
#include "attend/kernels/gather.h"
#include "base/arena.h"
#include <string.h>

#define MOST_LANES 16

static const heed_form plain_read = {.name = "sum", .stage = HEED_READ};

typedef struct frame {
    heed_backward_work work;
    float *out;       /* [batch][H][N][value_dim] before the read stage, where it must be made again */
    float *row_state; /* [batch][H][N][2] likewise */
    char *forward;    /* shared scratch of the forward kernel */
    int32_t *pos;     /* a thread's, for preparing queries */
} frame;

static bool through_rows(const heed_pipeline *pipeline)
{
    return pipeline->kernel == HEED_KERNEL_ROWS;
}

static heed_copies copies_of(const heed_plan *plan, const heed_pipeline *pipeline)
{
    if (pipeline->kernel == HEED_KERNEL_GATHER)
        return (heed_copies){.query = 1, .key = 1, .lanes = heed_gather_lanes(plan)};
    return through_rows(pipeline) ? heed_rows_copies(plan, pipeline) : heed_flash_copies(plan, pipeline);
}

static frame take_frame(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_problem *p = &plan->problem;
    frame f = {0};
    heed_backward_work *w = &f.work;
    w->copies = copies_of(plan, pipeline);
    w->row_stride = heed_row_stride(plan, pipeline);
    w->value_stride = heed_round_up(p->value_dim, 2 * HEED_WIDTH);
    w->padded_queries = heed_round_up(p->queries, HEED_BACK_BLOCK);
    w->key_heads = (int)(pipeline->keys_by_head ? p->heads : p->kv_heads);
    const size_t rows = (size_t)(p->batch * p->heads * p->queries);
    const size_t padded = (size_t)(p->batch * p->heads * w->padded_queries);
    const size_t keys = (size_t)(p->batch * w->key_heads * p->keys);
    const size_t values = (size_t)(p->batch * p->kv_heads * p->keys);
    w->dout = heed_arena_take(arena, padded * (size_t)w->value_stride, sizeof(float));
    if (!through_rows(pipeline)) {
        w->norm = heed_arena_take(arena, rows, sizeof(float));
        w->base = heed_arena_take(arena, rows, sizeof(float));
        w->delta = heed_arena_take(arena, rows, sizeof(float));
        w->query = heed_arena_take(arena, padded * (size_t)w->row_stride, sizeof(float));
        w->aux = heed_arena_take(arena, padded * (size_t)pipeline->aux_floats, sizeof(float));
    }
    f.row_state = heed_arena_take(arena, rows * 2, sizeof(float));
    f.out = heed_arena_take(arena, rows * (size_t)p->value_dim, sizeof(float));
    f.forward = heed_arena_take(arena, plan->forward.shared, 1);
    w->dquery =
        heed_arena_take(arena, (size_t)w->copies.query * padded * (size_t)w->row_stride, sizeof(float));
    w->daux = heed_arena_take(arena, (size_t)w->copies.query * padded * (size_t)pipeline->aux_floats,
                              sizeof(float));
    w->dkey = heed_arena_take(arena, (size_t)w->copies.key * keys * (size_t)w->row_stride, sizeof(float));
    w->dvalue =
        heed_arena_take(arena, (size_t)w->copies.key * values * (size_t)w->value_stride, sizeof(float));
    w->lane = heed_arena_take(arena, (size_t)w->copies.lanes * (size_t)plan->slot_floats, sizeof(float));
    if (pipeline->votes >= 0) {
        w->steps = heed_rows_steps(plan, pipeline);
        w->votes = heed_arena_take(arena, (size_t)(p->batch * w->steps * p->keys), sizeof(float));
        w->blame = heed_arena_take(arena, (size_t)(p->batch * w->steps * p->keys), sizeof(float));
    }
    return f;
}

/* A thread's buffers for the hooks that prepare rows, backward. */
typedef struct prepare_work {
    heed_pipeline *own;
    heed_row_work rows;
    float *first, *second, *dfirst, *dsecond; /* [HEED_KEYS][row_stride] */
    int32_t *pos;
} prepare_work;

static prepare_work take_prepare_work(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline)
{
    prepare_work w = {.own = heed_arena_take(arena, 1, sizeof *w.own)};
    const size_t floats = HEED_KEYS * (size_t)heed_row_stride(plan, pipeline);
    w.rows = heed_take_row_work(arena, plan, HEED_KEYS);
    float **each[] = {&w.first, &w.second, &w.dfirst, &w.dsecond};
    for (int i = 0; i < 4; i++)
        *each[i] = heed_arena_take(arena, floats, sizeof(float));
    w.pos = heed_arena_take(arena, HEED_KEYS, sizeof(int32_t));
    return w;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

void heed_backward_layout(heed_plan *plan)
{
    plan->backward = (heed_layout){.per_thread = plan->forward.per_thread};
    for (int i = 0; i < plan->pipelines; i++) {
        const heed_pipeline *pipeline = &plan->pipeline[i];
        heed_arena shared = {0}, thread = {0};
        take_frame(&shared, plan, pipeline);
        take_prepare_work(&thread, plan, pipeline);
        const size_t main_pass = pipeline->kernel == HEED_KERNEL_GATHER
                                     ? heed_gather_backward_per_thread(plan, pipeline)
                                 : through_rows(pipeline) ? heed_rows_backward_per_thread(plan, pipeline)
                                                          : heed_flash_backward_per_thread(plan, pipeline);
        plan->backward.shared = larger(plan->backward.shared, shared.used);
        plan->backward.per_thread = larger(plan->backward.per_thread, larger(thread.used, main_pass));
    }
}

void heed_set_lane(const heed_backward_work *work, heed_pipeline *own, int lane)
{
    const heed_plan *plan = work->run->plan;
    float *base = work->lane + (int64_t)lane * plan->slot_floats;
    for (int f = 0; f < own->forms; f++) {
        const heed_param *params = own->form[f].form->params;
        for (int i = 0; params && params[i].name; i++)
            own->form[f].grad[i] = base + plan->slot[own->slot[f][i]].at;
    }
}

static float *at_f32(const heed_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (float *)((char *)t->data + a * t->stride[0] + b * t->stride[1] + c * t->stride[2] +
                     d * t->stride[3]);
}

/* Step 1a: the output before the read stage and the row state; made again where they are not to be had. */
static heed_status forward_again(const heed_run *run, const heed_pipeline *pipeline, frame *f)
{
    const heed_plan *plan = run->plan;
    const heed_problem *p = &plan->problem;
    heed_pipeline plain = *pipeline;
    if (pipeline->form[pipeline->read].form->output)
        plain.form[plain.read].form = &plain_read;
    heed_extra extra = *run->extra;
    extra.lse.data = NULL;
    memset(&extra.capture, 0, sizeof extra.capture);
    heed_run again = *run;
    again.out =
        heed_tensor_dense(f->out, HEED_F32, 4, (int64_t[]){p->batch, p->heads, p->queries, p->value_dim});
    again.row_state = f->row_state;
    again.extra = &extra;
    again.shared = f->forward;
    again.gradients = NULL;
    if (through_rows(pipeline))
        heed_rows_forward(&again, &plain);
    else if (pipeline->kernel == HEED_KERNEL_DECODE)
        heed_decode_forward(&again, &plain);
    else if (pipeline->kernel == HEED_KERNEL_GATHER)
        heed_gather_forward(&again, &plain);
    else
        heed_flash_forward(&again, &plain);
    return HEED_OK;
}

/* Step 1b: gradient of the output before the read stage. The read stage's own parameters are few and are done
 * in order. */
static void output_backward(const heed_run *run, const heed_pipeline *pipeline, frame *f)
{
    const heed_problem *p = &run->plan->problem;
    heed_backward_work *w = &f->work;
    heed_pipeline own = *pipeline;
    heed_set_lane(w, &own, 0);
    const heed_form_state *read = &own.form[own.read];
    memset(w->dout, 0, (size_t)(p->batch * p->heads * w->padded_queries * w->value_stride) * sizeof(float));
    for (int64_t b = 0; b < p->batch; b++)
        for (int n = 0; n < pipeline->heads_here; n++) {
            const int h = pipeline->head[n];
            for (int64_t i = 0; i < run->query_count[b]; i++) {
                float *row = heed_dout(w, b, h, i);
                for (int64_t e = 0; e < p->value_dim; e++)
                    row[e] = *at_f32(&run->gradients->dout, b, h, i, e);
                if (read->form->output_backward)
                    read->form->output_backward(read, (int)b, h, i, 1,
                                                f->out + ((b * p->heads + h) * p->queries + i) * p->value_dim,
                                                row, w->value_stride);
            }
        }
}

/* Step 1c, for flash: norms, deltas and prepared queries. */
static void prepare_rows(const heed_run *run, const heed_pipeline *pipeline, frame *f, const heed_tensor *out,
                         const float *row_state)
{
    const heed_plan *plan = run->plan;
    const heed_problem *p = &plan->problem;
    heed_backward_work *w = &f->work;
    const int64_t blocks = w->padded_queries / HEED_BACK_BLOCK;
    const int64_t pieces = p->batch * pipeline->heads_here * blocks;
#pragma omp parallel num_threads(p->threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        prepare_work mine = take_prepare_work(&arena, plan, pipeline);
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < pieces; n++) {
            const int64_t block = n % blocks, b = n / blocks / pipeline->heads_here;
            const int h = pipeline->head[n / blocks % pipeline->heads_here];
            const int64_t query0 = block * HEED_BACK_BLOCK, here = run->query_count[b] - query0;
            const int rows = (int)(here < 0 ? 0 : here < HEED_BACK_BLOCK ? here : HEED_BACK_BLOCK);
            const int64_t first = (b * p->heads + h) * w->padded_queries + query0;
            if (rows == 0)
                continue;
            heed_query_block query = {.batch = (int)b,
                                      .head = h,
                                      .query0 = query0,
                                      .rows = rows,
                                      .pos = mine.pos,
                                      .prepared = w->query + first * w->row_stride,
                                      .aux = w->aux + first * pipeline->aux_floats};
            heed_prepare_queries(run, pipeline, &query, &mine.rows);
            for (int i = 0; i < rows; i++) {
                const int64_t at = (b * p->heads + h) * p->queries + query0 + i;
                w->base[at] = row_state[2 * at];
                w->norm[at] = row_state[2 * at + 1];
                double delta = 0.0;
                const float *dout = heed_dout(w, b, h, query0 + i);
                for (int64_t e = 0; e < p->value_dim; e++)
                    delta += (double)dout[e] * (double)*at_f32(out, b, h, query0 + i, e);
                w->delta[at] = (float)delta;
            }
        }
    }
}

/* Adds up copies in order, into the first. */
static void add_copies(float *x, int copies, int64_t n, int threads)
{
    if (copies < 2)
        return;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        for (int c = 1; c < copies; c++)
            x[i] += x[c * n + i];
}

/* Gradient of prepared rows back to rows as given. `drow` is [rows][row_stride], changed; `to` receives
 * [rows][dim]. */
static float *prepares_backward(const heed_pipeline *own, bool keys, heed_rows rows, prepare_work *mine,
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

static void add_rows(const heed_tensor *to, int64_t b, int64_t h, int64_t first, int rows, int64_t dim,
                     const float *from, int64_t stride)
{
    for (int r = 0; r < rows; r++)
        for (int64_t d = 0; d < dim; d++)
            *at_f32(to, b, h, first + r, d) += from[r * stride + d];
}

/* Step 3 for the queries of one head and batch entry. */
static void queries_backward(const heed_backward_work *w, prepare_work *mine, int64_t b, int h)
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
        const int64_t at = (b * p->heads + h) * p->queries + query0;
        if (w->norm && normalise->form->norm_backward) {
            float norm[HEED_BACK_BLOCK];
            for (int i = 0; i < count; i++)
                norm[i] = w->base[at + i] + w->norm[at + i];
            normalise->form->norm_backward(normalise, h, count, norm, w->delta + at);
        }
        if (run->gradients->dq.data)
            add_rows(&run->gradients->dq, b, h, query0, count, p->dim, din, w->row_stride);
    }
}

/* Step 3 for the keys and values of one kv head and batch entry. */
static void keys_backward(const heed_backward_work *w, prepare_work *mine, int64_t b, int64_t g)
{
    const heed_run *run = w->run;
    const heed_plan *plan = run->plan;
    const heed_problem *p = &plan->problem;
    const heed_pipeline *own = mine->own;
    const bool by_head = own->keys_by_head;
    const int first = by_head ? own->group_first[g] : 0, last = by_head ? own->group_first[g + 1] : 1;
    for (int64_t key0 = 0; key0 < run->key_count[b]; key0 += HEED_KEYS) {
        const int64_t here = run->key_count[b] - key0;
        const int count = (int)(here < HEED_KEYS ? here : HEED_KEYS);
        const int32_t *pos = heed_key_positions(run, b, g) + key0;
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
                add_rows(&run->gradients->dk, b, g, key0, count, p->dim, din, w->row_stride);
        }
        if (run->gradients->dv.data)
            add_rows(&run->gradients->dv, b, g, key0, count, p->value_dim, heed_dvalue(w, 0, b, g, key0),
                     w->value_stride);
    }
}

/* Step 3. A piece is a kv head of a batch entry, with its query heads. */
static void finish_backward(const heed_backward_work *w)
{
    const heed_run *run = w->run;
    const heed_plan *plan = run->plan;
    const heed_problem *p = &plan->problem;
    const int64_t padded = p->batch * p->heads * w->padded_queries;
    add_copies(w->dquery, w->copies.query, padded * w->row_stride, p->threads);
    add_copies(w->daux, w->copies.query, padded * w->pipeline->aux_floats, p->threads);
    add_copies(w->dkey, w->copies.key, p->batch * w->key_heads * p->keys * w->row_stride, p->threads);
    add_copies(w->dvalue, w->copies.key, p->batch * p->kv_heads * p->keys * w->value_stride, p->threads);
    const int64_t pieces = p->batch * p->kv_heads;
#pragma omp parallel num_threads(p->threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        prepare_work mine = take_prepare_work(&arena, plan, w->pipeline);
        *mine.own = *w->pipeline;
#pragma omp for schedule(dynamic, 1)
        for (int lane = 0; lane < w->copies.lanes; lane++) {
            heed_set_lane(w, mine.own, lane);
            for (int64_t n = lane; n < pieces; n += w->copies.lanes) {
                const int64_t b = n / p->kv_heads, g = n % p->kv_heads;
                for (int i = w->pipeline->group_first[g]; i < w->pipeline->group_first[g + 1]; i++)
                    queries_backward(w, &mine, b, w->pipeline->head[i]);
                keys_backward(w, &mine, b, g);
            }
        }
    }
    for (int s = 0; run->gradients->dparams && s < plan->slots; s++) {
        float *to = run->gradients->dparams[s].data;
        const int64_t *shape =
            run->pipeline[plan->slot[s].pipeline].form[plan->slot[s].form].shape[plan->slot[s].param];
        const int64_t n = shape[0] * shape[1] * shape[2] * shape[3];
        for (int lane = 0; to && lane < w->copies.lanes; lane++)
            for (int64_t i = 0; i < n; i++)
                to[i] += w->lane[lane * plan->slot_floats + plan->slot[s].at + i];
    }
}

static void clear_tensor(const heed_tensor *t)
{
    for (int64_t a = 0; t->data && a < t->shape[0]; a++)
        for (int64_t b = 0; b < t->shape[1]; b++)
            for (int64_t c = 0; c < t->shape[2]; c++)
                for (int64_t d = 0; d < t->shape[3]; d++)
                    *at_f32(t, a, b, c, d) = 0.0f;
}

static void clear_gradients(const heed_run *run)
{
    const heed_gradients *g = run->gradients;
    clear_tensor(&g->dq);
    clear_tensor(&g->dk);
    clear_tensor(&g->dv);
    for (int s = 0; g->dparams && s < run->plan->slots; s++) {
        const heed_tensor *d = &g->dparams[s];
        int64_t n = 1;
        for (int r = 0; r < d->rank; r++)
            n *= d->shape[r];
        if (d->data)
            memset(d->data, 0, (size_t)n * sizeof(float));
    }
}

static heed_status backward_of(const heed_run *run, const heed_pipeline *pipeline)
{
    const heed_plan *plan = run->plan;
    const heed_problem *p = &plan->problem;
    heed_arena arena = {.base = run->shared};
    frame f = take_frame(&arena, plan, pipeline);
    f.work.run = run;
    f.work.pipeline = pipeline;
    float *from = f.work.dquery;
    const size_t floats = (size_t)((run->shared + arena.used - (char *)from) / (ptrdiff_t)sizeof(float));
    memset(from, 0, floats * sizeof(float));

    const bool gated = pipeline->form[pipeline->read].form->output != NULL;
    const bool have = run->gradients->out.data && run->row_state && !gated;
    const bool need = gated || !through_rows(pipeline);
    heed_tensor out = run->gradients->out;
    const float *row_state = run->row_state;
    if (need && !have) {
        const heed_status status = forward_again(run, pipeline, &f);
        if (status != HEED_OK)
            return status;
        out =
            heed_tensor_dense(f.out, HEED_F32, 4, (int64_t[]){p->batch, p->heads, p->queries, p->value_dim});
        row_state = f.row_state;
    }
    output_backward(run, pipeline, &f);
    if (through_rows(pipeline)) {
        heed_rows_backward(&f.work);
    } else {
        prepare_rows(run, pipeline, &f, &out, row_state);
        if (pipeline->kernel == HEED_KERNEL_GATHER)
            heed_gather_backward(&f.work);
        else
            heed_flash_backward(&f.work);
    }
    finish_backward(&f.work);
    return HEED_OK;
}

heed_status heed_backward(const heed_run *run)
{
    clear_gradients(run);
    for (int i = 0; i < run->plan->pipelines; i++) {
        const heed_status status = backward_of(run, &run->pipeline[i]);
        if (status != HEED_OK)
            return status;
    }
    return HEED_OK;
}
