/* EMHA (row 004.027): every query head meets every key head, and small maps mix what they see.
 *
 *     S_ij = Q_i K_j^T / sqrt d,  H^2 maps;     inner: for each i its H maps to M, ReLU;     across: all of
 *     them to H maps Z_h;     A_h = softmax(Z_h),  out = Wo [A_h V_h]
 *
 * The maps are convolutions of 1 x 1: `inner` [H][M][H], `across` [H][H M]. Pairs that may not be seen are 0
 * before the mixing and closed after it. With `inner` and `across` that choose S_ii it is multi-head
 * attention, as far as ReLU lets it be: relu=no leaves it out. Zheng et al.: EIT: Enhanced Interactive
 * Transformer, 2024.
 */
#include "nn/layers.h"

#include <math.h>

enum { CAUSAL, MAPS, RELU };

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t b = model->batch, n = model->context, heads = model->heads, wide = heads * model->head_dim;
    const int64_t maps = heed_arg_int(call->form, MAPS) ? heed_arg_int(call->form, MAPS) : heads;
    const bool causal = call->form->arg[CAUSAL].number == 0;
    const float scale = 1 / sqrtf((float)model->head_dim);
    const heed_variable q = heed_part_heads(call, heed_part_map(call, "q_proj", call->x, wide), heads),
                        k = heed_part_heads(call, heed_part_map(call, "k_proj", call->x, wide), heads),
                        v = heed_part_heads(call, heed_part_map(call, "v_proj", call->x, wide), heads);
    const int64_t long_rows[] = {b, heads * n, model->head_dim}, pairs[] = {b, heads, n * heads, n};
    /* [B, H N, d] x [B, H N, d]: rows (i, t), columns (j, s) */
    heed_variable s = heed_part_scores(call, heed_nn_reshape(graph, q, 3, long_rows),
                                       heed_nn_reshape(graph, k, 3, long_rows), scale);
    s = heed_nn_reshape(graph, s, 4, pairs); /* (i), (t j), (s) */
    if (causal) {
        const int64_t as_rows[] = {b * heads, n, heads, n}, lines[] = {b * heads * heads, n, n};
        s = heed_nn_transpose(graph, heed_nn_reshape(graph, s, 4, as_rows), (int[]){0, 2, 1, 3});
        s = heed_nn_multiply(graph, heed_nn_reshape(graph, s, 3, lines), heed_part_mask(call, true, 1, 0));
    } else {
        const int64_t as_rows[] = {b * heads, n, heads, n};
        s = heed_nn_transpose(graph, heed_nn_reshape(graph, s, 4, as_rows), (int[]){0, 2, 1, 3});
    }
    const int64_t inner_shape[] = {heads, maps, heads}, across_shape[] = {heads, heads * maps};
    const heed_variable inner = heed_part_parameter(call, "inner", 3, inner_shape, HEED_INITIAL_NORMAL,
                                                    1 / sqrtf((float)heads)),
                        across = heed_part_parameter(call, "across", 2, across_shape, HEED_INITIAL_NORMAL,
                                                     1 / sqrtf((float)(heads * maps)));
    /* groups to the front: [H, B N N, H] x [H, M, H]^T */
    const int64_t by_group[] = {b, heads, heads, n * n}, flat[] = {heads, b * n * n, heads};
    s = heed_nn_transpose(graph, heed_nn_reshape(graph, s, 4, by_group), (int[]){1, 0, 3, 2});
    s = heed_nn_product(graph, heed_nn_reshape(graph, s, 3, flat), inner, true);
    if (call->form->arg[RELU].number == 0)
        s = heed_nn_apply(graph, HEED_FN_RELU, s);
    const int64_t three[] = {heads, b * n * n, maps}, joined[] = {b * n * n, heads * maps};
    s = heed_nn_transpose(graph, heed_nn_reshape(graph, s, 3, three), (int[]){1, 0, 2});
    s = heed_nn_linear(graph, heed_nn_reshape(graph, s, 2, joined), across, HEED_NO_INPUT);
    const int64_t last[] = {b, n * n, heads}, maps_of[] = {b, heads, n, n};
    s = heed_nn_transpose(graph, heed_nn_reshape(graph, s, 3, last), (int[]){0, 2, 1});
    s = heed_part_weights(call, heed_nn_reshape(graph, s, 4, maps_of), causal);
    return heed_part_out(call, heed_part_merge(call, heed_nn_product(graph, s, v, false)));
}

static const heed_arg args[] = {
    [CAUSAL] = HEED_CAUSAL_ARG,
    [MAPS] = {.name = "maps",
              .kind = HEED_ARG_INT,
              .most = 4096,
              .summary = "maps of a query head between; 0: heads"},
    [RELU] = {.name = "relu",
              .kind = HEED_ARG_CHOICE,
              .options = heed_yes_no,
              .summary = "whether the maps between are cut at 0"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_emha = {
    .name = "emha",
    .stage = HEED_LAYER,
    .summary = "every query head meets every key head, and learnt maps mix their scores",
    .formula = "softmax(across(relu(inner(Q_i K_j^T / sqrt d)))) V_h",
    .source = "Zheng et al.: EIT: Enhanced Interactive Transformer, 2024",
    .row = "004.027",
    .args = args,
    .layer = &rule,
};
