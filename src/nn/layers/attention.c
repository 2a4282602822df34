/* Attention by a spec between four linear maps: o(attend(q(x), k(x), v(x))). With kv_every above 1 only every
 * so many layers have keys and values of their own (row 000.045); their gradient is the sum over all readers.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <heed/scan.h>

#include <math.h>
#include <stdlib.h>

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

/* log of sigmoid(x) to a power: what stays of a state, near all at first. */
static heed_variable log_gate(heed_graph *graph, heed_variable x)
{
    const float power = 1 / 16.0f; /* Yang et al. 2023 */
    const heed_variable share = heed_nn_apply(graph, HEED_FN_SIGMOID, x);
    return heed_nn_scale(graph, heed_nn_apply(graph, HEED_FN_LOG, share), power, 0);
}

/* q·k / sqrt(d) of a learnt query of each head, the same for all tokens: [batch, n, kv_heads]. */
static heed_variable scores_of_one_query(heed_graph *graph, const char *name, const heed_transformer *model,
                                         heed_variable x)
{
    const int64_t wide = model->kv_heads * model->head_dim;
    const int64_t apart[] = {model->batch, model->context, model->kv_heads, model->head_dim};
    const heed_variable query =
        heed_nn_parameter(graph, heed_layer_under(name, "query").text, 1, &wide,
                          (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = model->deviation});
    const heed_variable key = heed_layer_linear(graph, heed_layer_under(name, "k_proj").text, x, wide,
                                                model->bias, model->deviation);
    const heed_variable sum =
        heed_nn_sum(graph, heed_nn_reshape(graph, heed_nn_multiply(graph, key, query), 4, apart));
    return heed_nn_scale(graph, sum, 1 / sqrtf((float)model->head_dim), 0);
}

/* A learnt number of each head, the same for all tokens, 0 at first: [batch, n, kv_heads]. */
static heed_variable number_of_each_head(heed_graph *graph, const char *name, const heed_transformer *model)
{
    const int64_t count = model->batch * model->context * model->kv_heads;
    const int64_t shape[] = {model->batch, model->context, model->kv_heads};
    float *zeros = calloc((size_t)count, sizeof *zeros);
    if (!zeros)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for the numbers of heads");
    const heed_variable all = heed_nn_constant(graph, 3, shape, zeros);
    free(zeros);
    return heed_nn_add(graph, all,
                       heed_nn_parameter(graph, heed_layer_under(name, "share").text, 1, &model->kv_heads,
                                         (heed_initial){.kind = HEED_INITIAL_CONSTANT}));
}

/* What a recurrence reads beside q, k and v, made of x by maps of its own. */
static heed_variable recur(heed_graph *graph, const char *name, const heed_transformer *model, int64_t layer,
                           const heed_scan_facts *facts, heed_variable x, heed_variable q, heed_variable k,
                           heed_variable v)
{
    heed_nn_recurrence how = heed_layer_recurrence(model, layer, model->spec);
    how.kv_heads = model->kv_heads;
    const int64_t wide = model->kv_heads * model->head_dim;
    const float deviation = model->deviation;
#define MAP(part, width)                                                                                     \
    heed_layer_linear(graph, heed_layer_under(name, part).text, x, width, true, deviation)
    if (facts->flags & HEED_SCAN_READS_DECAY)
        how.decay = log_gate(graph, MAP("decay_proj", model->kv_heads));
    if (facts->flags & HEED_SCAN_READS_GATE) {
        how.gate = MAP("gate_proj", facts->slots ? model->kv_heads * facts->slots : wide);
        if (!(facts->flags & HEED_SCAN_RAW_GATE))
            how.gate = log_gate(graph, how.gate);
    }
    if (facts->flags & HEED_SCAN_MIXES)
        how.beta = number_of_each_head(graph, name, model);
    else if (facts->flags & HEED_SCAN_SCORES)
        how.beta = scores_of_one_query(graph, name, model, x);
    else if (facts->flags & HEED_SCAN_READS_BETA)
        how.beta = heed_nn_apply(graph, HEED_FN_SIGMOID, MAP("beta_proj", model->kv_heads));
    if (facts->flags & HEED_SCAN_READS_ERASE)
        how.erase = MAP("erase_proj", wide);
    if (facts->flags & HEED_SCAN_READS_RATE)
        how.rate = heed_nn_apply(graph, HEED_FN_SIGMOID, MAP("rate_proj", wide));
#undef MAP
    return heed_nn_scan(graph, q, k, v, &how);
}

static heed_variable attend(heed_graph *graph, const char *name, const heed_transformer *model, int64_t layer,
                            const heed_transformer_nodes *nodes, heed_variable q, heed_variable k,
                            heed_variable v)
{
    const heed_nn_attention how = {.spec = model->spec,
                                   .name = name,
                                   .heads = model->heads,
                                   .kv_heads = model->kv_heads,
                                   .layer = layer,
                                   .positions = nodes->places,
                                   .segments = nodes->segments,
                                   .gate = HEED_NO_INPUT};
    return heed_nn_attend(graph, q, k, v, &how);
}

heed_variable heed_layer_attention(heed_graph *graph, const char *name, const heed_transformer *model,
                                   int64_t layer, const heed_transformer_nodes *nodes, heed_variable x)
{
    heed_form_state form;
    char rest[HEED_LAYER_REST];
    if (heed_layer_of_spec(model->spec, layer, &form, rest))
        return heed_nn_fail_message(graph, HEED_INVALID);
    for (int i = 0; form.form && nodes->last && i < 3; i++)
        nodes->last[i] = HEED_NO_INPUT;
    if (form.form) {
        const heed_layer_call call = {graph, &form, name, model, layer, nodes, x, rest};
        return form.form->layer->make(&call);
    }
    const float deviation = model->deviation;
    const int64_t q_width = model->heads * model->head_dim, kv_width = model->kv_heads * model->head_dim;
    heed_scan_facts facts = {.scans = false};
    (void)heed_scan_of_layer(model->spec, NULL, layer, &facts); /* a wrong spec is refused below */
    heed_variable q = HEED_NO_INPUT;
    if (!(facts.flags & HEED_SCAN_NO_QUERIES))
        q = heed_layer_linear(graph, heed_layer_under(name, "q_proj").text, x, q_width, model->bias,
                              deviation);
    heed_variable k = HEED_NO_INPUT, v;
    const bool reads = model->kv_every > 1 && layer % model->kv_every && nodes->held;
    if (q >= 0)
        q = norm_heads(graph, heed_layer_under(name, "q_norm").text, model, q);
    if (reads) { /* Brandon et al.: Reducing Transformer Key-Value Cache Size with Cross-Layer Attention, 2024
                  */
        k = nodes->held[0];
        v = nodes->held[1];
    } else {
        if (!(facts.flags & HEED_SCAN_NO_KEYS))
            k = heed_layer_linear(graph, heed_layer_under(name, "k_proj").text, x, kv_width, model->bias,
                                  deviation);
        v = heed_layer_linear(graph, heed_layer_under(name, "v_proj").text, x, kv_width, model->bias,
                              deviation);
        if (k >= 0)
            k = norm_heads(graph, heed_layer_under(name, "k_norm").text, model, k);
    }
    if (nodes->held) {
        nodes->held[0] = k;
        nodes->held[1] = v;
    }
    if (nodes->last) {
        nodes->last[0] = q;
        nodes->last[1] = k;
        nodes->last[2] = v;
    }
    const heed_variable out = facts.scans ? recur(graph, name, model, layer, &facts, x, q, k, v)
                                          : attend(graph, name, model, layer, nodes, q, k, v);
    /* maps onto the residual stream begin smaller, so that it does not grow with depth (Radford et al. 2019)
     */
    return heed_layer_linear(graph, heed_layer_under(name, "o_proj").text, out, model->width, model->bias,
                             deviation / sqrtf(2.0f * (float)model->layers));
}
