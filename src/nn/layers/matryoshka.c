/* MatryoshkaKV (row 001.117): keys and values in learnt orthogonal bases, of which the first columns are
 * kept.
 *
 *     k' = k U_k[:, :r],  v' = v U_v[:, :r],     out = (softmax(q U_k[:, :r] k'^T / sqrt(d)) v') U_v[:, :r]^T
 *     U  = (I - S)(I + S)^-1,  S = A - A^T       of each kv head, after rope; d x d, A from 0 on
 *
 * `keys` and `values` are the ranks as shares of d; with all of d it is attention with rope. While learning,
 * with `nested`, each kv head of each step takes a rank at random between that share and d, so that columns
 * come in the order of what they are worth; evaluations take the share. (I + S)^-1 is found by Newton's
 * iteration, which doubles its digits a round. Lin et al.: MatryoshkaKV: Adaptive KV Compression via
 * Trainable Orthogonal Projection, 2024.
 */
#include "nn/layers.h"

#include "nn/graph.h"

#include <math.h>
#include <stdlib.h>

enum { KEYS, VALUES, NESTED };
enum { ROUNDS = 9 };

static heed_variable identity(const heed_layer_call *call, int64_t d, float on)
{
    const int64_t shape[] = {d, d};
    float *values = calloc((size_t)(d * d), sizeof *values);
    if (!values)
        return HEED_NO_VARIABLE;
    for (int64_t i = 0; i < d; i++)
        values[i * d + i] = on;
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}

/* A number for each kv head, [G], times matrices [G, d, d]. */
static heed_variable times(const heed_layer_call *call, heed_variable matrices, heed_variable numbers)
{
    heed_graph *graph = call->graph;
    const int64_t g = heed_graph_size(graph, matrices, 0), d = heed_graph_size(graph, matrices, 1),
                  rows[] = {g, d * d}, shape[] = {g, d, d};
    return heed_nn_reshape(graph, heed_part_times(call, heed_nn_reshape(graph, matrices, 2, rows), numbers),
                           3, shape);
}

/* U [G, d, d] of a parameter A. With B = I + S, B B^T = I - S^2 has eigenvalues from 1 to 1 + |S|^2/2, so
 * that X = 2/(2 + |S|^2/2) B^T is where X <- X (2 I - B X) begins to converge. */
static heed_variable basis(const heed_layer_call *call, const char *part)
{
    heed_graph *graph = call->graph;
    const int64_t g = call->model->kv_heads, d = call->model->head_dim, shape[] = {g, d, d},
                  rows[] = {g, d * d}, ones[] = {g};
    static const int turned[] = {0, 2, 1};
    const heed_variable a = heed_part_parameter(call, part, 3, shape, HEED_INITIAL_CONSTANT, 0),
                        s = heed_nn_subtract(graph, a, heed_nn_transpose(graph, a, turned));
    const heed_variable plus = heed_nn_add(graph, s, identity(call, d, 1)),
                        minus = heed_nn_transpose(graph, plus, turned);
    const heed_variable square =
        heed_nn_sum(graph, heed_nn_apply(graph, HEED_FN_SQUARE, heed_nn_reshape(graph, s, 2, rows)));
    heed_variable x = times(
        call, minus,
        heed_nn_divide(graph, heed_part_filled(call, 1, ones, 2, 0), heed_nn_scale(graph, square, 0.5f, 2)));
    for (int round = 0; round < ROUNDS; round++)
        x = heed_nn_product(graph, x,
                            heed_nn_add(graph,
                                        heed_nn_scale(graph, heed_nn_product(graph, plus, x, false), -1, 0),
                                        identity(call, d, 2)),
                            false);
    return heed_nn_product(graph, minus, x, false);
}

/* [G, d] 1 for the columns that are kept. */
static heed_variable columns(const heed_layer_call *call, int which)
{
    heed_graph *graph = call->graph;
    const int64_t g = call->model->kv_heads, d = call->model->head_dim, one[] = {g, 1}, row[] = {1, d};
    const float share = (float)call->form->arg[which].number,
                most = call->form->arg[NESTED].number == 0 ? 1 - share : 0;
    /* uniform from -1 to 1 while learning, 0 when judged: its size is the share of what may be added */
    const heed_variable more =
        heed_nn_apply(graph, HEED_FN_ABS, heed_nn_noise(graph, HEED_NOISE_UNIFORM, 2, one));
    const heed_variable rank = heed_nn_scale(graph, more, most * (float)d, roundf(share * (float)d) - 0.5f);
    const heed_variable wide = heed_nn_product(graph, rank, heed_part_filled(call, 2, row, 1, 0), false);
    return heed_nn_stop(
        graph,
        heed_nn_step(graph, heed_nn_subtract(graph, wide, heed_part_filled(call, 1, row + 1, 0, 1)), 0));
}

/* x [B, H, n, d] of heads that share kv heads, times M [G, d, d] of each, or its transpose. */
static heed_variable turn(const heed_layer_call *call, heed_variable x, heed_variable m, bool back)
{
    heed_graph *graph = call->graph;
    const int64_t batch = heed_graph_size(graph, x, 0), heads = heed_graph_size(graph, x, 1),
                  n = heed_graph_size(graph, x, 2), d = heed_graph_size(graph, x, 3),
                  g = call->model->kv_heads, by_head[] = {batch, heads, n * d},
                  flat[] = {heads, batch * n, d}, group[] = {g, heads / g * batch * n, d},
                  apart[] = {heads, batch, n * d}, again[] = {batch, heads, n, d};
    heed_variable rows = heed_nn_transpose(graph, heed_nn_reshape(graph, x, 3, by_head), (int[]){1, 0, 2});
    rows = heed_nn_reshape(graph, heed_nn_reshape(graph, rows, 3, flat), 3, group);
    rows = heed_nn_reshape(graph, heed_nn_product(graph, rows, m, back), 3, apart);
    return heed_nn_reshape(graph, heed_nn_transpose(graph, rows, (int[]){1, 0, 2}), 4, again);
}

/* Each kv head for all heads of its group: [B, G, n, d] to [B, H, n, d]. */
static heed_variable spread(const heed_layer_call *call, heed_variable x)
{
    heed_graph *graph = call->graph;
    const int64_t g = call->model->kv_heads, heads = call->model->heads;
    heed_variable all[16];
    if (heads == g)
        return x;
    for (int64_t h = 0; h < heads && h < 16; h++)
        all[h] = heed_nn_slice(graph, x, 1, h / (heads / g), 1);
    return heed_nn_concatenate(graph, (int)heads, all, 1);
}

/* The columns of U that are kept, the others 0: [G, d, d]. */
static heed_variable kept(const heed_layer_call *call, const char *part, int which)
{
    heed_graph *graph = call->graph;
    static const int turned[] = {0, 2, 1};
    const int64_t g = call->model->kv_heads, d = call->model->head_dim, rows[] = {g * d, d},
                  shape[] = {g, d, d}, flat[] = {g * d};
    const heed_variable by_column =
        heed_nn_reshape(graph, heed_nn_transpose(graph, basis(call, part), turned), 2, rows);
    const heed_variable cut =
        heed_part_times(call, by_column, heed_nn_reshape(graph, columns(call, which), 1, flat));
    return heed_nn_transpose(graph, heed_nn_reshape(graph, cut, 3, shape), turned);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, groups = model->kv_heads, d = model->head_dim;
    if (heads > 16 && heads != groups)
        return heed_nn_fail(graph, HEED_UNSUPPORTED,
                            "layer=matryoshka: %lld heads share kv heads, 16 at most can", (long long)heads);
    const heed_variable q = heed_part_rope(call, heed_part_projected(call, "q_proj", heads)),
                        key = heed_part_rope(call, heed_part_projected(call, "k_proj", groups)),
                        value = heed_part_projected(call, "v_proj", groups);
    const heed_variable of_keys = kept(call, "key_basis", KEYS),
                        of_values = kept(call, "value_basis", VALUES);
    const heed_variable weights = heed_part_weights(
        call,
        heed_part_scores(call, turn(call, q, of_keys, false), spread(call, turn(call, key, of_keys, false)),
                         1 / sqrtf((float)d)),
        true);
    const heed_variable read =
        heed_nn_product(graph, weights, spread(call, turn(call, value, of_values, false)), false);
    return heed_part_out(call, heed_part_merge(call, turn(call, read, of_values, true)));
}

static const heed_arg args[] = {
    [KEYS] = {.name = "keys",
              .value = 0.5,
              .least = 0,
              .most = 1,
              .above = true,
              .summary = "rank of keys as a share of d"},
    [VALUES] =
        {.name = "values", .value = 0.5, .least = 0, .most = 1, .above = true, .summary = "rank of values"},
    [NESTED] = {.name = "nested",
                .kind = HEED_ARG_CHOICE,
                .options = heed_yes_no,
                .summary = "whether ranks vary while learning"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_matryoshka = {
    .name = "matryoshka",
    .stage = HEED_LAYER,
    .summary = "keys and values in learnt orthogonal bases, of which the first columns are kept",
    .formula =
        "k U[:, :r], v U[:, :r], U = (I - S)(I + S)^-1 with S skew-symmetric, ranks drawn while learning",
    .source = "Lin et al.: MatryoshkaKV, 2024",
    .row = "001.117",
    .args = args,
    .layer = &rule,
};
