/* A small window that slides over the pairs of each map: out[h, i, j] = sum_{a, b} weight[h, a, b]
 * x[h, i - a, j - b], b from -floor(cols / 2) on; 0 beyond the edges. */
#include "nn/graph.h"

#include <string.h>

enum { HEADS, ROWS, COLS, N, M, MAPS };

/* Columns j for which j - b lies inside. */
static void reach(const int64_t *w, int64_t b, int64_t *from, int64_t *to)
{
    *from = b > 0 ? b : 0;
    *to = b < 0 ? w[M] + b : w[M];
}

static heed_status window_forward(const heed_work *work)
{
    const int64_t *w = work->node->whole, half = w[COLS] / 2;
    const float *weight = work->in[1];
    HEED_NN_PIECES(work->threads, w[MAPS], map, 1)
    {
        const float *x = (const float *)work->in[0] + map * w[N] * w[M];
        float *y = (float *)work->out + map * w[N] * w[M];
        const float *mine = weight + map % w[HEADS] * w[ROWS] * w[COLS];
        memset(y, 0, (size_t)(w[N] * w[M]) * sizeof *y);
        for (int64_t i = 0; i < w[N]; i++)
            for (int64_t a = 0; a < w[ROWS] && a <= i; a++)
                for (int64_t c = 0; c < w[COLS]; c++) {
                    int64_t from, to;
                    reach(w, c - half, &from, &to);
                    const float *row = x + (i - a) * w[M] - (c - half), factor = mine[a * w[COLS] + c];
                    for (int64_t j = from; j < to; j++)
                        y[i * w[M] + j] += factor * row[j];
                }
    }
    return HEED_OK;
}

static void back_x(const heed_work *work, int64_t map)
{
    const int64_t *w = work->node->whole, half = w[COLS] / 2, size = w[N] * w[M];
    const float *mine = (const float *)work->in[1] + map % w[HEADS] * w[ROWS] * w[COLS];
    const float *dy = work->dout + map * size;
    float *dx = work->din[0] + map * size;
    if (!work->add[0])
        memset(dx, 0, (size_t)size * sizeof *dx);
    for (int64_t i = 0; i < w[N]; i++)
        for (int64_t a = 0; a < w[ROWS] && a <= i; a++)
            for (int64_t c = 0; c < w[COLS]; c++) {
                int64_t from, to;
                reach(w, c - half, &from, &to);
                float *row = dx + (i - a) * w[M] - (c - half);
                for (int64_t j = from; j < to; j++)
                    row[j] += mine[a * w[COLS] + c] * dy[i * w[M] + j];
            }
}

/* One head's window over its maps in order, so that sums do not depend on threads. */
static void back_window(const heed_work *work, int64_t head)
{
    const int64_t *w = work->node->whole, half = w[COLS] / 2, size = w[N] * w[M];
    float *to_window = work->din[1] + head * w[ROWS] * w[COLS];
    if (!work->add[1])
        memset(to_window, 0, (size_t)(w[ROWS] * w[COLS]) * sizeof *to_window);
    for (int64_t map = head; map < w[MAPS]; map += w[HEADS])
        for (int64_t a = 0; a < w[ROWS]; a++)
            for (int64_t c = 0; c < w[COLS]; c++) {
                int64_t from, to;
                float sum = 0;
                reach(w, c - half, &from, &to);
                for (int64_t i = a; i < w[N]; i++) {
                    const float *row = (const float *)work->in[0] + map * size + (i - a) * w[M] - (c - half);
                    const float *dy = work->dout + map * size + i * w[M];
                    for (int64_t j = from; j < to; j++)
                        sum += row[j] * dy[j];
                }
                to_window[a * w[COLS] + c] += sum;
            }
}

static heed_status window_backward(const heed_work *work)
{
    const int64_t *w = work->node->whole;
    if (work->din[0])
        HEED_NN_PIECES(work->threads, w[MAPS], map, 1)
        {
            back_x(work, map);
        }
    if (work->din[1])
        HEED_NN_PIECES(work->threads, w[HEADS], head, 1)
        {
            back_window(work, head);
        }
    return HEED_OK;
}

static const heed_op window_op = {
    .name = "window", .forward = window_forward, .backward = window_backward, .reads = 3};

heed_variable heed_nn_window(heed_graph *graph, heed_variable x, heed_variable weight)
{
    const heed_variable in[] = {x, weight};
    heed_nn_node *node = heed_nn_make(graph, &window_op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *a = heed_nn_in(graph, node, 0), *w = heed_nn_in(graph, node, 1);
    if (a->rank != 4 || w->rank != 3 || w->shape[0] != a->shape[1] || w->shape[2] > 2 * a->shape[3])
        return heed_nn_fail(graph, HEED_INVALID, "window: maps %s do not fit windows %s",
                            heed_nn_shape_text(a).text, heed_nn_shape_text(w).text);
    heed_nn_shape_of(node, a);
    const int64_t sizes[] = {a->shape[1], w->shape[1], w->shape[2],
                             a->shape[2], a->shape[3], a->shape[0] * a->shape[1]};
    memcpy(node->whole, sizes, sizeof sizes);
    return heed_nn_done(graph, node);
}
