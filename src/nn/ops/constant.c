/* Numbers that stay what they are. */
#include "nn/graph.h"

#include <stdlib.h>
#include <string.h>

static heed_status constant_forward(const heed_work *work)
{
    memcpy(work->out, work->node->own, (size_t)work->node->count * sizeof(float));
    return HEED_OK;
}

static heed_status constant_backward(const heed_work *work)
{
    (void)work;
    return HEED_OK;
}

static void constant_free(heed_nn_node *node)
{
    free(node->own);
    node->own = NULL;
}

static const heed_op constant_op = {
    .name = "constant", .forward = constant_forward, .backward = constant_backward, .free = constant_free};

heed_variable heed_nn_constant(heed_graph *graph, int rank, const int64_t *shape, const float *values)
{
    int64_t count = 1;
    for (int d = 0; d < rank && d < HEED_MAX_RANK; d++)
        if (shape[d] < 1 || __builtin_mul_overflow(count, shape[d], &count))
            return heed_nn_fail(graph, HEED_INVALID, "constant: size %d is %lld", d, (long long)shape[d]);
    if (rank < 1 || rank > HEED_MAX_RANK || !values)
        return heed_nn_fail(graph, HEED_INVALID, "constant: rank %d, or no values", rank);
    void *own = calloc((size_t)count, sizeof(float));
    if (!own)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for a constant of %lld numbers",
                            (long long)count);
    memcpy(own, values, (size_t)count * sizeof(float));
    heed_nn_node *node = heed_nn_make(graph, &constant_op, 0, NULL);
    if (!node) {
        free(own);
        return HEED_NO_VARIABLE;
    }
    node->own = own;
    node->rank = rank;
    memcpy(node->shape, shape, (size_t)rank * sizeof *shape);
    return heed_nn_done(graph, node);
}
