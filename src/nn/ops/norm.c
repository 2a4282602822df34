/* Norms over the last dimension. */
#include "nn/graph.h"

enum { ROWS_A_PIECE = 32 };

static heed_norm_rows rows_of(const heed_work *work)
{
    return (heed_norm_rows){.cols = heed_nn_last(work->node),
                            .eps = work->node->number[0],
                            .centred = work->node->whole[0],
                            .weight = work->in[1],
                            .bias = work->node->ins > 2 ? work->in[2] : NULL};
}

static heed_status norm_forward(const heed_work *work)
{
    const heed_norm_rows how = rows_of(work);
    const int64_t rows = heed_nn_rows(work->node), cols = how.cols;
    heed_row_moments *moments = work->saved;
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++)
            work->kernels->norm(&how, (const float *)work->in[0] + row * cols,
                                (float *)work->out + row * cols, moments + row);
    }
    return HEED_OK;
}

static void back_rows(const heed_work *work, int64_t row0, int64_t row1, float *partial)
{
    const heed_norm_rows how = rows_of(work);
    const heed_row_moments *moments = work->saved;
    const int64_t cols = how.cols;
    for (int64_t row = row0; row < row1; row++)
        work->kernels->norm_back(&how, (const float *)work->in[0] + row * cols, work->dout + row * cols,
                                 moments + row, work->din[0] ? work->din[0] + row * cols : NULL, work->add[0],
                                 work->din[1] ? partial : NULL,
                                 work->node->ins > 2 && work->din[2] ? partial + cols : NULL);
}

static heed_status norm_backward(const heed_work *work)
{
    const int64_t rows = heed_nn_rows(work->node), cols = heed_nn_last(work->node);
    heed_nn_sum_pieces(work, rows, 2 * cols, back_rows);
    if (work->din[1])
        heed_nn_fold(work, rows, 0, cols, 2 * cols, work->din[1], work->add[1]);
    if (work->node->ins > 2 && work->din[2])
        heed_nn_fold(work, rows, cols, cols, 2 * cols, work->din[2], work->add[2]);
    return HEED_OK;
}

static const heed_op rms_op = {
    .name = "rms_norm", .forward = norm_forward, .backward = norm_backward, .reads = 3};
static const heed_op layer_op = {
    .name = "layer_norm", .forward = norm_forward, .backward = norm_backward, .reads = 3};

static heed_variable norm(heed_graph *graph, const heed_op *op, int ins, const heed_variable *in, float eps)
{
    heed_nn_node *node = heed_nn_make(graph, op, ins, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *x = heed_nn_in(graph, node, 0);
    for (int i = 1; i < ins; i++)
        if (heed_nn_in(graph, node, i) && heed_nn_in(graph, node, i)->count != heed_nn_last(x))
            return heed_nn_fail(graph, HEED_INVALID, "%s: %s does not fit rows of %s", op->name,
                                heed_nn_shape_text(heed_nn_in(graph, node, i)).text,
                                heed_nn_shape_text(x).text);
    if (x->rank < 1 || heed_nn_last(x) < 1)
        return heed_nn_fail(graph, HEED_INVALID, "%s: %s has no rows", op->name, heed_nn_shape_text(x).text);
    heed_nn_shape_of(node, x);
    node->number[0] = eps;
    node->whole[0] = op == &layer_op;
    node->saved_bytes = (size_t)heed_nn_rows(x) * sizeof(heed_row_moments);
    node->backward_scratch = heed_nn_partial_bytes(heed_nn_rows(x), 2 * heed_nn_last(x));
    return heed_nn_done(graph, node);
}

heed_variable heed_nn_rms_norm(heed_graph *graph, heed_variable x, heed_variable weight, float eps)
{
    return norm(graph, &rms_op, 2, (const heed_variable[]){x, weight}, eps);
}

heed_variable heed_nn_layer_norm(heed_graph *graph, heed_variable x, heed_variable weight, heed_variable bias,
                                 float eps)
{
    return norm(graph, &layer_op, 3, (const heed_variable[]){x, weight, bias}, eps);
}
