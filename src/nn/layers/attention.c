/* Attention by a spec between four linear maps: o(attend(q(x), k(x), v(x))). */
#include "nn/layers.h"

#include <math.h>

/* A norm of each head's entries. */
static heed_variable norm_heads(heed_graph *graph, const char *name, const heed_transformer *model,
                                heed_variable x)
{
    const int64_t width = heed_graph_size(graph, x, -1);
    const int64_t apart[] = {model->batch, model->context, width / model->head_dim, model->head_dim};
    const int64_t rows[] = {model->batch, model->context, width};
    if (!model->qk_norm)
        return x;
    return heed_nn_reshape(
        graph, heed_layer_norm_rows(graph, name, model, heed_nn_reshape(graph, x, 4, apart)), 3, rows);
}

heed_variable heed_layer_attention(heed_graph *graph, const char *name, const heed_transformer *model,
                                   int64_t layer, const heed_transformer_nodes *nodes, heed_variable x)
{
    const float deviation = model->deviation;
    const int64_t q_width = model->heads * model->head_dim, kv_width = model->kv_heads * model->head_dim;
    heed_variable q =
        heed_layer_linear(graph, heed_layer_under(name, "q_proj").text, x, q_width, model->bias, deviation);
    heed_variable k =
        heed_layer_linear(graph, heed_layer_under(name, "k_proj").text, x, kv_width, model->bias, deviation);
    heed_variable v =
        heed_layer_linear(graph, heed_layer_under(name, "v_proj").text, x, kv_width, model->bias, deviation);
    q = norm_heads(graph, heed_layer_under(name, "q_norm").text, model, q);
    k = norm_heads(graph, heed_layer_under(name, "k_norm").text, model, k);
    const heed_nn_attention how = {.spec = model->spec,
                                   .name = name,
                                   .heads = model->heads,
                                   .kv_heads = model->kv_heads,
                                   .layer = layer,
                                   .positions = nodes->places,
                                   .segments = nodes->segments,
                                   .gate = HEED_NO_INPUT};
    const heed_variable out = heed_nn_attend(graph, q, k, v, &how);
    /* maps onto the residual stream begin smaller, so that it does not grow with depth (Radford et al. 2019)
     */
    return heed_layer_linear(graph, heed_layer_under(name, "o_proj").text, out, model->width, model->bias,
                             deviation / sqrtf(2.0f * (float)model->layers));
}
