/* Places of the largest entries of rows, and rows by places that each batch entry has of its own. */
#include "nn/graph.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    float x;
    int32_t place;
} entry;

/* Larger ones first, of equal ones the earlier; what is no number comes last. */
static int compare(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->x > b->x || (a->x == a->x && b->x != b->x))
        return -1;
    if (b->x > a->x || (b->x == b->x && a->x != a->x))
        return 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

static heed_status order_forward(const heed_work *work)
{
    const int64_t cols = heed_nn_last(heed_nn_in(work->graph, work->node, 0)), k = heed_nn_last(work->node),
                  rows = work->node->count / k;
    const float *x = work->in[0];
    entry *all = work->scratch;
    HEED_NN_PIECES(work->threads, rows, row, 1)
    {
        entry *mine = all + row * cols;
        for (int64_t i = 0; i < cols; i++)
            mine[i] = (entry){x[row * cols + i], (int32_t)i};
        qsort(mine, (size_t)cols, sizeof *mine, compare);
        for (int64_t i = 0; i < k; i++)
            ((int32_t *)work->out)[row * k + i] = mine[i].place;
    }
    return HEED_OK;
}

static const heed_op order_op = {.name = "order", .forward = order_forward};

heed_variable heed_nn_order(heed_graph *graph, heed_variable x, int64_t k)
{
    heed_nn_node *node = heed_nn_make(graph, &order_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    if (from->rank < 1 || from->type != HEED_F32 || k < 1 || k > heed_nn_last(from))
        return heed_nn_fail(graph, HEED_INVALID, "order: the %lld largest of rows of %s are not possible",
                            (long long)k, heed_nn_shape_text(from).text);
    heed_nn_shape_of(node, from);
    node->shape[node->rank - 1] = k;
    node->type = HEED_I32;
    node->forward_scratch = (size_t)from->count * sizeof(entry);
    return heed_nn_constant_done(graph, node);
}

/* whole[]: rows a batch entry has, rows taken, numbers of a row, batch entries */
enum { FROM, TAKEN, COLS, BATCH };

static heed_status check_places(const heed_work *work)
{
    const int64_t *w = work->node->whole;
    const int32_t *place = work->in[1];
    for (int64_t i = 0; i < w[BATCH] * w[TAKEN]; i++)
        if (place[i] >= w[FROM])
            return heed_fail(HEED_INVALID, "%s: place %d is beyond %lld rows", work->node->op->name, place[i],
                             (long long)w[FROM]);
    return HEED_OK;
}

/* to[b][i] (+)= from[b][place[b][i]], 0 for places below 0 */
static void take(const heed_work *work, const float *from, float *to, bool add)
{
    const int64_t *w = work->node->whole;
    const int32_t *place = work->in[1];
    HEED_NN_PIECES(work->threads, w[BATCH], b, 1)
    {
        for (int64_t i = b * w[TAKEN]; i < (b + 1) * w[TAKEN]; i++) {
            float *row = to + i * w[COLS];
            if (place[i] >= 0)
                work->kernels->scale(from + (b * w[FROM] + place[i]) * w[COLS], 1.0f, 0.0f, row, add,
                                     w[COLS]);
            else if (!add)
                memset(row, 0, (size_t)w[COLS] * sizeof *row);
        }
    }
}

/* to[b][place[b][i]] += from[b][i] */
static void give(const heed_work *work, const float *from, float *to, bool add)
{
    const int64_t *w = work->node->whole;
    const int32_t *place = work->in[1];
    HEED_NN_PIECES(work->threads, w[BATCH], b, 1)
    {
        if (!add)
            memset(to + b * w[FROM] * w[COLS], 0, (size_t)(w[FROM] * w[COLS]) * sizeof *to);
        for (int64_t i = b * w[TAKEN]; i < (b + 1) * w[TAKEN]; i++) {
            if (place[i] < 0)
                continue;
            float *row = to + (b * w[FROM] + place[i]) * w[COLS];
            work->kernels->add(row, from + i * w[COLS], row, w[COLS]);
        }
    }
}

static heed_status take_forward(const heed_work *work)
{
    TRY(check_places(work));
    take(work, work->in[0], work->out, false);
    return HEED_OK;
}

static heed_status take_backward(const heed_work *work)
{
    give(work, work->dout, work->din[0], work->add[0]);
    return HEED_OK;
}

static heed_status give_forward(const heed_work *work)
{
    TRY(check_places(work));
    give(work, work->in[0], work->out, false);
    return HEED_OK;
}

static heed_status give_backward(const heed_work *work)
{
    take(work, work->dout, work->din[0], work->add[0]);
    return HEED_OK;
}

static const heed_op take_op = {
    .name = "take", .forward = take_forward, .backward = take_backward, .reads = 2};
static const heed_op give_op = {
    .name = "give", .forward = give_forward, .backward = give_backward, .reads = 2};

/* x [..., n, c] by places [..., m] of the same leading sizes; the result has `rows` instead of n. */
static heed_variable by_places(heed_graph *graph, const heed_op *op, heed_variable x, heed_variable place,
                               int64_t rows)
{
    const heed_variable in[] = {x, place};
    heed_nn_node *node = heed_nn_make(graph, op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0), *which = heed_nn_in(graph, node, 1);
    const bool taking = op == &take_op;
    if (from->rank < 2 || which->type != HEED_I32 || which->rank != from->rank - 1 || rows < 0 ||
        memcmp(from->shape, which->shape, (size_t)(which->rank - 1) * sizeof *from->shape) ||
        (!taking && heed_nn_last(which) != from->shape[from->rank - 2]))
        return heed_nn_fail(graph, HEED_INVALID, "%s: rows of %s by places %s are not possible", op->name,
                            heed_nn_shape_text(from).text, heed_nn_shape_text(which).text);
    heed_nn_shape_of(node, from);
    node->shape[node->rank - 2] = taking ? heed_nn_last(which) : rows;
    node->whole[TAKEN] = heed_nn_last(which);
    node->whole[FROM] = taking ? from->shape[from->rank - 2] : rows;
    node->whole[COLS] = heed_nn_last(from);
    node->whole[BATCH] = node->whole[TAKEN] ? which->count / node->whole[TAKEN] : 0;
    return heed_nn_done(graph, node);
}

heed_variable heed_nn_take(heed_graph *graph, heed_variable x, heed_variable place)
{
    return by_places(graph, &take_op, x, place, 0);
}

heed_variable heed_nn_give(heed_graph *graph, heed_variable x, heed_variable place, int64_t rows)
{
    return by_places(graph, &give_op, x, place, rows);
}
