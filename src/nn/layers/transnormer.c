/* The token mixer of TransNormerLLM (row 000.054): linear attention that fades, with rotation, norm and gate.
 *
 *     q = swish(x Wq),  k = swish(x Wk),  v = x Wv,  u = x Wu
 *     o_t = sum_{s<=t} lambda^(t-s) Re(q_t·k_s e^{i theta (t-s)}) v_s,     out = Wo (SRMSNorm(o) u)
 *     SRMSNorm(x) = x sqrt(size) / |x|
 *
 * lambda as in scan=lightning, which runs it; theta, learnt, turns q and k in the first layer only. Qin et
 * al.: TransNormerLLM, 2023.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

/* Angles [N, heads d / 2]: place times theta. */
static heed_variable angles(const heed_layer_call *call)
{
    const int64_t n = call->model->context, heads = call->model->heads, half = call->model->head_dim / 2;
    const int64_t column[] = {n, 1}, row[] = {1, heads * half};
    float *places = calloc((size_t)n, sizeof *places), *start = calloc((size_t)(heads * half), sizeof *start);
    heed_variable made = HEED_NO_VARIABLE;
    if (places && start) {
        for (int64_t t = 0; t < n; t++)
            places[t] = (float)t;
        for (int64_t i = 0; i < heads * half; i++)
            start[i] = powf(10000, -(float)(i % half) / (float)half);
        const heed_variable theta = heed_nn_parameter(call->graph, heed_layer_under(call->name, "theta").text,
                                                      2, row, (heed_initial){.values = start});
        made = heed_nn_product(call->graph, heed_nn_constant(call->graph, 2, column, places), theta, false);
    } else {
        heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for angles of %lld tokens", (long long)n);
    }
    free(places);
    free(start);
    return made;
}

/* Halves of each head's row turn together. */
static heed_variable turn(const heed_layer_call *call, heed_variable x, heed_variable angle)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, n = call->model->context, heads = call->model->heads,
                  d = call->model->head_dim, apart[] = {b, n, heads, d}, flat[] = {b, n, heads * d / 2},
                  half[] = {b, n, heads, d / 2}, rows[] = {b, n, heads * d};
    const heed_variable c = heed_nn_apply(graph, HEED_FN_COS, angle),
                        s = heed_nn_apply(graph, HEED_FN_SIN, angle);
    x = heed_nn_reshape(graph, x, 4, apart);
    const heed_variable first = heed_nn_reshape(graph, heed_nn_slice(graph, x, 3, 0, d / 2), 3, flat),
                        second = heed_nn_reshape(graph, heed_nn_slice(graph, x, 3, d / 2, d / 2), 3, flat);
    const heed_variable both[] = {heed_nn_reshape(graph,
                                                  heed_nn_subtract(graph, heed_nn_multiply(graph, first, c),
                                                                   heed_nn_multiply(graph, second, s)),
                                                  4, half),
                                  heed_nn_reshape(graph,
                                                  heed_nn_add(graph, heed_nn_multiply(graph, first, s),
                                                              heed_nn_multiply(graph, second, c)),
                                                  4, half)};
    return heed_nn_reshape(graph, heed_nn_concatenate(graph, 2, both, 3), 3, rows);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t wide = model->heads * model->head_dim;
    if (model->head_dim % 2)
        return heed_nn_fail(graph, HEED_INVALID, "layer=transnormer: head_dim %lld is odd",
                            (long long)model->head_dim);
    heed_variable q = heed_nn_apply(graph, HEED_FN_SILU, heed_part_map(call, "q_proj", call->x, wide)),
                  k = heed_nn_apply(graph, HEED_FN_SILU, heed_part_map(call, "k_proj", call->x, wide));
    if (call->layer == 0) {
        const heed_variable angle = angles(call);
        q = turn(call, q, angle);
        k = turn(call, k, angle);
    }
    static const char *const recurrences[] = {"scan=lightning(map=none)",
                                              "scan=lightning(decay=released, map=none)",
                                              "scan=lightning(decay=none, map=none)"};
    const heed_nn_recurrence how =
        heed_layer_recurrence(model, call->layer, recurrences[(int)call->form->arg[0].number]);
    const heed_variable o = heed_nn_scan(graph, q, k, heed_part_map(call, "v_proj", call->x, wide), &how);
    return heed_part_out(call, heed_nn_multiply(graph, heed_nn_rms_norm(graph, o, HEED_NO_INPUT, 1e-6f),
                                                heed_part_map(call, "u_proj", call->x, wide)));
}

static const heed_option decays[] = {{"paper", NULL}, {"released", NULL}, {"none", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    {.name = "decay", .kind = HEED_ARG_CHOICE, .options = decays, .summary = "as in scan=lightning"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_transnormer = {
    .name = "transnormer",
    .stage = HEED_LAYER,
    .summary = "linear attention that fades, with rotation in the first layer, norm and gate",
    .formula = "Wo (SRMSNorm(scan(swish(q), swish(k), v)) u)",
    .source = "Qin et al.: TransNormerLLM, 2023",
    .row = "000.054",
    .args = args,
    .layer = &rule,
};
