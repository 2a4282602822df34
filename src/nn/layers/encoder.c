/* An encoder, and attention to what it gives. */
#include "nn/layers.h"

#include <math.h>
#include <stdio.h>

heed_variable heed_layer_cross(heed_graph *graph, const char *name, const heed_transformer *model,
                               int64_t layer, const heed_transformer_nodes *nodes, heed_variable x,
                               heed_variable memory)
{
    if (model->reader > 0)
        return heed_layer_read(graph, name, model, x, memory);
    const float deviation = model->deviation;
    const int64_t q_width = model->heads * model->head_dim, kv_width = model->kv_heads * model->head_dim;
#define MAP(part, from, width)                                                                               \
    heed_layer_linear(graph, heed_layer_under(name, part).text, from, width, model->bias, deviation)
    const heed_variable q = MAP("q_proj", x, q_width), k = MAP("k_proj", memory, kv_width),
                        v = MAP("v_proj", memory, kv_width);
#undef MAP
    const heed_nn_attention how = {.spec = model->cross_spec,
                                   .name = name,
                                   .heads = model->heads,
                                   .kv_heads = model->kv_heads,
                                   .layer = layer,
                                   .positions = HEED_NO_INPUT,
                                   .segments = nodes->segments,
                                   .gate = HEED_NO_INPUT};
    const heed_nn_keys keys = {.positions = HEED_NO_INPUT, .segments = nodes->source_segments};
    return heed_layer_linear(graph, heed_layer_under(name, "o_proj").text,
                             heed_nn_attend_across(graph, q, k, v, &how, &keys), model->width, model->bias,
                             deviation / sqrtf(2.0f * (float)model->layers));
}

heed_variable heed_layer_encoder(heed_graph *graph, const heed_transformer *decoder,
                                 heed_transformer_nodes *nodes, heed_variable table)
{
    heed_transformer model = *decoder;
    model.context = model.source_context;
    model.spec = model.encoder_spec;
    model.layers = model.encoder_layers;
    const int64_t shape[] = {model.batch, model.context}, places[] = {model.context, model.width};
    nodes->source = heed_nn_input(graph, HEED_I32, 2, shape);
    nodes->source_segments = heed_nn_input(graph, HEED_I32, 2, shape);
    const heed_transformer_nodes own = {
        .tokens = nodes->source, .segments = nodes->source_segments, .places = HEED_NO_INPUT};
    heed_variable x = heed_nn_gather(graph, table, nodes->source);
    if (model.positions == HEED_POSITIONS_LEARNED)
        x = heed_nn_add(graph, x,
                        heed_nn_parameter(graph, "model.encoder.embed_positions.weight", 2, places,
                                          (heed_initial){HEED_INITIAL_NORMAL, model.deviation, NULL}));
    x = heed_nn_dropout(graph, x, model.dropout);
    for (int64_t layer = 0; layer < model.layers; layer++) {
        char name[48];
        snprintf(name, sizeof name, "model.encoder.layers.%lld", (long long)layer);
        if (model.recompute)
            heed_graph_segment(graph);
        x = heed_layer_block_named(graph, name, &model, layer, &own, x, HEED_NO_INPUT);
        if (model.recompute)
            heed_graph_segment_end(graph);
    }
    return model.after ? x : heed_layer_norm_rows(graph, "model.encoder.norm", &model, x);
}

heed_variable heed_layer_patches(heed_graph *graph, const heed_transformer *model,
                                 heed_transformer_nodes *nodes)
{
    const heed_image *image = &model->image;
    const int64_t shape[] = {model->batch, image->height, image->width, image->channels},
                  weight[] = {model->width, image->patch, image->patch, image->channels},
                  rows[] = {model->batch, model->context, model->width};
    nodes->pixels = heed_nn_input(graph, HEED_F32, 4, shape);
    const float size = 1.0f / sqrtf((float)(image->patch * image->patch * image->channels));
    const heed_variable w = heed_nn_parameter(graph, "model.embed_patches.weight", 4, weight,
                                              (heed_initial){HEED_INITIAL_NORMAL, size, NULL});
    return heed_nn_reshape(
        graph,
        heed_nn_convolution_2d(graph, nodes->pixels, w, &(heed_convolution_2d){.stride = image->patch}), 3,
        rows);
}
