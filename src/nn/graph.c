/* Making a graph, node by node. */
#include "nn/graph.h"
#include "base/arena.h"
#include "base/cpu.h"
#include "nn/gemm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

heed_status heed_graph_create(heed_graph **graph, heed_parameters *parameters, int threads, heed_isa isa)
{
    heed_isa resolved;
    *graph = NULL;
    if (threads < 0 || threads > 1024)
        return heed_fail(HEED_INVALID, "%d threads: 0 (one a core) to 1024 are possible", threads);
    TRY(heed_isa_resolve(isa, &resolved));
    heed_graph *made = calloc(1, sizeof *made);
    if (!made)
        return heed_fail(HEED_NO_MEMORY, "no memory for a graph");
    made->parameters = parameters;
    made->threads = threads ? threads : heed_cpu_physical_cores();
    made->isa = resolved;
    made->kernels = heed_nn_kernels_of(resolved);
    made->loss = HEED_NO_INPUT;
    *graph = made;
    return HEED_OK;
}

heed_status heed_graph_use_bf16(heed_graph *graph)
{
    if (!heed_gemm_has_bf16(graph->kernels))
        return heed_fail(HEED_UNSUPPORTED,
                         "products in bf16 need the instructions AVX512-BF16, which %s; fp32 is possible",
                         heed_cpu_has_avx512_bf16() ? "the instruction set that was chosen does not have"
                                                    : "this processor does not have");
    graph->bf16 = true;
    return HEED_OK;
}

void heed_graph_free(heed_graph *graph)
{
    if (!graph)
        return;
    for (int i = 0; i < graph->nodes; i++)
        if (graph->node[i].op && graph->node[i].op->free)
            graph->node[i].op->free(&graph->node[i]);
    free(graph->node);
    free(graph->step);
    free(graph->life);
    free(graph->memory);
    free(graph->scratch);
    free(graph);
}

heed_variable heed_nn_fail(heed_graph *graph, heed_status status, const char *format, ...)
{
    if (graph->failed)
        return HEED_NO_VARIABLE;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(graph->message, sizeof graph->message, format, arguments);
    va_end(arguments);
    graph->failed = status;
    return HEED_NO_VARIABLE;
}

heed_variable heed_nn_fail_message(heed_graph *graph, heed_status status)
{
    return heed_nn_fail(graph, status, "%s", heed_message());
}

static heed_nn_node *new_node(heed_graph *graph)
{
    if (graph->failed)
        return NULL;
    if (graph->finished) {
        heed_nn_fail(graph, HEED_INVALID, "the graph is finished and takes no more nodes");
        return NULL;
    }
    if (graph->nodes == graph->capacity) {
        const int capacity = graph->capacity ? 2 * graph->capacity : 64;
        heed_nn_node *node = realloc(graph->node, (size_t)capacity * sizeof *node);
        if (!node) {
            heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for %d nodes", capacity);
            return NULL;
        }
        graph->node = node;
        graph->capacity = capacity;
    }
    heed_nn_node *node = &graph->node[graph->nodes];
    *node = (heed_nn_node){.view = HEED_NO_VARIABLE,
                           .segment = graph->segment,
                           .value_life = {-1, -1},
                           .gradient_life = -1,
                           .saved_life = {-1, -1}};
    return node;
}

heed_nn_node *heed_nn_make(heed_graph *graph, const heed_op *op, int ins, const heed_variable *in)
{
    for (int i = 0; i < ins; i++)
        if (in[i] == HEED_NO_VARIABLE || in[i] >= graph->nodes) {
            heed_nn_fail(graph, HEED_INVALID, "%s: input %d is no node of this graph",
                         op ? op->name : "reshape", i);
            return NULL;
        }
    heed_nn_node *node = new_node(graph);
    if (!node)
        return NULL;
    node->op = op;
    node->ins = ins;
    for (int i = 0; i < ins; i++)
        node->in[i] = in[i];
    return node;
}

heed_variable heed_nn_done(heed_graph *graph, heed_nn_node *node)
{
    size_t bytes;
    const heed_status status = heed_tensor_bytes(node->type, node->rank, node->shape, &bytes);
    if (status) {
        if (node->op && node->op->free)
            node->op->free(node);
        return heed_nn_fail_message(graph, status);
    }
    node->count = 1;
    for (int d = 0; d < node->rank; d++)
        node->count *= node->shape[d];
    for (int i = 0; i < node->ins; i++)
        if (node->in[i] >= 0 && graph->node[node->in[i]].wants)
            node->wants = true;
    return graph->nodes++;
}

heed_variable heed_nn_constant_done(heed_graph *graph, heed_nn_node *node)
{
    const heed_variable made = heed_nn_done(graph, node);
    if (made >= 0)
        graph->node[made].wants = false;
    return made;
}

heed_variable heed_nn_root(const heed_graph *graph, heed_variable node)
{
    while (graph->node[node].view >= 0)
        node = graph->node[node].view;
    return node;
}

void heed_nn_shape_of(heed_nn_node *node, const heed_nn_node *like)
{
    node->rank = like->rank;
    memcpy(node->shape, like->shape, sizeof node->shape);
}

heed_shape_text heed_nn_shape_text(const heed_nn_node *node)
{
    heed_shape_text shape = {"["};
    size_t at = 1;
    for (int d = 0; d < node->rank; d++)
        at += (size_t)snprintf(shape.text + at, sizeof shape.text - at, "%s%lld", d ? ", " : "",
                               (long long)node->shape[d]);
    snprintf(shape.text + at, sizeof shape.text - at, "]");
    return shape;
}

heed_variable heed_nn_input(heed_graph *graph, heed_type type, int rank, const int64_t *shape)
{
    if (rank < 0 || rank > HEED_MAX_RANK || (type != HEED_F32 && type != HEED_I32))
        return heed_nn_fail(graph, HEED_INVALID, "an input is f32 or i32 of at most %d dimensions",
                            HEED_MAX_RANK);
    heed_nn_node *node = new_node(graph);
    if (!node)
        return HEED_NO_VARIABLE;
    node->type = type;
    node->rank = rank;
    for (int d = 0; d < rank; d++)
        node->shape[d] = shape[d];
    node->segment = 0;
    return heed_nn_done(graph, node);
}

heed_variable heed_nn_parameter(heed_graph *graph, const char *name, int rank, const int64_t *shape,
                                heed_initial initial)
{
    if (rank < 0 || rank > HEED_MAX_RANK)
        return heed_nn_fail(graph, HEED_INVALID, "%s: a parameter has at most %d dimensions", name,
                            HEED_MAX_RANK);
    heed_nn_node *node = new_node(graph);
    if (!node)
        return HEED_NO_VARIABLE;
    node->parameter = heed_parameters_make(graph->parameters, name, rank, shape, &initial);
    if (!node->parameter)
        return heed_nn_fail_message(graph, HEED_INVALID);
    for (int i = 0; i < graph->nodes; i++)
        if (graph->node[i].parameter == node->parameter)
            return i;
    node->rank = rank;
    for (int d = 0; d < rank; d++)
        node->shape[d] = shape[d];
    node->segment = 0;
    node->wants = !node->parameter->frozen;
    return heed_nn_done(graph, node);
}

void heed_graph_segment(heed_graph *graph)
{
    graph->segment = ++graph->segments;
}

void heed_graph_segment_end(heed_graph *graph)
{
    graph->segment = 0;
}

int heed_graph_rank(const heed_graph *graph, heed_variable node)
{
    return node >= 0 ? graph->node[node].rank : 0;
}

int64_t heed_graph_size(const heed_graph *graph, heed_variable node, int dimension)
{
    if (node < 0)
        return 0;
    const heed_nn_node *at = &graph->node[node];
    return at->shape[dimension < 0 ? at->rank + dimension : dimension];
}

void heed_graph_keep(heed_graph *graph, heed_variable node)
{
    if (node >= 0)
        graph->node[heed_nn_root(graph, node)].kept = true;
}

heed_status heed_graph_finish(heed_graph *graph, heed_variable loss)
{
    if (!graph->failed && loss >= 0 && graph->node[loss].count != 1)
        heed_nn_fail(graph, HEED_INVALID, "the loss is %s: a single number is needed",
                     heed_nn_shape_text(&graph->node[loss]).text);
    if (!graph->failed && loss >= 0 && !graph->node[loss].wants)
        heed_nn_fail(graph, HEED_INVALID, "the loss depends on no parameter that may change");
    if (!graph->failed && graph->finished)
        heed_nn_fail(graph, HEED_INVALID, "the graph was finished before");
    if (graph->failed)
        return heed_fail(graph->failed, "%s", graph->message);
    graph->loss = loss;
    heed_graph_keep(graph, loss);
    const heed_status status = heed_graph_plan(graph);
    if (status)
        heed_nn_fail_message(graph, status);
    else
        graph->finished = true;
    return status;
}

void *heed_graph_data(const heed_graph *graph, heed_variable node)
{
    return node >= 0 && graph->finished ? graph->node[heed_nn_root(graph, node)].value : NULL;
}

void heed_graph_training(heed_graph *graph, bool training, uint64_t step)
{
    graph->training = training;
    graph->step_number = step;
}

size_t heed_graph_bytes(const heed_graph *graph)
{
    return graph->bytes;
}

double heed_graph_flops(const heed_graph *graph)
{
    double flops = 0.0;
    for (int i = 0; i < graph->nodes; i++)
        if (graph->node[i].used)
            flops += graph->node[i].flops;
    return flops;
}

const char *heed_graph_operation(const heed_graph *graph, heed_variable node)
{
    const heed_nn_node *at = &graph->node[node];
    return at->op ? at->op->name : at->parameter ? at->parameter->name : at->view >= 0 ? "reshape" : "input";
}
