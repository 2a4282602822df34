/* Linear maps and norms with their parameters. */
#include "nn/graph.h"
#include "nn/layers.h"

#include <stdio.h>

heed_layer_name heed_layer_under(const char *prefix, const char *name)
{
    heed_layer_name made;
    snprintf(made.text, sizeof made.text, "%s.%s", prefix, name);
    return made;
}

/* A parameter that is not drawn towards 0. */
static heed_variable plain(heed_graph *graph, const char *name, int64_t size, float value)
{
    const heed_variable made = heed_nn_parameter(
        graph, name, 1, &size, (heed_initial){.kind = HEED_INITIAL_CONSTANT, .size = value});
    if (made >= 0)
        graph->node[made].parameter->plain = true;
    return made;
}

heed_variable heed_layer_linear(heed_graph *graph, const char *name, heed_variable x, int64_t out, bool bias,
                                float deviation)
{
    const int64_t shape[] = {out, heed_graph_size(graph, x, -1)};
    const heed_variable weight =
        heed_nn_parameter(graph, heed_layer_under(name, "weight").text, 2, shape,
                          (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = deviation});
    return heed_nn_linear(graph, x, weight,
                          bias ? plain(graph, heed_layer_under(name, "bias").text, out, 0.0f)
                               : HEED_NO_INPUT);
}

heed_variable heed_layer_norm_rows(heed_graph *graph, const char *name, const heed_transformer *model,
                                   heed_variable x)
{
    const int64_t size = heed_graph_size(graph, x, -1);
    if (model->norm == HEED_LAYER_NO_NORM)
        return x;
    const heed_variable weight = plain(graph, heed_layer_under(name, "weight").text, size, 1.0f);
    if (model->norm == HEED_LAYER_RMS)
        return heed_nn_rms_norm(graph, x, weight, model->norm_eps);
    return heed_nn_layer_norm(graph, x, weight, plain(graph, heed_layer_under(name, "bias").text, size, 0.0f),
                              model->norm_eps);
}
