/* SparseK of rows: the nearest point with entries from 0 to 1 that sum to k, clip(x - t, 0, 1). Its gradient
 * is dout - its mean over the entries between 0 and 1, on those (Lou et al. 2024). */
#include "nn/graph.h"
#include "scan/forms/clip.h"

#include <stdlib.h>
#include <string.h>

static int falling(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static heed_status sparsek_forward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(work->node), rows = heed_nn_rows(work->node), k = work->node->whole[0];
    HEED_NN_PIECES(work->threads, rows, row, 64)
    {
        for (int64_t r = row; r < rows && r < row + 64; r++) {
            const float *x = (const float *)work->in[0] + r * cols;
            float *y = (float *)work->out + r * cols;
            memcpy(y, x, (size_t)cols * sizeof(float));
            qsort(y, (size_t)cols, sizeof(float), falling);
            const double t = heed_clip_threshold(y, cols, k);
            for (int64_t i = 0; i < cols; i++)
                y[i] = heed_clip(x[i], t);
        }
    }
    return HEED_OK;
}

static bool between(float y)
{
    return y > 0.0f && y < 1.0f;
}

static heed_status sparsek_backward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(work->node), rows = heed_nn_rows(work->node);
    HEED_NN_PIECES(work->threads, rows, row, 64)
    {
        for (int64_t r = row; r < rows && r < row + 64; r++) {
            const float *y = (const float *)work->out + r * cols, *dy = work->dout + r * cols;
            float *dx = work->din[0] + r * cols, sum = 0.0f, count = 0.0f;
            for (int64_t i = 0; i < cols; i++) {
                sum += between(y[i]) ? dy[i] : 0.0f;
                count += between(y[i]) ? 1.0f : 0.0f;
            }
            const float mean = count > 0.0f ? sum / count : 0.0f;
            for (int64_t i = 0; i < cols; i++)
                dx[i] = (work->add[0] ? dx[i] : 0.0f) + (between(y[i]) ? dy[i] - mean : 0.0f);
        }
    }
    return HEED_OK;
}

static const heed_op sparsek_op = {.name = "sparsek",
                                   .forward = sparsek_forward,
                                   .backward = sparsek_backward,
                                   .flags = HEED_OP_READS_OUTPUT};

heed_variable heed_nn_sparsek(heed_graph *graph, heed_variable x, int64_t k)
{
    heed_nn_node *node = heed_nn_make(graph, &sparsek_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    if (from->rank < 1 || heed_nn_last(from) < 1 || k < 1)
        return heed_nn_fail(graph, HEED_INVALID, "sparsek: a sum of %lld for rows of %s", (long long)k,
                            heed_nn_shape_text(from).text);
    heed_nn_shape_of(node, from);
    node->whole[0] = k;
    return heed_nn_done(graph, node);
}
