/* Running heed on a problem: tensors in their types and layouts, parameters by name, captures. */
#include "support/attend.h"

#include "support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64 }; /* bytes of scratch that nobody may touch */

static heed_tensor view(void *data, heed_type type, const int64_t shape[4], attend_layout layout)
{
    heed_tensor t = heed_tensor_dense(data, type, 4, shape);
    const int64_t row = heed_type_bytes(type, shape[3]), one = row / (shape[3] ? shape[3] : 1);
    if (layout == LAYOUT_HEADS_INSIDE) {
        t.stride[1] = row;
        t.stride[2] = shape[1] * row;
    } else if (layout == LAYOUT_TRANSPOSED) {
        t.stride[2] = one;
        t.stride[3] = shape[2] * one;
    }
    return t;
}

static char *place(const heed_tensor *t, int64_t a, int64_t b, int64_t c)
{
    return (char *)t->data + a * t->stride[0] + b * t->stride[1] + c * t->stride[2];
}

/* One row of values into a tensor. */
static void put_row(const heed_tensor *t, int64_t a, int64_t b, int64_t c, const float *x)
{
    char *at = place(t, a, b, c);
    const int64_t n = t->shape[3];
    if (t->type == HEED_Q8 || t->type == HEED_Q4 || t->stride[3] == heed_type_bytes(t->type, 1)) {
        heed_store(t->type, x, at, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        heed_store(t->type, x + i, at + i * t->stride[3], 1);
}

/* A new tensor filled with bytes that read as NaN in every type. */
static heed_tensor blank(heed_type type, const int64_t shape[4], attend_layout layout)
{
    const size_t bytes = (size_t)(shape[0] * shape[1] * shape[2] * heed_type_bytes(type, shape[3]));
    void *data = malloc(bytes + 1);
    memset(data, 0xff, bytes + 1);
    return view(data, type, shape, layout);
}

static heed_tensor stored(heed_type type, const float *x, const int64_t shape[4], attend_layout layout)
{
    if (type == HEED_Q8 || type == HEED_Q4)
        layout = layout == LAYOUT_TRANSPOSED ? LAYOUT_DENSE : layout;
    const heed_tensor t = blank(type, shape, layout);
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t c = 0; c < shape[2]; c++)
                put_row(&t, a, b, c, x + ((a * shape[1] + b) * shape[2] + c) * shape[3]);
    return t;
}

/* A pool of pages in which the keys of a batch lie scattered; unused places hold NaN. */
static heed_tensor pooled(heed_type type, const float *x, const int64_t shape[4], int64_t page,
                          const int32_t *table, int64_t pages)
{
    const int64_t each = (shape[2] + page - 1) / page;
    const heed_tensor t = blank(type, (int64_t[]){pages, shape[1], page, shape[3]}, LAYOUT_DENSE);
    for (int64_t a = 0; a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t c = 0; c < shape[2]; c++)
                put_row(&t, table[a * each + c / page], b, c % page,
                        x + ((a * shape[1] + b) * shape[2] + c) * shape[3]);
    return t;
}

/* A dense copy of an f32 tensor; frees the tensor's memory. */
static float *taken(heed_tensor t)
{
    const int64_t *n = t.shape;
    float *x = malloc((size_t)(n[0] * n[1] * n[2] * n[3] + 1) * sizeof *x), *at = x;
    for (int64_t a = 0; a < n[0]; a++)
        for (int64_t b = 0; b < n[1]; b++)
            for (int64_t c = 0; c < n[2]; c++)
                for (int64_t i = 0; i < n[3]; i++)
                    memcpy(at++, place(&t, a, b, c) + i * t.stride[3], sizeof *at);
    free(t.data);
    return x;
}

static heed_tensor list_of(int32_t *x, int64_t batch, bool batched, int64_t n)
{
    if (!x)
        return (heed_tensor){0};
    return batched ? heed_tensor_dense(x, HEED_I32, 2, (int64_t[]){batch, n})
                   : heed_tensor_dense(x, HEED_I32, 1, (int64_t[]){n});
}

static heed_tensor mask_of(const attend_data *d)
{
    const attend_case *c = &d->c;
    const int64_t batch = d->o->problem.mask_batch, heads = d->o->problem.mask_heads;
    switch (c->mask) {
    case MASK_NONE:
        return (heed_tensor){0};
    case MASK_NM:
        return heed_tensor_dense(d->mask, HEED_U8, 2, (int64_t[]){c->queries, c->keys});
    case MASK_BNM:
        return heed_tensor_dense(d->mask, HEED_U8, 3, (int64_t[]){batch, c->queries, c->keys});
    default:
        return heed_tensor_dense(d->mask, HEED_U8, 4, (int64_t[]){batch, heads, c->queries, c->keys});
    }
}

typedef struct catcher {
    float *weights;
    int64_t heads, queries, keys;
} catcher;

static void catch_tile(void *context, const heed_weights_tile *tile)
{
    const catcher *c = context;
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++) {
            const int64_t row = (tile->batch * c->heads + tile->head) * c->queries + tile->query0 + i;
            c->weights[row * c->keys + tile->key0 + j] = tile->weight[i * tile->stride + j];
        }
}

static float *floats(int64_t n)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i <= n; i++)
        x[i] = NAN;
    return x;
}

static void ask_for_captures(const attend_data *d, const attend_way *way, attend_result *r, heed_extra *extra,
                             catcher *sink)
{
    const attend_case *c = &d->c;
    const int64_t rows = c->batch * c->heads * c->queries;
    if (way->weights) {
        r->weights = calloc((size_t)(rows * c->keys + 1), sizeof(float));
        *sink = (catcher){r->weights, c->heads, c->queries, c->keys};
        extra->capture.sink = catch_tile;
        extra->capture.sink_context = sink;
    }
    if (way->statistics) {
        extra->capture.entropy = r->entropy = floats(rows);
        extra->capture.key_sums = r->key_sums = floats(c->batch * c->heads * c->keys);
    }
    if (way->top) {
        extra->capture.top_weight = r->top_weight = floats(rows * way->top);
        extra->capture.top_key = r->top_key = malloc((size_t)(rows * way->top + 1) * sizeof(int32_t));
    }
}

static unsigned flags(const attend_data *d, const attend_way *way)
{
    return (d->q_pos || d->k_pos ? HEED_WITH_POSITIONS : 0) | (d->seq ? HEED_WITH_SEQ : 0) |
           (d->q_segment ? HEED_WITH_SEGMENTS : 0) | (d->mask ? HEED_WITH_MASK : 0) |
           (way->page ? HEED_WITH_PAGES : 0) | (way->backward ? HEED_WITH_BACKWARD : 0) |
           (way->statistics ? HEED_WITH_ENTROPY | HEED_WITH_KEY_SUMS : 0) | (way->top ? HEED_WITH_TOP : 0) |
           (way->weights ? HEED_WITH_WEIGHTS : 0);
}

/* The plan knows the initial values itself, so that the parameter may be absent. */
static void leave_initial(const heed_plan *plan, int i, const oracle_param *p, heed_tensor *param)
{
    float *known = param->data, *own = malloc((size_t)(p->count + 1) * sizeof *own);
    assert_int_equal(heed_plan_param_initial(plan, i, own), HEED_OK);
    for (int64_t e = 0; e < p->count; e++)
        if (own[e] != known[e])
            fail_msg("%s[%lld] begins as %.9g, not %.9g", p->name, (long long)e, own[e], known[e]);
    free(own);
    free(known);
    *param = (heed_tensor){0};
}

/* The plan's parameters, filled from the oracle's by name; `which` says which of them each is. */
static int bind_params(const attend_data *d, const heed_plan *plan, heed_tensor *params, int *which)
{
    const int n = heed_plan_params(plan);
    assert_int_equal(n, d->o->params);
    for (int i = 0; i < n; i++) {
        heed_plan_param_info info;
        assert_int_equal(heed_plan_param(plan, i, &info), HEED_OK);
        const oracle_param *p = oracle_find_param(d->o, info.name);
        if (!p)
            fail_msg("no such parameter is known: %s", info.name);
        which[i] = (int)(p - d->o->param);
        assert_int_equal(info.rank, p->rank);
        for (int s = 0; s < p->rank; s++)
            if (info.shape[s] != p->shape[s] && !(info.free[s] && p->shape[s] == 1))
                fail_msg("%s has %lld entries in dimension %d, %lld are right", info.name,
                         (long long)info.shape[s], s, (long long)p->shape[s]);
        float *x = malloc((size_t)(p->count + 1) * sizeof *x);
        for (int64_t e = 0; e < p->count; e++)
            x[e] = (float)p->value[e];
        params[i] = heed_tensor_dense(x, HEED_F32, p->rank, p->shape);
        assert_int_equal(info.required, p->required);
        if (d->c.initial && !p->required)
            leave_initial(plan, i, p, &params[i]);
    }
    return n;
}

static void run_backward(const attend_data *d, const heed_plan *plan, const attend_way *way, attend_result *r,
                         heed_gradients *g, int n, const int *which)
{
    const attend_case *c = &d->c;
    const int64_t q_shape[4] = {c->batch, c->heads, c->queries, c->dim};
    const int64_t k_shape[4] = {c->batch, c->kv_heads, c->keys, c->dim};
    const int64_t v_shape[4] = {c->batch, c->kv_heads, c->keys, c->value_dim};
    const int64_t out_shape[4] = {c->batch, c->heads, c->queries, c->value_dim};
    heed_tensor dparams[16] = {{0}};
    g->dout = stored(HEED_F32, d->dout, out_shape, way->layout);
    g->dq = blank(HEED_F32, q_shape, way->layout);
    g->dk = blank(HEED_F32, k_shape, way->layout);
    g->dv = blank(HEED_F32, v_shape, way->layout);
    for (int i = 0; i < n; i++) {
        const oracle_param *p = &d->o->param[which[i]];
        dparams[i] = heed_tensor_dense(r->dparam[which[i]] = floats(p->count), HEED_F32, p->rank, p->shape);
    }
    g->dparams = dparams;
    r->status = heed_attend_backward(plan, g);
    r->dq = taken(g->dq);
    r->dk = taken(g->dk);
    r->dv = taken(g->dv);
    free(g->dout.data);
}

static int32_t *scatter_pages(const attend_case *c, int64_t page, int64_t *pages)
{
    const int64_t each = (c->keys + page - 1) / page, used = c->batch * each;
    test_random random = {c->seed + 1};
    *pages = used + 3;
    int32_t *order = malloc((size_t)(*pages + 1) * sizeof *order);
    for (int64_t i = 0; i < *pages; i++)
        order[i] = (int32_t)i;
    for (int64_t i = *pages - 1; i > 0; i--) {
        const int64_t other = random_whole(&random, 0, i);
        const int32_t swap = order[i];
        order[i] = order[other];
        order[other] = swap;
    }
    return order;
}

static void execute(const attend_data *d, heed_plan *plan, const attend_way *way, attend_result *r)
{
    const attend_case *c = &d->c;
    const oracle_problem *p = &d->o->problem;
    const int64_t q_shape[4] = {c->batch, c->heads, c->queries, c->dim};
    const int64_t k_shape[4] = {c->batch, c->kv_heads, c->keys, c->dim};
    const int64_t v_shape[4] = {c->batch, c->kv_heads, c->keys, c->value_dim};
    const int64_t out_shape[4] = {c->batch, c->heads, c->queries, c->value_dim};
    heed_tensor params[16];
    int which[16];
    catcher sink;
    const int n = bind_params(d, plan, params, which);
    heed_extra extra = {
        .q_pos = list_of(d->q_pos, c->batch, p->q_pos_batched, c->queries),
        .k_pos = list_of(d->k_pos, c->batch, p->k_pos_batched, c->keys),
        .seq = list_of(d->seq, c->batch, false, c->batch),
        .q_seq = list_of(d->q_seq, c->batch, false, c->batch),
        .q_segment = list_of(d->q_segment, c->batch, p->q_segment_batched, c->queries),
        .k_segment = list_of(d->k_segment, c->batch, p->k_segment_batched, c->keys),
        .mask = mask_of(d),
        .params = params,
    };
    r->lse = floats(c->batch * c->heads * c->queries);
    extra.lse = heed_tensor_dense(r->lse, HEED_F32, 3, out_shape);
    ask_for_captures(d, way, r, &extra, &sink);
    heed_tensor q = stored(c->q_type, d->q, q_shape, way->layout), k, v;
    int32_t *table = NULL;
    if (way->page) {
        int64_t pages;
        table = scatter_pages(c, way->page, &pages);
        k = pooled(c->k_type, d->k, k_shape, way->page, table, pages);
        v = pooled(c->v_type, d->v, v_shape, way->page, table, pages);
        extra.page_table = heed_tensor_dense(table, HEED_I32, 2,
                                             (int64_t[]){c->batch, (c->keys + way->page - 1) / way->page});
    } else {
        k = stored(c->k_type, d->k, k_shape, way->layout);
        v = stored(c->v_type, d->v, v_shape, way->layout);
    }
    heed_tensor out = blank(HEED_F32, out_shape, way->layout);
    if (way->row_state)
        extra.row_state = floats(c->batch * c->heads * c->queries * 2);
    char *scratch = NULL;
    if (way->own_scratch) {
        const size_t size = (heed_plan_scratch(plan) + GUARD - 1) / GUARD * GUARD;
        scratch = aligned_alloc(64, size + GUARD);
        memset(scratch, 0xff, size + GUARD);
        extra.scratch = scratch;
    }
    r->status = heed_attend(plan, &q, &k, &v, &out, &extra);
    if (way->backward && r->status == HEED_OK) {
        heed_gradients g = {.q = q, .k = k, .v = v, .extra = &extra};
        if (way->row_state)
            g.out = out;
        extra.capture = (heed_capture){0};
        run_backward(d, plan, way, r, &g, n, which);
    }
    if (scratch)
        for (size_t i = 0; i < GUARD; i++)
            assert_int_equal(
                (unsigned char)scratch[(heed_plan_scratch(plan) + GUARD - 1) / GUARD * GUARD + i], 0xff);
    r->out = taken(out);
    for (int i = 0; i < n; i++)
        free(params[i].data);
    free(q.data);
    free(k.data);
    free(v.data);
    free(table);
    free(extra.row_state);
    free(scratch);
}

attend_result *attend_try(const attend_data *d, const attend_way *way)
{
    const attend_case *c = &d->c;
    const heed_problem problem = {
        .batch = c->batch,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .queries = c->queries,
        .keys = c->keys,
        .dim = c->dim,
        .value_dim = c->value_dim,
        .q_type = c->q_type,
        .k_type = c->k_type,
        .v_type = c->v_type,
        .threads = way->threads ? way->threads : 1,
        .isa = way->isa,
        .kernel = way->kernel,
        .with = flags(d, way),
        .page = way->page,
        .layer = way->layer,
        .top = way->top,
    };
    attend_result *r = calloc(1, sizeof *r);
    heed_plan *plan = NULL;
    r->status = heed_plan_create(&plan, c->spec, &problem);
    if (r->status == HEED_OK) {
        heed_plan_get_info(plan, &r->info);
        execute(d, plan, way, r);
        heed_plan_free(plan);
    }
    snprintf(r->message, sizeof r->message, "%s", heed_message());
    return r;
}

attend_result *attend_run(const attend_data *d, const attend_way *way)
{
    attend_result *r = attend_try(d, way);
    if (r->status != HEED_OK)
        fail_msg("%s\n  refused: %s", attend_describe(&d->c, way), r->message);
    return r;
}

void attend_result_free(attend_result *r)
{
    void *const all[] = {r->out,        r->lse,     r->weights, r->entropy, r->key_sums,
                         r->top_weight, r->top_key, r->dq,      r->dk,      r->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    for (int i = 0; i < 16; i++)
        free(r->dparam[i]);
    free(r);
}
