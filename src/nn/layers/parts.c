/* What layers by a form are put together from. */
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

const heed_option heed_yes_no[] = {{"yes", NULL}, {"no", NULL}, {NULL, NULL}};

heed_nn_recurrence heed_layer_recurrence(const heed_transformer *model, int64_t layer, const char *spec)
{
    return (heed_nn_recurrence){.spec = spec,
                                .heads = model->heads,
                                .layer = layer,
                                .layers = model->layers,
                                .decay = HEED_NO_INPUT,
                                .beta = HEED_NO_INPUT,
                                .gate = HEED_NO_INPUT,
                                .erase = HEED_NO_INPUT,
                                .rate = HEED_NO_INPUT};
}

heed_variable heed_part_map(const heed_layer_call *call, const char *part, heed_variable x, int64_t out)
{
    return heed_layer_linear(call->graph, heed_layer_under(call->name, part).text, x, out, call->model->bias,
                             call->model->deviation);
}

heed_variable heed_part_out(const heed_layer_call *call, heed_variable y)
{
    const heed_transformer *model = call->model;
    return heed_layer_linear(call->graph, heed_layer_under(call->name, "o_proj").text, y, model->width,
                             model->bias, model->deviation / sqrtf(2.0f * (float)model->layers));
}

heed_variable heed_part_parameter(const heed_layer_call *call, const char *part, int rank,
                                  const int64_t *shape, heed_initial_kind kind, float size)
{
    return heed_nn_parameter(call->graph, heed_layer_under(call->name, part).text, rank, shape,
                             (heed_initial){.kind = kind, .size = size});
}

heed_variable heed_part_heads(const heed_layer_call *call, heed_variable x, int64_t heads)
{
    const int64_t rows = heed_graph_size(call->graph, x, 1), width = heed_graph_size(call->graph, x, 2);
    const int64_t apart[] = {call->model->batch, rows, heads, width / heads};
    return heed_nn_transpose(call->graph, heed_nn_reshape(call->graph, x, 4, apart), (int[]){0, 2, 1, 3});
}

heed_variable heed_part_projected(const heed_layer_call *call, const char *part, int64_t heads)
{
    return heed_part_heads(call, heed_part_map(call, part, call->x, heads * call->model->head_dim), heads);
}

heed_variable heed_part_merge(const heed_layer_call *call, heed_variable x)
{
    heed_graph *graph = call->graph;
    const int64_t shape[] = {heed_graph_size(graph, x, 0), heed_graph_size(graph, x, 2),
                             heed_graph_size(graph, x, 1) * heed_graph_size(graph, x, 3)};
    return heed_nn_reshape(graph, heed_nn_transpose(graph, x, (int[]){0, 2, 1, 3}), 3, shape);
}

heed_variable heed_part_mask(const heed_layer_call *call, bool causal, float open, float closed)
{
    const int64_t n = call->model->context, shape[] = {n, n};
    float *values = calloc((size_t)(n * n), sizeof *values);
    if (!values)
        return HEED_NO_VARIABLE;
    for (int64_t i = 0; i < n * n; i++)
        values[i] = causal && i % n > i / n ? closed : open;
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}

heed_variable heed_part_weights(const heed_layer_call *call, heed_variable scores, bool causal)
{
    if (causal)
        scores = heed_nn_add(call->graph, scores, heed_part_mask(call, true, 0, -INFINITY));
    return heed_nn_softmax(call->graph, scores);
}

heed_variable heed_part_scores(const heed_layer_call *call, heed_variable a, heed_variable b, float scale)
{
    return heed_nn_scale(call->graph, heed_nn_product(call->graph, a, b, true), scale, 0);
}

/* x M with a matrix of zeros and ones [c][to] in which column j takes entry j / `divide` % c. */
static heed_variable copy_columns(const heed_layer_call *call, heed_variable x, int64_t to, int64_t divide)
{
    const int64_t c = heed_graph_size(call->graph, x, -1), shape[] = {c, to};
    float *values = calloc((size_t)(c * to), sizeof *values);
    if (!values)
        return HEED_NO_VARIABLE;
    for (int64_t j = 0; j < to; j++)
        values[j / divide % c * to + j] = 1;
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return heed_nn_product(call->graph, x, made, false);
}

heed_variable heed_part_each(const heed_layer_call *call, heed_variable x, int64_t times)
{
    return copy_columns(call, x, heed_graph_size(call->graph, x, -1) * times, times);
}

heed_variable heed_part_repeat(const heed_layer_call *call, heed_variable x, int64_t times)
{
    return copy_columns(call, x, heed_graph_size(call->graph, x, -1) * times, 1);
}

heed_variable heed_part_over_sum(const heed_layer_call *call, heed_variable x)
{
    heed_graph *graph = call->graph;
    const int rank = heed_graph_rank(graph, x);
    int64_t shape[HEED_MAX_RANK] = {0};
    for (int d = 0; d < rank && d < HEED_MAX_RANK; d++)
        shape[d] = d == rank - 1 ? 1 : heed_graph_size(graph, x, d);
    const heed_variable sum = heed_nn_reshape(graph, heed_nn_sum(graph, x), rank, shape);
    return heed_nn_divide(graph, x, heed_part_each(call, sum, heed_graph_size(graph, x, -1)));
}

heed_variable heed_part_attend(const heed_layer_call *call, const char *part, heed_variable q,
                               heed_variable k, heed_variable v, int64_t heads, int64_t kv_heads)
{
    const heed_layer_name name = heed_layer_under(call->name, part);
    const heed_nn_attention how = {.spec = call->spec,
                                   .name = name.text,
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .layer = call->layer,
                                   .positions = call->nodes->places,
                                   .segments = call->nodes->segments,
                                   .gate = HEED_NO_INPUT};
    return heed_nn_attend(call->graph, q, k, v, &how);
}
