/* Sums and means over the last dimension. */
#include "nn/graph.h"

enum { ROWS_A_PIECE = 64 };

static heed_status sum_forward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(heed_nn_in(work->graph, work->node, 0)), rows = work->node->count;
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++)
            ((float *)work->out)[row] =
                work->kernels->sum((const float *)work->in[0] + row * cols, cols) * work->node->number[0];
    }
    return HEED_OK;
}

static heed_status sum_backward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(heed_nn_in(work->graph, work->node, 0)), rows = work->node->count;
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++) {
            float *to = work->din[0] + row * cols;
            const float each = work->dout[row] * work->node->number[0];
            for (int64_t i = 0; i < cols; i++)
                to[i] = each + (work->add[0] ? to[i] : 0.0f);
        }
    }
    return HEED_OK;
}

static const heed_op sum_op = {.name = "sum", .forward = sum_forward, .backward = sum_backward};
static const heed_op mean_op = {.name = "mean", .forward = sum_forward, .backward = sum_backward};

static heed_variable total(heed_graph *graph, const heed_op *op, heed_variable x)
{
    heed_nn_node *node = heed_nn_make(graph, op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    if (from->rank < 1 || heed_nn_last(from) < 1)
        return heed_nn_fail(graph, HEED_INVALID, "%s: %s has no rows", op->name,
                            heed_nn_shape_text(from).text);
    heed_nn_shape_of(node, from);
    node->rank--;
    node->number[0] = op == &mean_op ? 1.0f / (float)heed_nn_last(from) : 1.0f;
    return heed_nn_done(graph, node);
}

heed_variable heed_nn_sum(heed_graph *graph, heed_variable x)
{
    return total(graph, &sum_op, x);
}

heed_variable heed_nn_mean(heed_graph *graph, heed_variable x)
{
    return total(graph, &mean_op, x);
}
