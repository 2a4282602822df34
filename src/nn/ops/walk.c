/* Walks from the root of a binary tree to a leaf, for each query. Nodes are numbered as in a heap: 1 the
 * root, 2i and 2i + 1 the children of i.
 *
 *     p(child) = mean over heads of the softmax over both children of q_h·k_child,h
 *
 * At each branching the result has the child that is taken and then its sibling. The choice is by `noise`, a
 * number from -1 to 1 a branching, and where all are 0 the likelier child. */
#include "nn/graph.h"

#include <math.h>

enum { QUERIES, NODES, DIM, HEADS, DEPTH };

/* Of the left child. */
static float chance(const heed_work *work, const float *q, const float *left)
{
    const int64_t *w = work->node->whole, d = w[DIM] / w[HEADS];
    float sum = 0.0f;
    for (int64_t h = 0; h < w[HEADS]; h++) {
        const float a = work->kernels->dot(q + h * d, left + h * d, d),
                    b = work->kernels->dot(q + h * d, left + w[DIM] + h * d, d);
        sum += 1.0f / (1.0f + expf(b - a));
    }
    return sum / (float)w[HEADS];
}

static heed_status walk_forward(const heed_work *work)
{
    const int64_t *w = work->node->whole, batch = work->node->shape[0];
    HEED_NN_PIECES(work->threads, batch, b, 1)
    {
        const float *k = (const float *)work->in[1] + b * w[NODES] * w[DIM];
        for (int64_t i = b * w[QUERIES]; i < (b + 1) * w[QUERIES]; i++) {
            const float *q = (const float *)work->in[0] + i * w[DIM],
                        *noise = (const float *)work->in[2] + i * w[DEPTH];
            int32_t *out = (int32_t *)work->out + i * 2 * w[DEPTH], at = 1;
            for (int64_t step = 0; step < w[DEPTH]; step++) {
                const float p = chance(work, q, k + 2 * at * w[DIM]);
                const int32_t right = p < 0.5f * noise[step] + 0.5f;
                out[2 * step] = 2 * at + right;
                out[2 * step + 1] = 2 * at + 1 - right;
                at = 2 * at + right;
            }
        }
    }
    return HEED_OK;
}

static const heed_op walk_op = {.name = "walk", .forward = walk_forward};

heed_variable heed_nn_walk(heed_graph *graph, heed_variable q, heed_variable k, heed_variable noise,
                           int64_t heads)
{
    const heed_variable in[] = {q, k, noise};
    heed_nn_node *node = heed_nn_make(graph, &walk_op, 3, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *x[3];
    bool fits = true;
    for (int i = 0; i < 3; i++) {
        x[i] = heed_nn_in(graph, node, i);
        fits = fits && x[i]->rank == 3 && x[i]->shape[0] == x[0]->shape[0];
    }
    fits = fits && x[1]->shape[2] == x[0]->shape[2] && x[2]->shape[1] == x[0]->shape[1] && heads > 0 &&
           x[0]->shape[2] % heads == 0 && x[2]->shape[2] < 31 &&
           x[1]->shape[1] == (int64_t)2 << x[2]->shape[2];
    if (!fits)
        return heed_nn_fail(graph, HEED_INVALID, "walk: q %s, nodes %s and noise %s do not go together",
                            heed_nn_shape_text(x[0]).text, heed_nn_shape_text(x[1]).text,
                            heed_nn_shape_text(x[2]).text);
    heed_nn_shape_of(node, x[0]);
    node->type = HEED_I32;
    node->shape[2] = 2 * x[2]->shape[2];
    node->whole[QUERIES] = x[0]->shape[1];
    node->whole[NODES] = x[1]->shape[1];
    node->whole[DIM] = x[0]->shape[2];
    node->whole[HEADS] = heads;
    node->whole[DEPTH] = x[2]->shape[2];
    return heed_nn_constant_done(graph, node);
}

static heed_status set_forward(const heed_work *work)
{
    const int64_t size = heed_nn_last(work->node), rows = heed_nn_rows(work->node);
    for (int64_t i = 0; i < rows; i++) {
        const int32_t *walk = (const int32_t *)work->in[0] + i * 2 * (size - 1);
        int32_t *out = (int32_t *)work->out + i * size;
        for (int64_t step = 0; step < size - 1; step++)
            out[step] = walk[2 * step + 1];
        out[size - 1] = walk[2 * (size - 2)];
    }
    return HEED_OK;
}

static const heed_op set_op = {.name = "walk_set", .forward = set_forward};

heed_variable heed_nn_walk_set(heed_graph *graph, heed_variable walk)
{
    heed_nn_node *node = heed_nn_make(graph, &set_op, 1, &walk);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    if (from->type != HEED_I32 || from->rank != 3 || from->shape[2] < 2 || from->shape[2] % 2)
        return heed_nn_fail(graph, HEED_INVALID, "walk_set: %s is no walk", heed_nn_shape_text(from).text);
    heed_nn_shape_of(node, from);
    node->type = HEED_I32;
    node->shape[2] = from->shape[2] / 2 + 1;
    return heed_nn_constant_done(graph, node);
}
