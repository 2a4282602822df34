/* Running a graph, step by step. */
#include "nn/graph.h"

#include <math.h>
#include <string.h>

static heed_work work_of(heed_graph *graph, const heed_step *step)
{
    heed_nn_node *node = &graph->node[step->node];
    heed_work work = {.graph = graph,
                      .node = node,
                      .kernels = graph->kernels,
                      .threads = graph->threads,
                      .scratch = graph->scratch};
    if (step->kind != HEED_STEP_BACKWARD) {
        const bool again = step->kind == HEED_STEP_AGAIN;
        node->value = graph->memory + graph->life[node->value_life[again]].offset;
        if (node->saved_bytes)
            node->saved = graph->memory + graph->life[node->saved_life[again]].offset;
    }
    work.out = node->value;
    work.saved = node->saved;
    for (int i = 0; i < node->ins; i++)
        if (node->in[i] >= 0)
            work.in[i] = graph->node[heed_nn_root(graph, node->in[i])].value;
    return work;
}

heed_status heed_graph_forward(heed_graph *graph)
{
    if (!graph->finished)
        return heed_fail(HEED_INVALID, "a graph must be finished before it runs");
    for (int i = 0; i < graph->forward_steps; i++) {
        const heed_work work = work_of(graph, &graph->step[i]);
        TRY(work.node->op->forward(&work));
    }
    return HEED_OK;
}

/* Parameters that no step reaches have gradient 0. */
static void clear_unreached(const heed_graph *graph)
{
    for (int i = 0; i < graph->nodes; i++) {
        const heed_nn_node *node = &graph->node[i];
        if (node->parameter && node->gradient && !node->reached)
            memset(node->gradient, 0, (size_t)node->count * sizeof(float));
    }
}

/* Gradients to be added are made in scratch memory first. */
static heed_status backward_aside(heed_work *work)
{
    float *to[HEED_NN_INPUTS] = {NULL};
    char *room = (char *)work->scratch + work->node->backward_scratch;
    for (int j = 0; j < work->node->ins; j++)
        if (work->din[j] && work->add[j]) {
            to[j] = work->din[j];
            work->din[j] = (float *)(void *)room;
            room += ((size_t)heed_nn_in(work->graph, work->node, j)->count * sizeof(float) + 63) / 64 * 64;
        }
    TRY(work->node->op->backward(work));
    for (int j = 0; j < work->node->ins; j++)
        if (to[j])
            work->kernels->add(to[j], work->din[j], to[j], heed_nn_in(work->graph, work->node, j)->count);
    return HEED_OK;
}

heed_status heed_graph_backward(heed_graph *graph, float scale, bool add)
{
    if (!graph->finished || graph->loss < 0)
        return heed_fail(HEED_INVALID, "this graph has no loss to differentiate");
    *graph->node[heed_nn_root(graph, graph->loss)].gradient = scale;
    if (!add)
        clear_unreached(graph);
    for (int i = graph->forward_steps; i < graph->steps; i++) {
        const heed_step *step = &graph->step[i];
        heed_work work = work_of(graph, step);
        if (step->kind == HEED_STEP_AGAIN) {
            TRY(work.node->op->forward(&work));
            continue;
        }
        work.dout = work.node->gradient;
        for (int j = 0; j < work.node->ins; j++) {
            if (work.node->in[j] < 0)
                continue;
            const heed_nn_node *root = &graph->node[heed_nn_root(graph, work.node->in[j])];
            work.din[j] = root->wants ? root->gradient : NULL;
            work.add[j] = (step->add >> j & 1u) || (add && step->owner >> j & 1u);
        }
        TRY(work.node->op->flags & HEED_OP_OVERWRITES ? backward_aside(&work)
                                                      : work.node->op->backward(&work));
    }
    return HEED_OK;
}

static bool all_finite(const float *x, int64_t n)
{
    bool finite = true;
    for (int64_t i = 0; i < n; i++)
        finite = finite && isfinite(x[i]);
    return finite;
}

heed_variable heed_graph_not_finite(heed_graph *graph)
{
    for (int i = 0; i < graph->nodes; i++) {
        const heed_nn_node *node = &graph->node[i];
        if (!node->op && node->type == HEED_F32 && node->view < 0 && node->used && node->value &&
            !all_finite(node->value, node->count))
            return i;
    }
    for (int i = 0; i < graph->forward_steps; i++) {
        const heed_work work = work_of(graph, &graph->step[i]);
        const bool numbers = work.node->type == HEED_F32;
        if (work.node->op->forward(&work) || (numbers && !all_finite(work.out, work.node->count)))
            return graph->step[i].node;
    }
    return HEED_NO_VARIABLE;
}
