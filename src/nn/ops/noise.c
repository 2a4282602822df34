/* Random numbers that training adds to scores, so that choices are tried out; 0 when a model is judged. */
#include "nn/graph.h"

#include "base/philox.h"

#include <math.h>

static float draw(heed_noise kind, uint32_t bits)
{
    const float u = ((float)(bits >> 8) + 0.5f) * 0x1p-24f; /* never 0 or 1 */
    switch (kind) {
    case HEED_NOISE_GUMBEL:
        return -logf(-logf(u));
    case HEED_NOISE_LOGISTIC:
        return logf(u) - log1pf(-u);
    default:
        return 2.0f * u - 1.0f;
    }
}

static heed_status noise_forward(const heed_work *work)
{
    const int64_t n = work->node->count;
    const heed_noise kind = (heed_noise)work->node->whole[0];
    const uint64_t seed = heed_parameters_seed(work->graph->parameters),
                   stream = work->graph->step_number << 16 | (uint64_t)(work->node - work->graph->node);
    float *out = work->out;
    HEED_NN_PIECES(work->threads, n, at, HEED_NN_PIECE)
    {
        for (int64_t i = at; i < n && i < at + HEED_NN_PIECE; i += 4) {
            uint32_t bits[4];
            heed_philox_at(seed, stream, (uint64_t)i / 4, bits);
            for (int64_t j = i; j < n && j < i + 4; j++)
                out[j] = work->graph->training ? draw(kind, bits[j - i]) : 0.0f;
        }
    }
    return HEED_OK;
}

static const heed_op noise_op = {.name = "noise", .forward = noise_forward};

heed_variable heed_nn_noise(heed_graph *graph, heed_noise kind, int rank, const int64_t *shape)
{
    heed_nn_node *node = heed_nn_make(graph, &noise_op, 0, NULL);
    if (!node)
        return HEED_NO_VARIABLE;
    if (rank < 1 || rank > HEED_MAX_RANK)
        return heed_nn_fail(graph, HEED_INVALID, "noise: 1 to %d dimensions are possible", HEED_MAX_RANK);
    node->rank = rank;
    for (int d = 0; d < rank; d++)
        node->shape[d] = shape[d];
    node->whole[0] = kind;
    return heed_nn_constant_done(graph, node);
}
