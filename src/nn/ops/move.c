/* The same numbers in other places: views, transposed tensors, parts put together and taken out. */
#include "nn/graph.h"

#include <string.h>

heed_variable heed_nn_reshape(heed_graph *graph, heed_variable x, int rank, const int64_t *shape)
{
    heed_nn_node *node = heed_nn_make(graph, NULL, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    int64_t count = 1;
    node->type = from->type;
    node->rank = rank < HEED_MAX_RANK ? rank : HEED_MAX_RANK;
    for (int d = 0; d < node->rank; d++) {
        node->shape[d] = shape[d];
        count = shape[d] > 0 && count <= from->count / shape[d] + 1 ? count * shape[d] : shape[d] ? -1 : 0;
        if (count < 0)
            break;
    }
    if (rank < 0 || rank > HEED_MAX_RANK || count != from->count)
        return heed_nn_fail(graph, HEED_INVALID, "reshape: %s has not as many entries as %s",
                            heed_nn_shape_text(from).text, heed_nn_shape_text(node).text);
    node->view = x;
    return heed_nn_done(graph, node);
}

/* to[i0][i1][i2][i3] (+)= from[i0 s0 + i1 s1 + i2 s2 + i3 s3], `to` dense. */
static void copy_strided(const heed_work *work, const int64_t shape[4], const int64_t stride[4],
                         const float *from, float *to, bool add)
{
    const int64_t lines = shape[0] * shape[1];
    HEED_NN_PIECES(work->threads, lines, line, 1)
    {
        const float *base = from + line / shape[1] * stride[0] + line % shape[1] * stride[1];
        for (int64_t i = 0; i < shape[2]; i++) {
            const float *row = base + i * stride[2];
            float *out = to + (line * shape[2] + i) * shape[3];
            if (stride[3] == 1) {
                work->kernels->scale(row, 1.0f, 0.0f, out, add, shape[3]);
                continue;
            }
            for (int64_t j = 0; j < shape[3]; j++)
                out[j] = row[j * stride[3]] + (add ? out[j] : 0.0f);
        }
    }
}

/* Sizes of the four dimensions of the result, and where a step along each leads in what it comes from;
 * `order` counts four dimensions too. */
static void transposed(const int64_t shape[4], const int64_t order[4], int64_t to[4], int64_t stride[4])
{
    int64_t step[4] = {1, 1, 1, 1};
    for (int d = 2; d >= 0; d--)
        step[d] = step[d + 1] * shape[d + 1];
    for (int d = 0; d < 4; d++) {
        to[d] = shape[order[d]];
        stride[d] = step[order[d]];
    }
}

/* A tensor's shape with ones in front. */
static void four(const heed_nn_node *node, int64_t shape[4])
{
    const int ahead = 4 - node->rank;
    for (int d = 0; d < 4; d++)
        shape[d] = d < ahead ? 1 : node->shape[d - ahead];
}

static heed_status transpose_forward(const heed_work *work)
{
    int64_t from[4], to[4], stride[4];
    four(heed_nn_in(work->graph, work->node, 0), from);
    transposed(from, work->node->whole, to, stride);
    copy_strided(work, to, stride, work->in[0], work->out, false);
    return HEED_OK;
}

static heed_status transpose_backward(const heed_work *work)
{
    int64_t from[4], to[4], stride[4], back[4];
    four(work->node, from);
    for (int d = 0; d < 4; d++)
        back[work->node->whole[d]] = d;
    transposed(from, back, to, stride);
    copy_strided(work, to, stride, work->dout, work->din[0], work->add[0]);
    return HEED_OK;
}

static const heed_op transpose_op = {
    .name = "transpose", .forward = transpose_forward, .backward = transpose_backward};

heed_variable heed_nn_transpose(heed_graph *graph, heed_variable x, const int *order)
{
    heed_nn_node *node = heed_nn_make(graph, &transpose_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    const int ahead = 4 - from->rank;
    unsigned seen = 0;
    node->rank = from->rank;
    for (int d = 0; d < 4; d++)
        node->whole[d] = d;
    for (int d = 0; d < from->rank; d++) {
        if (order[d] < 0 || order[d] >= from->rank || seen >> order[d] & 1u)
            return heed_nn_fail(graph, HEED_INVALID,
                                "transpose: the order must name each of the %d dimensions once", from->rank);
        seen |= 1u << order[d];
        node->shape[d] = from->shape[order[d]];
        node->whole[d + ahead] = order[d] + ahead;
    }
    return heed_nn_done(graph, node);
}

/* Lines along an axis: `outer` of them, each size x inner consecutive numbers. */
typedef struct lines {
    int64_t outer, inner;
} lines;

static lines lines_of(const heed_nn_node *node, int axis)
{
    lines all = {1, 1};
    for (int d = 0; d < node->rank; d++)
        if (d < axis)
            all.outer *= node->shape[d];
        else if (d > axis)
            all.inner *= node->shape[d];
    return all;
}

/* to[i][to_step] (+)= from[i][from_step], `size` numbers each. */
static void copy_lines(const heed_work *work, int64_t outer, int64_t size, const float *from,
                       int64_t from_step, float *to, int64_t to_step, bool add)
{
    HEED_NN_PIECES(work->threads, outer, i, 1)
    {
        work->kernels->scale(from + i * from_step, 1.0f, 0.0f, to + i * to_step, add, size);
    }
}

static heed_status concatenate_forward(const heed_work *work)
{
    const int axis = (int)work->node->whole[0];
    const lines all = lines_of(work->node, axis);
    const int64_t step = work->node->shape[axis] * all.inner;
    int64_t at = 0;
    for (int i = 0; i < work->node->ins; i++) {
        const int64_t size = heed_nn_in(work->graph, work->node, i)->shape[axis] * all.inner;
        copy_lines(work, all.outer, size, work->in[i], size, (float *)work->out + at, step, false);
        at += size;
    }
    return HEED_OK;
}

static heed_status concatenate_backward(const heed_work *work)
{
    const int axis = (int)work->node->whole[0];
    const lines all = lines_of(work->node, axis);
    const int64_t step = work->node->shape[axis] * all.inner;
    int64_t at = 0;
    for (int i = 0; i < work->node->ins; i++) {
        const int64_t size = heed_nn_in(work->graph, work->node, i)->shape[axis] * all.inner;
        if (work->din[i])
            copy_lines(work, all.outer, size, work->dout + at, step, work->din[i], size, work->add[i]);
        at += size;
    }
    return HEED_OK;
}

static const heed_op concatenate_op = {
    .name = "concatenate", .forward = concatenate_forward, .backward = concatenate_backward};

heed_variable heed_nn_concatenate(heed_graph *graph, int count, const heed_variable *x, int axis)
{
    if (count < 1 || count > HEED_NN_INPUTS)
        return heed_nn_fail(graph, HEED_INVALID, "concatenate: 1 to %d tensors are possible, not %d",
                            HEED_NN_INPUTS, count);
    heed_nn_node *node = heed_nn_make(graph, &concatenate_op, count, x);
    if (!node)
        return HEED_NO_VARIABLE;
    heed_nn_shape_of(node, heed_nn_in(graph, node, 0));
    axis = axis < 0 ? axis + node->rank : axis;
    if (axis < 0 || axis >= node->rank)
        return heed_nn_fail(graph, HEED_INVALID, "concatenate: %s has no such axis",
                            heed_nn_shape_text(node).text);
    node->shape[axis] = 0;
    node->whole[0] = axis;
    for (int i = 0; i < count; i++) {
        const heed_nn_node *part = heed_nn_in(graph, node, i);
        bool fits = part->rank == node->rank;
        for (int d = 0; fits && d < node->rank; d++)
            fits = d == axis || part->shape[d] == node->shape[d];
        if (!fits)
            return heed_nn_fail(graph, HEED_INVALID, "concatenate: %s and %s differ not only along axis %d",
                                heed_nn_shape_text(heed_nn_in(graph, node, 0)).text,
                                heed_nn_shape_text(part).text, axis);
        node->shape[axis] += part->shape[axis];
    }
    return heed_nn_done(graph, node);
}

static heed_status slice_forward(const heed_work *work)
{
    const heed_nn_node *from = heed_nn_in(work->graph, work->node, 0);
    const int axis = (int)work->node->whole[0];
    const lines all = lines_of(from, axis);
    const int64_t size = work->node->shape[axis] * all.inner;
    copy_lines(work, all.outer, size, (const float *)work->in[0] + work->node->whole[1] * all.inner,
               from->shape[axis] * all.inner, work->out, size, false);
    return HEED_OK;
}

static heed_status slice_backward(const heed_work *work)
{
    const heed_nn_node *from = heed_nn_in(work->graph, work->node, 0);
    const int axis = (int)work->node->whole[0];
    const lines all = lines_of(from, axis);
    const int64_t size = work->node->shape[axis] * all.inner;
    if (!work->add[0])
        HEED_NN_PIECES(work->threads, from->count, at, HEED_NN_PIECE)
        {
            const int64_t left = from->count - at;
            memset(work->din[0] + at, 0,
                   (size_t)(left < HEED_NN_PIECE ? left : HEED_NN_PIECE) * sizeof(float));
        }
    copy_lines(work, all.outer, size, work->dout, size, work->din[0] + work->node->whole[1] * all.inner,
               from->shape[axis] * all.inner, true);
    return HEED_OK;
}

static const heed_op slice_op = {.name = "slice", .forward = slice_forward, .backward = slice_backward};

heed_variable heed_nn_slice(heed_graph *graph, heed_variable x, int axis, int64_t start, int64_t size)
{
    heed_nn_node *node = heed_nn_make(graph, &slice_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    heed_nn_shape_of(node, heed_nn_in(graph, node, 0));
    axis = axis < 0 ? axis + node->rank : axis;
    if (axis < 0 || axis >= node->rank || start < 0 || size < 1 || start > node->shape[axis] - size)
        return heed_nn_fail(graph, HEED_INVALID, "slice: %lld from %lld on do not lie in axis %d of %s",
                            (long long)size, (long long)start, axis, heed_nn_shape_text(node).text);
    node->shape[axis] = size;
    node->whole[0] = axis;
    node->whole[1] = start;
    return heed_nn_done(graph, node);
}
