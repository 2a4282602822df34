/* Layers as graphs: what is carried, weights, and whether later tokens are left alone. */
#include "model/carried.h"
#include "base/arena.h"
#include "base/try.h"
#include "model/weights.h"
#include "nn/layers.h"

#include <heed/scan.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

heed_status heed_carries_of_layer(const heed_config *config, int64_t layer, heed_carries *carries)
{
    heed_scan_facts facts;
    heed_form_state form;
    char rest[HEED_LAYER_REST];
    *carries = HEED_CARRIES_NOTHING;
    if (!*config->attention)
        return HEED_OK;
    TRY(heed_scan_of_layer(config->attention, NULL, layer, &facts));
    if (facts.scans) {
        *carries = HEED_CARRIES_STATE;
        return HEED_OK;
    }
    TRY(heed_layer_of_spec(config->attention, layer, &form, rest));
    if (form.form)
        *carries = HEED_CARRIES_INPUTS;
    return HEED_OK;
}

/* As the model was trained. */
static heed_transformer transformer_of(const heed_config *c, int64_t tokens)
{
    return (heed_transformer){.batch = 1,
                              .context = tokens,
                              .vocabulary = c->vocabulary,
                              .width = c->width,
                              .layers = c->layers,
                              .heads = c->heads,
                              .kv_heads = c->kv_heads,
                              .head_dim = c->head_dim,
                              .hidden = c->feed_forward,
                              .spec = c->attention,
                              .norm = HEED_LAYER_RMS,
                              .norm_eps = (float)c->eps,
                              .qk_norm = !strcmp(c->architecture, "qwen3"),
                              .deviation = 0.02f};
}

heed_status heed_carried_make(heed_carried *made, const heed_config *config, heed_parameters *parameters,
                              int64_t layer, int64_t tokens, int threads, heed_isa isa)
{
    const heed_transformer model = transformer_of(config, tokens);
    const int64_t shape[] = {1, tokens, config->width};
    const heed_transformer_nodes nodes = {
        .tokens = HEED_NO_INPUT, .segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
    char name[60];
    *made = (heed_carried){.tokens = tokens};
    TRY(heed_graph_create(&made->graph, parameters, threads, isa));
    snprintf(name, sizeof name, "model.layers.%lld.self_attn", (long long)layer);
    made->in = heed_nn_input(made->graph, HEED_F32, 3, shape);
    made->out = heed_layer_attention(made->graph, name, &model, layer, &nodes, made->in);
    heed_graph_keep(made->graph, made->out);
    const heed_status status = heed_graph_finish(made->graph, HEED_NO_INPUT);
    if (status)
        heed_carried_free(made);
    return status;
}

void heed_carried_free(heed_carried *made)
{
    heed_graph_free(made->graph);
    *made = (heed_carried){.graph = NULL};
}

/* Numbers between -1 and 1 that are always the same. */
static void fill(float *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
}

/* The second half of a text must not change what the layer makes of the first. */
static heed_status check_looks_back(const heed_carried *made, const heed_config *config, int64_t layer)
{
    const int64_t half = made->tokens / 2 * config->width, all = made->tokens * config->width;
    float *first = heed_allocate((size_t)half + 1, sizeof *first),
          *in = heed_graph_data(made->graph, made->in);
    if (!first)
        return heed_fail(HEED_NO_MEMORY, "no memory to try layer %lld", (long long)layer);
    fill(in, all, 1);
    heed_status status = heed_graph_forward(made->graph);
    const float *out = heed_graph_data(made->graph, made->out);
    memcpy(first, out, (size_t)half * sizeof *first);
    fill(in + half, all - half, 2);
    if (!status)
        status = heed_graph_forward(made->graph);
    float most = 0.0f, off = 0.0f;
    for (int64_t i = 0; !status && i < half; i++) {
        most = fabsf(first[i]) > most ? fabsf(first[i]) : most;
        off = fabsf(out[i] - first[i]) > off ? fabsf(out[i] - first[i]) : off;
    }
    free(first);
    if (!status && off > 1e-5f * most)
        status = heed_fail(HEED_UNSUPPORTED,
                           "layer %lld of `%s` looks at later tokens: a text cannot be written with it",
                           (long long)layer, config->attention);
    return status;
}

static heed_status load_parameter(const heed_model *model, heed_parameter *parameter)
{
    const heed_model_tensor *tensor = heed_model_file_find(model->file, parameter->name);
    if (!tensor)
        return heed_fail(HEED_FORMAT, "the tensor %s is missing", parameter->name);
    const heed_tensor *t = &tensor->tensor;
    bool fits = t->data && t->type < HEED_TYPES && t->rank == parameter->rank;
    for (int d = 0; fits && d < t->rank; d++)
        fits = t->shape[d] == parameter->shape[d];
    if (!fits)
        return heed_fail(HEED_FORMAT, "the tensor %s is not of the shape that `%s` takes", parameter->name,
                         model->config.attention);
    heed_load(t->type, t->data, parameter->value, parameter->count);
    for (int64_t i = 0; i < parameter->count; i++)
        if (!isfinite(parameter->value[i]))
            return heed_fail(HEED_FORMAT, "the tensor %s holds what is no number", parameter->name);
    return HEED_OK;
}

heed_status heed_carried_load(heed_model *model, int64_t layer,
                              void (*take)(void *context, const char *name, int64_t values), void *context)
{
    const heed_config *c = &model->config;
    const bool inputs = model->carries[layer] == HEED_CARRIES_INPUTS;
    heed_carried made;
    if (!model->carried)
        TRY(heed_parameters_create(&model->carried, 1));
    const int before = heed_parameters_count(model->carried);
    TRY(heed_carried_make(&made, c, model->carried, layer, inputs ? c->context : 1, model->packing.threads,
                          model->isa));
    heed_status status = HEED_OK;
    for (int i = before; i < heed_parameters_count(model->carried) && !status; i++) {
        heed_parameter *parameter = heed_parameters_at(model->carried, i);
        status = load_parameter(model, parameter);
        if (!status)
            take(context, parameter->name, parameter->count);
    }
    if (!status && inputs)
        status = check_looks_back(&made, c, layer);
    heed_carried_free(&made);
    return status;
}
