/* A pretrained model in a graph: what its session computes, in operations that have gradients. */
#include "model/attention.h"
#include "nn/graph.h"
#include "train/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct maker {
    heed_graph *graph;
    const heed_base *base;
    const heed_base_use *use;
    heed_transformer_nodes *nodes;
} maker;

static heed_variable parameter_of(const maker *m, const heed_base_tensor *tensor)
{
    char name[2 * HEED_BASE_NAME];
    snprintf(name, sizeof name, "%s%s", m->use->prefix ? m->use->prefix : "", tensor->name);
    const heed_parameter *parameter = heed_parameters_find(m->graph->parameters, name);
    if (!parameter)
        return heed_nn_fail(m->graph, HEED_INVALID, "%s was not loaded", name);
    return heed_nn_parameter(m->graph, name, parameter->rank, parameter->shape, (heed_initial){.size = 0.0f});
}

heed_layer_name heed_lora_name(const char *weight, bool b)
{
    const size_t length = strlen(weight), end = strlen(".weight");
    heed_layer_name name;
    snprintf(name.text, sizeof name.text, "%.*s.lora_%c.weight", (int)(length > end ? length - end : 0),
             weight, b ? 'B' : 'A');
    return name;
}

/* alpha / rank B (A x). A begins as PEFT has it, B as 0, so that nothing changes at first. */
static heed_variable lora(const maker *m, const heed_base_tensor *tensor, heed_variable x, heed_variable y)
{
    const heed_base_learn *learn = m->use->learn;
    const int64_t in = heed_graph_size(m->graph, x, -1), out = heed_graph_size(m->graph, y, -1);
    const int64_t down[] = {learn->rank, in}, up[] = {out, learn->rank};
    if (!heed_base_has_lora(learn, tensor->name))
        return y;
    const heed_variable a =
        heed_nn_parameter(m->graph, heed_lora_name(tensor->name, false).text, 2, down,
                          (heed_initial){.kind = HEED_INITIAL_UNIFORM, .size = 1.0f / sqrtf((float)in)});
    const heed_variable b = heed_nn_parameter(m->graph, heed_lora_name(tensor->name, true).text, 2, up,
                                              (heed_initial){.kind = HEED_INITIAL_CONSTANT});
    const heed_variable low = heed_nn_linear(m->graph, x, a, HEED_NO_INPUT);
    const heed_variable added = heed_nn_linear(
        m->graph, heed_nn_scale(m->graph, low, (float)(learn->alpha / (double)learn->rank), 0.0f), b,
        HEED_NO_INPUT);
    return heed_nn_add(m->graph, y, added);
}

static heed_variable linear(const maker *m, heed_role role, int64_t layer, heed_variable x)
{
    const heed_base_tensor *weight = heed_base_find(m->base, role, layer, false),
                           *bias = heed_base_find(m->base, role, layer, true);
    const heed_variable y =
        heed_nn_linear(m->graph, x, parameter_of(m, weight), bias ? parameter_of(m, bias) : HEED_NO_INPUT);
    return m->use->learn ? lora(m, weight, x, y) : y;
}

/* A norm that the model lacks changes nothing. */
static heed_variable norm(const maker *m, heed_role role, int64_t layer, heed_variable x)
{
    const heed_base_tensor *weight = heed_base_find(m->base, role, layer, false),
                           *bias = heed_base_find(m->base, role, layer, true);
    const heed_config *c = &m->base->config;
    if (!weight)
        return x;
    if (c->norm == HEED_NORM_RMS)
        return heed_nn_rms_norm(m->graph, x, parameter_of(m, weight), (float)c->eps);
    return heed_nn_layer_norm(m->graph, x, parameter_of(m, weight),
                              bias ? parameter_of(m, bias) : HEED_NO_INPUT, (float)c->eps);
}

/* Of each head's entries. */
static heed_variable norm_heads(const maker *m, heed_role role, int64_t layer, heed_variable x)
{
    const int64_t width = heed_graph_size(m->graph, x, -1), dim = m->base->config.head_dim;
    const int64_t apart[] = {m->use->batch, m->use->context, width / dim, dim},
                  rows[] = {m->use->batch, m->use->context, width};
    if (!heed_base_find(m->base, role, layer, false))
        return x;
    return heed_nn_reshape(m->graph, norm(m, role, layer, heed_nn_reshape(m->graph, x, 4, apart)), 3, rows);
}

static heed_variable attend(const maker *m, int64_t layer, heed_variable q, heed_variable k, heed_variable v)
{
    const heed_config *c = &m->base->config;
    char own[1024], name[40];
    char *text = malloc(HEED_ATTENTION_TEXT);
    heed_status status = text ? heed_config_attention(c, layer, own, sizeof own - 64)
                              : heed_fail(HEED_NO_MEMORY, "no memory for the text of a spec");
    if (!status && m->use->padded && !c->causal)
        strcat(own, strstr(own, "where=") ? " & segments" : "; where=segments");
    if (!status)
        status = heed_attention_of_layer(own, m->use->attention, NULL, layer, text, HEED_ATTENTION_TEXT);
    snprintf(name, sizeof name, "%sblk.%lld", m->use->prefix ? m->use->prefix : "", (long long)layer);
    const bool segments = m->use->padded && !c->causal;
    const heed_nn_attention how = {.spec = text,
                                   .name = name,
                                   .heads = c->heads,
                                   .kv_heads = c->kv_heads,
                                   .layer = layer,
                                   .positions = m->nodes->places,
                                   .segments = segments ? m->nodes->segments : HEED_NO_INPUT,
                                   .gate = HEED_NO_INPUT};
    const heed_variable out =
        status ? heed_nn_fail_message(m->graph, status) : heed_nn_attend(m->graph, q, k, v, &how);
    free(text);
    return out;
}

static heed_variable attention(const maker *m, int64_t layer, heed_variable x)
{
    const heed_config *c = &m->base->config;
    const int64_t q_width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
    heed_variable q, k, v;
    if (heed_base_find(m->base, HEED_QUERY_KEY_VALUE, layer, false)) {
        const heed_variable all = linear(m, HEED_QUERY_KEY_VALUE, layer, x);
        q = heed_nn_slice(m->graph, all, 2, 0, q_width);
        k = heed_nn_slice(m->graph, all, 2, q_width, kv_width);
        v = heed_nn_slice(m->graph, all, 2, q_width + kv_width, kv_width);
    } else {
        q = linear(m, HEED_QUERY, layer, x);
        k = linear(m, HEED_KEY, layer, x);
        v = linear(m, HEED_VALUE, layer, x);
    }
    q = norm_heads(m, HEED_QUERY_NORM, layer, q);
    k = norm_heads(m, HEED_KEY_NORM, layer, k);
    if (m->nodes->last) {
        m->nodes->last[0] = q;
        m->nodes->last[1] = k;
        m->nodes->last[2] = v;
    }
    return linear(m, HEED_ATTENTION_OUTPUT, layer, attend(m, layer, q, k, v));
}

static heed_variable feed_forward(const maker *m, int64_t layer, heed_variable x)
{
    static const heed_function functions[] = {[HEED_SILU] = HEED_FN_SILU,
                                              [HEED_GELU] = HEED_FN_GELU,
                                              [HEED_GELU_TANH] = HEED_FN_GELU_TANH,
                                              [HEED_RELU] = HEED_FN_RELU};
    const heed_config *c = &m->base->config;
    const heed_function function = functions[c->activation];
    heed_variable middle;
    if (heed_base_find(m->base, HEED_GATE_UP, layer, false)) {
        const heed_variable both = linear(m, HEED_GATE_UP, layer, x);
        middle = heed_nn_gate(m->graph, function, heed_nn_slice(m->graph, both, 2, 0, c->feed_forward),
                              heed_nn_slice(m->graph, both, 2, c->feed_forward, c->feed_forward));
    } else if (c->gated) {
        const heed_variable gate = linear(m, HEED_GATE, layer, x);
        middle = heed_nn_gate(m->graph, function, gate, linear(m, HEED_UP, layer, x));
    } else {
        middle = heed_nn_apply(m->graph, function, linear(m, HEED_UP, layer, x));
    }
    return linear(m, HEED_DOWN, layer, middle);
}

static heed_variable block(const maker *m, int64_t layer, heed_variable x)
{
    heed_variable h = attention(m, layer, norm(m, HEED_ATTENTION_NORM, layer, x));
    x = heed_nn_add(m->graph, x, norm(m, HEED_ATTENTION_POST_NORM, layer, h));
    x = norm(m, HEED_ATTENTION_SUM_NORM, layer, x);
    h = feed_forward(m, layer, norm(m, HEED_FEED_NORM, layer, x));
    x = heed_nn_add(m->graph, x, norm(m, HEED_FEED_POST_NORM, layer, h));
    return norm(m, HEED_FEED_SUM_NORM, layer, x);
}

static heed_variable embed(const maker *m)
{
    const heed_config *c = &m->base->config;
    const int64_t row[] = {c->width};
    heed_variable x = heed_nn_gather(
        m->graph, parameter_of(m, heed_base_find(m->base, HEED_EMBEDDING, 0, false)), m->nodes->tokens);
    if (c->embedding_scale != 1.0)
        x = heed_nn_scale(m->graph, x, (float)c->embedding_scale, 0.0f);
    const heed_base_tensor *types = heed_base_find(m->base, HEED_TOKEN_TYPES, 0, false),
                           *places = heed_base_find(m->base, HEED_POSITIONS, 0, false);
    if (types)
        x = heed_nn_add(
            m->graph, x,
            heed_nn_reshape(m->graph, heed_nn_slice(m->graph, parameter_of(m, types), 0, 0, 1), 1, row));
    if (places) {
        const heed_variable all = parameter_of(m, places);
        x = heed_nn_add(m->graph, x,
                        m->nodes->places >= 0 ? heed_nn_gather(m->graph, all, m->nodes->places)
                                              : heed_nn_slice(m->graph, all, 0, 0, m->use->context));
    }
    return norm(m, HEED_EMBEDDING_NORM, 0, x);
}

static heed_variable logits(const maker *m, heed_variable x)
{
    const heed_config *c = &m->base->config;
    const heed_base_tensor *out =
        heed_base_find(m->base, m->base->shared ? HEED_EMBEDDING : HEED_OUTPUT, 0, false);
    const float cap = (float)c->logit_cap;
    x = heed_nn_linear(m->graph, x, parameter_of(m, out), HEED_NO_INPUT);
    if (cap == 0.0f)
        return x;
    x = heed_nn_apply(m->graph, HEED_FN_TANH, heed_nn_scale(m->graph, x, 1.0f / cap, 0.0f));
    return heed_nn_scale(m->graph, x, cap, 0.0f);
}

void heed_base_make(heed_graph *graph, const heed_base *base, const heed_base_use *use,
                    heed_transformer_nodes *nodes)
{
    const maker m = {graph, base, use, nodes};
    const heed_config *c = &base->config;
    const int64_t shape[] = {use->batch, use->context};
    nodes->logits = HEED_NO_INPUT;
    nodes->hidden = HEED_NO_VARIABLE;
    if (c->positions && use->context > c->positions) {
        heed_nn_fail(graph, HEED_INVALID, "context = %lld: the model has %lld positions",
                     (long long)use->context, (long long)c->positions);
        return;
    }
    if (!use->hidden && !c->generates) {
        heed_nn_fail(graph, HEED_INVALID, "%s models give no logits, only hidden states", c->architecture);
        return;
    }
    if (nodes->tokens < 0)
        nodes->tokens = heed_nn_input(graph, HEED_I32, 2, shape);
    heed_variable x = embed(&m);
    for (int64_t layer = 0; layer < c->layers; layer++) {
        if (use->recompute)
            heed_graph_segment(graph);
        x = block(&m, layer, x);
        if (use->recompute)
            heed_graph_segment_end(graph);
    }
    nodes->hidden = norm(&m, HEED_LAST_NORM, 0, x);
    if (!use->hidden)
        nodes->logits = logits(&m, nodes->hidden);
}
