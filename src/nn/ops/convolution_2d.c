/* 2-D convolution of [batch, height, width, in]: the window of each place as one row, then one product.
 *
 *     out[y, x] = sum_ij weight[., i, j, .] in[stride y + i - pad, stride x + j - pad]
 */
#include "nn/gemm.h"
#include "nn/graph.h"

#include <string.h>

enum { STRIDE, PAD, DEPTHWISE, TALL, WIDE };

typedef struct sizes {
    int64_t height, width, in, tall, wide, rows, cols, out, window;
} sizes;

static sizes sizes_of(const heed_work *work)
{
    const heed_nn_node *node = work->node, *x = heed_nn_in(work->graph, node, 0);
    sizes s = {.height = x->shape[1],
               .width = x->shape[2],
               .in = x->shape[3],
               .tall = node->whole[TALL],
               .wide = node->whole[WIDE],
               .rows = node->shape[1],
               .cols = node->shape[2],
               .out = node->shape[3]};
    s.window = s.tall * s.wide * s.in;
    return s;
}

/* Where entry (i, j) of the window at (y, x) begins in an image; -1: outside. */
static int64_t place(const heed_nn_node *node, const sizes *s, int64_t y, int64_t x, int64_t i, int64_t j)
{
    const int64_t row = y * node->whole[STRIDE] + i - node->whole[PAD],
                  col = x * node->whole[STRIDE] + j - node->whole[PAD];
    return row < 0 || row >= s->height || col < 0 || col >= s->width ? -1 : (row * s->width + col) * s->in;
}

/* Windows of an image as rows [rows cols, window]. */
static void unfold(const heed_work *work, const sizes *s, const float *image, float *to)
{
    HEED_NN_PIECES(work->threads, s->rows * s->cols, at, 16)
    {
        for (int64_t t = at; t < s->rows * s->cols && t < at + 16; t++)
            for (int64_t i = 0; i < s->tall; i++)
                for (int64_t j = 0; j < s->wide; j++) {
                    const int64_t from = place(work->node, s, t / s->cols, t % s->cols, i, j);
                    float *entry = to + t * s->window + (i * s->wide + j) * s->in;
                    if (from < 0)
                        memset(entry, 0, (size_t)s->in * sizeof *entry);
                    else
                        memcpy(entry, image + from, (size_t)s->in * sizeof *entry);
                }
    }
}

/* Gradients of windows added up in the image that they overlap in, by one thread. */
static void fold(const heed_work *work, const sizes *s, const float *windows, float *image)
{
    for (int64_t t = 0; t < s->rows * s->cols; t++)
        for (int64_t i = 0; i < s->tall; i++)
            for (int64_t j = 0; j < s->wide; j++) {
                const int64_t to = place(work->node, s, t / s->cols, t % s->cols, i, j);
                const float *entry = windows + t * s->window + (i * s->wide + j) * s->in;
                for (int64_t c = 0; to >= 0 && c < s->in; c++)
                    image[to + c] += entry[c];
            }
}

/* Each channel by itself: weight [tall, wide, in]. */
static void depthwise_forward(const heed_work *work, const sizes *s, const float *image, float *out)
{
    HEED_NN_PIECES(work->threads, s->rows * s->cols, t, 1)
    {
        float *y = out + t * s->out;
        memset(y, 0, (size_t)s->out * sizeof *y);
        for (int64_t i = 0; i < s->tall * s->wide; i++) {
            const int64_t from = place(work->node, s, t / s->cols, t % s->cols, i / s->wide, i % s->wide);
            if (from >= 0)
                work->kernels->multiply_to(image + from, (const float *)work->in[1] + i * s->in, y, true,
                                           s->in);
        }
    }
}

static heed_status convolution_forward(const heed_work *work)
{
    const sizes s = sizes_of(work);
    const int64_t places = s.rows * s.cols;
    for (int64_t b = 0; b < work->node->shape[0]; b++) {
        const float *image = (const float *)work->in[0] + b * s.height * s.width * s.in;
        float *out = (float *)work->out + b * places * s.out;
        if (work->node->whole[DEPTHWISE]) {
            depthwise_forward(work, &s, image, out);
            continue;
        }
        unfold(work, &s, image, work->scratch);
        heed_gemm_run(work->kernels, work->threads,
                      &(heed_gemm){.m = places,
                                   .n = s.out,
                                   .k = s.window,
                                   .a = work->scratch,
                                   .lda = s.window,
                                   .b = work->in[1],
                                   .ldb = s.window,
                                   .transposed_b = true,
                                   .c = out,
                                   .ldc = s.out});
    }
    return HEED_OK;
}

static void depthwise_backward(const heed_work *work, const sizes *s, int64_t b)
{
    const int64_t image = b * s->height * s->width * s->in;
    for (int64_t t = 0; t < s->rows * s->cols; t++)
        for (int64_t i = 0; i < s->tall * s->wide; i++) {
            const int64_t at = place(work->node, s, t / s->cols, t % s->cols, i / s->wide, i % s->wide);
            const float *dy = work->dout + (b * s->rows * s->cols + t) * s->out;
            if (at >= 0 && work->din[0])
                work->kernels->multiply_to(dy, (const float *)work->in[1] + i * s->in,
                                           work->din[0] + image + at, true, s->in);
            if (at >= 0 && work->din[1])
                work->kernels->multiply_to(dy, (const float *)work->in[0] + image + at,
                                           work->din[1] + i * s->in, true, s->in);
        }
}

static void dense_backward(const heed_work *work, const sizes *s, int64_t b)
{
    const int64_t places = s->rows * s->cols, image = b * s->height * s->width * s->in;
    const float *dy = work->dout + b * places * s->out;
    if (work->din[1]) {
        unfold(work, s, (const float *)work->in[0] + image, work->scratch);
        heed_gemm_run(work->kernels, work->threads,
                      &(heed_gemm){.m = s->out,
                                   .n = s->window,
                                   .k = places,
                                   .a = dy,
                                   .lda = s->out,
                                   .transposed_a = true,
                                   .b = work->scratch,
                                   .ldb = s->window,
                                   .c = work->din[1],
                                   .ldc = s->window,
                                   .add = true});
    }
    if (work->din[0]) {
        heed_gemm_run(work->kernels, work->threads,
                      &(heed_gemm){.m = places,
                                   .n = s->window,
                                   .k = s->out,
                                   .a = dy,
                                   .lda = s->out,
                                   .b = work->in[1],
                                   .ldb = s->window,
                                   .c = work->scratch,
                                   .ldc = s->window});
        fold(work, s, work->scratch, work->din[0] + image);
    }
}

static heed_status convolution_backward(const heed_work *work)
{
    const sizes s = sizes_of(work);
    for (int i = 0; i < 2; i++)
        if (work->din[i] && !work->add[i])
            memset(work->din[i], 0, (size_t)heed_nn_in(work->graph, work->node, i)->count * sizeof(float));
    for (int64_t b = 0; b < work->node->shape[0]; b++)
        (work->node->whole[DEPTHWISE] ? depthwise_backward : dense_backward)(work, &s, b);
    return HEED_OK;
}

static const heed_op convolution_op = {
    .name = "convolution_2d", .forward = convolution_forward, .backward = convolution_backward, .reads = 3};

heed_variable heed_nn_convolution_2d(heed_graph *graph, heed_variable x, heed_variable weight,
                                     const heed_convolution_2d *how)
{
    const heed_variable in[] = {x, weight};
    heed_nn_node *node = heed_nn_make(graph, &convolution_op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0), *w = heed_nn_in(graph, node, 1);
    const int first = how->depthwise ? 0 : 1;
    const int64_t stride = how->stride ? how->stride : 1, pad = how->pad;
    if (from->rank != 4 || w->rank != 3 + first || w->shape[w->rank - 1] != from->shape[3] || stride < 1 ||
        pad < 0 || w->shape[first] < 1 || w->shape[first + 1] < 1 ||
        w->shape[first] > from->shape[1] + 2 * pad || w->shape[first + 1] > from->shape[2] + 2 * pad)
        return heed_nn_fail(graph, HEED_INVALID, "convolution_2d: %s does not fit a weight %s%s",
                            heed_nn_shape_text(from).text, heed_nn_shape_text(w).text,
                            how->depthwise ? " of channels by themselves" : "");
    heed_nn_shape_of(node, from);
    node->whole[STRIDE] = stride;
    node->whole[PAD] = pad;
    node->whole[DEPTHWISE] = how->depthwise;
    node->whole[TALL] = w->shape[first];
    node->whole[WIDE] = w->shape[first + 1];
    for (int d = 1; d < 3; d++)
        node->shape[d] = (from->shape[d] + 2 * pad - w->shape[first + d - 1]) / stride + 1;
    node->shape[3] = how->depthwise ? from->shape[3] : w->shape[0];
    const int64_t places = node->shape[1] * node->shape[2];
    if (!how->depthwise)
        node->forward_scratch = node->backward_scratch =
            (size_t)places * (size_t)(w->count / (w->shape[0] ? w->shape[0] : 1)) * sizeof(float);
    node->flops = 2.0 * (double)node->shape[0] * (double)places * (double)w->count;
    return heed_nn_done(graph, node);
}
