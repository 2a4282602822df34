/* A recurrence by plan. Rows are [batch, n, heads dim]: the plan sees them as [batch, heads, n, dim] by
 * strides, and nothing is copied. */
#include "nn/graph.h"

#include <heed/scan.h>
#include <stdlib.h>
#include <string.h>

/* In the order of heed_scan_tensors. */
enum { Q, K, V, DECAY, GATE, BETA, ERASE, RATE, TENSORS };

typedef struct recurrence {
    heed_scan_plan *plan;
    int64_t batch, tokens, heads[TENSORS], row[TENSORS]; /* row 0: the graph has none of it */
    int place[TENSORS];                                  /* among the inputs of the node */
    int64_t out_heads, value_dim;
    int64_t first; /* of its floats among the states of the graph */
} recurrence;

static heed_tensor view(const recurrence *r, void *data, int64_t heads, int64_t row, int rank)
{
    const int64_t size = sizeof(float);
    return (heed_tensor){.data = data,
                         .type = HEED_F32,
                         .rank = rank,
                         .shape = {r->batch, heads, r->tokens, row},
                         .stride = {r->tokens * heads * row * size, row * size, heads * row * size, size}};
}

static heed_scan_tensors tensors_of(const recurrence *r, float *const *data, float *out)
{
    heed_tensor t[TENSORS] = {{.data = NULL}};
    for (int i = 0; i < TENSORS; i++)
        if (r->row[i] > 0)
            t[i] = view(r, data[r->place[i]], r->heads[i], r->row[i], i == DECAY || i == BETA ? 3 : 4);
    return (heed_scan_tensors){.q = t[Q],
                               .k = t[K],
                               .v = t[V],
                               .decay = t[DECAY],
                               .gate = t[GATE],
                               .beta = t[BETA],
                               .erase = t[ERASE],
                               .rate = t[RATE],
                               .out = view(r, out, r->out_heads, r->value_dim, 4)};
}

static heed_scan_tensors inputs_of(const heed_work *work, const recurrence *r, float *out)
{
    float *in[HEED_NN_INPUTS];
    for (int i = 0; i < work->node->ins; i++)
        in[i] = (float *)(uintptr_t)work->in[i];
    return tensors_of(r, in, out);
}

static heed_status scan_forward(const heed_work *work)
{
    const recurrence *r = work->node->own;
    heed_scan_tensors tensors = inputs_of(work, r, work->out);
    tensors.state = work->graph->states ? work->graph->states + r->first : NULL;
    return heed_scan(r->plan, &tensors);
}

static heed_status scan_backward(const heed_work *work)
{
    const recurrence *r = work->node->own;
    const heed_scan_tensors tensors = inputs_of(work, r, (float *)(uintptr_t)work->out);
    const heed_tensor dout = view(r, (float *)(uintptr_t)work->dout, r->out_heads, r->value_dim, 4);
    float *din[HEED_NN_INPUTS];
    for (int i = 0; i < work->node->ins; i++)
        din[i] = work->din[i];
    const heed_scan_tensors gradients = tensors_of(r, din, NULL);
    return heed_scan_backward(r->plan, &tensors, &dout, &gradients);
}

static void scan_free(heed_nn_node *node)
{
    recurrence *r = node->own;
    if (r)
        heed_scan_free(r->plan);
    free(r);
    node->own = NULL;
}

static const heed_op scan_op = {.name = "recurrence",
                                .forward = scan_forward,
                                .backward = scan_backward,
                                .free = scan_free,
                                .reads = ~0u,
                                .flags = HEED_OP_READS_OUTPUT | HEED_OP_OVERWRITES};

/* Whether a tensor is [batch, n, heads row]; fills in the sizes that are 0. */
static bool is_rows(const heed_graph *graph, heed_variable node, recurrence *r, int64_t heads, int64_t *row)
{
    const heed_nn_node *x = heed_nn_at(graph, node);
    if (x->type != HEED_F32 || x->rank != 3 || x->shape[2] % heads)
        return false;
    r->batch = r->batch ? r->batch : x->shape[0];
    r->tokens = r->tokens ? r->tokens : x->shape[1];
    *row = *row ? *row : x->shape[2] / heads;
    return r->batch == x->shape[0] && r->tokens == x->shape[1] && *row == x->shape[2] / heads;
}

/* Notes sizes and inputs; false where something does not fit. */
static bool take_inputs(const heed_graph *graph, recurrence *r, const heed_variable given[TENSORS],
                        int64_t heads, int64_t kv_heads, heed_variable *in, int *ins)
{
    int64_t dim = 0, gate = 0; /* a row of the gate has as many entries as the form says */
    for (int i = 0; i < TENSORS; i++) {
        if (given[i] < 0)
            continue;
        r->heads[i] = i == Q ? heads : kv_heads;
        int64_t *const row = i == V                    ? &r->value_dim
                             : i == GATE               ? &gate
                             : i == DECAY || i == BETA ? &r->row[i]
                                                       : &dim;
        if (i == DECAY || i == BETA)
            r->row[i] = 1;
        if (!is_rows(graph, given[i], r, r->heads[i], row))
            return false;
        r->row[i] = *row;
        r->place[i] = *ins;
        in[(*ins)++] = given[i];
    }
    return true;
}

heed_variable heed_nn_scan(heed_graph *graph, heed_variable q, heed_variable k, heed_variable v,
                           const heed_nn_recurrence *how)
{
    const heed_variable given[TENSORS] = {q, k, v, how->decay, how->gate, how->beta, how->erase, how->rate};
    const int64_t kv_heads = how->kv_heads ? how->kv_heads : how->heads;
    heed_variable in[HEED_NN_INPUTS];
    int ins = 0;
    if (q == HEED_NO_VARIABLE || v < 0)
        return heed_nn_fail(graph, HEED_INVALID, "recurrence: q or v is no node of this graph");
    recurrence *r = calloc(1, sizeof *r);
    if (!r)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for a recurrence");
    if (how->heads < 1 || kv_heads < 1 || !take_inputs(graph, r, given, how->heads, kv_heads, in, &ins)) {
        free(r);
        return heed_nn_fail(
            graph, HEED_INVALID, "recurrence: tensors do not fit q %s and v %s of %lld and %lld heads",
            q < 0 ? "(none)" : heed_nn_shape_text(heed_nn_at(graph, q)).text,
            heed_nn_shape_text(heed_nn_at(graph, v)).text, (long long)how->heads, (long long)kv_heads);
    }
    r->out_heads = how->heads;
    const heed_scan_problem problem = {.batch = r->batch,
                                       .heads = how->heads,
                                       .kv_heads = kv_heads,
                                       .tokens = r->tokens,
                                       .dim = q < 0 ? 1 : r->row[Q],
                                       .value_dim = r->value_dim,
                                       .layer = how->layer,
                                       .layers = how->layers,
                                       .threads = graph->threads,
                                       .backward = true};
    const heed_status status = heed_scan_create(&r->plan, how->spec, &problem);
    heed_nn_node *node = status ? NULL : heed_nn_make(graph, &scan_op, ins, in);
    if (!node) {
        heed_scan_free(r->plan);
        free(r);
        return heed_nn_fail_message(graph, status ? status : HEED_NO_MEMORY);
    }
    r->first = graph->state_floats;
    graph->state_floats += r->batch * kv_heads * heed_scan_state_floats(r->plan);
    node->own = r;
    node->rank = 3;
    node->shape[0] = r->batch;
    node->shape[1] = r->tokens;
    node->shape[2] = how->heads * r->value_dim;
    node->flops = 6.0 * (double)(r->batch * how->heads * r->tokens * problem.dim * r->value_dim);
    return heed_nn_done(graph, node);
}

int64_t heed_graph_state_floats(const heed_graph *graph)
{
    return graph->state_floats;
}

void heed_graph_carry(heed_graph *graph, float *states)
{
    graph->states = states;
}
