/* Softmax and cross-entropy: mean over rows of lse - (1 - smoothing) x[target] - smoothing / classes sum(x).
 */
#include "base/try.h"
#include "nn/ops/targets.h"

#include <math.h>

enum { ROWS_A_PIECE = 16 };

static heed_status cross_forward(const heed_work *work)
{
    const heed_nn_node *logits = heed_nn_in(work->graph, work->node, 0);
    const int64_t rows = heed_nn_rows(logits), classes = heed_nn_last(logits);
    const int32_t *target = work->in[1];
    const float smoothing = work->node->number[0];
    float *lse = work->saved, *loss = lse + rows;
    int64_t counted = 0;
    double sum = 0.0;
    TRY(heed_targets_check(work, "cross entropy"));
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++) {
            if (target[row] < 0)
                continue;
            const float *x = (const float *)work->in[0] + row * classes;
            lse[row] = work->kernels->softmax(x, NULL, classes);
            loss[row] = lse[row] - x[target[row]];
            if (smoothing > 0.0f)
                loss[row] += smoothing * (x[target[row]] - work->kernels->sum(x, classes) / (float)classes);
        }
    }
    for (int64_t row = 0; row < rows; row++) {
        counted += target[row] >= 0;
        sum += target[row] >= 0 ? (double)loss[row] : 0.0;
    }
    *(float *)work->out = counted ? (float)(sum / (double)counted) : 0.0f;
    return HEED_OK;
}

static heed_status cross_backward(const heed_work *work)
{
    const heed_nn_node *logits = heed_nn_in(work->graph, work->node, 0);
    const int64_t rows = heed_nn_rows(logits);
    const int32_t *target = work->in[1];
    const float smoothing = work->node->number[0], *lse = work->saved;
    int64_t counted = 0;
    for (int64_t row = 0; row < rows; row++)
        counted += target[row] >= 0;
    const float scale = counted ? *work->dout / (float)counted : 0.0f;
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++)
            heed_target_back(work, row, lse[row], smoothing, scale);
    }
    return HEED_OK;
}

static const heed_op cross_op = {.name = "cross_entropy",
                                 .forward = cross_forward,
                                 .backward = cross_backward,
                                 .reads = 3,
                                 .flags = HEED_OP_IN_PLACE};

heed_variable heed_nn_cross_entropy(heed_graph *graph, heed_variable logits, heed_variable targets,
                                    float smoothing)
{
    const heed_variable in[] = {logits, targets};
    heed_nn_node *node = heed_nn_make(graph, &cross_op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *x = heed_nn_in(graph, node, 0), *t = heed_nn_in(graph, node, 1);
    if (!heed_targets_fit(x, t))
        return heed_nn_fail(graph, HEED_INVALID,
                            "cross entropy: logits %s need a whole number each row, not %s",
                            heed_nn_shape_text(x).text, heed_nn_shape_text(t).text);
    if (!(smoothing >= 0.0f && smoothing < 1.0f))
        return heed_nn_fail(graph, HEED_INVALID,
                            "cross entropy: smoothing %g: 0 or more, and below 1, is needed",
                            (double)smoothing);
    node->rank = 0;
    node->number[0] = smoothing;
    node->saved_bytes = 2 * (size_t)heed_nn_rows(x) * sizeof(float);
    return heed_nn_done(graph, node);
}

static heed_status softmax_forward(const heed_work *work)
{
    const int64_t rows = heed_nn_rows(work->node), cols = heed_nn_last(work->node);
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++)
            work->kernels->softmax((const float *)work->in[0] + row * cols, (float *)work->out + row * cols,
                                   cols);
    }
    return HEED_OK;
}

static heed_status softmax_backward(const heed_work *work)
{
    const int64_t rows = heed_nn_rows(work->node), cols = heed_nn_last(work->node);
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++)
            work->kernels->softmax_back((const float *)work->out + row * cols, work->dout + row * cols,
                                        work->din[0] + row * cols, work->add[0], cols);
    }
    return HEED_OK;
}

static const heed_op softmax_op = {.name = "softmax",
                                   .forward = softmax_forward,
                                   .backward = softmax_backward,
                                   .flags = HEED_OP_READS_OUTPUT};

heed_variable heed_nn_softmax(heed_graph *graph, heed_variable x)
{
    heed_nn_node *node = heed_nn_make(graph, &softmax_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    heed_nn_shape_of(node, heed_nn_at(graph, x));
    return heed_nn_done(graph, node);
}
