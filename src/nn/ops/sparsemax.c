/* Sparsemax of rows: the nearest point of the simplex, max(0, x - t) with t such that the sum is 1 (Martins,
 * Astudillo 2016). Its gradient is dout - its mean over the entries above 0, on those. */
#include "nn/graph.h"

/* t by Michelot: entries that would fall below 0 leave, until none does. */
static float threshold(const float *x, int64_t n)
{
    double t = -1.0;
    int64_t kept = -1, left = 0;
    for (int64_t i = 0; i < n; i++)
        t += (double)x[i];
    t /= (double)n;
    while (left != kept) {
        double sum = -1.0;
        kept = left;
        left = 0;
        for (int64_t i = 0; i < n; i++)
            if ((double)x[i] > t) {
                sum += (double)x[i];
                left++;
            }
        if (!left)
            break;
        t = sum / (double)left;
    }
    return (float)t;
}

static heed_status sparsemax_forward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(work->node), rows = heed_nn_rows(work->node);
    HEED_NN_PIECES(work->threads, rows, row, 64)
    {
        for (int64_t r = row; r < rows && r < row + 64; r++) {
            const float *x = (const float *)work->in[0] + r * cols, t = threshold(x, cols);
            for (int64_t i = 0; i < cols; i++)
                ((float *)work->out)[r * cols + i] = x[i] > t ? x[i] - t : 0.0f;
        }
    }
    return HEED_OK;
}

static heed_status sparsemax_backward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(work->node), rows = heed_nn_rows(work->node);
    HEED_NN_PIECES(work->threads, rows, row, 64)
    {
        for (int64_t r = row; r < rows && r < row + 64; r++) {
            const float *y = (const float *)work->out + r * cols, *dy = work->dout + r * cols;
            float *dx = work->din[0] + r * cols, sum = 0.0f, count = 0.0f;
            for (int64_t i = 0; i < cols; i++) {
                sum += y[i] > 0.0f ? dy[i] : 0.0f;
                count += y[i] > 0.0f ? 1.0f : 0.0f;
            }
            const float mean = count > 0.0f ? sum / count : 0.0f;
            for (int64_t i = 0; i < cols; i++)
                dx[i] = (work->add[0] ? dx[i] : 0.0f) + (y[i] > 0.0f ? dy[i] - mean : 0.0f);
        }
    }
    return HEED_OK;
}

static const heed_op sparsemax_op = {.name = "sparsemax",
                                     .forward = sparsemax_forward,
                                     .backward = sparsemax_backward,
                                     .flags = HEED_OP_READS_OUTPUT};

heed_variable heed_nn_sparsemax(heed_graph *graph, heed_variable x)
{
    heed_nn_node *node = heed_nn_make(graph, &sparsemax_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    if (from->rank < 1 || heed_nn_last(from) < 1)
        return heed_nn_fail(graph, HEED_INVALID, "sparsemax: %s has no rows", heed_nn_shape_text(from).text);
    heed_nn_shape_of(node, from);
    return heed_nn_done(graph, node);
}
