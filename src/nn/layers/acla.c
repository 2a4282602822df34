/* Adaptive cross-layer attention (row 001.069): a pixel reads a few places of its layer and of earlier ones,
 * where and how many it decides itself.
 *
 *     places:   p + ring_k + O_j x_p          of `keys` points in the map F_j of each layer j <= l, k = 0 is
 * p gates:    m_jk = 1 if sigmoid((G_j x_p + noise) / tau) > 1/2, else 0; straight through weights:  m_jk
 * exp(q·k_jk) / sum of them,   k_jk = Wk F_j and v_jk = Wv F_j, bilinear at the places out       = Wo sum_jk
 * w_jk v_jk
 *
 * F_j is what acla layers before were given. eta times the mean number of kept keys is added to the loss.
 * With search=yes a drawn gate of the whole layer (Gumbel, straight through) says whether it is there at all,
 * the cost counts by its probability, and it stays where that is above one half. tau does not change while it
 * learns. Wang et al.: Adaptive Cross-Layer Attention for Image Restoration, 2022.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdio.h>

enum { KEYS, TAU, ETA, EARLIER, SEARCH, ROWS, COLS };

/* Points in squares around a cell, the nearer squares first. */
static void ring(const heed_grid *grid, int64_t point, float *place)
{
    int64_t round = 0, left = point;
    (void)grid;
    while (left > 0 && left >= (2 * round + 1) * (2 * round + 1))
        round++;
    if (!round)
        return;
    left -= (2 * round - 1) * (2 * round - 1);
    const int64_t side = left / (2 * round), along = left % (2 * round);
    const int64_t row[] = {-round, along - round, round, round - along},
                  col[] = {along - round, round, round - along, -round};
    place[1] += (float)row[side & 3];
    place[2] += (float)col[side & 3];
}

/* One layer's map F: scores [B N, H, 1, K], gates [B, N, K] and values [B, N K, wide]. */
typedef struct source {
    heed_variable scores, gates, sure, values;
} source;

static heed_layer_name part(const char *what, int j)
{
    heed_layer_name name;
    snprintf(name.text, sizeof name.text, "%s_%d", what, j);
    return name;
}

static source read_map(const heed_layer_call *call, const heed_grid *grid, heed_variable q, heed_variable F,
                       int j)
{
    heed_graph *graph = call->graph;
    const int64_t keys = heed_arg_int(call->form, KEYS), b = call->model->batch, n = grid->cells,
                  wide = call->model->heads * call->model->head_dim, points[] = {b, n * keys, 2},
                  gates[] = {b, n, keys}, size[] = {grid->rows, grid->cols};
    const float tau = (float)call->form->arg[TAU].number;
    const heed_variable moved = heed_nn_reshape(
        graph, heed_part_map(call, part("offset_proj", j).text, call->x, 2 * keys), 3, points);
    const heed_variable at = heed_nn_add(graph, moved, heed_part_places(call, grid, keys, 2, ring));
    const heed_variable both[] = {heed_part_map(call, "k_proj", F, wide),
                                  heed_part_map(call, "v_proj", F, wide)};
    const heed_variable found = heed_nn_sample(graph, heed_nn_concatenate(graph, 2, both, 2), 2, size, at);
    const heed_variable open =
        heed_layer_linear(graph, heed_layer_under(call->name, part("gate_proj", j).text).text, call->x, keys,
                          true, call->model->deviation);
    const heed_variable sure = heed_nn_apply(graph, HEED_FN_SIGMOID, heed_nn_scale(graph, open, 1 / tau, 1));
    const heed_variable drawn = heed_nn_apply(
        graph, HEED_FN_SIGMOID,
        heed_nn_scale(graph, heed_nn_add(graph, open, heed_nn_noise(graph, HEED_NOISE_LOGISTIC, 3, gates)),
                      1 / tau, 1));
    return (source){heed_part_own_scores(call, q, heed_nn_slice(graph, found, 2, 0, wide)),
                    heed_nn_step(graph, drawn, 0.5f), sure, heed_nn_slice(graph, found, 2, wide, wide)};
}

/* [B, N, J K] to [B N, H, 1, J K], alike for all heads */
static heed_variable for_heads(const heed_layer_call *call, heed_variable gates)
{
    const int64_t rows = call->model->batch * heed_graph_size(call->graph, gates, 1),
                  heads = call->model->heads, keys = heed_graph_size(call->graph, gates, 2),
                  shape[] = {rows, heads, 1, keys};
    return heed_nn_reshape(call->graph, heed_part_repeat(call, gates, heads), 4, shape);
}

/* Whether the layer is there, 0 or 1, and the probability of that. */
static heed_variable insertion(const heed_layer_call *call, heed_variable *probability)
{
    heed_graph *graph = call->graph;
    const int64_t one[] = {1};
    const float tau = (float)call->form->arg[TAU].number;
    const heed_variable logit = heed_part_parameter(call, "insert", 1, one, HEED_INITIAL_CONSTANT, 0.5f);
    *probability = heed_nn_apply(graph, HEED_FN_SIGMOID, logit);
    return heed_nn_step(
        graph,
        heed_nn_apply(
            graph, HEED_FN_SIGMOID,
            heed_nn_scale(graph, heed_nn_add(graph, logit, heed_nn_noise(graph, HEED_NOISE_LOGISTIC, 1, one)),
                          1 / tau, 0)),
        0.5f);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t wide = call->model->heads * call->model->head_dim;
    const heed_grid grid =
        heed_part_grid(call, 1, heed_arg_int(call->form, ROWS), heed_arg_int(call->form, COLS));
    if (!grid.cells)
        return HEED_NO_VARIABLE;
    if (grid.cells != call->model->context)
        return heed_nn_fail(graph, HEED_INVALID, "layer=acla: all %lld tokens must be pixels, not %lld",
                            (long long)call->model->context, (long long)grid.cells);
    const heed_variable q = heed_part_map(call, "q_proj", call->x, wide);
    heed_variable scores[HEED_NN_INPUTS], gates[HEED_NN_INPUTS], sure[HEED_NN_INPUTS], values[HEED_NN_INPUTS];
    const int most = (int)heed_arg_int(call->form, EARLIER) + 1;
    int maps = 0;
    for (; maps < most; maps++) {
        const heed_variable F = maps ? heed_part_left(call, maps - 1) : call->x;
        const int64_t shape[] = {call->model->batch * grid.cells, heed_arg_int(call->form, KEYS), 1, wide};
        if (F == HEED_NO_INPUT)
            break;
        const source s = read_map(call, &grid, q, F, maps);
        scores[maps] = s.scores;
        gates[maps] = s.gates;
        sure[maps] = s.sure;
        values[maps] = heed_nn_reshape(graph, s.values, 4, shape);
    }
    heed_part_leave(call, call->x);
    const heed_variable m = heed_nn_concatenate(graph, maps, gates, 2);
    const heed_variable w = heed_nn_multiply(
        graph, heed_nn_softmax(graph, heed_nn_concatenate(graph, maps, scores, 3)), for_heads(call, m));
    const int64_t keys = maps * heed_arg_int(call->form, KEYS),
                  lines[] = {call->model->batch * grid.cells, call->model->heads, 1, 1},
                  all[] = {call->model->batch, grid.cells * keys, wide};
    const heed_variable sum =
        heed_nn_scale(graph, heed_nn_reshape(graph, heed_nn_sum(graph, w), 4, lines), 1, 1e-9f);
    const heed_variable share = heed_nn_divide(graph, w, heed_part_each(call, sum, keys));
    const heed_variable v = heed_nn_reshape(graph, heed_nn_concatenate(graph, maps, values, 1), 3, all);
    heed_variable y = heed_part_out(call, heed_part_own_read(call, share, v));
    heed_variable cost =
        heed_nn_scale(graph, heed_part_mean(call, heed_nn_concatenate(graph, maps, sure, 2)), (float)keys, 0);
    heed_variable kept = heed_nn_scale(graph, heed_part_mean(call, m), (float)keys, 0);
    if (call->form->arg[SEARCH].number == 0) {
        heed_variable probability;
        const heed_variable there = insertion(call, &probability);
        const int64_t none[] = {1};
        y = heed_nn_multiply(graph, y, there);
        cost = heed_nn_multiply(graph, heed_nn_reshape(graph, cost, 1, none), probability);
        kept = heed_nn_multiply(graph, heed_nn_reshape(graph, kept, 1, none), there);
        heed_part_measure(call, "inserted", there);
    }
    heed_part_loss(call, heed_part_mean(call, cost), (float)call->form->arg[ETA].number);
    heed_part_measure(call, "kept", kept);
    return y;
}

static const heed_arg args[] = {
    [KEYS] = {.name = "keys",
              .kind = HEED_ARG_INT,
              .value = 16,
              .least = 1,
              .most = 1024,
              .summary = "points in the map of each layer"},
    [TAU] = {.name = "tau",
             .kind = HEED_ARG_FLOAT,
             .value = 1,
             .least = 1e-3,
             .most = 100,
             .summary = "temperature of the gates"},
    [ETA] = {.name = "eta",
             .kind = HEED_ARG_FLOAT,
             .value = 1e-4,
             .most = 1000,
             .summary = "what a kept key costs"},
    [EARLIER] = {.name = "earlier",
                 .kind = HEED_ARG_INT,
                 .value = 3,
                 .most = 20,
                 .summary = "earlier layers that are read, at most"},
    [SEARCH] = {.name = "search",
                .kind = HEED_ARG_CHOICE,
                .value = 1,
                .options = heed_yes_no,
                .summary = "whether it learns if it is there"},
    [ROWS] = HEED_ROWS_ARG("of the picture"),
    [COLS] = HEED_COLS_ARG,
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_acla = {
    .name = "acla",
    .stage = HEED_LAYER,
    .summary = "pixels read a few places of their layer and of earlier ones, and decide where and how many",
    .formula = "sum over j, k of m_jk softmax(q·k_jk) v_jk, F_j at p + offset_jk, m_jk 0 or 1",
    .source = "Wang et al.: Adaptive Cross-Layer Attention for Image Restoration, 2022",
    .row = "001.069",
    .args = args,
    .layer = &rule,
};
