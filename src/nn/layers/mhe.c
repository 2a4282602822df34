/* Multi-head embeddings (row 001.100): one projection that all heads share, and small vectors that tell them
 * apart.
 *
 *     add: q_h = q + eq_h,  k_h = k + ek_h,  v_h = v + ev_h;   mul: q_h = q (1 + eq_h), ... by entries
 *     out = Wo [attend(q_1, k_1, v_1), ..., attend(q_H, k_H, v_H)]
 *
 * Three vectors a head more than one head has: 3 H d. Xue, Aletras: Pit One Against Many: Leveraging
 * Attention-head Embeddings for Parameter-efficient Multi-head Attention, 2023.
 */
#include "nn/layers.h"

/* One vector [B, N, d] to those of all heads [B, N, H d]. */
static heed_variable spread(const heed_layer_call *call, const char *part, const char *embedding)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t wide[] = {model->heads * model->head_dim};
    const heed_variable one = heed_part_map(call, part, call->x, model->head_dim);
    const heed_variable all = heed_part_repeat(call, one, model->heads);
    const heed_variable e = heed_part_parameter(call, embedding, 1, wide, HEED_INITIAL_NORMAL, 0.02f);
    return call->form->arg[0].number == 0 ? heed_nn_add(graph, all, e)
                                          : heed_nn_multiply(graph, all, heed_nn_scale(graph, e, 1, 1));
}

static heed_variable make(const heed_layer_call *call)
{
    const heed_variable q = spread(call, "q_proj", "q_embedding"), k = spread(call, "k_proj", "k_embedding"),
                        v = spread(call, "v_proj", "v_embedding");
    return heed_part_out(call,
                         heed_part_attend(call, "attend", q, k, v, call->model->heads, call->model->heads));
}

static const heed_option kinds[] = {{"add", NULL}, {"mul", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    {.name = "kind", .kind = HEED_ARG_CHOICE, .options = kinds, .summary = "how vectors of heads enter"},
    {0},
};

static const heed_layer_rule rule = {.make = make, .attends = true};
const heed_form heed_layer_form_mhe = {
    .name = "mhe",
    .stage = HEED_LAYER,
    .summary = "one projection for all heads, and a vector each that tells them apart",
    .formula = "attend(q + eq_h, k + ek_h, v + ev_h)",
    .source = "Xue, Aletras: Pit One Against Many, 2023",
    .row = "001.100",
    .args = args,
    .layer = &rule,
};
