/* Relation-aware attention (row 004.061): vectors of offsets beside keys and beside values.
 *
 *     e_ij = q_i·(k_j + aK_ij) / sqrt d,   z_i = sum_j softmax(e)_ij (v_j + aV_ij),   a_ij = w[clip(j - i,
 * -k, k)]
 *
 * Two tables [2 k + 1][d] that heads share. q meets the table once a query, and its products are picked by
 * offset; weights are summed up by offset before they meet the other table. position=shaw is the first half
 * in the fused kernels. Shaw, Uszkoreit, Vaswani: Self-Attention with Relative Position Representations,
 * 2018.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

enum { MAX, CAUSAL };

/* [N][N] index of the table's row */
static int32_t *offsets(int64_t n, int64_t max)
{
    int32_t *place = calloc((size_t)(n * n), sizeof *place);
    for (int64_t i = 0; place && i < n * n; i++) {
        const int64_t offset = i % n - i / n;
        place[i] = (int32_t)((offset < -max ? -max : offset > max ? max : offset) + max);
    }
    return place;
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, d = model->head_dim, n = model->context;
    const int64_t max = heed_arg_int(call->form, MAX), rows = 2 * max + 1, shape[] = {rows, d};
    int32_t *place = offsets(n, max);
    if (!place)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for offsets of %lld tokens", (long long)n);
    const heed_variable q = heed_part_projected(call, "q_proj", heads),
                        k = heed_part_projected(call, "k_proj", heads),
                        v = heed_part_projected(call, "v_proj", heads);
    const heed_variable of_keys =
        heed_part_parameter(call, "key_offsets", 2, shape, HEED_INITIAL_NORMAL, model->deviation);
    const heed_variable of_values =
        heed_part_parameter(call, "value_offsets", 2, shape, HEED_INITIAL_NORMAL, model->deviation);
    const heed_variable met = heed_nn_pick(graph, heed_nn_product(graph, q, of_keys, true), place, n);
    const heed_variable scores = heed_nn_scale(
        graph, heed_nn_add(graph, heed_nn_product(graph, q, k, true), met), 1 / sqrtf((float)d), 0);
    const heed_variable w = heed_part_weights(call, scores, call->form->arg[CAUSAL].number == 0);
    const heed_variable by_offset = heed_nn_sort_in(graph, w, place, rows);
    free(place);
    const heed_variable y = heed_nn_add(graph, heed_nn_product(graph, w, v, false),
                                        heed_nn_product(graph, by_offset, of_values, false));
    return heed_part_out(call, heed_part_merge(call, y));
}

static const heed_arg args[] = {
    [MAX] = {.name = "max",
             .kind = HEED_ARG_INT,
             .value = 16,
             .least = 1,
             .most = 1 << 20,
             .summary = "offset from which on all share a vector"},
    [CAUSAL] = HEED_CAUSAL_ARG,
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_relations = {
    .name = "relations",
    .stage = HEED_LAYER,
    .summary = "learnt vectors of clipped offsets, beside keys and beside values",
    .formula = "softmax(q·(k + aK[j - i]) / sqrt d) (v + aV[j - i])",
    .source = "Shaw et al. 2018",
    .row = "004.061",
    .args = args,
    .layer = &rule,
};
