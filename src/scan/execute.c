/* The way forward. */
#include "scan/plan.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

/* One tensor against the plan: [batch, heads, tokens, dim], without the last where dim is 0. */
static heed_status check(const heed_scan_plan *plan, const heed_tensor *t, const char *name, bool wanted,
                         int64_t heads, int64_t tokens, int64_t dim)
{
    const int64_t shape[] = {plan->problem.batch, heads, tokens, dim};
    const int rank = dim ? 4 : 3;
    if (!wanted && !t->data)
        return HEED_OK;
    if (!wanted)
        return heed_fail(HEED_INVALID, "%s is not read by scan=%s", name, plan->form.form->name);
    if (!t->data)
        return heed_fail(HEED_INVALID, "scan=%s reads %s, which is missing", plan->form.form->name, name);
    if (t->type == HEED_F32 && t->rank == rank && !memcmp(t->shape, shape, (size_t)rank * sizeof *shape))
        return HEED_OK;
    char last[24] = "";
    if (dim)
        snprintf(last, sizeof last, ", %lld", (long long)dim);
    return heed_fail(HEED_INVALID, "%s must be f32 [%lld, %lld, %lld%s]", name, (long long)shape[0],
                     (long long)heads, (long long)tokens, last);
}

heed_status heed_scan_check(const heed_scan_plan *plan, const heed_scan_tensors *t, int64_t *tokens)
{
    const heed_scan_problem *p = &plan->problem;
    const unsigned flags = plan->rule->flags;
    if (t->v.rank != 4 || t->v.shape[2] < 0 || t->v.shape[2] > p->tokens)
        return heed_fail(HEED_INVALID,
                         "v must be [batch, kv_heads, tokens, value_dim] of at most %lld tokens",
                         (long long)p->tokens);
    const int64_t n = *tokens = t->v.shape[2], kv = p->kv_heads;
    TRY(check(plan, &t->q, "q", !(flags & HEED_SCAN_NO_QUERIES), p->heads, n, p->dim));
    TRY(check(plan, &t->k, "k", !(flags & HEED_SCAN_NO_KEYS), kv, n, p->dim));
    TRY(check(plan, &t->v, "v", true, kv, n, p->value_dim));
    TRY(check(plan, &t->decay, "decay", flags & HEED_SCAN_READS_DECAY, kv, n, 0));
    TRY(check(plan, &t->gate, "gate", flags & HEED_SCAN_READS_GATE, kv, n, heed_scan_gate_dim(plan)));
    TRY(check(plan, &t->beta, "beta", flags & HEED_SCAN_READS_BETA, kv, n, 0));
    TRY(check(plan, &t->erase, "erase", flags & HEED_SCAN_READS_ERASE, kv, n, p->dim));
    TRY(check(plan, &t->rate, "rate", flags & HEED_SCAN_READS_RATE, kv, n, p->dim));
    return check(plan, &t->out, "out", true, p->heads, n, p->value_dim);
}

/* Columns of the caller's state of one kv head, to and from rows of `width` floats. */
static void move_state(const heed_scan_plan *plan, float *all, int64_t block, float *local, int64_t width,
                       bool back)
{
    const int64_t column = block * HEED_SCAN_COLUMNS, left = plan->columns - column;
    const size_t bytes = (size_t)(left < width ? left : width) * sizeof(float);
    for (int64_t r = 0; r < plan->channels; r++) {
        float *outside = all + r * plan->columns + column, *inside = local + r * width;
        memcpy(back ? outside : inside, back ? inside : outside, bytes);
    }
}

static void write_norm(const heed_scan_plan *plan, const heed_scan_work *work, int64_t row, int count,
                       int64_t tokens)
{
    for (int h = 0; h < plan->group; h++)
        memcpy(plan->norm + row + h * tokens, work->out + (int64_t)h * count, (size_t)count * sizeof(float));
}

static void write_out(const heed_scan_plan *plan, const heed_scan_tensors *t, const heed_scan_work *work,
                      int64_t batch, int64_t kv_head, int64_t block, int64_t first, int count, int64_t tokens)
{
    const int real = heed_scan_real_columns(plan, block);
    const int64_t stride = t->out.stride[3], column = block * HEED_SCAN_COLUMNS;
    const bool has_norm = plan->normalises && real < HEED_SCAN_COLUMNS;
    for (int h = 0; h < plan->group; h++) {
        const int64_t head = kv_head * plan->group + h;
        for (int n = 0; n < count; n++) {
            const float *from = work->out + ((int64_t)h * count + n) * HEED_SCAN_COLUMNS;
            char *row = (char *)heed_scan_at(&t->out, batch, head, first + n) + column * stride;
            if (stride == sizeof(float))
                memcpy(row, from, (size_t)real * sizeof(float));
            else
                for (int c = 0; c < real; c++)
                    *(float *)(row + c * stride) = from[c];
            if (has_norm)
                plan->norm[(batch * plan->problem.heads + head) * tokens + first + n] = from[real];
        }
    }
}

/* Rows of the tokens that come next. */
static int find_soon(const heed_scan_tensors *t, int64_t batch, int64_t kv_head, int64_t head, int64_t first,
                     heed_scan_soon soon[HEED_SCAN_SOON])
{
    const struct {
        const heed_tensor *tensor;
        int64_t head;
    } each[HEED_SCAN_SOON] = {{&t->q, head},        {&t->k, kv_head},    {&t->v, kv_head},
                              {&t->decay, kv_head}, {&t->gate, kv_head}, {&t->beta, kv_head},
                              {&t->erase, kv_head}, {&t->rate, kv_head}, {&t->out, head}};
    int count = 0;
    for (int i = 0; i < HEED_SCAN_SOON; i++)
        if (each[i].tensor->data && each[i].tensor->rank == 4)
            soon[count++] = (heed_scan_soon){
                (const char *)heed_scan_at(each[i].tensor, batch, each[i].head, first),
                each[i].tensor->stride[2], each[i].tensor->shape[3] * (int64_t)sizeof(float)};
    return count;
}

/* The state of a block of columns between the caller's and that of the work, with what the form carries: each
 * block has its own behind the state, as blocks may be other threads'. The norm has a column of its own
 * behind whole blocks. */
static void exchange_state(const heed_scan_plan *plan, heed_scan_work *work, float *all, int64_t block,
                           float *state, bool back)
{
    const int64_t width = heed_scan_real_columns(plan, block) ? HEED_SCAN_COLUMNS : 1;
    const size_t carried = heed_scan_bytes_of(plan->rule->carried);
    if (!back) {
        memset(state, 0, (size_t)(plan->channels * width) * sizeof(float));
        memset(work->carry, 0, carried);
    }
    if (!all)
        return;
    float *carry = all + plan->channels * plan->columns + block * plan->rule->carried;
    move_state(plan, all, block, state, width, back);
    memcpy(back ? carry : work->carry, back ? work->carry : carry, carried);
}

/* Some tokens, whose rows are made, through one block of columns. */
static void pass_block(const heed_scan_plan *plan, const heed_scan_tensors *t, heed_scan_work *work,
                       heed_scan_run *run, int64_t batch, int64_t kv_head, int64_t block, int64_t n,
                       int64_t tokens)
{
    if (heed_scan_real_columns(plan, block) == 0) {
        plan->kernels->norm(run);
        write_norm(plan, work, (batch * plan->problem.heads + kv_head * plan->group) * tokens + n, run->count,
                   tokens);
        return;
    }
    heed_scan_load_values(plan, &t->v, batch, kv_head, block, n, run->count, work->value);
    plan->kernels->forward(run);
    write_out(plan, t, work, batch, kv_head, block, n, run->count, tokens);
}

/* Rows first.. of a head, divided by their norms. */
static void normalise(const heed_scan_plan *plan, const heed_scan_tensors *t, int64_t row, int64_t first,
                      int64_t count, int64_t tokens)
{
    const int64_t heads = plan->problem.heads, dim = plan->problem.value_dim, stride = t->out.stride[3];
    for (int64_t n = first; n < first + count; n++) {
        const float factor = heed_scan_over_norm(1.0f, plan->norm[row * tokens + n]);
        float *to = heed_scan_at(&t->out, row / heads, row % heads, n);
        if (stride == sizeof(float))
            for (int64_t e = 0; e < dim; e++)
                to[e] *= factor;
        else
            for (int64_t e = 0; e < dim; e++)
                *(float *)((char *)to + e * stride) *= factor;
    }
}

/* All tokens of one kv head and of all its blocks of columns, or of one. */
static void pass(const heed_scan_plan *plan, const heed_scan_tensors *t, heed_scan_work *work, int64_t item,
                 int64_t tokens)
{
    const int64_t parts = plan->together ? 1 : plan->blocks, size = plan->channels * HEED_SCAN_COLUMNS;
    const int64_t first = item % parts, last = plan->together ? plan->blocks : first + 1, head = item / parts;
    const int64_t batch = head / plan->problem.kv_heads, kv_head = head % plan->problem.kv_heads;
    float *all = t->state ? t->state + head * heed_scan_state_floats(plan) : NULL;
    heed_scan_soon soon[HEED_SCAN_SOON];
    for (int64_t block = first; block < last; block++)
        exchange_state(plan, work, all, block, work->state + (block - first) * size, false);
    for (int64_t n = 0; n < tokens; n += HEED_SCAN_TOKENS) {
        const int count = (int)(tokens - n < HEED_SCAN_TOKENS ? tokens - n : HEED_SCAN_TOKENS);
        heed_scan_prepare(plan, t, work, batch, kv_head, n, count);
        for (int64_t block = first; block < last; block++) {
            heed_scan_run run = heed_scan_run_of(plan, work, count);
            run.state += (block - first) * size;
            run.soon = soon;
            if (block == first && n + 2 * HEED_SCAN_TOKENS <= tokens)
                run.soons = find_soon(t, batch, kv_head, kv_head * plan->group, n + count, soon);
            pass_block(plan, t, work, &run, batch, kv_head, block, n, tokens);
        }
        for (int h = 0; h < (plan->normalises && plan->together ? plan->group : 0); h++)
            normalise(plan, t, batch * plan->problem.heads + kv_head * plan->group + h, n, count, tokens);
    }
    for (int64_t block = first; block < last; block++)
        exchange_state(plan, work, all, block, work->state + (block - first) * size, true);
}

heed_status heed_scan(heed_scan_plan *plan, const heed_scan_tensors *tensors)
{
    if (!plan || !tensors)
        return heed_fail(HEED_INVALID, "plan and tensors must not be NULL");
    int64_t tokens;
    TRY(heed_scan_check(plan, tensors, &tokens));
    const heed_scan_problem *p = &plan->problem;
    const int64_t items = p->batch * p->kv_heads * (plan->together ? 1 : plan->blocks),
                  rows = p->batch * p->heads;
#pragma omp parallel num_threads(p->threads)
    {
        heed_scan_work work;
        heed_scan_lay_out(plan, plan->memory + (size_t)omp_get_thread_num() * plan->per_thread, &work);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < items; i++)
            (plan->slots         ? heed_slots_pass
             : plan->rule->loops ? heed_own_pass
                                 : pass)(plan, tensors, &work, i, tokens);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < (plan->normalises && !plan->together ? rows : 0); row++)
            normalise(plan, tensors, row, 0, tokens, tokens);
    }
    return HEED_OK;
}
