/* The way back. One thread goes through all columns of a kv head, so that sums over columns have one order.
 *
 * Each block of columns runs forward once and keeps its state every HEED_SCAN_TOKENS tokens; then the runs
 * from the last to the first, whose states are made again.
 */
#include "scan/plan.h"

#include <omp.h>
#include <string.h>

/* dout of one block of columns, [group][tokens][COLUMNS]: of what stands before the division by the norm. */
static void load_dout(const heed_scan_plan *plan, const heed_tensor *dout, int64_t batch, int64_t kv_head,
                      int64_t block, int64_t tokens, float *to)
{
    const int64_t dim = plan->problem.value_dim, column = block * HEED_SCAN_COLUMNS;
    for (int h = 0; h < plan->group; h++) {
        const int64_t head = kv_head * plan->group + h;
        const int64_t row = (batch * plan->problem.heads + head) * tokens;
        for (int64_t t = 0; t < tokens; t++, to += HEED_SCAN_COLUMNS) {
            const char *from = (const char *)heed_scan_at(dout, batch, head, t);
            const float factor = plan->normalises ? heed_scan_over_norm(1.0f, plan->norm[row + t]) : 1.0f;
            for (int64_t c = 0; c < HEED_SCAN_COLUMNS; c++)
                to[c] = column + c < dim
                            ? factor * *(const float *)(from + (column + c) * dout->stride[3])
                            : (plan->normalises && column + c == dim ? plan->dnorm[row + t] : 0.0f);
        }
    }
}

/* out = sum / norm: the gradient of the norm is -(dout · out) / norm. */
static void back_norm(const heed_scan_plan *plan, const heed_tensor *out, const heed_tensor *dout,
                      int64_t row, int64_t tokens)
{
    const int64_t heads = plan->problem.heads;
    for (int64_t t = 0; t < tokens; t++) {
        const char *y = (const char *)heed_scan_at(out, row / heads, row % heads, t);
        const char *dy = (const char *)heed_scan_at(dout, row / heads, row % heads, t);
        float sum = 0;
        for (int64_t e = 0; e < plan->problem.value_dim; e++)
            sum += *(const float *)(y + e * out->stride[3]) * *(const float *)(dy + e * dout->stride[3]);
        plan->dnorm[row * tokens + t] = heed_scan_over_norm(-sum, plan->norm[row * tokens + t]);
    }
}

/* Tokens first.. of the run over all of them. */
static heed_scan_run cut(heed_scan_run run, int64_t first, int count)
{
    const int64_t row = first * run.channels;
    run.count = count;
    run.key += row;
    run.keep += row;
    run.remove = run.delta ? run.remove + row : NULL;
    run.probe = run.delta ? run.probe + row : NULL;
    run.query += row;
    run.value += first * HEED_SCAN_COLUMNS;
    return run;
}

static int run_at(const heed_scan_way *way, int64_t first)
{
    return (int)(way->tokens - first < HEED_SCAN_TOKENS ? way->tokens - first : HEED_SCAN_TOKENS);
}

void heed_scan_go_back(const heed_scan_way *way, const heed_scan_work *work)
{
    const size_t bytes = heed_scan_bytes_of(way->floats);
    float *begin = work->begins, *states = work->states;
    memset(states, 0, bytes);
    for (int64_t n = 0; n < way->tokens; n += HEED_SCAN_TOKENS, begin += way->floats) {
        memcpy(begin, states, bytes);
        way->states(way->context, n, run_at(way, n), states);
        memcpy(states, states + run_at(way, n) * way->floats, bytes);
    }
    memset(work->state, 0, bytes);
    for (int64_t n = (way->tokens - 1) / HEED_SCAN_TOKENS * HEED_SCAN_TOKENS; n >= 0; n -= HEED_SCAN_TOKENS) {
        begin -= way->floats;
        memcpy(states, begin, bytes);
        way->states(way->context, n, run_at(way, n), states);
        way->back(way->context, n, run_at(way, n), states, work->state);
    }
}

/* A block of columns. */
typedef struct columns {
    const heed_scan_kernels *kernels;
    const heed_scan_run *all;
    const heed_scan_work *work;
} columns;

static void make_states(const void *context, int64_t first, int count, float *states)
{
    const columns *c = context;
    const heed_scan_run run = cut(*c->all, first, count);
    c->kernels->states(&run, states);
}

static void back_run(const void *context, int64_t first, int count, const float *states, float *dstate)
{
    const columns *c = context;
    const heed_scan_work *w = c->work;
    const heed_scan_run run = cut(*c->all, first, count);
    const int64_t row = first * run.channels;
    c->kernels->backward(&(heed_scan_back){.run = &run,
                                           .states = states,
                                           .dout = w->dout + first * HEED_SCAN_COLUMNS,
                                           .dstate = dstate,
                                           .dkey = w->dkey + row,
                                           .dkeep = w->dkeep + row,
                                           .dremove = w->dremove + row,
                                           .dprobe = w->dprobe + row,
                                           .dquery = w->dquery + row,
                                           .dvalue = w->dvalue + first * HEED_SCAN_COLUMNS});
}

static void put_values(const heed_scan_plan *plan, const heed_tensor *dv, int64_t batch, int64_t kv_head,
                       int64_t block, int64_t tokens, const float *from)
{
    const int64_t column = block * HEED_SCAN_COLUMNS;
    for (int64_t t = 0; dv->data && t < tokens; t++, from += HEED_SCAN_COLUMNS) {
        char *row = (char *)heed_scan_at(dv, batch, kv_head, t);
        for (int64_t c = 0; c < HEED_SCAN_COLUMNS && column + c < plan->problem.value_dim; c++)
            *(float *)(row + (column + c) * dv->stride[3]) = from[c];
    }
}

/* Gradients [tokens][dim] to where they are wanted. */
static void put(const heed_tensor *to, int64_t batch, int64_t head, int64_t tokens, int64_t dim, float *from)
{
    heed_scan_move_rows(to, batch, head, 0, tokens, dim, from, dim, true);
}

/* From gradients of what enters the recurrence to those of q, k and the rest. */
static void back_forms(const heed_scan_plan *plan, const heed_scan_tensors *t, const heed_tensor *dout,
                       const heed_scan_tensors *d, heed_scan_work *w, int64_t batch, int64_t kv_head,
                       int64_t tokens)
{
    const int64_t dim = plan->problem.dim, size = tokens * dim, gate = heed_scan_gate_dim(plan);
    heed_scan_rows rows = w->rows;
    memset(w->dgiven, 0, heed_scan_bytes_of(3 * size + tokens * (gate + 2)));
    rows.key = w->dkey;
    rows.keep = w->dkeep;
    rows.remove = w->dremove;
    rows.probe = w->dprobe;
    rows.dk = w->dgiven;
    rows.derase = w->dgiven + size;
    rows.drate = w->dgiven + 2 * size;
    rows.dgate = w->dgiven + 3 * size;
    rows.ddecay = rows.dgate + tokens * gate;
    rows.dbeta = rows.ddecay + tokens;
    if (plan->rule->loops)
        heed_own_back(plan, t, dout, d, w, &rows, batch, kv_head, tokens);
    else
        plan->rule->write_backward(&plan->form, &rows);
    if (!plan->slots) /* their keys do not pass through the form */
        put(&d->k, batch, kv_head, tokens, dim, rows.dk);
    put(&d->gate, batch, kv_head, tokens, gate, rows.dgate);
    put(&d->erase, batch, kv_head, tokens, dim, rows.derase);
    put(&d->rate, batch, kv_head, tokens, dim, rows.drate);
    put(&d->decay, batch, kv_head, tokens, 1, rows.ddecay);
    put(&d->beta, batch, kv_head, tokens, 1, rows.dbeta);
    for (int h = 0; t->q.data && h < plan->group; h++) {
        const int64_t head = kv_head * plan->group + h;
        float *dquery = w->dquery + (int64_t)h * tokens * heed_scan_query_dim(plan);
        if (!plan->rule->look) {
            put(&d->q, batch, head, tokens, dim, dquery);
            continue;
        }
        heed_scan_move_rows(&t->q, batch, head, 0, tokens, dim, w->q, dim, false);
        memset(w->dq, 0, heed_scan_bytes_of(size));
        plan->rule->look_backward(&plan->form, w->q, (int)tokens, (int)dim, dquery, w->dq);
        put(&d->q, batch, head, tokens, dim, w->dq);
    }
}

static void back_head(const heed_scan_plan *plan, const heed_scan_tensors *t, const heed_tensor *dout,
                      const heed_scan_tensors *d, heed_scan_work *w, int64_t item, int64_t tokens)
{
    const int64_t batch = item / plan->problem.kv_heads, kv_head = item % plan->problem.kv_heads;
    const int64_t rows = tokens * plan->channels;
    memset(w->carry, 0, heed_scan_bytes_of(plan->rule->carried));
    heed_scan_prepare(plan, t, w, batch, kv_head, 0, (int)tokens);
    memset(w->dkey, 0, heed_scan_bytes_of(rows));
    memset(w->dkeep, 0, heed_scan_bytes_of(rows));
    memset(w->dremove, 0, heed_scan_bytes_of(rows));
    memset(w->dprobe, 0, heed_scan_bytes_of(rows));
    memset(w->dquery, 0, heed_scan_bytes_of(tokens * plan->group * heed_scan_query_dim(plan)));
    if (plan->slots)
        heed_slots_back_head(plan, t, dout, d, w, batch, kv_head, tokens);
    const heed_scan_run run = heed_scan_run_of(plan, w, (int)tokens);
    const columns block_columns = {plan->kernels, &run, w};
    const heed_scan_way way = {.tokens = tokens,
                               .floats = (int64_t)plan->channels * HEED_SCAN_COLUMNS,
                               .states = make_states,
                               .back = back_run,
                               .context = &block_columns};
    for (int64_t block = 0; !plan->whole && block < plan->blocks; block++) {
        heed_scan_load_values(plan, &t->v, batch, kv_head, block, 0, (int)tokens, w->value);
        load_dout(plan, dout, batch, kv_head, block, tokens, w->dout);
        heed_scan_go_back(&way, w);
        put_values(plan, &d->v, batch, kv_head, block, tokens, w->dvalue);
    }
    back_forms(plan, t, dout, d, w, batch, kv_head, tokens);
}

static heed_status check_gradients(const heed_scan_plan *plan, const heed_scan_tensors *t,
                                   const heed_scan_tensors *d, int64_t tokens)
{
    heed_scan_tensors shapes = *d;
    int64_t same;
    shapes.q = d->q.data ? d->q : t->q;
    shapes.k = d->k.data ? d->k : t->k;
    shapes.v = d->v.data ? d->v : t->v;
    shapes.decay = d->decay.data ? d->decay : t->decay;
    shapes.gate = d->gate.data ? d->gate : t->gate;
    shapes.beta = d->beta.data ? d->beta : t->beta;
    shapes.erase = d->erase.data ? d->erase : t->erase;
    shapes.rate = d->rate.data ? d->rate : t->rate;
    shapes.out = t->out;
    TRY(heed_scan_check(plan, &shapes, &same));
    return same == tokens ? HEED_OK : heed_fail(HEED_INVALID, "gradients have another number of tokens");
}

heed_status heed_scan_backward(heed_scan_plan *plan, const heed_scan_tensors *tensors,
                               const heed_tensor *dout, const heed_scan_tensors *gradients)
{
    if (!plan || !tensors || !dout || !gradients)
        return heed_fail(HEED_INVALID, "plan, tensors, dout and gradients must not be NULL");
    if (!plan->problem.backward)
        return heed_fail(HEED_INVALID, "the plan was made without backward");
    if (tensors->state)
        return heed_fail(HEED_UNSUPPORTED, "gradients are made of runs that begin with an empty state");
    int64_t tokens;
    TRY(heed_scan_check(plan, tensors, &tokens));
    heed_scan_tensors with = *tensors;
    with.out = *dout;
    int64_t same;
    TRY(heed_scan_check(plan, &with, &same));
    TRY(check_gradients(plan, tensors, gradients, tokens));
    if (tokens == 0)
        return HEED_OK;
    const heed_scan_problem *p = &plan->problem;
#pragma omp parallel num_threads(p->threads)
    {
        heed_scan_work work;
        heed_scan_lay_out(plan, plan->memory + (size_t)omp_get_thread_num() * plan->per_thread, &work);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < (plan->normalises ? p->batch * p->heads : 0); row++)
            back_norm(plan, &tensors->out, dout, row, tokens);
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < p->batch * p->kv_heads; item++)
            back_head(plan, tensors, dout, gradients, &work, item, tokens);
    }
    return HEED_OK;
}
