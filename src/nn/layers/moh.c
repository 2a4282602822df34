/* Mixture of heads (row 001.183): each token weighs its heads, and only some of them count.
 *
 *     out = sum_h g_h attend_h Wo_h
 *     shared heads:  g_i = 2 a_1 s S_i,            S = softmax(W_s x) over the first s heads
 *     routed heads:  g_i = 2 a_2 k R_i / sum of the k largest R, if R_i is one of them, else 0
 *                    R = softmax(W_r x) over the rest,  [a_1, a_2] = softmax(W_h x)
 *
 * Even scores give g = 1. All heads are computed; those not chosen are multiplied by 0. The load-balance loss
 * is not part of the layer. Jin, Zhu, Yuan, Yan: MoH: Multi-Head Attention as Mixture-of-Head Attention,
 * 2024.
 */
#include "nn/layers.h"

#include "nn/graph.h"

enum { SHARED, CHOSEN };

/* Weights of heads times their level, [B, N, count]. */
static heed_variable level(const heed_layer_call *call, heed_variable weights, heed_variable levels,
                           int which)
{
    const heed_variable one = heed_nn_slice(call->graph, levels, 2, which, 1);
    return heed_nn_multiply(call->graph, weights,
                            heed_part_each(call, one, heed_graph_size(call->graph, weights, 2)));
}

static heed_variable gates(const heed_layer_call *call, int64_t shared, int64_t chosen)
{
    heed_graph *graph = call->graph;
    const heed_variable x = call->x;
    const int64_t routed = call->model->heads - shared;
    const heed_variable route =
        heed_nn_largest(graph, heed_nn_softmax(graph, heed_part_map(call, "routed_proj", x, routed)), chosen);
    const heed_variable picked = heed_nn_scale(graph, heed_part_over_sum(call, route), (float)chosen, 0);
    if (shared == 0)
        return picked;
    const heed_variable levels =
        heed_nn_scale(graph, heed_nn_softmax(graph, heed_part_map(call, "level_proj", x, 2)), 2, 0);
    const heed_variable always = heed_nn_scale(
        graph, heed_nn_softmax(graph, heed_part_map(call, "shared_proj", x, shared)), (float)shared, 0);
    const heed_variable both[] = {level(call, always, levels, 0), level(call, picked, levels, 1)};
    return heed_nn_concatenate(graph, 2, both, 2);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, d = model->head_dim, kv = model->kv_heads;
    const int64_t shared = heed_arg_int(call->form, SHARED), chosen = heed_arg_int(call->form, CHOSEN);
    if (shared >= heads || chosen > heads - shared)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "layer=moh(shared=%lld, chosen=%lld) of %lld heads: only those that are not shared "
            "can be chosen",
            (long long)shared, (long long)chosen, (long long)heads);
    const heed_variable y =
        heed_part_attend(call, "attend", heed_part_map(call, "q_proj", call->x, heads * d),
                         heed_part_map(call, "k_proj", call->x, kv * d),
                         heed_part_map(call, "v_proj", call->x, kv * d), heads, kv);
    const heed_variable g = heed_part_each(call, gates(call, shared, chosen), d);
    return heed_part_out(call, heed_nn_multiply(graph, y, g));
}

static const heed_arg args[] = {
    [SHARED] = {.name = "shared",
                .kind = HEED_ARG_INT,
                .value = 1,
                .most = 4096,
                .summary = "heads that always count"},
    [CHOSEN] = {.name = "chosen",
                .kind = HEED_ARG_INT,
                .value = 2,
                .least = 1,
                .most = 4096,
                .summary = "of the other heads, how many count for a token"},
    {0},
};

static const heed_layer_rule rule = {.make = make, .attends = true};
const heed_form heed_layer_form_moh = {
    .name = "moh",
    .stage = HEED_LAYER,
    .summary = "each token weighs its heads, and only some of them count",
    .formula = "sum over heads of g_h(x) attend(q_h, k_h, v_h) Wo_h, g 0 for all but the k largest",
    .source = "Jin, Zhu, Yuan, Yan: MoH, 2024",
    .row = "001.183",
    .args = args,
    .layer = &rule,
};
