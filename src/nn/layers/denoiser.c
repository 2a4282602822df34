#include "nn/denoiser.h"
#include "nn/graph.h"

#include <math.h>
#include <stdio.h>

double heed_denoiser_signal(double level)
{
    return cos(level * 1.5707963267948966);
}

double heed_denoiser_noise(double level)
{
    return sin(level * 1.5707963267948966);
}

void heed_denoiser_level(double level, float features[HEED_DENOISER_FEATURES])
{
    for (int i = 0; i < HEED_DENOISER_FEATURES / 2; i++) {
        features[2 * i] = (float)sin(level * (double)(1 << i));
        features[2 * i + 1] = (float)cos(level * (double)(1 << i));
    }
}

int64_t heed_denoiser_place(const heed_image *image, int64_t i)
{
    const int64_t c = image->channels, p = image->patch, each = p * p * c, patch = i / each,
                  inside = i % each, row = patch / (image->width / p) * p + inside / c / p,
                  col = patch % (image->width / p) * p + inside / c % p;
    return (row * image->width + col) * c + inside % c;
}

static heed_variable words(heed_graph *graph, const heed_transformer *model, heed_denoiser *to)
{
    const int64_t table[] = {model->vocabulary + 1, HEED_DENOISER_WORDS * model->width},
                  shape[] = {model->batch, HEED_DENOISER_WORDS, model->width};
    to->label = heed_nn_input(graph, HEED_I32, 1, &model->batch);
    const heed_variable all = heed_nn_parameter(graph, "model.words.weight", 2, table,
                                                (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = 0.5f});
    return heed_nn_reshape(graph, heed_nn_gather(graph, all, to->label), 3, shape);
}

/* The picture's patches, their places and the level of noise. */
static heed_variable begin(heed_graph *graph, const heed_transformer *model, heed_denoiser *to)
{
    const int64_t places[] = {model->context, model->width},
                  features[] = {model->batch, 1, HEED_DENOISER_FEATURES};
    heed_transformer_nodes nodes = {.segments = HEED_NO_INPUT};
    const heed_variable x = heed_layer_patches(graph, model, &nodes);
    to->pixels = nodes.pixels;
    to->features = heed_nn_input(graph, HEED_F32, 3, features);
    const heed_layer_call call = {.graph = graph, .model = model};
    const heed_variable level = heed_layer_linear(
        graph, "model.level.out",
        heed_nn_apply(graph, HEED_FN_SILU,
                      heed_layer_linear(graph, "model.level.in", to->features, model->width, true, 0.2f)),
        model->width, true, 0.1f);
    const heed_variable learnt = heed_nn_parameter(graph, "model.embed_positions.weight", 2, places,
                                                   (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = 0.2f});
    return heed_nn_add(graph, heed_nn_add(graph, x, heed_part_spread(&call, level, model->context)), learnt);
}

static heed_variable held(heed_graph *graph, const heed_transformer *model)
{
    return heed_nn_input(graph, HEED_F32, 3, (int64_t[]){model->batch, model->context, model->width});
}

static heed_variable layer(heed_graph *graph, const heed_transformer *model, int64_t which,
                           heed_denoiser_part part, heed_variable memory, heed_variable x, heed_denoiser *to)
{
    char name[40];
    snprintf(name, sizeof name, "model.layers.%lld", (long long)which);
    const heed_transformer_nodes nodes = {.tokens = HEED_NO_INPUT,
                                          .segments = HEED_NO_INPUT,
                                          .places = HEED_NO_INPUT,
                                          .source_segments = HEED_NO_INPUT};
#define NORM(part) heed_layer_norm_rows(graph, heed_layer_under(name, part).text, model, x)
#define UNDER(part) heed_layer_under(name, part).text
    to->attention[which] =
        part == HEED_DENOISE_HELD
            ? held(graph, model)
            : heed_layer_attention(graph, UNDER("self_attn"), model, which, &nodes, NORM("input_layernorm"));
    x = heed_nn_add(graph, x, to->attention[which]);
    if (part == HEED_DENOISE_HELD) {
        to->rest[which] = held(graph, model);
        return heed_nn_add(graph, x, to->rest[which]);
    }
    to->cross[which] = part == HEED_DENOISE_NO_TEXT
                           ? held(graph, model)
                           : heed_layer_cross(graph, UNDER("cross_attn"), model, which, &nodes,
                                              NORM("cross_attention_layernorm"), memory);
    x = heed_nn_add(graph, x, to->cross[which]);
    const heed_variable feed =
        heed_layer_feed_forward(graph, UNDER("mlp"), model, NORM("post_attention_layernorm"));
#undef NORM
#undef UNDER
    to->rest[which] = heed_nn_add(graph, to->cross[which], feed);
    return heed_nn_add(graph, x, feed);
}

void heed_denoiser_make(heed_graph *graph, const heed_transformer *given, heed_denoiser_part part,
                        heed_denoiser *to)
{
    heed_transformer model = *given;
    model.kv_heads = model.kv_heads ? model.kv_heads : model.heads;
    model.head_dim = model.head_dim ? model.head_dim : model.width / model.heads;
    model.deviation = model.deviation > 0.0f ? model.deviation : 0.02f;
    to->noise = to->label = HEED_NO_VARIABLE;
    if (model.layers > HEED_DENOISER_LAYERS || !model.image.patch) {
        heed_nn_fail(graph, HEED_UNSUPPORTED, "a denoiser is of pictures, with at most %d layers",
                     HEED_DENOISER_LAYERS);
        return;
    }
    heed_variable x = begin(graph, &model, to);
    const heed_variable memory = part == HEED_DENOISE_ALL ? words(graph, &model, to) : HEED_NO_VARIABLE;
    for (int64_t i = 0; i < model.layers; i++)
        x = layer(graph, &model, i, part, memory, x, to);
    x = heed_layer_norm_rows(graph, "model.norm", &model, x);
    to->noise = heed_layer_linear(graph, "model.noise", x,
                                  model.image.patch * model.image.patch * model.image.channels, true, 0.02f);
}
