/* Multi-token attention (row 000.004): scores of neighbouring queries, keys and heads decide together.
 *
 *     A = Q K^T / sqrt d,   A'[i, j] = sum_{a < cq, b} th[a, b] M0(A)[i - a, j - b],   b = -floor(ck/2) ..
 *     W = softmax(A') of earlier keys;   after: the same window over W, later keys 0 again
 *     heads: W_h = sum_{g in group} w[h, g] W_g
 *     out = Wo (norm(o) sigmoid(u·norm(o) + c)),   norm: root mean square, a learnt scale [d] for all heads
 *
 * M0 sets pairs of later keys to 0. Windows and `mix` begin as the identity. Golovneva et al.: Multi-Token
 * Attention, 2025.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

enum { QUERIES, KEYS, AFTER, GROUP, NORM, GATE };

static bool wants(const heed_layer_call *call, int arg)
{
    return call->form->arg[arg].number == 0;
}

/* [heads][cq][ck], 1 where nothing moves */
static heed_variable window(const heed_layer_call *call, const char *name)
{
    const int64_t heads = call->model->heads, rows = heed_arg_int(call->form, QUERIES),
                  cols = heed_arg_int(call->form, KEYS), shape[] = {heads, rows, cols};
    float *values = calloc((size_t)(heads * rows * cols), sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for windows");
    for (int64_t h = 0; h < heads; h++)
        values[h * rows * cols + cols / 2] = 1;
    const heed_variable made = heed_nn_parameter(call->graph, heed_layer_under(call->name, name).text, 3,
                                                 shape, (heed_initial){.values = values});
    free(values);
    return made;
}

/* maps [B, H, N, N] with later keys 0, under a window */
static heed_variable slide(const heed_layer_call *call, heed_variable maps, const char *name)
{
    heed_graph *graph = call->graph;
    const heed_variable earlier = heed_part_mask(call, true, 1, 0);
    return heed_nn_window(graph, heed_nn_multiply(graph, maps, earlier), window(call, name));
}

/* Heads of a group mix their maps: [groups][c][c] */
static heed_variable mix(const heed_layer_call *call, heed_variable maps)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, n = call->model->context, c = heed_arg_int(call->form, GROUP);
    const int64_t groups = call->model->heads / c, shape[] = {groups, c, c};
    float *values = calloc((size_t)(groups * c * c), sizeof *values);
    if (!values)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for mixtures of heads");
    for (int64_t i = 0; i < groups * c; i++)
        values[i * c + i % c] = 1;
    const heed_variable w = heed_nn_parameter(graph, heed_layer_under(call->name, "mix").text, 3, shape,
                                              (heed_initial){.values = values});
    free(values);
    const int64_t apart[] = {b, groups, c, n * n}, flat[] = {groups, b * n * n, c},
                  back[] = {groups, b, n * n, c}, all[] = {b, groups * c, n, n};
    maps = heed_nn_transpose(graph, heed_nn_reshape(graph, maps, 4, apart), (int[]){1, 0, 3, 2});
    maps = heed_nn_product(graph, heed_nn_reshape(graph, maps, 3, flat), w, true);
    maps = heed_nn_transpose(graph, heed_nn_reshape(graph, maps, 4, back), (int[]){1, 0, 3, 2});
    return heed_nn_reshape(graph, maps, 4, all);
}

/* Of each head [B, N, H d]: a norm, and a gate by one number. */
static heed_variable finish(const heed_layer_call *call, heed_variable y)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, n = call->model->context, heads = call->model->heads,
                  d = call->model->head_dim, apart[] = {b, n, heads, d}, rows[] = {b, n, heads * d},
                  one[] = {1}, each[] = {d};
    y = heed_nn_reshape(graph, y, 4, apart);
    if (wants(call, NORM))
        y = heed_nn_rms_norm(graph, y, heed_part_parameter(call, "norm", 1, each, HEED_INITIAL_CONSTANT, 1),
                             1e-5f);
    if (wants(call, GATE)) {
        const heed_variable u = heed_part_parameter(call, "gate", 1, each, HEED_INITIAL_NORMAL,
                                                    call->model->deviation),
                            c = heed_part_parameter(call, "gate_bias", 1, one, HEED_INITIAL_CONSTANT, 0);
        const heed_variable open = heed_nn_apply(
            graph, HEED_FN_SIGMOID, heed_nn_add(graph, heed_nn_sum(graph, heed_nn_multiply(graph, y, u)), c));
        return heed_nn_multiply(graph, heed_nn_reshape(graph, y, 3, rows), heed_part_each(call, open, d));
    }
    return heed_nn_reshape(graph, y, 3, rows);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, wide = heads * model->head_dim,
                  group = heed_arg_int(call->form, GROUP);
    if (group && heads % group)
        return heed_nn_fail(graph, HEED_INVALID, "layer=mta(group=%lld): it must divide heads, %lld",
                            (long long)group, (long long)heads);
    const heed_variable q = heed_part_heads(call, heed_part_map(call, "q_proj", call->x, wide), heads),
                        k = heed_part_heads(call, heed_part_map(call, "k_proj", call->x, wide), heads),
                        v = heed_part_heads(call, heed_part_map(call, "v_proj", call->x, wide), heads);
    const heed_variable scores = heed_part_scores(call, q, k, 1 / sqrtf((float)model->head_dim));
    heed_variable w = heed_part_weights(call, slide(call, scores, "window"), true);
    if (wants(call, AFTER))
        w = heed_nn_multiply(graph, slide(call, w, "window_after"), heed_part_mask(call, true, 1, 0));
    if (group)
        w = mix(call, w);
    return heed_part_out(call, finish(call, heed_part_merge(call, heed_nn_product(graph, w, v, false))));
}

static const heed_arg args[] = {
    [QUERIES] = {.name = "queries",
                 .kind = HEED_ARG_INT,
                 .value = 6,
                 .least = 1,
                 .most = 1024,
                 .summary = "rows of a window"},
    [KEYS] = {.name = "keys",
              .kind = HEED_ARG_INT,
              .value = 11,
              .least = 1,
              .most = 1024,
              .summary = "columns of a window"},
    [AFTER] = {.name = "after",
               .kind = HEED_ARG_CHOICE,
               .options = heed_yes_no,
               .summary = "a window over the weights too"},
    [GROUP] = {.name = "group",
               .kind = HEED_ARG_INT,
               .most = 4096,
               .summary = "heads that mix their weights; 0: none do"},
    [NORM] = {.name = "norm",
              .kind = HEED_ARG_CHOICE,
              .options = heed_yes_no,
              .summary = "a norm of what each head gives"},
    [GATE] = {.name = "gate",
              .kind = HEED_ARG_CHOICE,
              .options = heed_yes_no,
              .summary = "a gate of what each head gives"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_mta = {
    .name = "mta",
    .stage = HEED_LAYER,
    .summary = "scores of neighbouring queries, keys and heads decide together",
    .formula = "softmax(window * (Q K^T / sqrt d)) under a second window, heads mixed, then norm and gate",
    .source = "Golovneva et al.: Multi-Token Attention, 2025",
    .row = "000.004",
    .args = args,
    .layer = &rule,
};
