/* Selective self-attention (row 001.203): queries that choose how sharp they are, values that choose how
 * loud.
 *
 *     tau(x_n) = tanh(u·GELU(W x_n)) + 1 + sigmoid(a) log n,      n = 1, 2, ... the place
 *     attend(tau_q q, k, tau_v v),     W the map of queries or of values of the head
 *
 * A vector u and a number a more for each head and side. u = 0 and a far below 0 leave attention as it is.
 * Zhang et al.: Selective Attention: Enhancing Transformer through Principled Context Control, 2024.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

enum { START, SIDES };

/* log n of each token, for each head: [B, N, heads] */
static heed_variable log_places(const heed_layer_call *call, int64_t heads)
{
    const int64_t b = call->model->batch, n = call->model->context, shape[] = {b, n, heads};
    float *values = calloc((size_t)(b * n * heads), sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for %lld places", (long long)n);
    for (int64_t i = 0; i < b * n * heads; i++)
        values[i] = logf((float)(i / heads % n + 1));
    const heed_variable made = heed_nn_constant(call->graph, 3, shape, values);
    free(values);
    return made;
}

/* rows [B, N, heads d] times tau of each head, from the map's output before. */
static heed_variable sharpen(const heed_layer_call *call, heed_variable rows, int64_t heads, const char *u,
                             const char *a)
{
    heed_graph *graph = call->graph;
    const int64_t d = call->model->head_dim, wide[] = {heads * d}, each[] = {heads};
    const int64_t apart[] = {call->model->batch, call->model->context, heads, d};
    const heed_variable vector = heed_part_parameter(call, u, 1, wide, HEED_INITIAL_CONSTANT, 0),
                        number = heed_part_parameter(call, a, 1, each, HEED_INITIAL_CONSTANT,
                                                     heed_arg_float(call->form, START));
    const heed_variable product = heed_nn_multiply(graph, heed_nn_apply(graph, HEED_FN_GELU, rows), vector);
    const heed_variable content =
        heed_nn_apply(graph, HEED_FN_TANH, heed_nn_sum(graph, heed_nn_reshape(graph, product, 4, apart)));
    const heed_variable place =
        heed_nn_multiply(graph, log_places(call, heads), heed_nn_apply(graph, HEED_FN_SIGMOID, number));
    const heed_variable tau = heed_nn_scale(graph, heed_nn_add(graph, content, place), 1, 1);
    return heed_nn_multiply(graph, rows, heed_part_each(call, tau, d));
}

static heed_variable make(const heed_layer_call *call)
{
    const heed_transformer *model = call->model;
    const int64_t d = model->head_dim, heads = model->heads, kv = model->kv_heads;
    const int sides = (int)call->form->arg[SIDES].number;
    heed_variable q = heed_part_map(call, "q_proj", call->x, heads * d);
    const heed_variable k = heed_part_map(call, "k_proj", call->x, kv * d);
    heed_variable v = heed_part_map(call, "v_proj", call->x, kv * d);
    if (sides != 2)
        q = sharpen(call, q, heads, "query_vector", "query_place");
    if (sides != 1)
        v = sharpen(call, v, kv, "value_vector", "value_place");
    return heed_part_out(call, heed_part_attend(call, "attend", q, k, v, heads, kv));
}

static const heed_option sides[] = {{"both", NULL}, {"query", NULL}, {"token", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [START] = {.name = "start", .value = 0, .summary = "a at first: 0 from scratch, -6 to tune a model"},
    [SIDES] = {.name = "sides",
               .kind = HEED_ARG_CHOICE,
               .options = sides,
               .summary = "what is scaled: queries, values"},
    {0},
};

static const heed_layer_rule rule = {.make = make, .attends = true};
const heed_form heed_layer_form_ssa = {
    .name = "ssa",
    .stage = HEED_LAYER,
    .summary = "queries choose how sharp they are, values how loud, by content and place",
    .formula = "attend(tau_q q, k, tau_v v), tau = tanh(u·GELU(W x)) + 1 + sigmoid(a) log n",
    .source = "Zhang et al.: Selective Attention: Principled Context Control, 2024",
    .row = "001.203",
    .args = args,
    .layer = &rule,
};
