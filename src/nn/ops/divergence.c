/* How far a model is from its teacher: mean over rows of T^2 KL(softmax(teacher / T) || softmax(x / T)),
 * whose gradient keeps its size whatever T is. Hinton, Vinyals, Dean: Distilling the Knowledge in a Neural
 * Network, 2015. */
#include "nn/ops/targets.h"

#include <math.h>
#include <omp.h>

enum { ROWS_A_PIECE = 16 };

/* Probabilities of a row at temperature T, and the log of the sum of exponentials of what is divided by T. */
static float shares(const heed_work *work, const float *x, int64_t n, float *to)
{
    const float temperature = work->node->number[0];
    if (temperature == 1.0f)
        return work->kernels->softmax(x, to, n);
    work->kernels->scale(x, 1.0f / temperature, 0.0f, to, false, n);
    return work->kernels->softmax(to, to, n);
}

static float *rows_of_thread(const heed_work *work, int64_t classes)
{
    return (float *)work->scratch + 2 * classes * omp_get_thread_num();
}

static heed_status divergence_forward(const heed_work *work)
{
    const heed_nn_node *x = heed_nn_in(work->graph, work->node, 0);
    const int64_t rows = heed_nn_rows(x), classes = heed_nn_last(x);
    const int32_t *target = work->in[2];
    const float temperature = work->node->number[0];
    double *loss = work->saved, sum = 0.0;
    int64_t counted = 0;
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        float *p = rows_of_thread(work, classes), *unused = p + classes;
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++) {
            const float *mine = (const float *)work->in[0] + row * classes,
                        *theirs = (const float *)work->in[1] + row * classes;
            if (target[row] < 0)
                continue;
            /* sum p (log p - log q), with log p = t / T - lse of t, log q likewise */
            const float lse = shares(work, mine, classes, unused), other = shares(work, theirs, classes, p);
            const double ahead =
                (double)work->kernels->dot(p, theirs, classes) - (double)work->kernels->dot(p, mine, classes);
            loss[row] = ahead / (double)temperature + (double)lse - (double)other;
        }
    }
    for (int64_t row = 0; row < rows; row++) {
        sum += target[row] >= 0 ? loss[row] : 0.0;
        counted += target[row] >= 0;
    }
    *(float *)work->out = counted ? (float)(sum / (double)counted) * temperature * temperature : 0.0f;
    return HEED_OK;
}

static heed_status divergence_backward(const heed_work *work)
{
    const heed_nn_node *x = heed_nn_in(work->graph, work->node, 0);
    const int64_t rows = heed_nn_rows(x), classes = heed_nn_last(x);
    const int32_t *target = work->in[2];
    int64_t counted = 0;
    for (int64_t row = 0; row < rows; row++)
        counted += target[row] >= 0;
    const float scale = counted ? *work->dout * work->node->number[0] / (float)counted : 0.0f;
    HEED_NN_PIECES(work->threads, rows, from, ROWS_A_PIECE)
    {
        float *p = rows_of_thread(work, classes), *q = p + classes;
        for (int64_t row = from; row < rows && row < from + ROWS_A_PIECE; row++) {
            float *dx = work->din[0] + row * classes;
            if (target[row] < 0) {
                for (int64_t c = 0; c < classes && !work->add[0]; c++)
                    dx[c] = 0.0f;
                continue;
            }
            shares(work, (const float *)work->in[0] + row * classes, classes, q);
            shares(work, (const float *)work->in[1] + row * classes, classes, p);
            work->kernels->subtract(q, p, q, classes);
            work->kernels->scale(q, scale, 0.0f, dx, work->add[0], classes);
        }
    }
    return HEED_OK;
}

static const heed_op divergence_op = {.name = "divergence",
                                      .forward = divergence_forward,
                                      .backward = divergence_backward,
                                      .reads = 7,
                                      .flags = HEED_OP_IN_PLACE};

heed_variable heed_nn_divergence(heed_graph *graph, heed_variable x, heed_variable teacher,
                                 heed_variable targets, float temperature)
{
    const heed_variable in[] = {x, teacher, targets};
    heed_nn_node *node = heed_nn_make(graph, &divergence_op, 3, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *mine = heed_nn_in(graph, node, 0), *theirs = heed_nn_in(graph, node, 1),
                       *t = heed_nn_in(graph, node, 2);
    if (!heed_targets_fit(mine, t) || mine->count != theirs->count ||
        heed_nn_last(mine) != heed_nn_last(theirs))
        return heed_nn_fail(graph, HEED_INVALID,
                            "divergence: logits %s and a teacher's %s need to be alike, with a whole number "
                            "each row, not %s",
                            heed_nn_shape_text(mine).text, heed_nn_shape_text(theirs).text,
                            heed_nn_shape_text(t).text);
    if (theirs->wants)
        return heed_nn_fail(graph, HEED_INVALID, "divergence: the teacher would learn too; freeze it");
    if (!(temperature > 0.0f && temperature <= 1e4f))
        return heed_nn_fail(graph, HEED_INVALID, "divergence: a temperature of %g: above 0 is needed",
                            (double)temperature);
    node->rank = 0;
    node->number[0] = temperature;
    node->saved_bytes = (size_t)heed_nn_rows(mine) * sizeof(double);
    node->forward_scratch = node->backward_scratch =
        2 * (size_t)graph->threads * (size_t)heed_nn_last(mine) * sizeof(float);
    return heed_nn_done(graph, node);
}
