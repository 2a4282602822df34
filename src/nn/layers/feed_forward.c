/* down(f(up(x))), or down(f(gate(x)) up(x)). */
#include "nn/layers.h"

#include <math.h>

heed_variable heed_layer_feed_forward(heed_graph *graph, const char *name, const heed_transformer *model,
                                      heed_variable x)
{
    const float deviation = model->deviation;
    const heed_variable up = heed_layer_linear(graph, heed_layer_under(name, "up_proj").text, x,
                                               model->hidden, model->bias, deviation);
    heed_variable middle;
    if (model->gated)
        middle = heed_nn_gate(graph, model->function,
                              heed_layer_linear(graph, heed_layer_under(name, "gate_proj").text, x,
                                                model->hidden, model->bias, deviation),
                              up);
    else
        middle = heed_nn_apply(graph, model->function, up);
    return heed_layer_linear(graph, heed_layer_under(name, "down_proj").text, middle, model->width,
                             model->bias, deviation / sqrtf(2.0f * (float)model->layers));
}
