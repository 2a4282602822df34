/* Rows of a grid at places between its cells: the nearest cells, weighed by their nearness in each direction
 * (linear, bilinear, trilinear). Places beyond the grid are moved to its edge and have no gradient. */
#include "nn/graph.h"

#include <math.h>
#include <string.h>

enum { MOST_DIMS = 3 };
/* whole[]: places of a batch entry, numbers of a cell, cells, and the sizes of the grid */
enum { POINTS, COLS, CELLS, SIZES };

typedef struct corner {
    int64_t cell;
    float weight, slope[MOST_DIMS]; /* of the weight by each coordinate */
} corner;

static int dims_of(const heed_work *work)
{
    return (int)heed_nn_last(heed_nn_in(work->graph, work->node, 1));
}

/* The 2^dims cells around a place. */
static int corners(const heed_work *work, const float *at, corner *to)
{
    const int dims = dims_of(work);
    const int64_t *size = work->node->whole + SIZES;
    int64_t low[MOST_DIMS], high[MOST_DIMS];
    float part[MOST_DIMS];
    bool inside[MOST_DIMS];
    for (int d = 0; d < dims; d++) {
        const float most = (float)(size[d] - 1), x = at[d];
        const float held = x > 0.0f ? (x < most ? x : most) : 0.0f;
        inside[d] = x > 0.0f && x < most;
        low[d] = (int64_t)floorf(held);
        high[d] = low[d] + 1 < size[d] ? low[d] + 1 : low[d];
        part[d] = held - (float)low[d];
    }
    for (int c = 0; c < 1 << dims; c++) {
        to[c] = (corner){.cell = 0, .weight = 1.0f, .slope = {1.0f, 1.0f, 1.0f}};
        for (int d = 0; d < dims; d++) {
            const bool up = c >> d & 1;
            const float near = up ? part[d] : 1.0f - part[d];
            to[c].cell = to[c].cell * size[d] + (up ? high[d] : low[d]);
            to[c].weight *= near;
            for (int e = 0; e < dims; e++)
                to[c].slope[e] *= e != d ? near : !inside[d] ? 0.0f : up ? 1.0f : -1.0f;
        }
    }
    return 1 << dims;
}

static heed_status sample_forward(const heed_work *work)
{
    const int64_t *w = work->node->whole, batch = heed_nn_in(work->graph, work->node, 0)->shape[0];
    const int dims = dims_of(work);
    HEED_NN_PIECES(work->threads, batch, b, 1)
    {
        const float *x = (const float *)work->in[0] + b * w[CELLS] * w[COLS];
        for (int64_t i = b * w[POINTS]; i < (b + 1) * w[POINTS]; i++) {
            corner at[1 << MOST_DIMS];
            const int count = corners(work, (const float *)work->in[1] + i * dims, at);
            for (int c = 0; c < count; c++)
                work->kernels->scale(x + at[c].cell * w[COLS], at[c].weight, 0.0f,
                                     (float *)work->out + i * w[COLS], c > 0, w[COLS]);
        }
    }
    return HEED_OK;
}

static heed_status sample_backward(const heed_work *work)
{
    const int64_t *w = work->node->whole, batch = heed_nn_in(work->graph, work->node, 0)->shape[0];
    const int dims = dims_of(work);
    HEED_NN_PIECES(work->threads, batch, b, 1)
    {
        const int64_t first = b * w[CELLS] * w[COLS];
        if (work->din[0] && !work->add[0])
            memset(work->din[0] + first, 0, (size_t)(w[CELLS] * w[COLS]) * sizeof(float));
        for (int64_t i = b * w[POINTS]; i < (b + 1) * w[POINTS]; i++) {
            corner at[1 << MOST_DIMS];
            const int count = corners(work, (const float *)work->in[1] + i * dims, at);
            const float *dout = work->dout + i * w[COLS];
            float slope[MOST_DIMS] = {0.0f};
            for (int c = 0; c < count; c++) {
                const int64_t cell = first + at[c].cell * w[COLS];
                if (work->din[0])
                    work->kernels->scale(dout, at[c].weight, 0.0f, work->din[0] + cell, true, w[COLS]);
                const float along = work->din[1]
                                        ? work->kernels->dot(dout, (const float *)work->in[0] + cell, w[COLS])
                                        : 0.0f;
                for (int d = 0; d < dims; d++)
                    slope[d] += along * at[c].slope[d];
            }
            for (int d = 0; d < dims && work->din[1]; d++) {
                float *to = &work->din[1][i * dims + d];
                *to = (work->add[1] ? *to : 0.0f) + slope[d];
            }
        }
    }
    return HEED_OK;
}

static const heed_op sample_op = {
    .name = "sample", .forward = sample_forward, .backward = sample_backward, .reads = 3};

heed_variable heed_nn_sample(heed_graph *graph, heed_variable x, int dims, const int64_t *size,
                             heed_variable at)
{
    const heed_variable in[] = {x, at};
    int64_t cells = 1;
    if (dims < 1 || dims > MOST_DIMS)
        return heed_nn_fail(graph, HEED_INVALID, "sample: %d sizes, 1 to %d are possible", dims, MOST_DIMS);
    for (int d = 0; d < dims; d++)
        if (size[d] < 1 || __builtin_mul_overflow(cells, size[d], &cells))
            return heed_nn_fail(graph, HEED_INVALID, "sample: size %d is %lld", d, (long long)size[d]);
    heed_nn_node *node = heed_nn_make(graph, &sample_op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *grid = heed_nn_in(graph, node, 0), *place = heed_nn_in(graph, node, 1);
    if (grid->rank != 3 || place->rank != 3 || place->shape[0] != grid->shape[0] || place->shape[2] != dims ||
        grid->shape[1] != cells)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "sample: %lld cells need a grid [batch, cells, c] and places [batch, m, %d], not %s "
            "and %s",
            (long long)cells, dims, heed_nn_shape_text(grid).text, heed_nn_shape_text(place).text);
    node->rank = 3;
    node->shape[0] = grid->shape[0];
    node->shape[1] = node->whole[POINTS] = place->shape[1];
    node->shape[2] = node->whole[COLS] = heed_nn_last(grid);
    node->whole[CELLS] = cells;
    for (int d = 0; d < dims; d++)
        node->whole[SIZES + d] = size[d];
    return heed_nn_done(graph, node);
}
