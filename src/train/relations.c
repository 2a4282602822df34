/* Relations of tokens among queries, among keys and among values, as a teacher's. Wang et al.: MiniLMv2:
 * Multi-Head Self-Attention Relation Distillation, 2021. */
#include "nn/graph.h"
#include "train/losses.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_HEADS = 12 };

/* Later tokens, whose probability becomes 0 in float. */
static const float far_below = -1e4f;

static bool divides_all(const heed_graph *graph, const heed_variable *x, int64_t heads)
{
    bool all = true;
    for (int i = 0; i < 6; i++)
        all &= heed_graph_size(graph, x[i], -1) % heads == 0;
    return all;
}

static heed_variable mask(heed_graph *graph, int64_t n)
{
    const int64_t shape[] = {n, n};
    float *values = calloc((size_t)(n * n), sizeof *values);
    if (!values)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for relations of %lld tokens", (long long)n);
    for (int64_t i = 0; i < n * n; i++)
        values[i] = i % n > i / n ? far_below : 0.0f;
    const heed_variable made = heed_nn_constant(graph, 2, shape, values);
    free(values);
    return made;
}

/* x x^T / sqrt(d) of one head, [batch, n, n]. */
static heed_variable relation(heed_graph *graph, heed_variable x, int64_t head, int64_t heads,
                              heed_variable later)
{
    const int64_t dim = heed_graph_size(graph, x, -1) / heads;
    const heed_variable part = heed_nn_slice(graph, x, 2, head * dim, dim);
    return heed_nn_add(
        graph, heed_nn_scale(graph, heed_nn_product(graph, part, part, true), 1.0f / sqrtf((float)dim), 0.0f),
        later);
}

heed_variable heed_relation_loss(heed_graph *graph, const heed_variable mine[3],
                                 const heed_variable theirs[3], heed_variable targets, int64_t heads)
{
    const heed_variable all[] = {mine[0], mine[1], mine[2], theirs[0], theirs[1], theirs[2]};
    for (int i = 0; i < 6; i++)
        if (all[i] < 0)
            return heed_nn_fail(
                graph, HEED_UNSUPPORTED,
                "relation_share: the last layer of the %s has no queries, keys and values of its own",
                i < 3 ? "model" : "teacher");
    const int64_t given = heads;
    for (heads = heads ? heads : MOST_HEADS; !given && !divides_all(graph, all, heads);)
        heads--;
    if (!divides_all(graph, all, heads))
        return heed_nn_fail(
            graph, HEED_INVALID,
            "relation_heads = %lld does not divide the widths of queries, keys and values of both models",
            (long long)heads);
    const heed_variable later = mask(graph, heed_graph_size(graph, mine[0], 1));
    heed_variable sum = HEED_NO_INPUT;
    for (int i = 0; i < 3; i++)
        for (int64_t h = 0; h < heads; h++) {
            const heed_variable one =
                heed_nn_divergence(graph, relation(graph, mine[i], h, heads, later),
                                   relation(graph, theirs[i], h, heads, later), targets, 1.0f);
            sum = sum == HEED_NO_INPUT ? one : heed_nn_add(graph, sum, one);
        }
    return heed_nn_scale(graph, sum, 1.0f / (float)(3 * heads), 0.0f);
}
