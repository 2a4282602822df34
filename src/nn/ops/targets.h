/* Losses of logits [..., classes] against a whole number each row, below 0 where the row does not count. */
#ifndef HEED_NN_TARGETS_H
#define HEED_NN_TARGETS_H

#include "nn/graph.h"

/* in[1] against the classes of in[0]. */
static inline heed_status heed_targets_check(const heed_work *work, const char *what)
{
    const heed_nn_node *logits = heed_nn_in(work->graph, work->node, 0);
    const int64_t rows = heed_nn_rows(logits), classes = heed_nn_last(logits);
    const int32_t *target = work->in[1];
    for (int64_t row = 0; row < rows; row++)
        if (target[row] >= classes)
            return heed_fail(HEED_INVALID, "%s: target %d of row %lld is beyond the %lld classes", what,
                             target[row], (long long)row, (long long)classes);
    return HEED_OK;
}

/* Whether the two inputs of a node are such. */
static inline bool heed_targets_fit(const heed_nn_node *logits, const heed_nn_node *targets)
{
    return targets->type == HEED_I32 && logits->rank >= 1 && heed_nn_last(logits) >= 1 &&
           targets->count == heed_nn_rows(logits);
}

/* The way back of scale (lse - (1 - smoothing) x[target] - smoothing / classes sum(x)) for one row. */
static inline void heed_target_back(const heed_work *work, int64_t row, float lse, float smoothing,
                                    float scale)
{
    const int64_t classes = heed_nn_last(heed_nn_in(work->graph, work->node, 0));
    const int32_t target = ((const int32_t *)work->in[1])[row];
    const float *x = (const float *)work->in[0] + row * classes;
    float *dx = work->din[0] + row * classes;
    if (target < 0) {
        for (int64_t c = 0; c < classes && !work->add[0]; c++)
            dx[c] = 0.0f;
        return;
    }
    work->kernels->cross_back(x, lse, smoothing / (float)classes, scale, dx, work->add[0], classes);
    dx[target] -= scale * (1.0f - smoothing);
}

#endif
