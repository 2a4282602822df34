/* Where gradients stop, or go on as if nothing had been rounded. */
#include "nn/graph.h"

#include <string.h>

static heed_status stop_forward(const heed_work *work)
{
    memcpy(work->out, work->in[0], (size_t)work->node->count * sizeof(float));
    return HEED_OK;
}

static heed_status step_forward(const heed_work *work)
{
    const float *x = work->in[0];
    for (int64_t i = 0; i < work->node->count; i++)
        ((float *)work->out)[i] = x[i] > work->node->number[0] ? 1.0f : 0.0f;
    return HEED_OK;
}

static heed_status step_backward(const heed_work *work)
{
    work->kernels->scale(work->dout, 1.0f, 0.0f, work->din[0], work->add[0], work->node->count);
    return HEED_OK;
}

static const heed_op stop_op = {.name = "stop", .forward = stop_forward};
static const heed_op step_op = {.name = "step", .forward = step_forward, .backward = step_backward};

heed_variable heed_nn_stop(heed_graph *graph, heed_variable x)
{
    heed_nn_node *node = heed_nn_make(graph, &stop_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    heed_nn_shape_of(node, heed_nn_at(graph, x));
    return heed_nn_constant_done(graph, node);
}

heed_variable heed_nn_step(heed_graph *graph, heed_variable x, float above)
{
    heed_nn_node *node = heed_nn_make(graph, &step_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    heed_nn_shape_of(node, heed_nn_at(graph, x));
    node->number[0] = above;
    return heed_nn_done(graph, node);
}
