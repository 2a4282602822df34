/* Damped moving averages of every channel, several at their own pace, added up:
 *
 *     h_t = write x_t + keep h_{t-1},   y_t = read·h_t,      keep, write, read [channels][paces]
 */
#include "nn/graph.h"

#include <omp.h>
#include <string.h>

enum { BATCH, TOKENS, CHANNELS, PACES };

static heed_status average_forward(const heed_work *work)
{
    const int64_t *w = work->node->whole, c = w[CHANNELS], h = w[PACES];
    const float *x = work->in[0], *keep = work->in[1], *write = work->in[2], *read = work->in[3];
    float *y = work->out;
    memset(y, 0, (size_t)work->node->count * sizeof *y);
    HEED_NN_PIECES(work->threads, c, channel, 1)
    {
        for (int64_t b = 0; b < w[BATCH]; b++)
            for (int64_t p = channel * h; p < (channel + 1) * h; p++) {
                float state = 0;
                for (int64_t t = 0; t < w[TOKENS]; t++) {
                    const int64_t at = (b * w[TOKENS] + t) * c + channel;
                    state = write[p] * x[at] + keep[p] * state;
                    y[at] += read[p] * state;
                }
            }
    }
    return HEED_OK;
}

/* One channel: all its texts in order, so that sums do not depend on threads. `state` [tokens]. */
static void back_channel(const heed_work *work, int64_t channel, float *state)
{
    const int64_t *w = work->node->whole, c = w[CHANNELS], h = w[PACES], n = w[TOKENS];
    const float *x = work->in[0], *keep = work->in[1], *write = work->in[2], *read = work->in[3];
    for (int i = 0; i < 4; i++)
        if (i && work->din[i] && !work->add[i])
            memset(work->din[i] + channel * h, 0, (size_t)h * sizeof(float));
    for (int64_t b = 0; b < w[BATCH]; b++)
        for (int64_t p = channel * h; p < (channel + 1) * h; p++) {
            float dstate = 0, sum[3] = {0};
            for (int64_t t = 0; t < n; t++)
                state[t] = write[p] * x[(b * n + t) * c + channel] + (t ? keep[p] * state[t - 1] : 0);
            for (int64_t t = n - 1; t >= 0; t--) {
                const int64_t at = (b * n + t) * c + channel;
                const bool first = p == channel * h;
                sum[2] += work->dout[at] * state[t];
                dstate = read[p] * work->dout[at] + keep[p] * dstate;
                sum[1] += dstate * x[at];
                sum[0] += t ? dstate * state[t - 1] : 0;
                if (work->din[0])
                    work->din[0][at] = (first && !work->add[0] ? 0 : work->din[0][at]) + dstate * write[p];
            }
            for (int i = 0; i < 3; i++)
                if (work->din[i + 1])
                    work->din[i + 1][p] += sum[i];
        }
}

static heed_status average_backward(const heed_work *work)
{
    float *states = work->scratch;
    HEED_NN_PIECES(work->threads, work->node->whole[CHANNELS], channel, 1)
    {
        back_channel(work, channel, states + omp_get_thread_num() * work->node->whole[TOKENS]);
    }
    return HEED_OK;
}

static const heed_op average_op = {
    .name = "moving average", .forward = average_forward, .backward = average_backward, .reads = 15};

heed_variable heed_nn_moving_average(heed_graph *graph, heed_variable x, heed_variable keep,
                                     heed_variable write, heed_variable read)
{
    const heed_variable in[] = {x, keep, write, read};
    heed_nn_node *node = heed_nn_make(graph, &average_op, 4, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *a = heed_nn_in(graph, node, 0), *k = heed_nn_in(graph, node, 1);
    bool fits = a->rank == 3 && k->rank == 2 && k->shape[0] == a->shape[2];
    for (int i = 2; fits && i < 4; i++)
        fits = heed_nn_in(graph, node, i)->rank == 2 &&
               !memcmp(heed_nn_in(graph, node, i)->shape, k->shape, 2 * sizeof *k->shape);
    if (!fits)
        return heed_nn_fail(graph, HEED_INVALID, "moving average: %s does not fit paces %s",
                            heed_nn_shape_text(a).text, heed_nn_shape_text(k).text);
    heed_nn_shape_of(node, a);
    const int64_t sizes[] = {a->shape[0], a->shape[1], a->shape[2], k->shape[1]};
    memcpy(node->whole, sizes, sizeof sizes);
    node->backward_scratch = (size_t)graph->threads * (size_t)a->shape[1] * sizeof(float);
    return heed_nn_done(graph, node);
}
