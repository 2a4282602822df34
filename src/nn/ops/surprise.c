/* -log softmax(logits)[target] of each row; 0 where the target is below 0. */
#include "nn/graph.h"

enum { ROWS_A_PIECE = 16 };

static heed_status surprise_forward(const heed_work *work)
{
    const heed_nn_node *logits = heed_nn_in(work->graph, work->node, 0);
    const int64_t rows = heed_nn_rows(logits), classes = heed_nn_last(logits);
    const int32_t *target = work->in[1];
    float *lse = work->saved, *out = work->out;
    for (int64_t row = 0; row < rows; row++)
        if (target[row] >= classes)
            return heed_fail(HEED_INVALID, "surprise: target %d of row %lld is beyond the %lld classes",
                             target[row], (long long)row, (long long)classes);
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++) {
            const float *x = (const float *)work->in[0] + row * classes;
            lse[row] = target[row] < 0 ? 0.0f : work->kernels->softmax(x, NULL, classes);
            out[row] = target[row] < 0 ? 0.0f : lse[row] - x[target[row]];
        }
    }
    return HEED_OK;
}

static heed_status surprise_backward(const heed_work *work)
{
    const heed_nn_node *logits = heed_nn_in(work->graph, work->node, 0);
    const int64_t rows = heed_nn_rows(logits), classes = heed_nn_last(logits);
    const int32_t *target = work->in[1];
    const float *lse = work->saved;
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++) {
            const float *x = (const float *)work->in[0] + row * classes;
            float *dx = work->din[0] + row * classes;
            if (target[row] < 0) {
                for (int64_t c = 0; c < classes && !work->add[0]; c++)
                    dx[c] = 0.0f;
                continue;
            }
            work->kernels->cross_back(x, lse[row], 0.0f, work->dout[row], dx, work->add[0], classes);
            dx[target[row]] -= work->dout[row];
        }
    }
    return HEED_OK;
}

static const heed_op surprise_op = {.name = "surprise",
                                    .forward = surprise_forward,
                                    .backward = surprise_backward,
                                    .reads = 3,
                                    .flags = HEED_OP_IN_PLACE};

heed_variable heed_nn_surprise(heed_graph *graph, heed_variable logits, heed_variable targets)
{
    const heed_variable in[] = {logits, targets};
    heed_nn_node *node = heed_nn_make(graph, &surprise_op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *x = heed_nn_in(graph, node, 0), *t = heed_nn_in(graph, node, 1);
    if (t->type != HEED_I32 || x->rank < 1 || heed_nn_last(x) < 1 || t->count != heed_nn_rows(x))
        return heed_nn_fail(graph, HEED_INVALID, "surprise: logits %s need a whole number each row, not %s",
                            heed_nn_shape_text(x).text, heed_nn_shape_text(t).text);
    heed_nn_shape_of(node, x);
    node->rank--;
    node->saved_bytes = (size_t)heed_nn_rows(x) * sizeof(float);
    return heed_nn_done(graph, node);
}
