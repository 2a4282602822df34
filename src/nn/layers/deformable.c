/* Deformable attention over a clip (row 001.094): each query reads a few points whose places it moves itself.
 *
 *     place m of query p:  r_pm + reach tanh(O x_p)_m, in frames, rows and columns
 *     r_pm = frame m mod frames, at p's row and column, the (m / frames)-th nearest; points=0: all cells
 *     q = Wq (x_p + Wj mean of its frame's joints),   k, v = Wk x, Wv x, trilinear at the places
 *     out = Wo sum_m softmax_m(q·k_m / sqrt d + b_hm) v_m
 *
 * Tokens are cells of frames of a clip, then `joints` of each frame, which are passed by: their own attention
 * is layer=strides. moves=no keeps points where they begin. `followed` is the share of attention that lies on
 * cells of level `object`, where there are marks. Kim et al.: Cross-Modal Learning with 3D Deformable
 * Attention for Action Recognition, 2023.
 */
#include "nn/graph.h"
#include "nn/layers.h"

enum { POINTS, REACH, FRAMES, ROWS, COLS, JOINTS, MOVES, OBJECT };

static void one_a_frame(const heed_grid *grid, int64_t point, float *place)
{
    static const float row[] = {0, -1, 0, 1, 0, -1, -1, 1, 1}, col[] = {0, 0, 1, 0, -1, -1, 1, 1, -1};
    const int64_t round = point / grid->frames % 9;
    place[0] = (float)(point % grid->frames);
    place[1] += row[round];
    place[2] += col[round];
}

static void each_cell(const heed_grid *grid, int64_t point, float *place)
{
    place[0] = (float)(point / grid->cols / grid->rows);
    place[1] = (float)(point / grid->cols % grid->rows);
    place[2] = (float)(point % grid->cols);
}

/* x of the cells with the mean of the joints of their frame, mapped, beside. */
static heed_variable with_joints(const heed_layer_call *call, const heed_grid *grid, heed_variable cells,
                                 int64_t joints)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, w = call->model->width, frame = grid->rows * grid->cols,
                  split[] = {b, grid->frames, joints, w}, flat[] = {b * grid->frames, w},
                  rows[] = {b, grid->cells, w};
    if (!joints)
        return cells;
    const heed_variable pose = heed_nn_reshape(
        graph, heed_nn_slice(graph, call->x, 1, grid->cells, grid->frames * joints), 4, split);
    const heed_variable mean = heed_nn_reshape(
        graph, heed_nn_mean(graph, heed_nn_transpose(graph, pose, (int[]){0, 1, 3, 2})), 2, flat);
    const heed_variable all = heed_nn_reshape(
        graph, heed_part_repeat(call, heed_part_map(call, "joint_proj", mean, w), frame), 3, rows);
    return heed_nn_add(graph, cells, all);
}

static heed_variable places(const heed_layer_call *call, const heed_grid *grid, heed_variable cells,
                            int64_t points)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, given = heed_arg_int(call->form, POINTS),
                  shape[] = {b, grid->cells * points, 3};
    const heed_variable begin = heed_part_places(call, grid, points, 3, given ? one_a_frame : each_cell);
    if (call->form->arg[MOVES].number != 0)
        return heed_nn_add(graph, heed_part_zeros(call, 3, shape), begin);
    const heed_variable moved =
        heed_nn_apply(graph, HEED_FN_TANH, heed_part_map(call, "offset_proj", cells, 3 * points));
    return heed_nn_add(graph,
                       heed_nn_reshape(graph,
                                       heed_nn_scale(graph, moved, (float)call->form->arg[REACH].number, 0),
                                       3, shape),
                       begin);
}

/* The share of the weights [B N, H, 1, M] that lies on marked cells. */
static void measure(const heed_layer_call *call, const heed_grid *grid, heed_variable weights,
                    heed_variable at, int64_t points)
{
    heed_graph *graph = call->graph;
    const int64_t level = heed_arg_int(call->form, OBJECT), b = call->model->batch,
                  column[] = {b, grid->cells, 1}, size[] = {grid->frames, grid->rows, grid->cols},
                  rows[] = {b * grid->cells, points};
    if (!level)
        return;
    const heed_variable mark = heed_nn_reshape(
        graph, heed_nn_slice(graph, heed_part_marked(call, level), 1, 0, grid->cells), 3, column);
    const heed_variable on = heed_part_repeat(
        call, heed_nn_reshape(graph, heed_nn_sample(graph, mark, 3, size, at), 2, rows), call->model->heads);
    const int64_t flat[] = {b * grid->cells, points * call->model->heads};
    const heed_variable share = heed_nn_multiply(graph, heed_nn_reshape(graph, weights, 2, flat), on);
    heed_part_measure(call, "followed", heed_nn_scale(graph, heed_part_mean(call, share), (float)points, 0));
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t b = model->batch, heads = model->heads, wide = heads * model->head_dim,
                  joints = heed_arg_int(call->form, JOINTS);
    const heed_grid grid = heed_part_grid(call, heed_arg_int(call->form, FRAMES),
                                          heed_arg_int(call->form, ROWS), heed_arg_int(call->form, COLS));
    if (!grid.cells)
        return HEED_NO_VARIABLE;
    const int64_t points = heed_arg_int(call->form, POINTS) ? heed_arg_int(call->form, POINTS) : grid.cells,
                  behind = model->context - grid.cells, rest[] = {b, behind, model->width},
                  bias[] = {heads, 1, points}, size[] = {grid.frames, grid.rows, grid.cols};
    if (joints * grid.frames > behind)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "layer=deformable: %lld joints of %lld frames are more than the %lld tokens behind the cells",
            (long long)joints, (long long)grid.frames, (long long)behind);
    const heed_variable cells = heed_nn_slice(graph, call->x, 1, 0, grid.cells),
                        at = places(call, &grid, cells, points);
    const heed_variable both[] = {heed_part_map(call, "k_proj", cells, wide),
                                  heed_part_map(call, "v_proj", cells, wide)};
    const heed_variable found = heed_nn_sample(graph, heed_nn_concatenate(graph, 2, both, 2), 3, size, at);
    const heed_variable q = heed_part_map(call, "q_proj", with_joints(call, &grid, cells, joints), wide);
    const heed_variable scores =
        heed_nn_add(graph, heed_part_own_scores(call, q, heed_nn_slice(graph, found, 2, 0, wide)),
                    heed_part_parameter(call, "point_bias", 3, bias, HEED_INITIAL_CONSTANT, 0));
    const heed_variable w = heed_nn_softmax(graph, scores);
    measure(call, &grid, w, at, points);
    const heed_variable y =
        heed_part_out(call, heed_part_own_read(call, w, heed_nn_slice(graph, found, 2, wide, wide)));
    if (!behind)
        return y;
    const heed_variable parts[] = {y, heed_part_zeros(call, 3, rest)};
    return heed_nn_concatenate(graph, 2, parts, 1);
}

static const heed_arg args[] = {
    [POINTS] = {.name = "points",
                .kind = HEED_ARG_INT,
                .value = 8,
                .most = 4096,
                .summary = "that a query reads; 0: one a cell"},
    [REACH] = {.name = "reach",
               .kind = HEED_ARG_FLOAT,
               .value = 4,
               .most = 4096,
               .summary = "how far a point may move, in cells"},
    [FRAMES] = HEED_FRAMES_ARG,
    [ROWS] = HEED_ROWS_ARG("of a frame"),
    [COLS] = HEED_COLS_ARG,
    [JOINTS] = HEED_JOINTS_ARG,
    [MOVES] = {.name = "moves",
               .kind = HEED_ARG_CHOICE,
               .options = heed_yes_no,
               .summary = "whether points move"},
    [OBJECT] = {.name = "object",
                .kind = HEED_ARG_INT,
                .most = 1 << 20,
                .summary = "level from which a cell is marked, to measure what is followed; 0: none"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_deformable = {
    .name = "deformable",
    .stage = HEED_LAYER,
    .summary = "each cell of a clip reads a few points in all frames, whose places it moves",
    .formula = "sum over m of softmax(q·k_m + b_m) v_m, k and v trilinear at r_m + reach tanh(O x)_m",
    .source = "Kim et al.: Cross-Modal Learning with 3D Deformable Attention for Action Recognition, 2023",
    .row = "001.094",
    .args = args,
    .layer = &rule,
};
