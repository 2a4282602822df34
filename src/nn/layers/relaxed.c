/* Attention with one of its principles relaxed (row 000.048): what is left when tokens do not mix, when
 * scores do not need pairs, or when the map does not depend on the text.
 *
 *     mlp:      Wd(silu(Wg x) (Wu x)), no mixing; hidden 4/3 width, as many numbers as four maps have
 *     single:   s_j = silu(WQ x_j)·(WK x_j) / sqrt d,  a_ij = exp(s_j) / sum_{m<=i} exp(s_m)
 *     random:   Q and K from vectors drawn once, one a place, that never learn; V from the text
 *
 * Heads as usual, causal. The approximate variant, a Taylor series of exp, is scan=based. Xue et al.:
 * Deconstructing Attention: Investigating Design Principles for Effective Language Modeling, 2025.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>

enum { MLP, SINGLE, RANDOM };

static heed_variable no_mixing(const heed_layer_call *call)
{
    const int64_t hidden = (4 * call->model->width + 2) / 3;
    const heed_variable gate = heed_part_map(call, "gate_proj", call->x, hidden),
                        up = heed_part_map(call, "up_proj", call->x, hidden);
    return heed_part_out(call, heed_nn_gate(call->graph, HEED_FN_SILU, gate, up));
}

/* A prefix softmax of scores that belong to keys alone: scan=aaren. */
static heed_variable single(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t wide = model->heads * model->head_dim;
    const int64_t apart[] = {model->batch, model->context, model->heads, model->head_dim};
    const heed_variable product =
        heed_nn_gate(graph, HEED_FN_SILU, heed_part_map(call, "q_proj", call->x, wide),
                     heed_part_map(call, "k_proj", call->x, wide));
    const heed_variable scores =
        heed_nn_scale(graph, heed_nn_sum(graph, heed_nn_reshape(graph, product, 4, apart)),
                      1 / sqrtf((float)model->head_dim), 0);
    heed_nn_recurrence how = heed_layer_recurrence(model, call->layer, "scan=aaren");
    how.beta = scores;
    return heed_part_out(call, heed_nn_scan(graph, HEED_NO_INPUT, HEED_NO_INPUT,
                                            heed_part_map(call, "v_proj", call->x, wide), &how));
}

/* [N, width], the same for every text: drawn by the seed and the layer's name, frozen. */
static heed_variable frozen_places(const heed_layer_call *call)
{
    const int64_t shape[] = {call->model->context, call->model->width};
    const heed_variable made = heed_part_parameter(call, "places", 2, shape, HEED_INITIAL_NORMAL, 1);
    if (made >= 0)
        call->graph->node[made].parameter->frozen = true;
    return made;
}

static heed_variable fixed_map(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t n = model->context, heads = model->heads, wide = heads * model->head_dim;
    const heed_variable places = frozen_places(call);
    const int64_t apart[] = {n, heads, model->head_dim};
    const heed_variable q = heed_nn_transpose(
        graph, heed_nn_reshape(graph, heed_part_map(call, "q_proj", places, wide), 3, apart),
        (int[]){1, 0, 2});
    const heed_variable k = heed_nn_transpose(
        graph, heed_nn_reshape(graph, heed_part_map(call, "k_proj", places, wide), 3, apart),
        (int[]){1, 0, 2});
    const heed_variable w =
        heed_part_weights(call, heed_part_scores(call, q, k, 1 / sqrtf((float)model->head_dim)), true);
    /* the values of a head with tokens last, [B, d, N], meet its map, which all texts share */
    heed_variable head[HEED_NN_INPUTS];
    const heed_variable v = heed_part_map(call, "v_proj", call->x, wide);
    if (heads > HEED_NN_INPUTS)
        return heed_nn_fail(graph, HEED_INVALID, "layer=relaxed(kind=random): at most %d heads",
                            HEED_NN_INPUTS);
    for (int64_t h = 0; h < heads; h++) {
        const int64_t map[] = {n, n};
        const heed_variable mine = heed_nn_reshape(graph, heed_nn_slice(graph, w, 0, h, 1), 2, map);
        const heed_variable values = heed_nn_transpose(
            graph, heed_nn_slice(graph, v, 2, h * model->head_dim, model->head_dim), (int[]){0, 2, 1});
        head[h] = heed_nn_transpose(graph, heed_nn_product(graph, values, mine, true), (int[]){0, 2, 1});
    }
    return heed_part_out(call, heed_nn_concatenate(graph, (int)heads, head, 2));
}

static heed_variable make(const heed_layer_call *call)
{
    switch ((int)call->form->arg[0].number) {
    case MLP:
        return no_mixing(call);
    case SINGLE:
        return single(call);
    default:
        return fixed_map(call);
    }
}

static const heed_option kinds[] = {
    [MLP] = {"mlp", NULL}, [SINGLE] = {"single", NULL}, [RANDOM] = {"random", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    {.name = "kind",
     .kind = HEED_ARG_CHOICE,
     .value = SINGLE,
     .options = kinds,
     .summary = "no mixing; scores of keys alone; a map that never learns"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_relaxed = {
    .name = "relaxed",
    .stage = HEED_LAYER,
    .summary = "attention without mixing, without pairs, or with a map that knows nothing of the text",
    .formula =
        "mlp: Wd(silu(Wg x) Wu x); single: softmax over j of silu(q_j)·k_j; random: Q, K of frozen places",
    .source = "Xue et al.: Deconstructing Attention, 2025",
    .row = "000.048",
    .args = args,
    .layer = &rule,
};
