/* 1-D convolution of [batch, n, in]: for each tap a product of shifted rows with that tap's matrix, or,
 * channel by channel, with its row.
 *
 *     out[t] = sum_k weight[k] x[stride t + dilation k - pad]
 */
#include "nn/gemm.h"
#include "nn/graph.h"

#include <string.h>

enum { STRIDE, DILATION, PAD, DEPTHWISE, TAPS };

/* The rows t0 <= t < t1 of the result whose row of x for a tap exists, and that row for t0. */
typedef struct tap {
    int64_t t0, t1, x0;
} tap;

static tap tap_of(const heed_nn_node *node, int64_t k, int64_t n)
{
    const int64_t stride = node->whole[STRIDE], shift = node->whole[DILATION] * k - node->whole[PAD];
    tap here = {.t0 = shift < 0 ? (-shift + stride - 1) / stride : 0};
    here.t1 = n - shift > 0 ? (n - shift + stride - 1) / stride : 0;
    here.t1 = here.t1 < node->shape[1] ? here.t1 : node->shape[1];
    here.t1 = here.t1 > here.t0 ? here.t1 : here.t0;
    here.x0 = here.t0 * stride + shift;
    return here;
}

static void forward_tap(const heed_work *work, int64_t b, int64_t k)
{
    const heed_nn_node *node = work->node, *from = heed_nn_in(work->graph, node, 0);
    const int64_t n = from->shape[1], in = from->shape[2], out = node->shape[2], stride = node->whole[STRIDE];
    const tap here = tap_of(node, k, n);
    const float *x = (const float *)work->in[0] + (b * n + here.x0) * in;
    float *y = (float *)work->out + (b * node->shape[1] + here.t0) * out;
    if (node->whole[DEPTHWISE]) {
        const float *w = (const float *)work->in[1] + k * in;
        HEED_NN_PIECES(work->threads, here.t1 - here.t0, t, 1)
        {
            work->kernels->multiply_to(x + t * stride * in, w, y + t * out, true, in);
        }
        return;
    }
    heed_gemm_run(work->kernels, work->threads,
                  &(heed_gemm){.m = here.t1 - here.t0,
                               .n = out,
                               .k = in,
                               .a = x,
                               .lda = stride * in,
                               .b = (const float *)work->in[1] + k * out * in,
                               .ldb = in,
                               .transposed_b = true,
                               .c = y,
                               .ldc = out,
                               .add = true});
}

static heed_status convolution_forward(const heed_work *work)
{
    memset(work->out, 0, (size_t)work->node->count * sizeof(float));
    for (int64_t b = 0; b < work->node->shape[0]; b++)
        for (int64_t k = 0; k < work->node->whole[TAPS]; k++)
            forward_tap(work, b, k);
    return HEED_OK;
}

static void back_x(const heed_work *work, int64_t b, int64_t k)
{
    const heed_nn_node *node = work->node, *from = heed_nn_in(work->graph, node, 0);
    const int64_t n = from->shape[1], in = from->shape[2], out = node->shape[2], stride = node->whole[STRIDE];
    const tap here = tap_of(node, k, n);
    const float *dy = work->dout + (b * node->shape[1] + here.t0) * out;
    float *dx = work->din[0] + (b * n + here.x0) * in;
    if (node->whole[DEPTHWISE]) {
        const float *w = (const float *)work->in[1] + k * in;
        HEED_NN_PIECES(work->threads, here.t1 - here.t0, t, 1)
        {
            work->kernels->multiply_to(dy + t * out, w, dx + t * stride * in, true, in);
        }
        return;
    }
    heed_gemm_run(work->kernels, work->threads,
                  &(heed_gemm){.m = here.t1 - here.t0,
                               .n = in,
                               .k = out,
                               .a = dy,
                               .lda = out,
                               .b = (const float *)work->in[1] + k * out * in,
                               .ldb = in,
                               .c = dx,
                               .ldc = stride * in,
                               .add = true});
}

static void back_weight(const heed_work *work, int64_t b, int64_t k)
{
    const heed_nn_node *node = work->node, *from = heed_nn_in(work->graph, node, 0);
    const int64_t n = from->shape[1], in = from->shape[2], out = node->shape[2], stride = node->whole[STRIDE];
    const tap here = tap_of(node, k, n);
    const float *dy = work->dout + (b * node->shape[1] + here.t0) * out;
    const float *x = (const float *)work->in[0] + (b * n + here.x0) * in;
    if (node->whole[DEPTHWISE]) {
        float *dw = work->din[1] + k * in;
        for (int64_t t = 0; t < here.t1 - here.t0; t++)
            work->kernels->multiply_to(dy + t * out, x + t * stride * in, dw, true, in);
        return;
    }
    heed_gemm_run(work->kernels, work->threads,
                  &(heed_gemm){.m = out,
                               .n = in,
                               .k = here.t1 - here.t0,
                               .a = dy,
                               .lda = out,
                               .transposed_a = true,
                               .b = x,
                               .ldb = stride * in,
                               .c = work->din[1] + k * out * in,
                               .ldc = in,
                               .add = true});
}

static heed_status convolution_backward(const heed_work *work)
{
    for (int i = 0; i < 2; i++)
        if (work->din[i] && !work->add[i])
            memset(work->din[i], 0, (size_t)heed_nn_in(work->graph, work->node, i)->count * sizeof(float));
    for (int64_t b = 0; b < work->node->shape[0]; b++)
        for (int64_t k = 0; k < work->node->whole[TAPS]; k++) {
            if (work->din[0])
                back_x(work, b, k);
            if (work->din[1])
                back_weight(work, b, k);
        }
    return HEED_OK;
}

static const heed_op convolution_op = {
    .name = "convolution", .forward = convolution_forward, .backward = convolution_backward, .reads = 3};

heed_variable heed_nn_convolution(heed_graph *graph, heed_variable x, heed_variable weight,
                                  const heed_convolution *how)
{
    const heed_variable in[] = {x, weight};
    heed_nn_node *node = heed_nn_make(graph, &convolution_op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0), *w = heed_nn_in(graph, node, 1);
    if (from->rank != 3 || w->rank != (how->depthwise ? 2 : 3) || w->shape[w->rank - 1] != from->shape[2] ||
        w->shape[0] < 1 || how->stride < 0 || how->dilation < 0)
        return heed_nn_fail(graph, HEED_INVALID, "convolution: %s does not fit a weight %s%s",
                            heed_nn_shape_text(from).text, heed_nn_shape_text(w).text,
                            how->depthwise ? " of channels by themselves" : "");
    const int64_t span = (how->dilation ? how->dilation : 1) * (w->shape[0] - 1);
    heed_nn_shape_of(node, from);
    node->whole[STRIDE] = how->stride ? how->stride : 1;
    node->whole[DILATION] = how->dilation ? how->dilation : 1;
    node->whole[PAD] = how->causal ? span : span / 2;
    node->whole[DEPTHWISE] = how->depthwise;
    node->whole[TAPS] = w->shape[0];
    node->shape[1] = (from->shape[1] + node->whole[STRIDE] - 1) / node->whole[STRIDE];
    node->shape[2] = how->depthwise ? from->shape[2] : w->shape[1];
    node->flops = 2.0 * (double)node->shape[0] * (double)node->shape[1] * (double)w->count;
    return heed_nn_done(graph, node);
}
