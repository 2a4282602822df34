/* Linformer (row 001.141): keys and values projected along the text to a few rows.
 *
 *     softmax(Q (E K)^T / sqrt d) (F V),     E, F [k][N] learnt, k much smaller than N
 *
 * share: an E and an F for every head; both for a layer (headwise); E = F for a layer (kv); one E for the
 * whole model (layerwise). projection=mean or max: windows of N / k tokens instead. The text has always N
 * tokens, and tokens see later ones. Wang, Li, Khabsa, Fang, Ma: Linformer, 2020.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>

enum { RANK, SHARE, PROJECTION };
enum { HEAD, HEADWISE, KV, LAYERWISE };

static int64_t rank_of(const heed_layer_call *call)
{
    return heed_arg_int(call->form, RANK);
}

/* x [B, H, N, d] to [B, H, d, k] by one map, or by one of each head. */
static heed_variable by_map(const heed_layer_call *call, heed_variable x, const char *part)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, n = call->model->context, heads = call->model->heads,
                  d = call->model->head_dim, k = rank_of(call), one[] = {k, n}, each[] = {heads, k, n};
    const int share = (int)call->form->arg[SHARE].number;
    const heed_initial initial = {.kind = HEED_INITIAL_NORMAL, .size = 1 / sqrtf((float)k)};
    const heed_layer_name name =
        share == LAYERWISE ? heed_layer_under("model.linformer", "E") : heed_layer_under(call->name, part);
    x = heed_nn_transpose(graph, x, (int[]){0, 1, 3, 2});
    if (share != HEAD)
        return heed_nn_linear(graph, x, heed_nn_parameter(graph, name.text, 2, one, initial), HEED_NO_INPUT);
    const int64_t rows[] = {heads, b * d, n}, apart[] = {heads, b, d, k};
    x = heed_nn_reshape(graph, heed_nn_transpose(graph, x, (int[]){1, 0, 2, 3}), 3, rows);
    x = heed_nn_product(graph, x, heed_nn_parameter(graph, name.text, 3, each, initial), true);
    return heed_nn_transpose(graph, heed_nn_reshape(graph, x, 4, apart), (int[]){1, 0, 2, 3});
}

static heed_variable by_windows(const heed_layer_call *call, heed_variable x, bool largest)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, n = call->model->context, heads = call->model->heads,
                  d = call->model->head_dim, k = rank_of(call), rows[] = {b * heads, n, d},
                  apart[] = {b, heads, k, d};
    x = heed_nn_pool(graph, heed_nn_reshape(graph, x, 3, rows), n / k, n / k, largest);
    return heed_nn_transpose(graph, heed_nn_reshape(graph, x, 4, apart), (int[]){0, 1, 3, 2});
}

static heed_variable shorten(const heed_layer_call *call, heed_variable x, const char *part)
{
    const int how = (int)call->form->arg[PROJECTION].number;
    return how == 0 ? by_map(call, x, part) : by_windows(call, x, how == 2);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, wide = heads * model->head_dim, k = rank_of(call);
    if (k > model->context || (call->form->arg[PROJECTION].number != 0 && model->context % k))
        return heed_nn_fail(graph, HEED_INVALID,
                            "lowrank=linformer(k=%lld): it must be at most context, %lld, and "
                            "divide it where windows are taken",
                            (long long)k, (long long)model->context);
    const bool together = call->form->arg[SHARE].number >= KV;
    const heed_variable q = heed_part_heads(call, heed_part_map(call, "q_proj", call->x, wide), heads),
                        keys = heed_part_heads(call, heed_part_map(call, "k_proj", call->x, wide), heads),
                        values = heed_part_heads(call, heed_part_map(call, "v_proj", call->x, wide), heads);
    const heed_variable few_keys = shorten(call, keys, "E"),
                        few_values = shorten(call, values, together ? "E" : "F");
    const heed_variable scores = heed_nn_scale(graph, heed_nn_product(graph, q, few_keys, false),
                                               1 / sqrtf((float)model->head_dim), 0);
    return heed_part_out(call, heed_part_merge(call, heed_nn_product(graph, heed_nn_softmax(graph, scores),
                                                                     few_values, true)));
}

static const heed_option shares[] = {[HEAD] = {"head", NULL},
                                     [HEADWISE] = {"headwise", NULL},
                                     [KV] = {"kv", NULL},
                                     [LAYERWISE] = {"layerwise", NULL},
                                     {NULL, NULL}};
static const heed_option projections[] = {{"linear", NULL}, {"mean", NULL}, {"max", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [RANK] = {.name = "k",
              .kind = HEED_ARG_INT,
              .value = 128,
              .least = 1,
              .most = 1 << 24,
              .summary = "rows that stay"},
    [SHARE] = {.name = "share",
               .kind = HEED_ARG_CHOICE,
               .value = LAYERWISE,
               .options = shares,
               .summary = "what has a projection of its own"},
    [PROJECTION] = {.name = "projection",
                    .kind = HEED_ARG_CHOICE,
                    .options = projections,
                    .summary = "learnt, or the mean or largest of windows"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_lowrank_form_linformer = {
    .name = "linformer",
    .stage = HEED_LOWRANK,
    .summary = "keys and values projected along the text to a few rows",
    .formula = "softmax(Q (E K)^T / sqrt d) (F V)",
    .source = "Wang, Li, Khabsa, Fang, Ma: Linformer, 2020; without projection by convolution",
    .row = "001.141",
    .args = args,
    .layer = &rule,
};
