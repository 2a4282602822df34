/* What layers give beside their result, and the pictures that their tokens are cells of. */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

heed_variable heed_part_times(const heed_layer_call *call, heed_variable x, heed_variable numbers)
{
    heed_graph *graph = call->graph;
    const int rank = heed_graph_rank(graph, numbers) + 1;
    int64_t shape[HEED_MAX_RANK] = {0};
    for (int d = 0; d < rank && d < HEED_MAX_RANK; d++)
        shape[d] = d == rank - 1 ? 1 : heed_graph_size(graph, numbers, d);
    const heed_variable column = heed_nn_reshape(graph, numbers, rank, shape);
    return heed_nn_multiply(graph, x, heed_part_each(call, column, heed_graph_size(graph, x, -1)));
}

static heed_variable constant(const heed_layer_call *call, int rank, const int64_t *shape, int64_t diagonal)
{
    int64_t count = 1;
    for (int d = 0; d < rank; d++)
        count *= shape[d];
    float *values = calloc((size_t)count + 1, sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for a constant");
    for (int64_t i = 0; i < diagonal; i++)
        values[i * diagonal + i] = 1.0f;
    const heed_variable made = heed_nn_constant(call->graph, rank, shape, values);
    free(values);
    return made;
}

heed_variable heed_part_zeros(const heed_layer_call *call, int rank, const int64_t *shape)
{
    return constant(call, rank, shape, 0);
}

heed_variable heed_part_identity(const heed_layer_call *call, int64_t n)
{
    return constant(call, 2, (int64_t[]){n, n}, n);
}

/* [B, n m, H d] to [B n, H, m, d] */
static heed_variable own_heads(const heed_layer_call *call, heed_variable x, int64_t n)
{
    const int64_t rows = heed_graph_size(call->graph, x, 1), heads = call->model->heads,
                  apart[] = {call->model->batch * n, rows / n, heads,
                             heed_graph_size(call->graph, x, 2) / heads};
    return heed_nn_transpose(call->graph, heed_nn_reshape(call->graph, x, 4, apart), (int[]){0, 2, 1, 3});
}

heed_variable heed_part_own_scores(const heed_layer_call *call, heed_variable q, heed_variable k)
{
    const int64_t n = heed_graph_size(call->graph, q, 1),
                  d = heed_graph_size(call->graph, q, 2) / call->model->heads;
    return heed_part_scores(call, own_heads(call, q, n), own_heads(call, k, n), 1 / sqrtf((float)d));
}

heed_variable heed_part_own_read(const heed_layer_call *call, heed_variable weights, heed_variable v)
{
    const int64_t b = call->model->batch, n = heed_graph_size(call->graph, weights, 0) / b,
                  rows[] = {b, n, heed_graph_size(call->graph, v, 2)};
    return heed_nn_reshape(call->graph, heed_nn_product(call->graph, weights, own_heads(call, v, n), false),
                           3, rows);
}

heed_variable heed_part_places(const heed_layer_call *call, const heed_grid *grid, int64_t points, int dims,
                               void (*move)(const heed_grid *grid, int64_t point, float *place))
{
    const int64_t shape[] = {grid->cells * points, dims};
    float *values = calloc((size_t)(shape[0] * dims), sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for places of a grid");
    for (int64_t i = 0; i < shape[0]; i++) {
        const int64_t cell = i / points;
        float place[] = {(float)(cell / grid->cols / grid->rows), (float)(cell / grid->cols % grid->rows),
                         (float)(cell % grid->cols)};
        if (move)
            move(grid, i % points, place);
        for (int d = 0; d < dims; d++)
            values[i * dims + d] = place[3 - dims + d];
    }
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}

heed_variable heed_part_mean(const heed_layer_call *call, heed_variable x)
{
    int64_t count = 1;
    for (int d = 0; d < heed_graph_rank(call->graph, x); d++)
        count *= heed_graph_size(call->graph, x, d);
    return heed_nn_mean(call->graph, heed_nn_reshape(call->graph, x, 1, &count));
}

static bool has_room(const heed_layer_call *call, int used)
{
    if (!call->nodes->beside)
        return false;
    if (used == HEED_BESIDE)
        heed_nn_fail(call->graph, HEED_UNSUPPORTED, "layers give more than %d things beside their results",
                     HEED_BESIDE);
    return used < HEED_BESIDE;
}

void heed_part_loss(const heed_layer_call *call, heed_variable number, float weight)
{
    heed_beside *beside = call->nodes->beside;
    if (!beside || weight == 0.0f)
        return;
    const heed_variable part = heed_nn_scale(call->graph, number, weight, 0.0f);
    beside->loss = beside->loss == HEED_NO_INPUT ? part : heed_nn_add(call->graph, beside->loss, part);
}

void heed_part_chance(const heed_layer_call *call, heed_variable log_probability)
{
    heed_beside *beside = call->nodes->beside;
    if (has_room(call, beside ? beside->chances : 0))
        beside->chance[beside->chances++] = log_probability;
}

void heed_part_measure(const heed_layer_call *call, const char *name, heed_variable number)
{
    heed_beside *beside = call->nodes->beside;
    if (!has_room(call, beside ? beside->measures : 0))
        return;
    beside->measure[beside->measures].name = name;
    beside->measure[beside->measures++].value = number;
}

void heed_part_leave(const heed_layer_call *call, heed_variable x)
{
    heed_beside *beside = call->nodes->beside;
    if (!has_room(call, beside ? beside->lefts : 0))
        return;
    beside->left[beside->lefts].form = call->form->form;
    beside->left[beside->lefts++].value = x;
}

heed_variable heed_part_left(const heed_layer_call *call, int back)
{
    const heed_beside *beside = call->nodes->beside;
    for (int i = beside ? beside->lefts - 1 : -1; i >= 0; i--)
        if (beside->left[i].form == call->form->form && back-- == 0)
            return beside->left[i].value;
    return HEED_NO_INPUT;
}

heed_grid heed_part_grid(const heed_layer_call *call, int64_t frames, int64_t rows, int64_t cols)
{
    const heed_image *image = &call->model->image;
    const int64_t context = call->model->context;
    heed_grid grid = {frames > 0 ? frames : 1, rows, cols, 0};
    if (!rows && image->patch)
        grid.rows = image->height / image->patch / grid.frames;
    if (!cols && image->patch)
        grid.cols = image->width / image->patch;
    if (!grid.rows && !grid.cols)
        grid.rows = grid.cols = (int64_t)sqrt((double)(context / grid.frames));
    grid.rows = grid.rows ? grid.rows : context / grid.frames / grid.cols;
    grid.cols = grid.cols ? grid.cols : context / grid.frames / grid.rows;
    grid.cells = grid.frames * grid.rows * grid.cols;
    if (grid.cells < 1 || grid.cells > context || (image->patch && grid.cells != context)) {
        heed_nn_fail(call->graph, HEED_INVALID,
                     "layer=%s: %lld frames of %lld by %lld cells are not the %lld tokens there are",
                     call->form->form->name, (long long)grid.frames, (long long)grid.rows,
                     (long long)grid.cols, (long long)context);
        grid.cells = 0;
    }
    return grid;
}

/* [B, N] of the pixels of patches. */
static heed_variable marked_pixels(const heed_layer_call *call, int64_t level)
{
    heed_graph *graph = call->graph;
    const heed_image *image = &call->model->image;
    const int64_t flat[] = {call->model->batch, call->model->context};
    const float most = (float)(call->model->vocabulary > 1 ? call->model->vocabulary - 1 : 1),
                above = 2.0f * ((float)level - 0.5f) / most - 1.0f;
    if (image->channels != 1)
        return heed_nn_fail(graph, HEED_UNSUPPORTED, "layer=%s: marks are of pictures with one channel",
                            call->form->form->name);
    const heed_variable mark = heed_nn_pool_2d(graph, heed_nn_step(graph, call->nodes->pixels, above),
                                               image->patch, image->patch, true);
    return heed_nn_reshape(graph, mark, 2, flat);
}

heed_variable heed_part_marked(const heed_layer_call *call, int64_t level)
{
    heed_graph *graph = call->graph;
    const int64_t shape[] = {call->model->vocabulary, 1}, flat[] = {call->model->batch, call->model->context};
    if (call->model->image.patch)
        return marked_pixels(call, level);
    float *values = calloc((size_t)shape[0], sizeof *values);
    if (!values)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for marks of tokens");
    for (int64_t i = level < 0 ? 0 : level; i < shape[0]; i++)
        values[i] = 1.0f;
    const heed_variable table = heed_nn_constant(graph, 2, shape, values);
    free(values);
    return heed_nn_reshape(graph, heed_nn_gather(graph, table, call->nodes->tokens), 2, flat);
}
