/* Means and largest of windows along the second dimension of [batch, n, channels]. */
#include "nn/graph.h"

#include <string.h>

enum { WINDOW, STRIDE, LARGEST };

static heed_status pool_forward(const heed_work *work)
{
    const heed_nn_node *node = work->node, *from = heed_nn_in(work->graph, node, 0);
    const int64_t n = from->shape[1], c = from->shape[2], out = node->shape[1], rows = node->shape[0] * out;
    const int64_t window = node->whole[WINDOW], stride = node->whole[STRIDE];
    int32_t *which = work->saved; /* [rows, c] of the largest */
    HEED_NN_PIECES(work->threads, rows, row, 1)
    {
        const float *x = (const float *)work->in[0] + (row / out * n + row % out * stride) * c;
        float *y = (float *)work->out + row * c;
        memcpy(y, x, (size_t)c * sizeof *y);
        for (int64_t i = 0; node->whole[LARGEST] && i < c; i++)
            which[row * c + i] = 0;
        for (int64_t w = 1; w < window; w++)
            for (int64_t i = 0; i < c; i++) {
                const float value = x[w * c + i];
                if (!node->whole[LARGEST]) {
                    y[i] += value;
                } else if (value > y[i]) {
                    y[i] = value;
                    which[row * c + i] = (int32_t)w;
                }
            }
        if (!node->whole[LARGEST])
            work->kernels->scale(y, 1.0f / (float)window, 0.0f, y, false, c);
    }
    return HEED_OK;
}

/* A sequence a thread, because windows may overlap. */
static heed_status pool_backward(const heed_work *work)
{
    const heed_nn_node *node = work->node, *from = heed_nn_in(work->graph, node, 0);
    const int64_t n = from->shape[1], c = from->shape[2], out = node->shape[1];
    const int64_t window = node->whole[WINDOW], stride = node->whole[STRIDE];
    const int32_t *which = work->saved;
    HEED_NN_PIECES(work->threads, node->shape[0], b, 1)
    {
        float *to = work->din[0] + b * n * c;
        if (!work->add[0])
            memset(to, 0, (size_t)(n * c) * sizeof *to);
        for (int64_t t = 0; t < out; t++) {
            const float *dy = work->dout + (b * out + t) * c;
            float *dx = to + t * stride * c;
            if (node->whole[LARGEST])
                for (int64_t i = 0; i < c; i++)
                    dx[which[(b * out + t) * c + i] * c + i] += dy[i];
            else
                for (int64_t w = 0; w < window; w++)
                    work->kernels->scale(dy, 1.0f / (float)window, 0.0f, dx + w * c, true, c);
        }
    }
    return HEED_OK;
}

static const heed_op pool_op = {.name = "pool", .forward = pool_forward, .backward = pool_backward};

heed_variable heed_nn_pool(heed_graph *graph, heed_variable x, int64_t window, int64_t stride, bool largest)
{
    heed_nn_node *node = heed_nn_make(graph, &pool_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    if (from->rank != 3 || window < 1 || stride < 1 || window > from->shape[1])
        return heed_nn_fail(graph, HEED_INVALID, "pool: windows of %lld by steps of %lld do not fit %s",
                            (long long)window, (long long)stride, heed_nn_shape_text(from).text);
    heed_nn_shape_of(node, from);
    node->shape[1] = (from->shape[1] - window) / stride + 1;
    node->whole[WINDOW] = window;
    node->whole[STRIDE] = stride;
    node->whole[LARGEST] = largest;
    node->saved_bytes =
        largest ? (size_t)(node->shape[0] * node->shape[1] * node->shape[2]) * sizeof(int32_t) : 0;
    return heed_nn_done(graph, node);
}
