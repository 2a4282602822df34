/* Running heed on a problem: tensors in their types and layouts, parameters by name, captures. */
#include "support/attend.h"
#include "support/attend_tensors.h"

#include "support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64 }; /* bytes of scratch that nobody may touch */

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
           (way->weights ? HEED_WITH_WEIGHTS : 0) | (way->whole_numbers ? HEED_WITH_WHOLE_NUMBERS : 0) |
           (way->summaries ? HEED_WITH_SUMMARIES | HEED_WITH_PREPARED_KEYS : 0);
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

/* One execution: its tensors, and what must be freed after it. */
typedef struct execution {
    const attend_data *d;
    const attend_way *way;
    const heed_plan *plan;
    int64_t q_shape[4], k_shape[4], v_shape[4], out_shape[4];
    heed_tensor q, k, v, out, params[16];
    int which[16], n; /* oracle's parameter of each of the plan's */
    heed_extra extra;
    catcher sink;
    int32_t *page_table;
    char *scratch;
    float *summaries;
} execution;

static void set_shape(int64_t shape[4], int64_t a, int64_t b, int64_t c, int64_t d)
{
    shape[0] = a, shape[1] = b, shape[2] = c, shape[3] = d;
}

static void place_inputs(execution *x)
{
    const attend_case *c = &x->d->c;
    const int64_t page = x->way->page;
    set_shape(x->q_shape, c->batch, c->heads, c->queries, c->dim);
    set_shape(x->k_shape, c->batch, c->kv_heads, c->keys, c->dim);
    set_shape(x->v_shape, c->batch, c->kv_heads, c->keys, c->value_dim);
    set_shape(x->out_shape, c->batch, c->heads, c->queries, c->value_dim);
    const float *k = c->k_type > HEED_Q4 ? x->d->k_given : x->d->k;
    const float *v = c->v_type > HEED_Q4 ? x->d->v_given : x->d->v;
    x->q = attend_stored(c->q_type, x->d->q, x->q_shape, x->way->layout);
    x->out = attend_blank(HEED_F32, x->out_shape, x->way->layout);
    if (!page) {
        x->k = attend_stored(c->k_type, k, x->k_shape, x->way->layout);
        x->v = attend_stored(c->v_type, v, x->v_shape, x->way->layout);
        return;
    }
    int64_t pages;
    x->page_table = scatter_pages(c, page, &pages);
    x->k = attend_pooled(c->k_type, k, x->k_shape, page, x->page_table, pages);
    x->v = attend_pooled(c->v_type, v, x->v_shape, page, x->page_table, pages);
}

static size_t scratch_size(const heed_plan *plan)
{
    return (heed_plan_scratch(plan) + GUARD - 1) / GUARD * GUARD;
}

/* Keys come a few at a time. */
static void summarise_keys(const execution *x, int kv_head, int64_t capacity, int64_t keys, const float *k,
                           float *summary)
{
    for (int64_t first = 0, step = 1; first < keys; first += step, step = 1 + (step + 6) % 11) {
        const int64_t count = keys - first < step ? keys - first : step;
        assert_int_equal(heed_plan_summarise(x->plan, x->params, kv_head, capacity, first,
                                             k + first * x->k_shape[3], x->k_shape[3], count, summary),
                         HEED_OK);
    }
}

static void summarise(execution *x)
{
    const int64_t B = x->k_shape[0], G = x->k_shape[1], M = x->k_shape[2], D = x->k_shape[3];
    const int64_t page = x->way->page, each = page ? (M + page - 1) / page : 0;
    const int64_t keys = page ? page : M, entries = page ? x->k.shape[0] : B;
    const int64_t floats_each = heed_plan_summary_floats(x->plan, keys);
    x->summaries = floats(entries * G * floats_each);
    for (int64_t b = 0; b < B; b++)
        for (int64_t g = 0; g < G; g++)
            for (int64_t p = 0; p < (page ? each : 1); p++) {
                const int64_t at = page ? x->page_table[b * each + p] : b;
                const int64_t first = p * page, count = M - first < keys ? M - first : keys;
                summarise_keys(x, (int)g, keys, count, x->d->k + ((b * G + g) * M + first) * D,
                               x->summaries + (at * G + g) * floats_each);
            }
    x->extra.summaries = heed_tensor_dense(x->summaries, HEED_F32, 3, (int64_t[]){entries, G, floats_each});
}

static void fill_extra(execution *x, attend_result *r)
{
    const attend_data *d = x->d;
    const attend_case *c = &d->c;
    const oracle_problem *p = &d->o->problem;
    r->lse = floats(c->batch * c->heads * c->queries);
    x->extra = (heed_extra){
        .q_pos = list_of(d->q_pos, c->batch, p->q_pos_batched, c->queries),
        .k_pos = list_of(d->k_pos, c->batch, p->k_pos_batched, c->keys),
        .seq = list_of(d->seq, c->batch, false, c->batch),
        .q_seq = list_of(d->q_seq, c->batch, false, c->batch),
        .q_segment = list_of(d->q_segment, c->batch, p->q_segment_batched, c->queries),
        .k_segment = list_of(d->k_segment, c->batch, p->k_segment_batched, c->keys),
        .mask = mask_of(d),
        .params = x->params,
        .lse = heed_tensor_dense(r->lse, HEED_F32, 3, x->out_shape),
    };
    ask_for_captures(d, x->way, r, &x->extra, &x->sink);
    if (x->way->page)
        x->extra.page_table =
            list_of(x->page_table, c->batch, true, (c->keys + x->way->page - 1) / x->way->page);
    if (x->way->pairs)
        x->extra.capture.pairs = r->pairs;
    if (x->way->summaries)
        summarise(x);
    if (x->way->row_state)
        x->extra.row_state = floats(c->batch * c->heads * c->queries * 2);
    if (x->way->own_scratch) { /* full of NaN, with a guard behind it */
        x->extra.scratch = x->scratch = aligned_alloc(GUARD, scratch_size(x->plan) + GUARD);
        memset(x->scratch, 0xff, scratch_size(x->plan) + GUARD);
    }
}

static void run_backward(execution *x, attend_result *r)
{
    const attend_layout layout = x->way->layout;
    heed_tensor dparams[16] = {{0}};
    heed_gradients g = {
        .q = x->q,
        .k = x->k,
        .v = x->v,
        .extra = &x->extra,
        .dout = attend_stored(HEED_F32, x->d->dout, x->out_shape, layout),
        .dq = attend_blank(HEED_F32, x->q_shape, layout),
        .dk = attend_blank(HEED_F32, x->k_shape, layout),
        .dv = attend_blank(HEED_F32, x->v_shape, layout),
        .dparams = dparams,
    };
    if (x->way->row_state)
        g.out = x->out;
    for (int i = 0; i < x->n; i++) {
        const oracle_param *p = &x->d->o->param[x->which[i]];
        r->dparam[x->which[i]] = floats(p->count);
        dparams[i] = heed_tensor_dense(r->dparam[x->which[i]], HEED_F32, p->rank, p->shape);
    }
    x->extra.capture = (heed_capture){0};
    r->status = heed_attend_backward(x->plan, &g);
    r->dq = attend_taken(g.dq);
    r->dk = attend_taken(g.dk);
    r->dv = attend_taken(g.dv);
    free(g.dout.data);
}

static void finish_execution(execution *x, attend_result *r)
{
    for (size_t i = 0; x->scratch && i < GUARD; i++)
        assert_int_equal((unsigned char)x->scratch[scratch_size(x->plan) + i], 0xff);
    r->out = attend_taken(x->out);
    for (int i = 0; i < x->n; i++)
        free(x->params[i].data);
    free(x->q.data);
    free(x->k.data);
    free(x->v.data);
    free(x->page_table);
    free(x->extra.row_state);
    free(x->scratch);
    free(x->summaries);
}

static void execute(const attend_data *d, const heed_plan *plan, const attend_way *way, attend_result *r)
{
    execution x = {.d = d, .way = way, .plan = plan};
    x.n = bind_params(d, plan, x.params, x.which);
    place_inputs(&x);
    fill_extra(&x, r);
    r->status = heed_attend(plan, &x.q, &x.k, &x.v, &x.out, &x.extra);
    if (way->backward && r->status == HEED_OK)
        run_backward(&x, r);
    finish_execution(&x, r);
}

/* Of pages, keys that are not there are left as they were; the oracle has 0 for them. */
static void sums_of_keys_there(const attend_data *d, const attend_result *r)
{
    const attend_case *c = &d->c;
    for (int64_t i = 0; d->seq && i < c->batch * c->heads; i++)
        for (int64_t j = d->seq[i / c->heads]; j < c->keys; j++) {
            assert_true(isnan(r->key_sums[i * c->keys + j]));
            r->key_sums[i * c->keys + j] = 0.0f;
        }
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
        if (way->page && r->key_sums && r->status == HEED_OK)
            sums_of_keys_there(d, r);
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
