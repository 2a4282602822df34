/* The largest entries of rows: one of them as a number, or all but k of them set to 0. */
#include "nn/graph.h"

#include <string.h>

static int64_t first_largest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static heed_status max_forward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(heed_nn_in(work->graph, work->node, 0));
    for (int64_t row = 0; row < work->node->count; row++) {
        const float *x = (const float *)work->in[0] + row * cols;
        ((float *)work->out)[row] = x[first_largest(x, cols)];
    }
    return HEED_OK;
}

static heed_status max_backward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(heed_nn_in(work->graph, work->node, 0));
    if (!work->add[0])
        memset(work->din[0], 0, (size_t)(work->node->count * cols) * sizeof(float));
    for (int64_t row = 0; row < work->node->count; row++) {
        const float *x = (const float *)work->in[0] + row * cols;
        work->din[0][row * cols + first_largest(x, cols)] += work->dout[row];
    }
    return HEED_OK;
}

/* Whether entry i is among the k largest: fewer than k are larger, or equal and earlier. */
static bool is_kept(const float *x, int64_t n, int64_t k, int64_t i)
{
    int64_t before = 0;
    for (int64_t j = 0; j < n; j++)
        before += x[j] > x[i] || (x[j] == x[i] && j < i);
    return before < k;
}

static heed_status largest_forward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(work->node), k = work->node->whole[0], n = work->node->count;
    for (int64_t at = 0; at < n; at++) {
        const float *x = (const float *)work->in[0] + at / cols * cols;
        ((float *)work->out)[at] = is_kept(x, cols, k, at % cols) ? x[at % cols] : 0.0f;
    }
    return HEED_OK;
}

static heed_status largest_backward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(work->node), k = work->node->whole[0], n = work->node->count;
    for (int64_t at = 0; at < n; at++) {
        const float *x = (const float *)work->in[0] + at / cols * cols;
        const float d = is_kept(x, cols, k, at % cols) ? work->dout[at] : 0.0f;
        work->din[0][at] = work->add[0] ? work->din[0][at] + d : d;
    }
    return HEED_OK;
}

static const heed_op max_op = {.name = "max", .forward = max_forward, .backward = max_backward, .reads = 1};
static const heed_op largest_op = {
    .name = "largest", .forward = largest_forward, .backward = largest_backward, .reads = 1};

static heed_nn_node *make(heed_graph *graph, const heed_op *op, heed_variable x)
{
    heed_nn_node *node = heed_nn_make(graph, op, 1, &x);
    if (!node)
        return NULL;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    if (from->rank < 1 || heed_nn_last(from) < 1) {
        heed_nn_fail(graph, HEED_INVALID, "%s: %s has no rows", op->name, heed_nn_shape_text(from).text);
        return NULL;
    }
    heed_nn_shape_of(node, from);
    return node;
}

heed_variable heed_nn_max(heed_graph *graph, heed_variable x)
{
    heed_nn_node *node = make(graph, &max_op, x);
    if (!node)
        return HEED_NO_VARIABLE;
    node->rank--;
    return heed_nn_done(graph, node);
}

heed_variable heed_nn_largest(heed_graph *graph, heed_variable x, int64_t k)
{
    heed_nn_node *node = make(graph, &largest_op, x);
    if (!node)
        return HEED_NO_VARIABLE;
    if (k < 1 || k > heed_nn_last(node))
        return heed_nn_fail(graph, HEED_INVALID, "largest: %lld of %lld", (long long)k,
                            (long long)heed_nn_last(node));
    node->whole[0] = k;
    return heed_nn_done(graph, node);
}
