/* A stack of layers: x + attention(norm(x)), then x + feed_forward(norm(x)); or norm(x + ...) with the norm
 * after. */
#include "nn/graph.h"
#include "nn/layers.h"
#include "nn/sources.h"

#include <stdio.h>

/* A part between residual sums: x + part(norm(x)), or norm(x + part(x)). */
static heed_variable add_part(heed_graph *graph, const char *norm, const heed_transformer *model,
                              heed_variable x, heed_variable part)
{
    x = heed_nn_add(graph, x, heed_nn_dropout(graph, part, model->dropout));
    return model->after ? heed_layer_norm_rows(graph, norm, model, x) : x;
}

static heed_variable input_of(heed_graph *graph, const char *norm, const heed_transformer *model,
                              heed_variable x)
{
    return model->after ? x : heed_layer_norm_rows(graph, norm, model, x);
}

heed_variable heed_layer_block_named(heed_graph *graph, const char *name, const heed_transformer *model,
                                     int64_t layer, const heed_transformer_nodes *nodes, heed_variable x,
                                     heed_variable memory)
{
    const heed_layer_name attention = heed_layer_under(name, "self_attn"),
                          feed = heed_layer_under(name, "mlp"), cross = heed_layer_under(name, "cross_attn");
    const heed_layer_name first = heed_layer_under(name, "input_layernorm"),
                          second = heed_layer_under(name, "post_attention_layernorm"),
                          between = heed_layer_under(name, "cross_attention_layernorm");
    heed_variable h = input_of(graph, first.text, model, x);
    x = add_part(graph, first.text, model, x,
                 heed_layer_attention(graph, attention.text, model, layer, nodes, h));
    if (memory != HEED_NO_INPUT) {
        h = input_of(graph, between.text, model, x);
        x = add_part(graph, between.text, model, x,
                     heed_layer_cross(graph, cross.text, model, layer, nodes, h, memory));
    }
    h = input_of(graph, second.text, model, x);
    return add_part(graph, second.text, model, x, heed_layer_feed_forward(graph, feed.text, model, h));
}

heed_variable heed_layer_block(heed_graph *graph, const heed_transformer *model, int64_t layer,
                               const heed_transformer_nodes *nodes, heed_variable x)
{
    char name[40];
    snprintf(name, sizeof name, "model.layers.%lld", (long long)layer);
    return heed_layer_block_named(graph, name, model, layer, nodes, x, HEED_NO_INPUT);
}

static heed_variable embed(heed_graph *graph, const heed_transformer *model, heed_transformer_nodes *nodes,
                           heed_variable *table)
{
    const int64_t shape[] = {model->vocabulary, model->width}, places[] = {model->context, model->width};
    const heed_initial initial = {.kind = HEED_INITIAL_NORMAL, .size = model->deviation};
    heed_variable x;
    *table = HEED_NO_INPUT;
    if (model->image.patch) {
        x = heed_layer_patches(graph, model, nodes);
    } else {
        *table = heed_nn_parameter(graph, "model.embed_tokens.weight", 2, shape, initial);
        x = heed_nn_gather(graph, *table, nodes->tokens);
    }
    if (model->positions == HEED_POSITIONS_LEARNED) {
        const heed_variable learned =
            heed_nn_parameter(graph, "model.embed_positions.weight", 2, places, initial);
        x = heed_nn_add(graph, x,
                        nodes->places >= 0 ? heed_nn_gather(graph, learned, nodes->places) : learned);
    }
    return heed_nn_dropout(graph, x, model->dropout);
}

/* The mean over all places, to classes. */
static heed_variable classify(heed_graph *graph, const heed_transformer *model, heed_variable x)
{
    const int order[] = {0, 2, 1};
    return heed_layer_linear(graph, "score", heed_nn_mean(graph, heed_nn_transpose(graph, x, order)),
                             model->classes, true, model->deviation);
}

void heed_transformer_make(heed_graph *graph, const heed_transformer *given, heed_transformer_nodes *nodes)
{
    heed_transformer model = *given;
    heed_variable table;
    char name[40];
    const int64_t shape[] = {model.batch, model.context};
    model.kv_heads = model.kv_heads ? model.kv_heads : model.heads;
    model.head_dim = model.head_dim ? model.head_dim : model.heads ? model.width / model.heads : 0;
    model.deviation = model.deviation > 0.0f ? model.deviation : 0.02f;
    if (!nodes->whole) /* else they are those of the model that drops something */
        nodes->tokens = heed_nn_input(graph, HEED_I32, 2, shape);
    heed_variable held[2] = {HEED_NO_INPUT, HEED_NO_INPUT}, state[HEED_NN_INPUTS + 1];
    nodes->held = NULL;
    nodes->logits = nodes->hidden = HEED_NO_VARIABLE;
    if (model.shortcuts && (model.layers >= HEED_NN_INPUTS || model.after)) {
        heed_nn_fail(graph, HEED_UNSUPPORTED, "shortcuts: at most %d layers, with norms before them",
                     HEED_NN_INPUTS - 1);
        return;
    }
    heed_variable x = embed(graph, &model, nodes, &table), memory = HEED_NO_INPUT;
    if (model.encoder_layers > 0)
        memory = heed_layer_encoder(graph, &model, nodes, table);
    nodes->held = held;
    state[0] = x;
    for (int64_t layer = 0; layer < model.layers; layer++) {
        if (model.recompute)
            heed_graph_segment(graph);
        snprintf(name, sizeof name, "model.layers.%lld", (long long)layer);
        x = heed_layer_block_named(graph, name, &model, layer, nodes, x, memory);
        if (model.recompute)
            heed_graph_segment_end(graph);
        if (model.shortcuts)
            state[layer + 1] = x;
    }
    nodes->held = NULL;
    if (model.shortcuts)
        x = heed_nn_add(graph, x,
                        heed_source_shortcuts(graph, "model.shortcuts", model.deviation,
                                              (int)model.layers + 1, state, model.shortcuts, model.norm_eps));
    if (!model.after)
        x = heed_layer_norm_rows(graph, "model.norm", &model, x);
    nodes->hidden = x;
    nodes->logits = HEED_NO_INPUT;
    if (model.hidden_only)
        return;
    if (model.classes > 0)
        nodes->logits = classify(graph, &model, x);
    else if (model.tied)
        nodes->logits = heed_nn_linear(graph, x, table, HEED_NO_INPUT);
    else
        nodes->logits = heed_layer_linear(graph, "lm_head", x, model.vocabulary, false, model.deviation);
}
