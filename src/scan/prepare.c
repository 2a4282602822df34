/* Rows of tokens, as the recurrence reads them. */
#include "scan/plan.h"

#include <string.h>

size_t heed_scan_lay_out(const heed_scan_plan *plan, char *memory, heed_scan_work *work)
{
    const heed_scan_problem *p = &plan->problem;
    const bool back = p->backward;
    const size_t run = p->tokens < HEED_SCAN_TOKENS ? (size_t)p->tokens : HEED_SCAN_TOKENS;
    const size_t tokens = back ? (size_t)p->tokens : run, dim = (size_t)p->dim;
    const size_t channels = (size_t)plan->channels, group = (size_t)plan->group;
    const size_t gate = (size_t)heed_scan_gate_dim(plan), given = 3 * dim + gate + 2;
    const size_t query = tokens * (size_t)heed_scan_query_dim(plan), rows = tokens * channels;
    /* of values, of outputs, and columns of the state */
    const heed_scan_loops *loops = plan->rule->loops;
    const size_t value = plan->whole ? (size_t)plan->columns : HEED_SCAN_COLUMNS;
    const size_t out = plan->whole ? (size_t)p->value_dim : HEED_SCAN_COLUMNS;
    const size_t state = loops ? (size_t)loops->state(&plan->form) : channels * value;
    const size_t blocks = plan->together ? (size_t)plan->blocks : 1;
    heed_arena arena = {.base = memory};
#define TAKE(count) heed_arena_take(&arena, count, sizeof(float))
    *work = (heed_scan_work){.rows = {.dim = (int)p->dim, .channels = plan->channels}};
    work->given = TAKE(tokens * given);
    work->q = TAKE(tokens * dim);
    work->rows.key = TAKE(rows);
    work->rows.keep = TAKE(rows);
    if (plan->rule->flags & HEED_SCAN_DELTA) {
        work->rows.remove = TAKE(rows);
        work->rows.probe = TAKE(rows);
    }
    work->query = TAKE(group * query);
    work->value = TAKE(tokens * value);
    work->out = TAKE(group * run * out);
    work->state = TAKE(blocks * state);
    work->weight = TAKE(loops         ? (size_t)loops->work(&plan->form, (int64_t)tokens, back)
                        : plan->slots ? 2 * channels
                                      : 0);
    work->carry = TAKE((size_t)plan->rule->carried);
    work->rows.carry = work->carry;
    if (back) {
        work->dkey = TAKE(rows);
        work->dkeep = TAKE(rows);
        work->dremove = TAKE(rows);
        work->dprobe = TAKE(rows);
        work->dquery = TAKE(group * query);
        work->dgiven = TAKE(tokens * given);
        work->dvalue = TAKE(tokens * value);
        work->dout = TAKE(group * tokens * out);
        work->dq = TAKE(tokens * dim);
        work->states = TAKE(loops ? 0 : (run + 1) * state);
        work->begins = TAKE(loops ? 0 : (tokens + run - 1) / run * state);
    }
#undef TAKE
    return arena.overflow ? SIZE_MAX : arena.used;
}

void heed_scan_move_rows(const heed_tensor *t, int64_t batch, int64_t head, int64_t first, int64_t count,
                         int64_t dim, float *rows, int64_t width, bool back)
{
    const int64_t stride = t->rank == 4 ? t->stride[3] : (int64_t)sizeof(float);
    for (int64_t n = 0; t->data && n < count; n++, rows += width) {
        char *outside = (char *)heed_scan_at(t, batch, head, first + n);
        if (stride == sizeof(float)) {
            memcpy(back ? outside : (char *)rows, back ? (char *)rows : outside, (size_t)dim * sizeof(float));
            continue;
        }
        for (int64_t d = 0; d < dim; d++) {
            float *entry = (float *)(outside + d * stride);
            *(back ? entry : rows + d) = *(back ? rows + d : entry);
        }
    }
}

/* Rows one behind the other: where they lie, if they lie so, else copied to `to`; NULL where the tensor is
 * not read. */
static const float *gather(const heed_tensor *from, int64_t batch, int64_t head, int64_t first, int count,
                           int64_t dim, float *to)
{
    const int64_t size = sizeof(float);
    if (from->data && (from->rank == 3 || from->stride[3] == size) && from->stride[2] == dim * size)
        return heed_scan_at(from, batch, head, first);
    heed_scan_move_rows(from, batch, head, first, count, dim, to, dim, false);
    return from->data ? to : NULL;
}

void heed_scan_prepare(const heed_scan_plan *plan, const heed_scan_tensors *t, heed_scan_work *work,
                       int64_t batch, int64_t kv_head, int64_t first, int count)
{
    const int64_t dim = plan->problem.dim, size = (int64_t)count * dim, gate = heed_scan_gate_dim(plan);
    heed_scan_rows *rows = &work->rows;
    float *to = work->given, *numbers = to + 3 * size + count * gate;
    rows->count = count;
    rows->head = kv_head;
    rows->first = first;
    rows->k = gather(&t->k, batch, kv_head, first, count, dim, to);
    rows->erase = gather(&t->erase, batch, kv_head, first, count, dim, to + size);
    rows->rate = gather(&t->rate, batch, kv_head, first, count, dim, to + 2 * size);
    rows->gate = gather(&t->gate, batch, kv_head, first, count, gate, to + 3 * size);
    rows->decay = gather(&t->decay, batch, kv_head, first, count, 1, numbers);
    rows->beta = gather(&t->beta, batch, kv_head, first, count, 1, numbers + count);
    if (plan->rule->write)
        plan->rule->write(&plan->form, rows);
    for (int h = 0; h < plan->group; h++) {
        float *query = work->query + (int64_t)h * count * heed_scan_query_dim(plan);
        const int64_t head = kv_head * plan->group + h;
        if (plan->rule->look)
            plan->rule->look(&plan->form, gather(&t->q, batch, head, first, count, dim, work->q), count,
                             (int)dim, query);
        else
            heed_scan_move_rows(&t->q, batch, head, first, count, dim, query, dim, false);
    }
}

int heed_scan_real_columns(const heed_scan_plan *plan, int64_t block)
{
    const int64_t left = plan->problem.value_dim - block * HEED_SCAN_COLUMNS;
    return left < 0 ? 0 : left < HEED_SCAN_COLUMNS ? (int)left : HEED_SCAN_COLUMNS;
}

void heed_scan_load_values(const heed_scan_plan *plan, const heed_tensor *v, int64_t batch, int64_t kv_head,
                           int64_t block, int64_t first, int count, float *to)
{
    const int real = heed_scan_real_columns(plan, block);
    const int64_t stride = v->stride[3];
    for (int t = 0; t < count; t++, to += HEED_SCAN_COLUMNS) {
        const char *row =
            (const char *)heed_scan_at(v, batch, kv_head, first + t) + block * HEED_SCAN_COLUMNS * stride;
        if (stride == sizeof(float))
            memcpy(to, row, (size_t)real * sizeof(float));
        else
            for (int c = 0; c < real; c++)
                to[c] = *(const float *)(row + c * stride);
        for (int c = real; c < HEED_SCAN_COLUMNS; c++)
            to[c] = (float)(plan->normalises && c == real);
    }
}

heed_scan_run heed_scan_run_of(const heed_scan_plan *plan, const heed_scan_work *work, int count)
{
    return (heed_scan_run){.count = count,
                           .channels = plan->channels,
                           .queries = plan->group,
                           .apart = count,
                           .delta = plan->rule->flags & HEED_SCAN_DELTA,
                           .key = work->rows.key,
                           .keep = work->rows.keep,
                           .remove = work->rows.remove,
                           .probe = work->rows.probe,
                           .query = work->query,
                           .value = work->value,
                           .state = work->state,
                           .out = work->out};
}
