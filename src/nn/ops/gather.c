/* Rows by index. Gradients of rows that come more than once add up in the order of the indices, a range of
 * columns a thread, so that the bits do not depend on the number of threads. */
#include "nn/graph.h"

#include <string.h>

enum { COLUMNS = 64 };

/* to[index[i]] += from[i] */
static void add_rows(const heed_work *work, int64_t count, int64_t cols, const int32_t *index,
                     const float *from, float *to)
{
    HEED_NN_PIECES(work->threads, cols, col, COLUMNS)
    {
        const int64_t size = cols - col < COLUMNS ? cols - col : COLUMNS;
        for (int64_t i = 0; i < count; i++) {
            float *row = to + index[i] * cols + col;
            work->kernels->add(row, from + i * cols + col, row, size);
        }
    }
}

static heed_status check_index(const heed_work *work, const int32_t *index, int64_t count, int64_t rows)
{
    for (int64_t i = 0; i < count; i++)
        if (index[i] < 0 || index[i] >= rows)
            return heed_fail(HEED_INVALID, "%s: index %d at place %lld is not one of %lld rows",
                             work->node->op->name, index[i], (long long)i, (long long)rows);
    return HEED_OK;
}

static void clear(const heed_work *work, float *to, int64_t n)
{
    HEED_NN_PIECES(work->threads, n, at, HEED_NN_PIECE)
    {
        memset(to + at, 0, (size_t)(n - at < HEED_NN_PIECE ? n - at : HEED_NN_PIECE) * sizeof *to);
    }
}

static heed_status gather_forward(const heed_work *work)
{
    const int64_t cols = work->node->whole[0], count = cols ? work->node->count / cols : 0;
    const int32_t *index = work->in[1];
    TRY(check_index(work, index, count, heed_nn_in(work->graph, work->node, 0)->shape[0]));
    HEED_NN_PIECES(work->threads, count, from, 64)
    {
        for (int64_t i = from; i < count && i < from + 64; i++)
            memcpy((float *)work->out + i * cols, (const float *)work->in[0] + index[i] * cols,
                   (size_t)cols * sizeof(float));
    }
    return HEED_OK;
}

static heed_status gather_backward(const heed_work *work)
{
    const int64_t cols = work->node->whole[0], count = cols ? work->node->count / cols : 0;
    if (!work->add[0])
        clear(work, work->din[0], heed_nn_in(work->graph, work->node, 0)->count);
    add_rows(work, count, cols, work->in[1], work->dout, work->din[0]);
    return HEED_OK;
}

static const heed_op gather_op = {
    .name = "gather", .forward = gather_forward, .backward = gather_backward, .reads = 2};

heed_variable heed_nn_gather(heed_graph *graph, heed_variable table, heed_variable index)
{
    const heed_variable in[] = {table, index};
    heed_nn_node *node = heed_nn_make(graph, &gather_op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0), *which = heed_nn_in(graph, node, 1);
    if (from->rank < 1 || which->type != HEED_I32 || which->rank + from->rank - 1 > HEED_MAX_RANK)
        return heed_nn_fail(graph, HEED_INVALID, "gather: rows of %s by indices %s are not possible",
                            heed_nn_shape_text(from).text, heed_nn_shape_text(which).text);
    heed_nn_shape_of(node, which);
    node->whole[0] = from->shape[0] ? from->count / from->shape[0] : 0;
    for (int d = 1; d < from->rank; d++)
        node->shape[node->rank++] = from->shape[d];
    return heed_nn_done(graph, node);
}

static heed_status scatter_forward(const heed_work *work)
{
    const heed_nn_node *from = heed_nn_in(work->graph, work->node, 0);
    const int64_t cols = work->node->whole[0];
    TRY(check_index(work, work->in[1], from->shape[0], work->node->shape[0]));
    clear(work, work->out, work->node->count);
    add_rows(work, from->shape[0], cols, work->in[1], work->in[0], work->out);
    return HEED_OK;
}

static heed_status scatter_backward(const heed_work *work)
{
    const heed_nn_node *from = heed_nn_in(work->graph, work->node, 0);
    const int64_t cols = work->node->whole[0];
    const int32_t *index = work->in[1];
    HEED_NN_PIECES(work->threads, from->shape[0], i, 1)
    {
        work->kernels->scale(work->dout + index[i] * cols, 1.0f, 0.0f, work->din[0] + i * cols, work->add[0],
                             cols);
    }
    return HEED_OK;
}

static const heed_op scatter_op = {
    .name = "scatter", .forward = scatter_forward, .backward = scatter_backward, .reads = 2};

heed_variable heed_nn_scatter(heed_graph *graph, heed_variable x, heed_variable index, int64_t rows)
{
    const heed_variable in[] = {x, index};
    heed_nn_node *node = heed_nn_make(graph, &scatter_op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0), *which = heed_nn_in(graph, node, 1);
    if (from->rank < 1 || which->type != HEED_I32 || which->count != from->shape[0] || rows < 1)
        return heed_nn_fail(graph, HEED_INVALID, "scatter: %s needs an index a row, not %s",
                            heed_nn_shape_text(from).text, heed_nn_shape_text(which).text);
    heed_nn_shape_of(node, from);
    node->shape[0] = rows;
    node->whole[0] = from->shape[0] ? from->count / from->shape[0] : 0;
    return heed_nn_done(graph, node);
}
