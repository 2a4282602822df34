/* -log softmax(logits)[target] of each row; 0 where the target is below 0. */
#include "base/try.h"
#include "nn/ops/targets.h"

enum { ROWS_A_PIECE = 16 };

static heed_status surprise_forward(const heed_work *work)
{
    const heed_nn_node *logits = heed_nn_in(work->graph, work->node, 0);
    const int64_t rows = heed_nn_rows(logits), classes = heed_nn_last(logits);
    const int32_t *target = work->in[1];
    float *lse = work->saved, *out = work->out;
    TRY(heed_targets_check(work, "surprise"));
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
    const int64_t rows = heed_nn_rows(logits);
    const float *lse = work->saved;
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++)
            heed_target_back(work, row, lse[row], 0.0f, work->dout[row]);
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
    if (!heed_targets_fit(x, t))
        return heed_nn_fail(graph, HEED_INVALID, "surprise: logits %s need a whole number each row, not %s",
                            heed_nn_shape_text(x).text, heed_nn_shape_text(t).text);
    heed_nn_shape_of(node, x);
    node->rank--;
    node->saved_bytes = (size_t)heed_nn_rows(x) * sizeof(float);
    return heed_nn_done(graph, node);
}
