/* Matrix products: linear maps and products of two tensors. */
#include "nn/gemm.h"
#include "nn/graph.h"

#include <string.h>

enum { M, N, K, BATCH, SHARED }; /* of whole[]; SHARED: b is one matrix for the whole batch */

static int64_t batch_step(const heed_nn_node *node, int64_t size)
{
    return node->whole[SHARED] ? 0 : size;
}

/* y = x W^T + bias, or a b; the batch of a shared b counts as rows. */
static heed_status product_forward(const heed_work *work)
{
    const heed_nn_node *node = work->node;
    const int64_t m = node->whole[M], n = node->whole[N], k = node->whole[K];
    const bool transposed = node->number[0] != 0.0f, bias = node->ins == 3;
    for (int64_t b = 0; b < node->whole[BATCH]; b++) {
        float *c = (float *)work->out + b * m * n;
        if (bias)
            HEED_NN_PIECES(work->threads, m, row, 64)
            {
                for (int64_t i = row; i < m && i < row + 64; i++)
                    memcpy(c + i * n, work->in[2], (size_t)n * sizeof *c);
            }
        heed_gemm_run(work->kernels, work->threads,
                      &(heed_gemm){.m = m,
                                   .n = n,
                                   .k = k,
                                   .a = (const float *)work->in[0] + b * m * k,
                                   .lda = k,
                                   .b = (const float *)work->in[1] + b * batch_step(node, n * k),
                                   .ldb = transposed ? k : n,
                                   .transposed_b = transposed,
                                   .c = c,
                                   .ldc = n,
                                   .add = bias,
                                   .bf16 = work->graph->bf16});
    }
    return HEED_OK;
}

static void bias_rows(const heed_work *work, int64_t row0, int64_t row1, float *partial)
{
    const int64_t n = work->node->whole[N];
    for (int64_t row = row0; row < row1; row++)
        work->kernels->add(partial, work->dout + row * n, partial, n);
}

static void back_a(const heed_work *work, int64_t b)
{
    const heed_nn_node *node = work->node;
    const int64_t m = node->whole[M], n = node->whole[N], k = node->whole[K];
    const bool transposed = node->number[0] != 0.0f;
    heed_gemm_run(work->kernels, work->threads,
                  &(heed_gemm){.m = m,
                               .n = k,
                               .k = n,
                               .a = work->dout + b * m * n,
                               .lda = n,
                               .b = (const float *)work->in[1] + b * batch_step(node, n * k),
                               .ldb = transposed ? k : n,
                               .transposed_b = !transposed,
                               .c = work->din[0] + b * m * k,
                               .ldc = k,
                               .add = work->add[0],
                               .bf16 = work->graph->bf16});
}

/* dW = dy^T x, or db = a^T dy */
static void back_b(const heed_work *work, int64_t b)
{
    const heed_nn_node *node = work->node;
    const int64_t m = node->whole[M], n = node->whole[N], k = node->whole[K];
    const bool transposed = node->number[0] != 0.0f;
    const float *a = (const float *)work->in[0] + b * m * k, *dy = work->dout + b * m * n;
    heed_gemm_run(work->kernels, work->threads,
                  &(heed_gemm){.m = transposed ? n : k,
                               .n = transposed ? k : n,
                               .k = m,
                               .a = transposed ? dy : a,
                               .lda = transposed ? n : k,
                               .transposed_a = true,
                               .b = transposed ? a : dy,
                               .ldb = transposed ? k : n,
                               .c = work->din[1] + b * batch_step(node, n * k),
                               .ldc = transposed ? k : n,
                               .add = work->add[1],
                               .bf16 = work->graph->bf16});
}

static heed_status product_backward(const heed_work *work)
{
    const heed_nn_node *node = work->node;
    for (int64_t b = 0; b < node->whole[BATCH]; b++) {
        if (work->din[0])
            back_a(work, b);
        if (work->din[1])
            back_b(work, b);
    }
    if (node->ins == 3 && work->din[2]) {
        heed_nn_sum_pieces(work, node->whole[M], node->whole[N], bias_rows);
        heed_nn_fold(work, node->whole[M], 0, node->whole[N], node->whole[N], work->din[2], work->add[2]);
    }
    return HEED_OK;
}

static const heed_op product_op = {
    .name = "product", .forward = product_forward, .backward = product_backward, .reads = 3};
static const heed_op linear_op = {
    .name = "linear", .forward = product_forward, .backward = product_backward, .reads = 3};

static void set_sizes(heed_nn_node *node, int64_t batch, int64_t m, int64_t n, int64_t k)
{
    node->whole[BATCH] = batch;
    node->whole[M] = m;
    node->whole[N] = n;
    node->whole[K] = k;
    node->flops = 2.0 * (double)batch * (double)m * (double)n * (double)k;
}

heed_variable heed_nn_linear(heed_graph *graph, heed_variable x, heed_variable weight, heed_variable bias)
{
    const heed_variable in[] = {x, weight, bias};
    heed_nn_node *node = heed_nn_make(graph, &linear_op, bias == HEED_NO_INPUT ? 2 : 3, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *a = heed_nn_in(graph, node, 0), *w = heed_nn_in(graph, node, 1);
    if (a->rank < 1 || w->rank != 2 || heed_nn_last(a) != w->shape[1])
        return heed_nn_fail(graph, HEED_INVALID, "linear: rows of %s do not fit a weight %s",
                            heed_nn_shape_text(a).text, heed_nn_shape_text(w).text);
    if (bias != HEED_NO_INPUT && heed_nn_in(graph, node, 2)->count != w->shape[0])
        return heed_nn_fail(graph, HEED_INVALID, "linear: a bias of %s does not fit a weight %s",
                            heed_nn_shape_text(heed_nn_in(graph, node, 2)).text, heed_nn_shape_text(w).text);
    heed_nn_shape_of(node, a);
    node->shape[node->rank - 1] = w->shape[0];
    node->number[0] = 1.0f;
    node->whole[SHARED] = 1;
    set_sizes(node, 1, heed_nn_rows(a), w->shape[0], w->shape[1]);
    if (bias != HEED_NO_INPUT)
        node->backward_scratch = heed_nn_partial_bytes(heed_nn_rows(a), w->shape[0]);
    return heed_nn_done(graph, node);
}

heed_variable heed_nn_product(heed_graph *graph, heed_variable x, heed_variable y, bool transposed)
{
    const heed_variable in[] = {x, y};
    heed_nn_node *node = heed_nn_make(graph, &product_op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *a = heed_nn_in(graph, node, 0), *b = heed_nn_in(graph, node, 1);
    const bool shared = b->rank == 2;
    bool fits = a->rank >= 2 && b->rank >= 2 && (shared || a->rank == b->rank);
    for (int d = 0; fits && !shared && d < a->rank - 2; d++)
        fits = a->shape[d] == b->shape[d];
    const int64_t k = fits ? b->shape[b->rank - (transposed ? 1 : 2)] : 0;
    if (!fits || heed_nn_last(a) != k)
        return heed_nn_fail(graph, HEED_INVALID, "product: %s and %s%s do not fit",
                            heed_nn_shape_text(a).text, heed_nn_shape_text(b).text,
                            transposed ? " (transposed)" : "");
    const int64_t n = b->shape[b->rank - (transposed ? 2 : 1)], m = a->shape[a->rank - 2];
    const int64_t batch = m && k ? a->count / (m * k) : 0;
    heed_nn_shape_of(node, a);
    node->shape[node->rank - 1] = n;
    node->number[0] = transposed;
    node->whole[SHARED] = shared;
    set_sizes(node, shared ? 1 : batch, shared ? batch * m : m, n, k);
    return heed_nn_done(graph, node);
}
