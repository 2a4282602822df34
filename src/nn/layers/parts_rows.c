/* Parts of layers that keep some of their rows: rows turned by their places, the best of them in order. */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

#define FAR 1048576.0f /* above all places of a text */

/* x P turns each pair of entries by a quarter: P [d, d] has -1 where it takes entry c + d/2 for entry c. */
static heed_variable quarter(const heed_layer_call *call, int64_t d)
{
    const int64_t shape[] = {d, d};
    float *values = calloc((size_t)(d * d), sizeof *values);
    if (!values)
        return HEED_NO_VARIABLE;
    for (int64_t c = 0; c < d / 2; c++) {
        values[(c + d / 2) * d + c] = -1;
        values[c * d + c + d / 2] = 1;
    }
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}

heed_variable heed_part_rope(const heed_layer_call *call, heed_variable x)
{
    heed_graph *graph = call->graph;
    const int64_t n = heed_graph_size(graph, x, 2), d = heed_graph_size(graph, x, 3), shape[] = {n, d};
    float *values = calloc((size_t)(2 * n * d), sizeof *values);
    if (d % 2 || n < 1 || !values) {
        free(values);
        return heed_nn_fail(graph, HEED_INVALID, "rope turns pairs: heads of %lld entries are odd",
                            (long long)d);
    }
    for (int64_t i = 0; i < n * d; i++) {
        const double angle = (double)(i / d) * pow(10000.0, -2.0 * (double)(i % d % (d / 2)) / (double)d);
        values[i] = (float)cos(angle);
        values[n * d + i] = (float)sin(angle);
    }
    const heed_variable cosine = heed_nn_constant(graph, 2, shape, values),
                        sine = heed_nn_constant(graph, 2, shape, values + n * d);
    free(values);
    return heed_nn_add(graph, heed_nn_multiply(graph, x, cosine),
                       heed_nn_multiply(graph, heed_nn_product(graph, x, quarter(call, d), false), sine));
}

heed_variable heed_part_filled(const heed_layer_call *call, int rank, const int64_t *shape, float first,
                               float step)
{
    int64_t count = 1;
    for (int d = 0; d < rank; d++)
        count *= shape[d];
    float *values = calloc((size_t)count, sizeof *values);
    if (!values)
        return HEED_NO_VARIABLE;
    for (int64_t i = 0; i < count; i++)
        values[i] = first + step * (float)i;
    const heed_variable made = heed_nn_constant(call->graph, rank, shape, values);
    free(values);
    return made;
}

heed_variable heed_part_column(const heed_layer_call *call, heed_variable x)
{
    int64_t shape[HEED_MAX_RANK] = {0};
    const int rank = heed_graph_rank(call->graph, x);
    for (int d = 0; d < rank; d++)
        shape[d] = heed_graph_size(call->graph, x, d);
    shape[rank < HEED_MAX_RANK ? rank : 0] = 1;
    return heed_nn_reshape(call->graph, x, rank + 1, shape);
}

void heed_part_best(const heed_layer_call *call, heed_variable score, int64_t count, heed_variable *best,
                    heed_variable *rest)
{
    heed_graph *graph = call->graph;
    const int64_t n = heed_graph_size(graph, score, 2),
                  shape[] = {heed_graph_size(graph, score, 0), heed_graph_size(graph, score, 1), n};
    const int64_t ones[] = {shape[0], shape[1], count, 1};
    const heed_variable chosen =
        heed_nn_give(graph, heed_part_filled(call, 4, ones, 1, 0), heed_nn_order(graph, score, count), n);
    const heed_variable flag = heed_nn_scale(graph, heed_nn_reshape(graph, chosen, 3, shape), FAR, 0);
    const heed_variable early = heed_part_filled(call, 1, &n, 0, -1);
    *best = heed_nn_order(graph, heed_nn_add(graph, flag, early), count);
    if (rest)
        *rest = heed_nn_order(graph, heed_nn_add(graph, heed_nn_scale(graph, flag, -1, 0), early), n - count);
}
