/* Self-guided attention (row 001.024): where a picture matters, keys stay fine, elsewhere they are merged.
 *
 *     kind=hybrid: half of the heads attend inside windows, half to k, v of a convolution with stride
 * `stride`; S_j = mean over heads and queries of the window's weights of key j, + the same of the strided key
 * over it kind=guided: tokens sorted by the last hybrid layer's S are cut into the top quarter, the middle
 * half and the lowest quarter; each run of salient, middle or minor of them becomes one key by learnt weights
 * of its places; half of the heads sort tokens row by row, half column by column (which decides ties) out =
 * Wo (read + depthwise 3 by 3 convolution of x)
 *
 * S has no gradient. Keys of a guided half: N/4/salient + N/2/middle + N/4/minor. sorted=no leaves tokens in
 * their order: pooling of neighbours. `salience` is the mean of S on tokens of level `object` over the mean
 * of all. The last stage of a model is plain attention. Ren, Yang, Liu, Wang, Feng, Zhang, Wang: SG-Former,
 * 2023.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

enum { KIND, WINDOW, STRIDE, SALIENT, MIDDLE, MINOR, SORTED, OBJECT, ROWS, COLS };
enum { HYBRID, GUIDED };

/* Queries [B', n, h d] of h heads to keys alike: rows [B', n, h d], and the weights [B', h, n, m]. */
static heed_variable read_by(const heed_layer_call *call, heed_variable q, heed_variable k, heed_variable v,
                             int64_t heads, heed_variable *weights)
{
    heed_graph *graph = call->graph;
    const int64_t b = heed_graph_size(graph, q, 0), n = heed_graph_size(graph, q, 1),
                  m = heed_graph_size(graph, k, 1), d = heed_graph_size(graph, q, 2) / heads,
                  asks[] = {b, n, heads, d}, keys[] = {b, m, heads, d}, rows[] = {b, n, heads * d};
    const int order[] = {0, 2, 1, 3};
    const heed_variable Q = heed_nn_transpose(graph, heed_nn_reshape(graph, q, 4, asks), order),
                        K = heed_nn_transpose(graph, heed_nn_reshape(graph, k, 4, keys), order),
                        V = heed_nn_transpose(graph, heed_nn_reshape(graph, v, 4, keys), order);
    *weights = heed_nn_softmax(graph, heed_part_scores(call, Q, K, 1 / sqrtf((float)d)));
    return heed_nn_reshape(graph, heed_nn_transpose(graph, heed_nn_product(graph, *weights, V, false), order),
                           3, rows);
}

/* Rows [B, N, c] with the cells of each window one after another, or back. */
static heed_variable windows(const heed_layer_call *call, const heed_grid *grid, heed_variable x,
                             int64_t window, bool back)
{
    const int64_t b = call->model->batch, c = heed_graph_size(call->graph, x, 2),
                  in[] = {b * grid->rows / window, window, grid->cols / window, window * c},
                  out[] = {b * grid->rows / window, grid->cols / window, window, window * c},
                  rows[] = {b, grid->cells, c};
    return heed_nn_reshape(call->graph,
                           heed_nn_transpose(call->graph, heed_nn_reshape(call->graph, x, 4, back ? out : in),
                                             (int[]){0, 2, 1, 3}),
                           3, rows);
}

/* Mean over heads and queries of weights [B', h, n, m]: [B', m]. */
static heed_variable by_key(heed_graph *graph, heed_variable weights)
{
    const int64_t flat[] = {heed_graph_size(graph, weights, 0),
                            heed_graph_size(graph, weights, 1) * heed_graph_size(graph, weights, 2),
                            heed_graph_size(graph, weights, 3)};
    return heed_nn_mean(graph,
                        heed_nn_transpose(graph, heed_nn_reshape(graph, weights, 3, flat), (int[]){0, 2, 1}));
}

/* [B, coarse] to the cells that each stands for, [B, N]. */
static heed_variable spread(const heed_layer_call *call, const heed_grid *grid, heed_variable x,
                            int64_t stride)
{
    const int64_t b = call->model->batch, coarse = heed_graph_size(call->graph, x, 1),
                  rows[] = {b, 1, coarse}, cells[] = {b, grid->cells};
    int32_t *place = calloc((size_t)grid->cells, sizeof *place);
    if (!place)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for a table of cells");
    for (int64_t i = 0; i < grid->cells; i++)
        place[i] = (int32_t)(i / grid->cols / stride * (grid->cols / stride) + i % grid->cols / stride);
    const heed_variable made =
        heed_nn_pick(call->graph, heed_nn_reshape(call->graph, x, 3, rows), place, grid->cells);
    free(place);
    return heed_nn_reshape(call->graph, made, 2, cells);
}

static void measure(const heed_layer_call *call, heed_variable S)
{
    heed_graph *graph = call->graph;
    const int64_t level = heed_arg_int(call->form, OBJECT);
    if (!level)
        return;
    const heed_variable mark = heed_part_marked(call, level);
    const heed_variable there = heed_nn_divide(graph, heed_part_mean(call, heed_nn_multiply(graph, S, mark)),
                                               heed_nn_scale(graph, heed_part_mean(call, mark), 1, 1e-9f));
    heed_part_measure(call, "salience", heed_nn_divide(graph, there, heed_part_mean(call, S)));
}

static heed_variable hybrid(const heed_layer_call *call, const heed_grid *grid, heed_variable q)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, w = call->model->width,
                  half = q >= 0 ? heed_graph_size(graph, q, 2) / 2 : 0, heads = call->model->heads / 2,
                  window = heed_arg_int(call->form, WINDOW), stride = heed_arg_int(call->form, STRIDE),
                  inside = window * window, each[] = {b * grid->cells / inside, inside, half},
                  whole[] = {b, grid->cells, half}, map[] = {b, grid->rows, grid->cols, w},
                  weight[] = {w, stride, stride, w}, few[] = {b, grid->cells / stride / stride, w},
                  column[] = {b, grid->cells, 1}, cells[] = {b, grid->cells};
    heed_variable near, far;
    if (grid->rows % window || grid->cols % window || grid->rows % stride || grid->cols % stride)
        return heed_nn_fail(
            graph, HEED_INVALID, "layer=sg: window=%lld and stride=%lld must divide %lld by %lld cells",
            (long long)window, (long long)stride, (long long)grid->rows, (long long)grid->cols);
#define WINDOWS(x) heed_nn_reshape(graph, windows(call, grid, x, window, false), 3, each)
    const heed_variable local =
        read_by(call, WINDOWS(heed_nn_slice(graph, q, 2, 0, half)),
                WINDOWS(heed_part_map(call, "k_near_proj", call->x, half)),
                WINDOWS(heed_part_map(call, "v_near_proj", call->x, half)), heads, &near);
#undef WINDOWS
    const heed_variable coarse = heed_nn_reshape(
        graph,
        heed_nn_convolution_2d(graph, heed_nn_reshape(graph, call->x, 4, map),
                               heed_part_parameter(call, "far_conv", 4, weight, HEED_INITIAL_NORMAL,
                                                   1 / sqrtf((float)(stride * stride * w))),
                               &(heed_convolution_2d){.stride = stride}),
        3, few);
    const heed_variable global =
        read_by(call, heed_nn_slice(graph, q, 2, half, half), heed_part_map(call, "k_far_proj", coarse, half),
                heed_part_map(call, "v_far_proj", coarse, half), heads, &far);
    const heed_variable S_near = heed_nn_reshape(
        graph, windows(call, grid, heed_nn_reshape(graph, by_key(graph, near), 3, column), window, true), 2,
        cells);
    const heed_variable S =
        heed_nn_stop(graph, heed_nn_add(graph, S_near, spread(call, grid, by_key(graph, far), stride)));
    measure(call, S);
    heed_part_leave(call, S);
    const heed_variable both[] = {windows(call, grid, heed_nn_reshape(graph, local, 3, whole), window, true),
                                  global};
    return heed_nn_concatenate(graph, 2, both, 2);
}

/* `count` of the sorted rows from `first` on, each run of `rate` one: [B, count / rate, c]. */
static heed_variable merge(const heed_layer_call *call, const char *part, heed_variable sorted, int64_t first,
                           int64_t count, int64_t rate)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, c = heed_graph_size(graph, sorted, 2),
                  runs[] = {b * count / rate, rate, c}, out[] = {b, count / rate, c}, slots[] = {rate, 1};
    if (count % rate)
        return heed_nn_fail(graph, HEED_INVALID, "layer=sg: runs of %lld do not divide the %lld tokens of %s",
                            (long long)rate, (long long)count, part);
    const heed_variable run = heed_nn_transpose(
        graph, heed_nn_reshape(graph, heed_nn_slice(graph, sorted, 1, first, count), 3, runs),
        (int[]){0, 2, 1});
    return heed_nn_reshape(
        graph,
        heed_nn_product(graph, run,
                        heed_part_parameter(call, part, 2, slots, HEED_INITIAL_CONSTANT, 1 / (float)rate),
                        false),
        3, out);
}

/* Keys of one half of the heads, from tokens and significance in one order of the cells. */
static heed_variable merged(const heed_layer_call *call, heed_variable x, heed_variable S,
                            const char *const names[3])
{
    heed_graph *graph = call->graph;
    const int64_t n = heed_graph_size(graph, x, 1);
    const heed_variable sorted = heed_nn_take(graph, x, heed_nn_order(graph, S, n));
    const heed_variable group[] = {
        merge(call, names[0], sorted, 0, n / 4, heed_arg_int(call->form, SALIENT)),
        merge(call, names[1], sorted, n / 4, n / 2, heed_arg_int(call->form, MIDDLE)),
        merge(call, names[2], sorted, n / 4 * 3, n / 4, heed_arg_int(call->form, MINOR))};
    return heed_nn_concatenate(graph, 3, group, 1);
}

/* [B, N, c] row by row to column by column. */
static heed_variable turned(const heed_layer_call *call, const heed_grid *grid, heed_variable x)
{
    const int64_t b = call->model->batch, c = heed_graph_size(call->graph, x, 2),
                  map[] = {b, grid->rows, grid->cols, c}, rows[] = {b, grid->cells, c};
    return heed_nn_reshape(
        call->graph,
        heed_nn_transpose(call->graph, heed_nn_reshape(call->graph, x, 4, map), (int[]){0, 2, 1, 3}), 3,
        rows);
}

static heed_variable guided(const heed_layer_call *call, const heed_grid *grid, heed_variable q)
{
    heed_graph *graph = call->graph;
    static const char *const row_names[] = {"salient_row", "middle_row", "minor_row"}, *const col_names[] = {
                                                                                           "salient_col",
                                                                                           "middle_col",
                                                                                           "minor_col"};
    const int64_t half = q >= 0 ? heed_graph_size(graph, q, 2) / 2 : 0, heads = call->model->heads / 2,
                  b = call->model->batch, cells[] = {b, grid->cells}, column[] = {b, grid->cells, 1};
    const bool sorted = call->form->arg[SORTED].number == 0;
    const heed_variable S = sorted ? heed_part_left(call, 0) : heed_part_zeros(call, 2, cells);
    heed_variable weights;
    if (S == HEED_NO_INPUT)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "layer=sg(kind=guided): a layer before it must be sg(kind=hybrid), which says what matters");
    if (grid->cells % 4)
        return heed_nn_fail(graph, HEED_INVALID, "layer=sg: %lld tokens have no quarters",
                            (long long)grid->cells);
    const heed_variable by_row = merged(call, call->x, S, row_names);
    const heed_variable by_col =
        merged(call, turned(call, grid, call->x),
               heed_nn_reshape(graph, turned(call, grid, heed_nn_reshape(graph, S, 3, column)), 2, cells),
               col_names);
    heed_part_measure(
        call, "keys",
        heed_nn_scale(graph, heed_part_mean(call, S), 0, (float)heed_graph_size(graph, by_row, 1)));
    const heed_variable both[] = {
        read_by(call, heed_nn_slice(graph, q, 2, 0, half), heed_part_map(call, "k_row_proj", by_row, half),
                heed_part_map(call, "v_row_proj", by_row, half), heads, &weights),
        read_by(call, heed_nn_slice(graph, q, 2, half, half), heed_part_map(call, "k_col_proj", by_col, half),
                heed_part_map(call, "v_col_proj", by_col, half), heads, &weights)};
    return heed_nn_concatenate(graph, 2, both, 2);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t w = model->width, depthwise[] = {3, 3, w};
    const heed_grid grid =
        heed_part_grid(call, 1, heed_arg_int(call->form, ROWS), heed_arg_int(call->form, COLS));
    if (!grid.cells)
        return HEED_NO_VARIABLE;
    if (grid.cells != model->context || model->heads % 2 || model->heads * model->head_dim != w)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "layer=sg: all %lld tokens must be cells (%lld), and an even number of heads must fill the width",
            (long long)model->context, (long long)grid.cells);
    const heed_variable q = heed_part_map(call, "q_proj", call->x, w);
    const heed_variable y =
        call->form->arg[KIND].number == HYBRID ? hybrid(call, &grid, q) : guided(call, &grid, q);
    const int64_t map[] = {model->batch, grid.rows, grid.cols, w}, rows[] = {model->batch, grid.cells, w};
    const heed_variable beside = heed_nn_convolution_2d(
        graph, heed_nn_reshape(graph, call->x, 4, map),
        heed_part_parameter(call, "depthwise", 3, depthwise, HEED_INITIAL_NORMAL, 1 / 3.0f),
        &(heed_convolution_2d){.pad = 1, .depthwise = true});
    return heed_part_out(call, heed_nn_add(graph, y, heed_nn_reshape(graph, beside, 3, rows)));
}

static const heed_option kinds[] = {[HYBRID] = {"hybrid", NULL}, [GUIDED] = {"guided", NULL}, {NULL, NULL}};
#define COUNT(called, usual, low, text)                                                                      \
    {                                                                                                        \
        .name = called, .kind = HEED_ARG_INT, .value = usual, .least = low, .most = 4096, .summary = text    \
    }
static const heed_arg args[] = {
    [KIND] = {.name = "kind",
              .kind = HEED_ARG_CHOICE,
              .value = GUIDED,
              .options = kinds,
              .summary = "windows beside strided keys, or keys merged by what matters"},
    [WINDOW] = COUNT("window", 7, 1, "sides of a window"),
    [STRIDE] = COUNT("stride", 2, 1, "of the convolution that makes far keys"),
    [SALIENT] = COUNT("salient", 1, 1, "tokens of the top quarter that make a key"),
    [MIDDLE] = COUNT("middle", 4, 1, "of the middle half"),
    [MINOR] = COUNT("minor", 16, 1, "of the lowest quarter"),
    [SORTED] = {.name = "sorted",
                .kind = HEED_ARG_CHOICE,
                .options = heed_yes_no,
                .summary = "by what matters; no: neighbours are merged"},
    [OBJECT] = {.name = "object",
                .kind = HEED_ARG_INT,
                .most = 1 << 20,
                .summary = "level of pixels that are an object, to measure salience; 0: none"},
    [ROWS] = COUNT("rows", 0, 0, "of the picture; 0: the model's picture, or a square"),
    [COLS] = COUNT("cols", 0, 0, "likewise"),
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_sg = {
    .name = "sg",
    .stage = HEED_LAYER,
    .summary = "keys stay fine where a picture matters, and are merged elsewhere",
    .formula = "softmax(q·k) v, k and v of runs of tokens sorted by the attention they had in a layer before",
    .source = "Ren et al.: SG-Former: Self-guided Transformer with Evolving Token Reallocation, 2023",
    .row = "001.024",
    .args = args,
    .layer = &rule,
};
