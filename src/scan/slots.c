/* Recurrences whose state is a few slots: one thread takes a kv head, all columns at once. */
#include "scan/plan.h"

#include <string.h>

static int64_t width_of(const heed_scan_plan *plan)
{
    return plan->problem.dim + plan->problem.value_dim;
}

static void load_rows(const heed_scan_plan *plan, const heed_scan_tensors *t, int64_t batch, int64_t head,
                      int64_t first, int count, float *rows)
{
    const int64_t dim = plan->problem.dim, width = width_of(plan);
    heed_scan_move_rows(&t->k, batch, head, first, count, dim, rows, width, false);
    heed_scan_move_rows(&t->v, batch, head, first, count, plan->problem.value_dim, rows + dim, width, false);
}

static heed_slots_run run_of(const heed_scan_plan *plan, const heed_scan_work *w, int count)
{
    return (heed_slots_run){.count = count,
                            .slots = plan->channels,
                            .queries = plan->group,
                            .dim = plan->problem.dim,
                            .value_dim = plan->problem.value_dim,
                            .apart = count,
                            .key = w->rows.key,
                            .keep = w->rows.keep,
                            .query = w->query,
                            .rows = w->value,
                            .state = w->state,
                            .out = w->out,
                            .weight = w->weight};
}

void heed_slots_pass(const heed_scan_plan *plan, const heed_scan_tensors *t, heed_scan_work *work,
                     int64_t item, int64_t tokens)
{
    const int64_t batch = item / plan->problem.kv_heads, kv_head = item % plan->problem.kv_heads;
    const int64_t size = heed_scan_state_floats(plan), value_dim = plan->problem.value_dim;
    float *all = t->state ? t->state + item * size : NULL;
    if (all)
        memcpy(work->state, all, heed_scan_bytes_of(size));
    else
        memset(work->state, 0, heed_scan_bytes_of(size));
    for (int64_t n = 0; n < tokens; n += HEED_SCAN_TOKENS) {
        const int count = (int)(tokens - n < HEED_SCAN_TOKENS ? tokens - n : HEED_SCAN_TOKENS);
        heed_scan_prepare(plan, t, work, batch, kv_head, n, count);
        load_rows(plan, t, batch, kv_head, n, count, work->value);
        const heed_slots_run run = run_of(plan, work, count);
        plan->slots->forward(&run);
        for (int h = 0; h < plan->group; h++)
            heed_scan_move_rows(&t->out, batch, kv_head * plan->group + h, n, count, value_dim,
                                work->out + (int64_t)h * count * value_dim, value_dim, true);
    }
    if (all)
        memcpy(all, work->state, heed_scan_bytes_of(size));
}

/* Tokens first.. of the run over all of them. */
static heed_slots_run cut(heed_slots_run run, int64_t first, int count)
{
    run.count = count;
    run.key += first * run.slots;
    run.keep += first * run.slots;
    run.query += first * run.dim;
    run.rows += first * (run.dim + run.value_dim);
    return run;
}

/* The way back of a kv head. */
typedef struct slots_way {
    const heed_scan_plan *plan;
    const heed_slots_run *all;
    const heed_scan_work *work;
} slots_way;

static void make_states(const void *context, int64_t first, int count, float *states)
{
    const slots_way *way = context;
    const heed_slots_run run = cut(*way->all, first, count);
    way->plan->slots->states(&run, states);
}

static void back_run(const void *context, int64_t first, int count, const float *states, float *dstate)
{
    const slots_way *way = context;
    const heed_scan_work *w = way->work;
    const heed_slots_run run = cut(*way->all, first, count);
    way->plan->slots->backward(&(heed_slots_back){.run = &run,
                                                  .states = states,
                                                  .dout = w->dout + first * run.value_dim,
                                                  .dstate = dstate,
                                                  .dkey = w->dkey + first * run.slots,
                                                  .dkeep = w->dkeep + first * run.slots,
                                                  .drows = w->dvalue + first * (run.dim + run.value_dim),
                                                  .dquery = w->dquery + first * run.dim});
}

void heed_slots_back_head(const heed_scan_plan *plan, const heed_scan_tensors *t, const heed_tensor *dout,
                          const heed_scan_tensors *d, heed_scan_work *w, int64_t batch, int64_t kv_head,
                          int64_t tokens)
{
    const int64_t width = width_of(plan), dim = plan->problem.dim, value_dim = plan->problem.value_dim;
    load_rows(plan, t, batch, kv_head, 0, (int)tokens, w->value);
    for (int h = 0; h < plan->group; h++)
        heed_scan_move_rows(dout, batch, kv_head * plan->group + h, 0, tokens, value_dim,
                            w->dout + h * tokens * value_dim, value_dim, false);
    const heed_slots_run all = run_of(plan, w, (int)tokens);
    memset(w->dvalue, 0, heed_scan_bytes_of(tokens * width));
    heed_scan_go_back(&(heed_scan_way){.tokens = tokens,
                                       .floats = heed_scan_state_floats(plan),
                                       .states = make_states,
                                       .back = back_run,
                                       .context = &(slots_way){plan, &all, w}},
                      w);
    heed_scan_move_rows(&d->k, batch, kv_head, 0, tokens, dim, w->dvalue, width, true);
    heed_scan_move_rows(&d->v, batch, kv_head, 0, tokens, value_dim, w->dvalue + dim, width, true);
}
