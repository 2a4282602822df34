/* Efficient attention (row 004.050): a global summary of each key channel, which queries mix.
 *
 *     out = rho_q(Q) (rho_k(K)^T V)
 *     softmax: rho_q over the channels of a query, rho_k over the places of a channel
 *     scaling: both x / sqrt N, which is (Q K^T / N) V
 *
 * Time and memory grow with N, not its square; tokens see later ones. Shen, Zhang, Zhao, Yi, Li: Efficient
 * Attention: Attention with Linear Complexities, 2018.
 */
#include "nn/layers.h"

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, wide = heads * model->head_dim;
    const bool scaling = call->form->arg[0].number == 1;
    heed_variable q = heed_part_heads(call, heed_part_map(call, "q_proj", call->x, wide), heads),
                  k = heed_part_heads(call, heed_part_map(call, "k_proj", call->x, wide), heads);
    const heed_variable v = heed_part_heads(call, heed_part_map(call, "v_proj", call->x, wide), heads);
    k = heed_nn_transpose(graph, k, (int[]){0, 1, 3, 2}); /* [B, H, d, N] */
    k = scaling ? heed_nn_scale(graph, k, 1 / (float)model->context, 0) : heed_nn_softmax(graph, k);
    q = scaling ? q : heed_nn_softmax(graph, q);
    const heed_variable summary = heed_nn_product(graph, k, v, false); /* [B, H, d, d] */
    return heed_part_out(call, heed_part_merge(call, heed_nn_product(graph, q, summary, false)));
}

static const heed_option norms[] = {{"softmax", NULL}, {"scaling", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    {.name = "norm",
     .kind = HEED_ARG_CHOICE,
     .options = norms,
     .summary = "how queries and keys are normalised"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_lowrank_form_efficient = {
    .name = "efficient",
    .stage = HEED_LOWRANK,
    .summary = "a global summary of each key channel, which queries mix",
    .formula = "softmax_channels(Q) (softmax_places(K)^T V), or Q (K^T V) / N",
    .source = "Shen et al.: Efficient Attention: Attention with Linear Complexities, 2018",
    .row = "004.050",
    .args = args,
    .layer = &rule,
};
