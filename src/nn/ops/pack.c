/* Tokens that are selected, packed into containers: first fit, text by text, so that the tokens of a text lie
 * in one container. */
#include "nn/graph.h"

#include <string.h>

/* place[c][s] of gates [texts][n] above 0: the token's number among all; or, as segments, its text. Where
 * nothing lies: -1, or a segment that no other slot has. */
static void pack(const float *gate, int64_t texts, int64_t n, bool segments, int32_t *place, int32_t *used)
{
    for (int64_t i = 0; i < texts * n; i++)
        place[i] = segments ? (int32_t)(texts + i) : -1;
    memset(used, 0, (size_t)texts * sizeof *used);
    for (int64_t b = 0; b < texts; b++) {
        int64_t count = 0, c = 0;
        for (int64_t i = 0; i < n; i++)
            count += gate[b * n + i] > 0.0f;
        while (count && used[c] + count > n)
            c++;
        for (int64_t i = 0; i < n; i++)
            if (gate[b * n + i] > 0.0f)
                place[c * n + used[c]++] = (int32_t)(segments ? b : b * n + i);
    }
}

static heed_status pack_forward(const heed_work *work)
{
    const heed_nn_node *gate = heed_nn_in(work->graph, work->node, 0);
    pack(work->in[0], gate->shape[0], gate->shape[1], work->node->whole[0] != 0, work->out, work->scratch);
    return HEED_OK;
}

static const heed_op pack_op = {.name = "pack", .forward = pack_forward};

heed_variable heed_nn_pack(heed_graph *graph, heed_variable gate, bool segments)
{
    heed_nn_node *node = heed_nn_make(graph, &pack_op, 1, &gate);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    if (from->rank != 2 || from->type != HEED_F32 || from->count > INT32_MAX / 2)
        return heed_nn_fail(graph, HEED_INVALID, "pack: gates %s are not [texts, n]",
                            heed_nn_shape_text(from).text);
    heed_nn_shape_of(node, from);
    node->type = HEED_I32;
    node->whole[0] = segments;
    node->forward_scratch = (size_t)from->shape[0] * sizeof(int32_t);
    return heed_nn_constant_done(graph, node);
}
