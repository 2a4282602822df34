/* Attention with fewer maps (row 000.031): values, or keys too, are the token's own numbers.
 *
 *     optimised:  softmax(Q_h K_h^T / sqrt d) X_h,   X_h the columns h d .. of x       no Wv
 *     efficient:  softmax(Q_h X_h^T / sqrt d) X_h                                     no Wk either
 *     super:      softmax(Q_h X_h^T / sqrt d) (Wa X)_h,  Wa [N][N] learnt, shared by heads, the identity at
 *                 first; only its lower triangle where causal
 *
 * then Wo. Width must be heads times head_dim. Hosseini, Hosseini: You Need to Pay Better Attention:
 * Rethinking the Mathematics of Attention Mechanism, 2024.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <stdlib.h>

enum { KIND, CAUSAL };
enum { OPTIMISED, EFFICIENT, SUPER };

/* Wa [N][N] */
static heed_variable alignment(const heed_layer_call *call, bool causal)
{
    const int64_t n = call->model->context, shape[] = {n, n};
    float *values = calloc((size_t)(n * n), sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for an alignment of %lld tokens",
                            (long long)n);
    for (int64_t i = 0; i < n; i++)
        values[i * n + i] = 1;
    const heed_variable w = heed_nn_parameter(call->graph, heed_layer_under(call->name, "align").text, 2,
                                              shape, (heed_initial){.values = values});
    free(values);
    return causal ? heed_nn_multiply(call->graph, w, heed_part_mask(call, true, 1, 0)) : w;
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t wide = model->heads * model->head_dim;
    const int kind = (int)call->form->arg[KIND].number;
    const bool causal = call->form->arg[CAUSAL].number == 0;
    if (wide != model->width || model->kv_heads != model->heads)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "layer=optimised: heads times head_dim, %lld, must be width, %lld, and kv_heads heads",
            (long long)wide, (long long)model->width);
    const heed_variable q = heed_part_map(call, "q_proj", call->x, wide);
    const heed_variable k = kind == OPTIMISED ? heed_part_map(call, "k_proj", call->x, wide) : call->x;
    heed_variable v = call->x;
    if (kind == SUPER) { /* Wa X: columns of tokens to the end, and back */
        v = heed_nn_transpose(graph, v, (int[]){0, 2, 1});
        v = heed_nn_linear(graph, v, alignment(call, causal), HEED_NO_INPUT);
        v = heed_nn_transpose(graph, v, (int[]){0, 2, 1});
    }
    heed_layer_call inside = *call;
    inside.spec = causal ? "where=causal" : "where=all";
    return heed_part_out(call, heed_part_attend(&inside, "attend", q, k, v, model->heads, model->heads));
}

static const heed_option kinds[] = {{"optimised", NULL}, {"efficient", NULL}, {"super", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [KIND] = {.name = "kind",
              .kind = HEED_ARG_CHOICE,
              .options = kinds,
              .summary = "which maps are left out"},
    [CAUSAL] = HEED_CAUSAL_ARG,
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_optimised = {
    .name = "optimised",
    .stage = HEED_LAYER,
    .summary = "values, or keys too, are the token's own numbers; or values mixed over places",
    .formula = "softmax(Q_h K_h^T / sqrt d) X_h; efficient: K_h = X_h; super: (Wa X)_h in place of X_h",
    .source = "Hosseini, Hosseini: You Need to Pay Better Attention, 2024",
    .row = "000.031",
    .args = args,
    .layer = &rule,
};
