/* Recurrences with loops of their own: one thread takes a kv head. */
#include "scan/plan.h"

#include <string.h>

static heed_scan_own tokens_of(const heed_scan_plan *plan, const heed_scan_tensors *t, heed_scan_work *w,
                               int64_t batch, int64_t kv_head, int64_t first, int count)
{
    const int64_t value_dim = plan->problem.value_dim;
    heed_scan_prepare(plan, t, w, batch, kv_head, first, count);
    heed_scan_move_rows(&t->v, batch, kv_head, first, count, value_dim, w->value, value_dim, false);
    return (heed_scan_own){.count = count,
                           .dim = (int)plan->problem.dim,
                           .value_dim = (int)value_dim,
                           .group = plan->group,
                           .channels = plan->channels,
                           .q = w->query,
                           .k = w->rows.k,
                           .v = w->value,
                           .gate = w->rows.gate,
                           .decay = w->rows.decay,
                           .beta = w->rows.beta,
                           .state = w->state,
                           .out = w->out,
                           .work = w->weight};
}

void heed_own_pass(const heed_scan_plan *plan, const heed_scan_tensors *t, heed_scan_work *work, int64_t item,
                   int64_t tokens)
{
    const int64_t batch = item / plan->problem.kv_heads, kv_head = item % plan->problem.kv_heads;
    const int64_t size = heed_scan_state_floats(plan), value_dim = plan->problem.value_dim;
    float *all = t->state ? t->state + item * size : NULL;
    memset(work->state, 0, heed_scan_bytes_of(size));
    if (all)
        memcpy(work->state, all, heed_scan_bytes_of(size));
    for (int64_t n = 0; n < tokens; n += HEED_SCAN_TOKENS) {
        const int count = (int)(tokens - n < HEED_SCAN_TOKENS ? tokens - n : HEED_SCAN_TOKENS);
        const heed_scan_own own = tokens_of(plan, t, work, batch, kv_head, n, count);
        plan->rule->loops->pass(&plan->form, &own);
        for (int h = 0; h < plan->group; h++)
            heed_scan_move_rows(&t->out, batch, kv_head * plan->group + h, n, count, value_dim,
                                work->out + (int64_t)h * count * value_dim, value_dim, true);
    }
    if (all)
        memcpy(all, work->state, heed_scan_bytes_of(size));
}

void heed_own_back(const heed_scan_plan *plan, const heed_scan_tensors *t, const heed_tensor *dout,
                   const heed_scan_tensors *d, heed_scan_work *w, const heed_scan_rows *rows, int64_t batch,
                   int64_t kv_head, int64_t tokens)
{
    const int64_t value_dim = plan->problem.value_dim;
    heed_scan_own own = tokens_of(plan, t, w, batch, kv_head, 0, (int)tokens);
    for (int h = 0; h < plan->group; h++)
        heed_scan_move_rows(dout, batch, kv_head * plan->group + h, 0, tokens, value_dim,
                            w->dout + h * tokens * value_dim, value_dim, false);
    memset(w->dvalue, 0, heed_scan_bytes_of(tokens * value_dim));
    memset(w->state, 0, heed_scan_bytes_of(heed_scan_state_floats(plan)));
    own.dout = w->dout;
    own.dq = w->dquery;
    own.dk = rows->dk;
    own.dv = w->dvalue;
    own.dgate = rows->dgate;
    own.ddecay = rows->ddecay;
    own.dbeta = rows->dbeta;
    plan->rule->loops->back(&plan->form, &own);
    heed_scan_move_rows(&d->v, batch, kv_head, 0, tokens, value_dim, w->dvalue, value_dim, true);
}
