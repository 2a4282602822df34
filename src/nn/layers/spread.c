/* Numbers repeated over places, and grids made larger. */
#include "base/philox.h"
#include "nn/graph.h"
#include "nn/layers.h"

#include <stdlib.h>

static heed_variable filled(const heed_layer_call *call, int rank, const int64_t *shape, float value)
{
    int64_t count = 1;
    for (int d = 0; d < rank; d++)
        count *= shape[d];
    float *values = count > 0 ? malloc((size_t)count * sizeof *values) : NULL;
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for %lld numbers of a layer",
                            (long long)count);
    for (int64_t i = 0; i < count; i++)
        values[i] = value;
    const heed_variable made = heed_nn_constant(call->graph, rank, shape, values);
    free(values);
    return made;
}

heed_variable heed_part_spread(const heed_layer_call *call, heed_variable x, int64_t n)
{
    const int64_t shape[] = {heed_graph_size(call->graph, x, 0), n, 1};
    return heed_nn_product(call->graph, filled(call, 3, shape, 1.0f), x, false);
}

heed_variable heed_part_over_keys(const heed_layer_call *call, heed_variable m, int64_t heads, int64_t n)
{
    heed_graph *graph = call->graph;
    const int64_t batch = heed_graph_size(graph, m, 0), keys = heed_graph_size(graph, m, 1),
                  row[] = {batch, 1, keys}, all[] = {batch, heads, n, keys};
    return heed_nn_reshape(graph, heed_part_spread(call, heed_nn_reshape(graph, m, 3, row), heads * n), 4,
                           all);
}

heed_variable heed_part_enlarge(const heed_layer_call *call, heed_variable x, int64_t frames, int64_t rows,
                                int64_t cols, int64_t times)
{
    heed_graph *graph = call->graph;
    const int64_t from = rows * cols, to = from * times * times, shape[] = {from, to},
                  batch = heed_graph_size(graph, x, 0), c = heed_graph_size(graph, x, 2);
    if (times == 1)
        return x;
    float *values = calloc((size_t)(from * to), sizeof *values);
    if (!values)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for a grid of %lld cells", (long long)to);
    for (int64_t cell = 0; cell < to; cell++) {
        const int64_t row = cell / (cols * times) / times, col = cell % (cols * times) / times;
        values[(row * cols + col) * to + cell] = 1.0f;
    }
    const heed_variable which = heed_nn_constant(graph, 2, shape, values);
    free(values);
    const int64_t apart[] = {batch * frames, from, c}, together[] = {batch, frames * to, c};
    const heed_variable wide = heed_nn_product(
        graph, heed_nn_transpose(graph, heed_nn_reshape(graph, x, 3, apart), (int[]){0, 2, 1}), which, false);
    return heed_nn_reshape(graph, heed_nn_transpose(graph, wide, (int[]){0, 2, 1}), 3, together);
}

heed_variable heed_part_chances(const heed_layer_call *call, int64_t batch, int64_t n)
{
    const int64_t shape[] = {batch, n};
    float *values = malloc((size_t)(batch * n) * sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for %lld numbers by chance",
                            (long long)(batch * n));
    for (int64_t i = 0; i < batch * n; i++) {
        uint32_t bits[4];
        heed_philox_at(16, (uint64_t)call->layer, (uint64_t)i, bits);
        values[i] = (float)(bits[0] >> 8) * 0x1p-24f;
    }
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}
