/* Attention by plan. Rows of q, k, v and of the result are [batch, n, heads dim]: the plan sees them as
 * [batch, heads, n, dim] by strides, and nothing is copied. */
#include "nn/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inputs q, k, v, positions and segments of queries and of keys, then the parameters of the plan in its
 * order. */
enum { Q, K, V, POSITIONS, SEGMENTS, KEY_POSITIONS, KEY_SEGMENTS, FIRST_PARAM };

typedef struct attention {
    heed_plan *plan;
    int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
    int params;
    char name[96];
    heed_tensor param[HEED_NN_INPUTS]; /* shapes; data is set for each run */
} attention;

static heed_tensor heads_of(const void *data, int64_t batch, int64_t heads, int64_t n, int64_t dim)
{
    const int64_t size = sizeof(float);
    return (heed_tensor){.data = (void *)(uintptr_t)data,
                         .type = HEED_F32,
                         .rank = 4,
                         .shape = {batch, heads, n, dim},
                         .stride = {n * heads * dim * size, dim * size, heads * dim * size, size}};
}

static heed_tensor whole_rows(const void *data, int64_t batch, int64_t n)
{
    const int64_t shape[] = {batch, n};
    return data ? heed_tensor_dense((void *)(uintptr_t)data, HEED_I32, 2, shape)
                : (heed_tensor){.data = NULL};
}

static heed_extra extra_of(const heed_work *work, const attention *a, heed_tensor *param)
{
    for (int i = 0; i < a->params; i++) {
        param[i] = a->param[i];
        param[i].data = (void *)(uintptr_t)work->in[FIRST_PARAM + i];
    }
    return (heed_extra){.q_pos = whole_rows(work->in[POSITIONS], a->batch, a->queries),
                        .k_pos = whole_rows(work->in[KEY_POSITIONS], a->batch, a->keys),
                        .q_segment = whole_rows(work->in[SEGMENTS], a->batch, a->queries),
                        .k_segment = whole_rows(work->in[KEY_SEGMENTS], a->batch, a->keys),
                        .params = param,
                        .row_state = work->saved,
                        .scratch = work->scratch};
}

/* Whose weights are shown to whom. */
typedef struct shown {
    const heed_watch *watch;
    const char *name;
} shown;

static void show_weights(void *context, const heed_weights_tile *tile)
{
    const shown *s = context;
    s->watch->weights(s->watch->context, s->name, tile);
}

static heed_status attend_forward(const heed_work *work)
{
    const attention *a = work->node->own;
    heed_tensor param[HEED_NN_INPUTS];
    heed_extra extra = extra_of(work, a, param);
    shown to = {&work->graph->watch, a->name};
    if (work->graph->watch.weights) {
        extra.capture.sink = show_weights;
        extra.capture.sink_context = &to;
    }
    const heed_tensor q = heads_of(work->in[Q], a->batch, a->heads, a->queries, a->dim);
    const heed_tensor k = heads_of(work->in[K], a->batch, a->kv_heads, a->keys, a->dim);
    const heed_tensor v = heads_of(work->in[V], a->batch, a->kv_heads, a->keys, a->value_dim);
    const heed_tensor out = heads_of(work->out, a->batch, a->heads, a->queries, a->value_dim);
    return heed_attend(a->plan, &q, &k, &v, &out, &extra);
}

static heed_status attend_backward(const heed_work *work)
{
    const attention *a = work->node->own;
    heed_tensor param[HEED_NN_INPUTS], dparam[HEED_NN_INPUTS];
    const heed_extra extra = extra_of(work, a, param);
    for (int i = 0; i < a->params; i++) {
        dparam[i] = a->param[i];
        dparam[i].data = work->din[FIRST_PARAM + i];
    }
    const heed_gradients gradients = {
        .q = heads_of(work->in[Q], a->batch, a->heads, a->queries, a->dim),
        .k = heads_of(work->in[K], a->batch, a->kv_heads, a->keys, a->dim),
        .v = heads_of(work->in[V], a->batch, a->kv_heads, a->keys, a->value_dim),
        .dout = heads_of(work->dout, a->batch, a->heads, a->queries, a->value_dim),
        .out = heads_of(work->out, a->batch, a->heads, a->queries, a->value_dim),
        .dq = heads_of(work->din[Q], a->batch, a->heads, a->queries, a->dim),
        .dk = heads_of(work->din[K], a->batch, a->kv_heads, a->keys, a->dim),
        .dv = heads_of(work->din[V], a->batch, a->kv_heads, a->keys, a->value_dim),
        .dparams = dparam,
        .extra = &extra,
    };
    return heed_attend_backward(a->plan, &gradients);
}

static void attend_free(heed_nn_node *node)
{
    attention *a = node->own;
    if (a)
        heed_plan_free(a->plan);
    free(a);
    node->own = NULL;
}

static const heed_op attend_op = {.name = "attention",
                                  .forward = attend_forward,
                                  .backward = attend_backward,
                                  .free = attend_free,
                                  .reads = ~0u,
                                  .flags = HEED_OP_READS_OUTPUT | HEED_OP_OVERWRITES};

/* A parameter of the plan as a parameter of the graph, which begins as the form says. */
static heed_status make_parameter(heed_graph *graph, attention *a, int i, const heed_nn_attention *how,
                                  heed_variable *made)
{
    heed_plan_param_info info;
    char name[200];
    TRY(heed_plan_param(a->plan, i, &info));
    a->param[i] = heed_tensor_dense(NULL, HEED_F32, info.rank, info.shape);
    if (info.required) {
        if (how->gate < 0)
            return heed_fail(HEED_INVALID, "attention: %s needs a gate, [batch, heads, n, e]", info.name);
        *made = how->gate;
        const heed_nn_node *gate = heed_nn_at(graph, how->gate);
        if (gate->rank != info.rank ||
            memcmp(gate->shape, info.shape, (size_t)info.rank * sizeof *info.shape))
            return heed_fail(HEED_INVALID, "attention: a gate of %s does not fit %s",
                             heed_nn_shape_text(gate).text, info.name);
        return HEED_OK;
    }
    size_t bytes;
    TRY(heed_tensor_bytes(HEED_F32, info.rank, info.shape, &bytes));
    float *values = malloc(bytes + 1);
    heed_status status = values ? heed_plan_param_initial(a->plan, i, values)
                                : heed_fail(HEED_NO_MEMORY, "no memory for %s", info.name);
    snprintf(name, sizeof name, "%s.%s", how->name, info.name);
    if (!status) {
        *made = heed_nn_parameter(graph, name, info.rank, info.shape, (heed_initial){.values = values});
        if (*made < 0)
            status = heed_fail(graph->failed, "%s", graph->message);
        else
            graph->node[*made].parameter->plain = true;
    }
    free(values);
    return status;
}

static heed_status make_plan(heed_graph *graph, attention *a, const heed_nn_attention *how,
                             heed_variable in[])
{
    const unsigned with = (graph->watch.weights ? HEED_WITH_WEIGHTS : HEED_WITH_BACKWARD) |
                          HEED_WITH_SCRATCH | (how->positions >= 0 ? HEED_WITH_POSITIONS : 0u) |
                          (how->segments >= 0 ? HEED_WITH_SEGMENTS : 0u);
    const heed_problem problem = {.batch = a->batch,
                                  .heads = a->heads,
                                  .kv_heads = a->kv_heads,
                                  .queries = a->queries,
                                  .keys = a->keys,
                                  .dim = a->dim,
                                  .value_dim = a->value_dim,
                                  .threads = graph->threads,
                                  .isa = graph->isa,
                                  .with = with,
                                  .layer = how->layer};
    TRY(heed_plan_create(&a->plan, how->spec, &problem));
    a->params = heed_plan_params(a->plan);
    if (a->params > HEED_NN_INPUTS - FIRST_PARAM)
        return heed_fail(HEED_UNSUPPORTED, "attention: %d learnable tensors are more than %d", a->params,
                         HEED_NN_INPUTS - FIRST_PARAM);
    for (int i = 0; i < a->params; i++)
        TRY(make_parameter(graph, a, i, how, &in[FIRST_PARAM + i]));
    return HEED_OK;
}

/* Whether a tensor is [batch, n, heads dim]; fills in the sizes that are 0. */
static bool is_rows(const heed_graph *graph, heed_variable node, int64_t *batch, int64_t *n, int64_t heads,
                    int64_t *dim)
{
    const heed_nn_node *x = heed_nn_at(graph, node);
    if (x->type != HEED_F32 || x->rank != 3 || x->shape[2] % heads)
        return false;
    *batch = *batch ? *batch : x->shape[0];
    *n = *n ? *n : x->shape[1];
    *dim = *dim ? *dim : x->shape[2] / heads;
    return *batch == x->shape[0] && *n == x->shape[1] && *dim == x->shape[2] / heads;
}

/* A whole number a token, of queries and keys or of neither. */
static bool are_whole_rows(const heed_graph *graph, heed_variable of_queries, heed_variable of_keys,
                           const attention *a)
{
    const heed_nn_node *q = of_queries >= 0 ? heed_nn_at(graph, of_queries) : NULL,
                       *k = of_keys >= 0 ? heed_nn_at(graph, of_keys) : NULL;
    if (!q || !k)
        return !q && !k;
    return q->type == HEED_I32 && k->type == HEED_I32 && q->count == a->batch * a->queries &&
           k->count == a->batch * a->keys;
}

heed_variable heed_nn_attend(heed_graph *graph, heed_variable q, heed_variable k, heed_variable v,
                             const heed_nn_attention *how)
{
    return heed_nn_attend_across(graph, q, k, v, how,
                                 &(heed_nn_keys){.positions = how->positions, .segments = how->segments});
}

heed_variable heed_nn_attend_across(heed_graph *graph, heed_variable q, heed_variable k, heed_variable v,
                                    const heed_nn_attention *how, const heed_nn_keys *keys)
{
    if (q < 0 || k < 0 || v < 0)
        return heed_nn_fail(graph, HEED_INVALID, "attention: q, k or v is no node of this graph");
    attention *a = calloc(1, sizeof *a);
    if (!a)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for attention");
    snprintf(a->name, sizeof a->name, "%s", how->name ? how->name : "");
    a->heads = how->heads;
    a->kv_heads = how->kv_heads ? how->kv_heads : how->heads;
    if (a->heads < 1 || a->kv_heads < 1 || !is_rows(graph, q, &a->batch, &a->queries, a->heads, &a->dim) ||
        !is_rows(graph, k, &a->batch, &a->keys, a->kv_heads, &a->dim) ||
        !is_rows(graph, v, &a->batch, &a->keys, a->kv_heads, &a->value_dim) ||
        !are_whole_rows(graph, how->positions, keys->positions, a) ||
        !are_whole_rows(graph, how->segments, keys->segments, a)) {
        free(a);
        return heed_nn_fail(
            graph, HEED_INVALID, "attention: q %s, k %s and v %s do not fit %lld and %lld heads",
            heed_nn_shape_text(heed_nn_at(graph, q)).text, heed_nn_shape_text(heed_nn_at(graph, k)).text,
            heed_nn_shape_text(heed_nn_at(graph, v)).text, (long long)how->heads, (long long)how->kv_heads);
    }
    heed_variable in[HEED_NN_INPUTS] = {
        q, k, v, how->positions, how->segments, keys->positions, keys->segments};
    const heed_status status = make_plan(graph, a, how, in);
    heed_nn_node *node = status ? NULL : heed_nn_make(graph, &attend_op, FIRST_PARAM + a->params, in);
    if (!node) {
        heed_plan_free(a->plan);
        free(a);
        return heed_nn_fail_message(graph, status ? status : HEED_NO_MEMORY);
    }
    heed_plan_info info;
    heed_plan_get_info(a->plan, &info);
    node->own = a;
    node->rank = 3;
    node->shape[0] = a->batch;
    node->shape[1] = a->queries;
    node->shape[2] = a->heads * a->value_dim;
    node->saved_bytes = (size_t)(a->batch * a->heads * a->queries * 2) * sizeof(float);
    node->forward_scratch = node->backward_scratch = heed_plan_scratch(a->plan);
    node->flops = info.flops;
    return heed_nn_done(graph, node);
}

void heed_graph_watch(heed_graph *graph, const heed_watch *watch)
{
    graph->watch = *watch;
}
