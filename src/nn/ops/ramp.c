/* A number that goes from one value to another over the first steps of training. */
#include "nn/graph.h"

static heed_status ramp_forward(const heed_work *work)
{
    const float from = work->node->number[0], to = work->node->number[1];
    const double steps = (double)work->node->whole[0], step = (double)work->graph->step_number;
    const bool over = !work->graph->training || step >= steps;
    *(float *)work->out = over ? to : from + (to - from) * (float)(step / steps);
    return HEED_OK;
}

static const heed_op ramp_op = {.name = "ramp", .forward = ramp_forward};

heed_variable heed_nn_ramp(heed_graph *graph, float from, float to, int64_t steps)
{
    heed_nn_node *node = heed_nn_make(graph, &ramp_op, 0, NULL);
    if (!node)
        return HEED_NO_VARIABLE;
    node->rank = 1;
    node->shape[0] = 1;
    node->number[0] = from;
    node->number[1] = to;
    node->whole[0] = steps;
    return heed_nn_constant_done(graph, node);
}
