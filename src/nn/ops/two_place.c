/* Sums, differences, products and quotients; b repeated over the leading dimensions of a.
 *
 * a is rows of cols entries with cols those of b; a single b is rows of one entry, taken a piece at a time.
 */
#include "nn/graph.h"

#include <string.h>

typedef enum kind { ADD, SUBTRACT, MULTIPLY, DIVIDE } kind;

static void combine(const heed_nn_kernels *kernels, kind which, const float *a, const float *b, float *y,
                    int64_t n)
{
    void (*const loops[])(const float *, const float *, float *,
                          int64_t) = {kernels->add, kernels->subtract, kernels->multiply, kernels->divide};
    loops[which](a, b, y, n);
}

static void combine_single(const heed_nn_kernels *kernels, kind which, const float *a, float b, float *y,
                           int64_t n)
{
    const float factor[] = {1.0f, 1.0f, b, 1.0f / b}, shift[] = {b, -b, 0.0f, 0.0f};
    kernels->scale(a, factor[which], shift[which], y, false, n);
}

static heed_status two_forward(const heed_work *work)
{
    const kind which = (kind)work->node->whole[0];
    const int64_t cols = work->node->whole[1], n = work->node->count;
    const float *a = work->in[0], *b = work->in[1];
    float *y = work->out;
    const bool repeated = cols < n;
    const int64_t piece =
        repeated && cols > 1 ? (HEED_NN_PIECE / cols ? HEED_NN_PIECE / cols : 1) * cols : HEED_NN_PIECE;
    HEED_NN_PIECES(work->threads, n, at, piece)
    {
        const int64_t size = n - at < piece ? n - at : piece;
        if (!repeated)
            combine(work->kernels, which, a + at, b + at, y + at, size);
        else if (cols == 1)
            combine_single(work->kernels, which, a + at, *b, y + at, size);
        else
            for (int64_t row = at; row < at + size; row += cols)
                combine(work->kernels, which, a + row, b, y + row, cols);
    }
    return HEED_OK;
}

/* da of entries that face b */
static void back_a(const heed_work *work, int64_t at, const float *b, int64_t size)
{
    const heed_nn_kernels *kernels = work->kernels;
    const float *dy = work->dout + at;
    float *to = work->din[0] + at;
    const bool add = work->add[0];
    switch ((kind)work->node->whole[0]) {
    case ADD:
    case SUBTRACT:
        kernels->scale(dy, 1.0f, 0.0f, to, add, size);
        break;
    case MULTIPLY:
        kernels->multiply_to(dy, b, to, add, size);
        break;
    case DIVIDE:
        kernels->divide_to(dy, b, to, add, size);
        break;
    }
}

/* to (+)= db of entries that face b */
static void back_b(const heed_work *work, int64_t at, const float *b, float *to, bool add, int64_t size)
{
    const heed_nn_kernels *kernels = work->kernels;
    const float *dy = work->dout + at, *a = work->in[0] ? (const float *)work->in[0] + at : NULL;
    switch ((kind)work->node->whole[0]) {
    case ADD:
        kernels->scale(dy, 1.0f, 0.0f, to, add, size);
        break;
    case SUBTRACT:
        kernels->scale(dy, -1.0f, 0.0f, to, add, size);
        break;
    case MULTIPLY:
        kernels->multiply_to(dy, a, to, add, size);
        break;
    case DIVIDE:
        kernels->divide_back(dy, b, a, to, add, size);
        break;
    }
}

/* Rows of a facing one b of cols entries. */
static void rows_of_b(const heed_work *work, int64_t row0, int64_t row1, float *partial)
{
    const int64_t cols = work->node->whole[1];
    for (int64_t row = row0; row < row1; row++)
        back_b(work, row * cols, work->in[1], partial, true, cols);
}

/* Rows of a facing a single b; `rows` here are pieces. */
static void pieces_of_single(const heed_work *work, int64_t row0, int64_t row1, float *partial)
{
    const float b = *(const float *)work->in[1];
    const heed_nn_kernels *kernels = work->kernels;
    double all = 0.0;
    for (int64_t row = row0; row < row1; row++) {
        const int64_t at = row * HEED_NN_PIECE, left = work->node->count - at;
        const int64_t size = left < HEED_NN_PIECE ? left : HEED_NN_PIECE;
        const float *dy = work->dout + at, *a = (const float *)work->in[0] + at;
        switch ((kind)work->node->whole[0]) {
        case ADD:
            all += kernels->sum(dy, size);
            break;
        case SUBTRACT:
            all -= kernels->sum(dy, size);
            break;
        case MULTIPLY:
            all += kernels->dot(dy, a, size);
            break;
        case DIVIDE:
            all -= kernels->dot(dy, a, size) / (b * b);
            break;
        }
    }
    *partial = (float)all;
}

static heed_status two_backward(const heed_work *work)
{
    const int64_t cols = work->node->whole[1], n = work->node->count;
    const float *b = work->in[1];
    const bool repeated = cols < n;
    const kind which = (kind)work->node->whole[0];
    const int64_t piece =
        repeated && cols > 1 ? (HEED_NN_PIECE / cols ? HEED_NN_PIECE / cols : 1) * cols : HEED_NN_PIECE;
    HEED_NN_PIECES(work->threads, n, at, piece)
    {
        const int64_t size = n - at < piece ? n - at : piece;
        if (work->din[0] && repeated && cols == 1)
            work->kernels->scale(work->dout + at,
                                 which == MULTIPLY ? *b
                                 : which == DIVIDE ? 1.0f / *b
                                                   : 1.0f,
                                 0.0f, work->din[0] + at, work->add[0], size);
        else if (work->din[0] && repeated)
            for (int64_t row = at; row < at + size; row += cols)
                back_a(work, row, b, cols);
        else if (work->din[0])
            back_a(work, at, b + at, size);
        if (work->din[1] && !repeated)
            back_b(work, at, b + at, work->din[1] + at, work->add[1], size);
    }
    if (work->din[1] && repeated) {
        const int64_t rows = cols == 1 ? (n + HEED_NN_PIECE - 1) / HEED_NN_PIECE : n / cols;
        heed_nn_sum_pieces(work, rows, cols, cols == 1 ? pieces_of_single : rows_of_b);
        heed_nn_fold(work, rows, 0, cols, cols, work->din[1], work->add[1]);
    }
    return HEED_OK;
}

static const heed_op ops[] = {
    {.name = "add", .forward = two_forward, .backward = two_backward},
    {.name = "subtract", .forward = two_forward, .backward = two_backward},
    {.name = "multiply", .forward = two_forward, .backward = two_backward, .reads = 3},
    {.name = "divide", .forward = two_forward, .backward = two_backward, .reads = 3},
};

static bool ends_with(const heed_nn_node *a, const heed_nn_node *b)
{
    const int ahead = a->rank - b->rank;
    if (b->count == 1)
        return true;
    return ahead >= 0 && !memcmp(a->shape + ahead, b->shape, (size_t)b->rank * sizeof *b->shape);
}

static heed_variable two_place(heed_graph *graph, kind which, heed_variable x, heed_variable y)
{
    const heed_variable in[] = {x, y};
    heed_nn_node *node = heed_nn_make(graph, &ops[which], 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *a = heed_nn_in(graph, node, 0), *b = heed_nn_in(graph, node, 1);
    if (!ends_with(a, b))
        return heed_nn_fail(graph, HEED_INVALID, "%s: %s does not end with the dimensions of %s",
                            ops[which].name, heed_nn_shape_text(a).text, heed_nn_shape_text(b).text);
    heed_nn_shape_of(node, a);
    node->whole[0] = which;
    node->whole[1] = b->count;
    if (b->count < a->count && b->count > 0)
        node->backward_scratch = heed_nn_partial_bytes(
            b->count == 1 ? (a->count + HEED_NN_PIECE - 1) / HEED_NN_PIECE : a->count / b->count, b->count);
    return heed_nn_done(graph, node);
}

heed_variable heed_nn_add(heed_graph *graph, heed_variable a, heed_variable b)
{
    return two_place(graph, ADD, a, b);
}

heed_variable heed_nn_subtract(heed_graph *graph, heed_variable a, heed_variable b)
{
    return two_place(graph, SUBTRACT, a, b);
}

heed_variable heed_nn_multiply(heed_graph *graph, heed_variable a, heed_variable b)
{
    return two_place(graph, MULTIPLY, a, b);
}

heed_variable heed_nn_divide(heed_graph *graph, heed_variable a, heed_variable b)
{
    return two_place(graph, DIVIDE, a, b);
}
