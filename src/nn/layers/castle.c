/* CASTLE (row 004.146): keys of earlier tokens that later tokens renew.
 *
 *     u_s^t = sum_{j=s+1..t} sigmoid(qU_s·kU_j / sqrt d) vU_j           the lookahead key of s at time t
 *     weights = softmax_s(qC_t·kC_s / sqrt d - SiLU(qC_t·u_s^t / sqrt d)), s <= t;    read with vC
 *
 * In parallel: G = [(QC VU^T / sqrt d), j <= t] [sigmoid(QU KU^T / sqrt d), j > s]^T. Without vU it is causal
 * softmax attention. Song et al.: Causal Attention with Lookahead Keys, 2025.
 */
#include "nn/layers.h"

#include <math.h>

/* One where the key is not later than the query, or not earlier or the same: [N, N]. */
static heed_variable side(const heed_layer_call *call, bool later)
{
    return heed_part_mask(call, true, later ? 0 : 1, later ? 1 : 0);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t heads = call->model->heads, wide = heads * call->model->head_dim;
    const float scale = 1 / sqrtf((float)call->model->head_dim);
    static const char *const parts[] = {"q_proj",       "k_proj",       "v_proj",
                                        "ahead_q_proj", "ahead_k_proj", "ahead_v_proj"};
    heed_variable m[6];
    for (int i = 0; i < 6; i++)
        m[i] = heed_part_heads(call, heed_part_map(call, parts[i], call->x, wide), heads);
    const heed_variable seen =
        heed_nn_multiply(graph, heed_part_scores(call, m[0], m[5], scale), side(call, false));
    const heed_variable looks = heed_nn_multiply(
        graph, heed_nn_apply(graph, HEED_FN_SIGMOID, heed_part_scores(call, m[3], m[4], scale)),
        side(call, true));
    const heed_variable ahead = heed_nn_apply(graph, HEED_FN_SILU, heed_nn_product(graph, seen, looks, true));
    const heed_variable scores = heed_nn_subtract(graph, heed_part_scores(call, m[0], m[1], scale), ahead);
    return heed_part_out(
        call,
        heed_part_merge(call, heed_nn_product(graph, heed_part_weights(call, scores, true), m[2], false)));
}

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_castle = {
    .name = "castle",
    .stage = HEED_LAYER,
    .summary = "keys of earlier tokens that later tokens renew",
    .formula =
        "softmax(q·k / sqrt d - SiLU(q·u / sqrt d)) v, u the sum of later values that the key looks at",
    .source = "Song et al.: Causal Attention with Lookahead Keys, 2025",
    .row = "004.146",
    .layer = &rule,
};
