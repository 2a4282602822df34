/* Coarse-to-fine attention over a picture (row 001.238): first which cells, then where in them.
 *
 *     V  [rows, cols]            x + W2 relu(W1 x), both 3 by 3 convolutions: the picture's tokens
 *     V' [rows/cell, cols/cell]  a convolution of V with stride `cell`
 *     p(z')     = softmax, sparsemax or one draw over q'·k'_z' / sqrt d
 *     p(z | z') = softmax over the cells z inside z' of q·k_z / sqrt d
 *     out       = Wo sum_z' p(z') sum_{z in z'} p(z | z') v_z
 *
 * The first rows cols tokens are the picture; those behind it read it, or all read where there are no others.
 * sparsemax and hard score only the cells inside those z' whose weight is above 0: `scored` is their share.
 * hard draws one z' while it learns, by REINFORCE against the mean loss, and takes the likeliest afterwards.
 * mass takes the flat softmax's mass of each z', which makes the whole read flat attention. The encoder of
 * rows by a recurrent net is not part of the layer. Deng, Kanervisto, Ling, Rush: Image-to-Markup Generation
 * with Coarse-to-Fine Attention, 2017.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>

enum { KIND, CELL, ROWS, COLS };
/* Coarse scores begin near 0, so that sparsemax begins with all cells. */
#define START 0.05f
enum { SPARSEMAX, SOFTMAX, HARD, MASS };

/* A convolution of a grid [B, rows, cols, width], size by size. */
static heed_variable convolve(const heed_layer_call *call, const char *part, heed_variable x, int64_t size,
                              int64_t stride)
{
    const int64_t width = call->model->width, shape[] = {width, size, size, width};
    return heed_nn_convolution_2d(call->graph, x,
                                  heed_part_parameter(call, part, 4, shape, HEED_INITIAL_NORMAL,
                                                      1 / sqrtf((float)(size * size * width))),
                                  &(heed_convolution_2d){.stride = stride, .pad = stride > 1 ? 0 : size / 2});
}

/* Heads apart, in the batch: [B, n, H d] to [B H, n, d]. */
static heed_variable apart(const heed_layer_call *call, heed_variable x)
{
    const heed_transformer *model = call->model;
    const int64_t n = heed_graph_size(call->graph, x, 1),
                  shape[] = {model->batch * model->heads, n, model->head_dim};
    return heed_nn_reshape(call->graph, heed_part_heads(call, x, model->heads), 3, shape);
}

/* [B, rows cols, c] with the cells of each coarse cell one after another. */
static heed_variable by_cells(const heed_layer_call *call, heed_variable x, const heed_grid *grid,
                              int64_t cell)
{
    const int64_t b = call->model->batch, c = heed_graph_size(call->graph, x, 2),
                  split[] = {b * grid->rows / cell, cell, grid->cols / cell, cell * c},
                  whole[] = {b, grid->cells, c};
    const heed_variable order =
        heed_nn_transpose(call->graph, heed_nn_reshape(call->graph, x, 4, split), (int[]){0, 2, 1, 3});
    return heed_nn_reshape(call->graph, order, 3, whole);
}

/* One coarse cell a query, [B H, n, coarse] zeros and a one, and the logarithm of its chance. */
static heed_variable draw(const heed_layer_call *call, heed_variable scores, int64_t before)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, heads = call->model->heads, n = heed_graph_size(graph, scores, 1),
                  coarse = heed_graph_size(graph, scores, 2), shape[] = {b * heads, n, coarse},
                  rows[] = {b * heads, n}, split[] = {b, heads, n}, lead[] = {b, before},
                  square[] = {coarse, coarse};
    const heed_variable which = heed_nn_reshape(
        graph,
        heed_nn_order(graph, heed_nn_add(graph, scores, heed_nn_noise(graph, HEED_NOISE_GUMBEL, 3, shape)),
                      1),
        2, rows);
    heed_variable chance =
        heed_nn_reshape(graph, heed_nn_scale(graph, heed_nn_surprise(graph, scores, which), -1, 0), 3, split);
    chance = heed_nn_sum(graph, heed_nn_transpose(graph, chance, (int[]){0, 2, 1}));
    if (before) { /* tokens of the picture draw nothing */
        const heed_variable both[] = {heed_part_zeros(call, 2, lead), chance};
        chance = heed_nn_concatenate(graph, 2, both, 1);
    }
    heed_part_chance(call, chance);
    return heed_nn_gather(graph, heed_part_identity(call, square[0]), which);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, wide = heads * model->head_dim, cell = heed_arg_int(call->form, CELL);
    const int kind = (int)call->form->arg[KIND].number;
    const heed_grid grid =
        heed_part_grid(call, 1, heed_arg_int(call->form, ROWS), heed_arg_int(call->form, COLS));
    if (!grid.cells)
        return HEED_NO_VARIABLE;
    if (grid.rows % cell || grid.cols % cell)
        return heed_nn_fail(graph, HEED_INVALID,
                            "layer=coarse_to_fine: cell=%lld does not divide %lld by %lld cells",
                            (long long)cell, (long long)grid.rows, (long long)grid.cols);
    const int64_t b = model->batch, before = grid.cells < model->context ? grid.cells : 0,
                  n = model->context - before, coarse = grid.cells / cell / cell;
    const int64_t map[] = {b, grid.rows, grid.cols, model->width}, fine[] = {b, grid.cells, model->width},
                  few[] = {b, coarse, model->width}, lead[] = {b, before, model->width},
                  groups[] = {b * heads, n, coarse, cell * cell};
    const heed_variable picture =
        heed_nn_reshape(graph, heed_nn_slice(graph, call->x, 1, 0, grid.cells), 4, map);
    const heed_variable inner = heed_nn_apply(graph, HEED_FN_RELU, convolve(call, "conv1", picture, 3, 1));
    const heed_variable V = heed_nn_add(graph, picture, convolve(call, "conv2", inner, 3, 1));
    const heed_variable V_coarse =
        heed_nn_reshape(graph, convolve(call, "coarse_conv", V, cell, cell), 3, few);
    const heed_variable cells = by_cells(call, heed_nn_reshape(graph, V, 3, fine), &grid, cell);
    const heed_variable x = heed_nn_slice(graph, call->x, 1, before, n);
    const float scale = 1 / sqrtf((float)model->head_dim);
    const heed_variable q = heed_nn_scale(graph, apart(call, heed_part_map(call, "q_proj", x, wide)), scale,
                                          0),
                        k = apart(call, heed_part_map(call, "k_proj", cells, wide)),
                        v = apart(call, heed_part_map(call, "v_proj", cells, wide));
    heed_variable p;
    if (kind == MASS) {
        p = heed_nn_sum(
            graph,
            heed_nn_reshape(graph, heed_nn_softmax(graph, heed_nn_product(graph, q, k, true)), 4, groups));
    } else {
        const heed_variable scores = heed_part_scores(
            call,
            apart(call, heed_layer_linear(graph, heed_layer_under(call->name, "coarse_q_proj").text, x, wide,
                                          model->bias, START * model->deviation)),
            apart(call, heed_part_map(call, "coarse_k_proj", V_coarse, wide)), scale);
        p = kind == SOFTMAX ? heed_nn_softmax(graph, scores)
            : kind == HARD  ? draw(call, scores, before)
                            : heed_nn_sparsemax(graph, scores);
    }
    heed_part_measure(call, "scored", heed_part_mean(call, heed_nn_step(graph, p, 0)));
    const int64_t split[] = {b, heads, n, model->head_dim};
    const heed_variable y = heed_part_out(
        call, heed_part_merge(call, heed_nn_reshape(graph, heed_nn_two_level(graph, q, k, v, p), 4, split)));
    if (!before)
        return y;
    const heed_variable both[] = {heed_part_zeros(call, 3, lead), y};
    return heed_nn_concatenate(graph, 2, both, 1);
}

static const heed_option kinds[] = {[SPARSEMAX] = {"sparsemax", NULL},
                                    [SOFTMAX] = {"softmax", NULL},
                                    [HARD] = {"hard", NULL},
                                    [MASS] = {"mass", NULL},
                                    {NULL, NULL}};
static const heed_arg args[] = {
    [KIND] = {.name = "kind",
              .kind = HEED_ARG_CHOICE,
              .options = kinds,
              .summary = "how coarse cells are weighed; hard: one is drawn"},
    [CELL] = {.name = "cell",
              .kind = HEED_ARG_INT,
              .value = 4,
              .least = 1,
              .most = 64,
              .summary = "sides of a coarse cell"},
    [ROWS] = HEED_ROWS_ARG("of the picture"),
    [COLS] = HEED_COLS_ARG,
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_coarse_to_fine = {
    .name = "coarse_to_fine",
    .stage = HEED_LAYER,
    .summary = "a picture is read in two levels: which cells, then where in them",
    .formula = "sum over coarse z' of p(z') sum over z in z' of p(z | z') v_z",
    .source = "Deng, Kanervisto, Ling, Rush: Image-to-Markup Generation with Coarse-to-Fine Attention, 2017",
    .row = "001.238",
    .args = args,
    .layer = &rule,
};
