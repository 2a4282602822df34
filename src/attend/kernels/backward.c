/* The frame around the backward kernels; see backward.h. */
#include "attend/kernels/backward.h"
#include "attend/kernels/gather.h"
#include "base/arena.h"
#include <string.h>

static const heed_form plain_read = {.name = "sum", .stage = HEED_READ};

typedef struct frame {
    heed_backward_work work;
    float *out;       /* [batch][H][N][value_dim] before the read stage, where it must be made again */
    float *row_state; /* [batch][H][N][2] likewise */
    char *forward;    /* shared scratch of the forward kernel */
    char *cleared;    /* from here on everything begins as 0 */
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

/* Whether each kv head goes through all steps by itself. Parameters of the read stage gather in order. */
static bool by_kv_head(const heed_plan *plan, const heed_pipeline *pipeline)
{
    return pipeline->kernel == HEED_KERNEL_FLASH && heed_flash_copies(plan, pipeline).query == 1 &&
           !pipeline->form[pipeline->read].form->output_backward;
}

static heed_backward_work sizes_of(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_problem *p = &plan->problem;
    return (heed_backward_work){.copies = copies_of(plan, pipeline),
                                .row_stride = heed_row_stride(plan, pipeline),
                                .value_stride = heed_round_up(p->value_dim, 2 * HEED_WIDTH),
                                .padded_queries = heed_round_up(p->queries, HEED_BACK_BLOCK),
                                .key_heads = (int)(pipeline->keys_by_head ? p->heads : p->kv_heads)};
}

/* Buffers before the main pass, of so many heads. */
static void take_before(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                        heed_backward_work *w, int64_t heads)
{
    const size_t rows = (size_t)(heads * plan->problem.queries), padded = (size_t)(heads * w->padded_queries);
    w->dout = heed_arena_take(arena, padded * (size_t)w->value_stride, sizeof(float));
    if (through_rows(pipeline))
        return;
    w->norm = heed_arena_take(arena, rows, sizeof(float));
    w->base = heed_arena_take(arena, rows, sizeof(float));
    w->delta = heed_arena_take(arena, rows, sizeof(float));
    w->query = heed_arena_take(arena, padded * (size_t)w->row_stride, sizeof(float));
    w->aux = heed_arena_take(arena, padded * (size_t)pipeline->aux_floats, sizeof(float));
    w->finite = heed_arena_take(arena, padded / HEED_BACK_BLOCK, 1);
}

/* Buffers that it adds to, of so many heads, heads of keys and kv heads. */
static void take_sums(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                      heed_backward_work *w, int64_t heads, int64_t key_heads, int64_t groups)
{
    const int64_t keys = plan->problem.keys;
    const size_t padded = (size_t)(w->copies.query * heads * w->padded_queries);
    w->dquery = heed_arena_take(arena, padded * (size_t)w->row_stride, sizeof(float));
    w->daux = heed_arena_take(arena, padded * (size_t)pipeline->aux_floats, sizeof(float));
    w->dkey =
        heed_arena_take(arena, (size_t)(w->copies.key * key_heads * keys * w->row_stride), sizeof(float));
    w->dvalue =
        heed_arena_take(arena, (size_t)(w->copies.key * groups * keys * w->value_stride), sizeof(float));
}

static frame take_frame(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_problem *p = &plan->problem;
    frame f = {.work = sizes_of(plan, pipeline)};
    heed_backward_work *w = &f.work;
    const bool whole = !by_kv_head(plan, pipeline);
    const int64_t rows = p->batch * p->heads * p->queries;
    if (whole)
        take_before(arena, plan, pipeline, w, p->batch * p->heads);
    f.row_state = heed_arena_take(arena, (size_t)rows * 2, sizeof(float));
    f.out = heed_arena_take(arena, (size_t)(rows * p->value_dim), sizeof(float));
    f.forward = heed_arena_take(arena, plan->forward.shared, 1);
    f.cleared = heed_arena_take(arena, 0, sizeof(float));
    if (whole)
        take_sums(arena, plan, pipeline, w, p->batch * p->heads, p->batch * w->key_heads,
                  p->batch * p->kv_heads);
    w->lane = heed_arena_take(arena, (size_t)w->copies.lanes * (size_t)plan->slot_floats, sizeof(float));
    if (pipeline->votes >= 0) {
        w->steps = heed_rows_steps(plan, pipeline);
        w->votes = heed_arena_take(arena, (size_t)(p->batch * w->steps * p->keys), sizeof(float));
        w->blame = heed_arena_take(arena, (size_t)(p->batch * w->steps * p->keys), sizeof(float));
    }
    return f;
}

/* What a thread needs to take a kv head through all steps. */
typedef struct head_work {
    heed_backward_work work;
    heed_back_rows rows;
    heed_flash_back *flash;
    char *cleared, *end; /* what begins as 0 */
} head_work;

static head_work take_head_work(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                                const heed_backward_work *shared)
{
    const int64_t heads = plan->problem.heads / plan->problem.kv_heads;
    head_work w = {.work = *shared};
    heed_pipeline *own = heed_arena_take(arena, 1, sizeof *own);
    w.flash = heed_take_flash_back(arena, plan, pipeline, own);
    w.rows = heed_take_back_rows(arena, plan, pipeline);
    w.rows.own = own;
    take_before(arena, plan, pipeline, &w.work, heads);
    w.cleared = heed_arena_take(arena, 0, sizeof(float));
    take_sums(arena, plan, pipeline, &w.work, heads, pipeline->keys_by_head ? heads : 1, 1);
    w.end = heed_arena_take(arena, 0, sizeof(float));
    return w;
}

static size_t per_thread(const heed_plan *plan, const heed_pipeline *pipeline)
{
    heed_arena arena = {0};
    if (by_kv_head(plan, pipeline)) {
        const heed_backward_work sizes = sizes_of(plan, pipeline);
        take_head_work(&arena, plan, pipeline, &sizes);
        return arena.used;
    }
    heed_arena_take(&arena, 1, sizeof(heed_pipeline));
    heed_take_back_rows(&arena, plan, pipeline);
    const size_t main_pass = pipeline->kernel == HEED_KERNEL_GATHER
                                 ? heed_gather_backward_per_thread(plan, pipeline)
                             : through_rows(pipeline) ? heed_rows_backward_per_thread(plan, pipeline)
                                                      : heed_flash_backward_per_thread(plan, pipeline);
    return arena.used > main_pass ? arena.used : main_pass;
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
        heed_arena shared = {0};
        take_frame(&shared, plan, pipeline);
        plan->backward.shared = larger(plan->backward.shared, shared.used);
        plan->backward.per_thread = larger(plan->backward.per_thread, per_thread(plan, pipeline));
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

/* Steps 1b and 1c over all heads. */
static void before_main_pass(const heed_run *run, const heed_pipeline *pipeline, frame *f,
                             const heed_tensor *out, const float *row_state)
{
    const heed_plan *plan = run->plan;
    const heed_problem *p = &plan->problem;
    const heed_backward_work *w = &f->work;
    const int64_t heads = p->batch * pipeline->heads_here, blocks = w->padded_queries / HEED_BACK_BLOCK;
    heed_pipeline first = *pipeline;
    heed_set_lane(w, &first, 0);
    const bool ordered = pipeline->form[pipeline->read].form->output_backward;
#pragma omp parallel for num_threads(ordered ? 1 : p->threads) schedule(static)
    for (int64_t n = 0; n < heads; n++)
        heed_back_output(w, &first, n / pipeline->heads_here, pipeline->head[n % pipeline->heads_here],
                         f->out);
    if (through_rows(pipeline))
        return;
#pragma omp parallel num_threads(p->threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        heed_back_rows mine = heed_take_back_rows(&arena, plan, pipeline);
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < heads * blocks; n++) {
            const int64_t head = n / blocks;
            heed_back_queries(w, &mine, head / pipeline->heads_here,
                              pipeline->head[head % pipeline->heads_here], n % blocks * HEED_BACK_BLOCK, out,
                              row_state);
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

/* Step 3 for a kv head of a batch entry, with its query heads. */
static void finish_kv_head(const heed_backward_work *w, heed_back_rows *mine, int64_t b, int64_t g)
{
    for (int i = w->pipeline->group_first[g]; i < w->pipeline->group_first[g + 1]; i++)
        heed_back_finish_queries(w, mine, b, w->pipeline->head[i]);
    heed_back_finish_keys(w, mine, b, g);
}

/* Step 3 over all heads. */
static void after_main_pass(const heed_backward_work *w)
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
        heed_pipeline *own = heed_arena_take(&arena, 1, sizeof *own);
        heed_back_rows mine = heed_take_back_rows(&arena, plan, w->pipeline);
        mine.own = own;
        *own = *w->pipeline;
#pragma omp for schedule(dynamic, 1)
        for (int lane = 0; lane < w->copies.lanes; lane++) {
            heed_set_lane(w, mine.own, lane);
            for (int64_t n = lane; n < pieces; n += w->copies.lanes)
                finish_kv_head(w, &mine, n / p->kv_heads, n % p->kv_heads);
        }
    }
}

/* Steps 1b to 3 of one kv head of a batch entry. */
static void backward_of_head(head_work *w, int64_t b, int64_t g, const heed_tensor *out,
                             const float *row_state)
{
    const heed_pipeline *pipeline = w->work.pipeline;
    const heed_problem *p = &w->work.run->plan->problem;
    w->work.head0 = b * p->heads + g * (p->heads / p->kv_heads);
    w->work.group0 = b * p->kv_heads + g;
    memset(w->cleared, 0, (size_t)(w->end - w->cleared));
    for (int i = pipeline->group_first[g]; i < pipeline->group_first[g + 1]; i++) {
        heed_back_output(&w->work, w->rows.own, b, pipeline->head[i], NULL);
        for (int64_t query0 = 0; query0 < p->queries; query0 += HEED_BACK_BLOCK)
            heed_back_queries(&w->work, &w->rows, b, pipeline->head[i], query0, out, row_state);
    }
    heed_flash_back_piece(&w->work, w->flash, b, g, 0);
    finish_kv_head(&w->work, &w->rows, b, g);
}

static void head_by_head(const heed_run *run, const heed_pipeline *pipeline, const heed_backward_work *shared,
                         const heed_tensor *out, const float *row_state)
{
    const heed_problem *p = &run->plan->problem;
    const int64_t pieces = p->batch * p->kv_heads;
#pragma omp parallel num_threads(p->threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        head_work mine = take_head_work(&arena, run->plan, pipeline, shared);
        *mine.rows.own = *pipeline;
#pragma omp for schedule(dynamic, 1)
        for (int lane = 0; lane < shared->copies.lanes; lane++) {
            heed_set_lane(shared, mine.rows.own, lane);
            for (int64_t n = lane; n < pieces; n += shared->copies.lanes)
                backward_of_head(&mine, n / p->kv_heads, n % p->kv_heads, out, row_state);
        }
    }
}

static void add_lanes(const heed_backward_work *w)
{
    const heed_run *run = w->run;
    const heed_plan *plan = run->plan;
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

/* Several pipelines add to gradients; one writes all of them. */
static void clear_tensor(const heed_tensor *t)
{
    for (int64_t a = 0; t->data && a < t->shape[0]; a++)
        for (int64_t b = 0; b < t->shape[1]; b++)
            for (int64_t c = 0; c < t->shape[2]; c++)
                for (int64_t d = 0; d < t->shape[3]; d++)
                    *(float *)((char *)t->data + a * t->stride[0] + b * t->stride[1] + c * t->stride[2] +
                               d * t->stride[3]) = 0.0f;
}

/* Large blocks, by all threads. */
static void clear_floats(float *x, size_t floats, int threads)
{
    const size_t piece = 1 << 16;
    const int64_t pieces = (int64_t)((floats + piece - 1) / piece);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < pieces; n++) {
        const size_t at = (size_t)n * piece, here = floats - at < piece ? floats - at : piece;
        memset(x + at, 0, here * sizeof(float));
    }
}

static void clear_gradients(const heed_run *run)
{
    const heed_gradients *g = run->gradients;
    if (run->plan->pipelines > 1) {
        clear_tensor(&g->dq);
        clear_tensor(&g->dk);
        clear_tensor(&g->dv);
    }
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
    const size_t floats = (size_t)(run->shared + arena.used - f.cleared) / sizeof(float);
    clear_floats((float *)(void *)f.cleared, floats, p->threads);

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
    if (by_kv_head(plan, pipeline)) {
        head_by_head(run, pipeline, &f.work, &out, row_state);
    } else {
        before_main_pass(run, pipeline, &f, &out, row_state);
        if (through_rows(pipeline))
            heed_rows_backward(&f.work);
        else if (pipeline->kernel == HEED_KERNEL_GATHER)
            heed_gather_backward(&f.work);
        else
            heed_flash_backward(&f.work);
        after_main_pass(&f.work);
    }
    add_lanes(&f.work);
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
