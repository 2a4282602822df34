/* Means and largest of windows of [batch, height, width, channels]. */
#include "nn/graph.h"

#include <string.h>

enum { WINDOW, STRIDE, LARGEST };

/* Entry of the window at place t of an image: the w-th, row by row. */
static int64_t place(const heed_nn_node *node, const heed_nn_node *from, int64_t t, int64_t w)
{
    const int64_t row = t / node->shape[2] * node->whole[STRIDE] + w / node->whole[WINDOW],
                  col = t % node->shape[2] * node->whole[STRIDE] + w % node->whole[WINDOW];
    return (row * from->shape[2] + col) * from->shape[3];
}

static heed_status pool_forward(const heed_work *work)
{
    const heed_nn_node *node = work->node, *from = heed_nn_in(work->graph, node, 0);
    const int64_t c = from->shape[3], places = node->shape[1] * node->shape[2],
                  image = from->shape[1] * from->shape[2] * c,
                  window = node->whole[WINDOW] * node->whole[WINDOW];
    int32_t *which = work->saved; /* [batch, places, c] of the largest */
    HEED_NN_PIECES(work->threads, node->shape[0] * places, at, 1)
    {
        const float *x = (const float *)work->in[0] + at / places * image;
        float *y = (float *)work->out + at * c;
        memcpy(y, x + place(node, from, at % places, 0), (size_t)c * sizeof *y);
        if (node->whole[LARGEST])
            memset(which + at * c, 0, (size_t)c * sizeof *which);
        for (int64_t w = 1; w < window; w++) {
            const float *entry = x + place(node, from, at % places, w);
            for (int64_t i = 0; i < c; i++)
                if (!node->whole[LARGEST]) {
                    y[i] += entry[i];
                } else if (entry[i] > y[i]) {
                    y[i] = entry[i];
                    which[at * c + i] = (int32_t)w;
                }
        }
        if (!node->whole[LARGEST])
            work->kernels->scale(y, 1.0f / (float)window, 0.0f, y, false, c);
    }
    return HEED_OK;
}

/* An image a thread, because windows may overlap. */
static heed_status pool_backward(const heed_work *work)
{
    const heed_nn_node *node = work->node, *from = heed_nn_in(work->graph, node, 0);
    const int64_t c = from->shape[3], places = node->shape[1] * node->shape[2],
                  image = from->shape[1] * from->shape[2] * c,
                  window = node->whole[WINDOW] * node->whole[WINDOW];
    const int32_t *which = work->saved;
    HEED_NN_PIECES(work->threads, node->shape[0], b, 1)
    {
        float *dx = work->din[0] + b * image;
        if (!work->add[0])
            memset(dx, 0, (size_t)image * sizeof *dx);
        for (int64_t t = 0; t < places; t++) {
            const int64_t at = b * places + t;
            const float *dy = work->dout + at * c;
            if (node->whole[LARGEST])
                for (int64_t i = 0; i < c; i++)
                    dx[place(node, from, t, which[at * c + i]) + i] += dy[i];
            else
                for (int64_t w = 0; w < window; w++)
                    work->kernels->scale(dy, 1.0f / (float)window, 0.0f, dx + place(node, from, t, w), true,
                                         c);
        }
    }
    return HEED_OK;
}

static const heed_op pool_op = {.name = "pool_2d", .forward = pool_forward, .backward = pool_backward};

heed_variable heed_nn_pool_2d(heed_graph *graph, heed_variable x, int64_t window, int64_t stride,
                              bool largest)
{
    heed_nn_node *node = heed_nn_make(graph, &pool_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    if (from->rank != 4 || window < 1 || stride < 1 || window > from->shape[1] || window > from->shape[2])
        return heed_nn_fail(graph, HEED_INVALID, "pool_2d: windows of %lld by steps of %lld do not fit %s",
                            (long long)window, (long long)stride, heed_nn_shape_text(from).text);
    heed_nn_shape_of(node, from);
    for (int d = 1; d < 3; d++)
        node->shape[d] = (from->shape[d] - window) / stride + 1;
    node->whole[WINDOW] = window;
    node->whole[STRIDE] = stride;
    node->whole[LARGEST] = largest;
    if (largest)
        node->saved_bytes = (size_t)(node->shape[0] * node->shape[1] * node->shape[2]) *
                            (size_t)node->shape[3] * sizeof(int32_t);
    return heed_nn_done(graph, node);
}
