/* Select and pack attention (row 004.089): only tokens that a gate selects attend, packed without padding.
 *
 *     g_i = sigmoid(w·x_i + b), selected where g_i >= tau: another number in each picture
 *     containers of N tokens are filled with the selected ones of all pictures, first fit, a picture in one
 *     container; a token sees those of its own picture
 *     out_i = Wo g_i attend_i if selected, else 0: the residual path goes on
 *     loss += weight mean of BCE(g_i, token i has a mark): patches that overlap an object, level `object` or
 * more
 *
 * A container has as many slots as a picture has tokens, as a picture is never split. `selected` is the share
 * of tokens, `containers` the share of containers in use, which is what attention costs. Zhang, Liu, Li, Yin,
 * Zhou: Select and Pack Attention, 2024.
 */
#include "nn/graph.h"
#include "nn/layers.h"

enum { TAU, WEIGHT, OBJECT };

/* -y log g - (1 - y) log(1 - g), of the logit z: softplus(z) - y z */
static void supervise(const heed_layer_call *call, heed_variable logit)
{
    heed_graph *graph = call->graph;
    const int64_t level = heed_arg_int(call->form, OBJECT);
    if (!level)
        return;
    const heed_variable label = heed_nn_stop(graph, heed_part_marked(call, level));
    const heed_variable each = heed_nn_subtract(graph, heed_nn_apply(graph, HEED_FN_SOFTPLUS, logit),
                                                heed_nn_multiply(graph, label, logit));
    heed_part_loss(call, heed_part_mean(call, each), (float)call->form->arg[WEIGHT].number);
}

/* Containers in use: those with a token in their first slot. */
static void measure(const heed_layer_call *call, heed_variable chosen, heed_variable place)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, n = call->model->context, first[] = {1, b}, rows[] = {1, b * n, 1};
    const heed_variable ones = heed_nn_scale(graph, heed_part_zeros(call, 3, rows), 1, 1);
    const heed_variable filled =
        heed_nn_take(graph, ones, heed_nn_reshape(graph, place, 2, (int64_t[]){1, b * n}));
    const heed_variable column =
        heed_nn_slice(graph, heed_nn_reshape(graph, filled, 2, (int64_t[]){b, n}), 1, 0, 1);
    heed_part_measure(call, "selected", heed_part_mean(call, chosen));
    heed_part_measure(call, "containers", heed_part_mean(call, heed_nn_reshape(graph, column, 2, first)));
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t b = model->batch, n = model->context, heads = model->heads, wide = heads * model->head_dim,
                  flat[] = {b, n}, list[] = {1, b * n, model->width}, packed[] = {b, n, model->width},
                  slots[] = {1, b * n}, found[] = {1, b * n, wide}, rows[] = {b, n, wide};
    const heed_variable logit =
        heed_nn_reshape(graph,
                        heed_layer_linear(graph, heed_layer_under(call->name, "gate_proj").text, call->x, 1,
                                          true, model->deviation),
                        2, flat);
    supervise(call, logit);
    const heed_variable g = heed_nn_apply(graph, HEED_FN_SIGMOID, logit);
    /* tau = 0 selects all, though a sigmoid may be 0 */
    const heed_variable chosen =
        heed_nn_stop(graph, heed_nn_step(graph, g, (float)call->form->arg[TAU].number - 1e-7f));
    const heed_variable place = heed_nn_pack(graph, chosen, false),
                        segments = heed_nn_pack(graph, chosen, true);
    measure(call, chosen, place);
    const heed_variable x = heed_nn_reshape(graph,
                                            heed_nn_take(graph, heed_nn_reshape(graph, call->x, 3, list),
                                                         heed_nn_reshape(graph, place, 2, slots)),
                                            3, packed);
    const heed_layer_name name = heed_layer_under(call->name, "attend");
    const heed_nn_attention how = {.spec = "where=segments",
                                   .name = name.text,
                                   .heads = heads,
                                   .layer = call->layer,
                                   .positions = HEED_NO_INPUT,
                                   .segments = segments,
                                   .gate = HEED_NO_INPUT};
    const heed_variable y =
        heed_nn_attend(graph, heed_part_map(call, "q_proj", x, wide), heed_part_map(call, "k_proj", x, wide),
                       heed_part_map(call, "v_proj", x, wide), &how);
    const heed_variable back = heed_nn_give(graph, heed_nn_reshape(graph, y, 3, found),
                                            heed_nn_reshape(graph, place, 2, slots), b * n);
    return heed_part_out(call, heed_part_times(call, heed_nn_reshape(graph, back, 3, rows), g));
}

static const heed_arg args[] = {
    [TAU] = {.name = "tau",
             .kind = HEED_ARG_FLOAT,
             .value = 0.5,
             .most = 1,
             .summary = "gates from which on tokens are selected"},
    [WEIGHT] = {.name = "weight",
                .kind = HEED_ARG_FLOAT,
                .value = 1,
                .most = 1000,
                .summary = "of the gates' own loss"},
    [OBJECT] =
        {.name = "object",
         .kind = HEED_ARG_INT,
         .most = 1 << 20,
         .summary =
             "level of pixels that are an object, which gates should find; 0: they learn by the task alone"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_spa = {
    .name = "spa",
    .stage = HEED_LAYER,
    .summary = "only tokens that a gate selects attend, packed without padding",
    .formula = "g_i attend(selected tokens of the same text) where g_i = sigmoid(w·x_i + b) >= tau",
    .source = "Zhang, Liu, Li, Yin, Zhou: Select and Pack Attention, 2024",
    .row = "004.089",
    .args = args,
    .layer = &rule,
};
