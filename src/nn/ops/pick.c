/* Entries of rows by a table of places [n][c], -1 for none; and the same backwards: one is the other's
 * gradient. */
#include "nn/graph.h"

#include <stdlib.h>
#include <string.h>

/* whole[]: n, wide rows (of the side with the table's places as indices), entries of a row of the table */
enum { ROWS, WIDE, CELLS };

/* to[row][c] (+)= from[row][place[c]] */
static void pick(const heed_work *work, const float *from, float *to, bool add)
{
    const int64_t *w = work->node->whole, rows = w[3];
    const int32_t *place = work->node->own;
    HEED_NN_PIECES(work->threads, rows, at, 16)
    {
        for (int64_t row = at; row < rows && row < at + 16; row++) {
            const int32_t *cell = place + row % w[ROWS] * w[CELLS];
            for (int64_t c = 0; c < w[CELLS]; c++) {
                const float x = cell[c] < 0 ? 0.0f : from[row * w[WIDE] + cell[c]];
                to[row * w[CELLS] + c] = add ? to[row * w[CELLS] + c] + x : x;
            }
        }
    }
}

/* to[row][place[c]] (+)= from[row][c] */
static void sort_in(const heed_work *work, const float *from, float *to, bool add)
{
    const int64_t *w = work->node->whole, rows = w[3];
    const int32_t *place = work->node->own;
    HEED_NN_PIECES(work->threads, rows, at, 16)
    {
        for (int64_t row = at; row < rows && row < at + 16; row++) {
            const int32_t *cell = place + row % w[ROWS] * w[CELLS];
            if (!add)
                memset(to + row * w[WIDE], 0, (size_t)w[WIDE] * sizeof *to);
            for (int64_t c = 0; c < w[CELLS]; c++)
                if (cell[c] >= 0)
                    to[row * w[WIDE] + cell[c]] += from[row * w[CELLS] + c];
        }
    }
}

static heed_status pick_forward(const heed_work *work)
{
    pick(work, work->in[0], work->out, false);
    return HEED_OK;
}

static heed_status pick_backward(const heed_work *work)
{
    sort_in(work, work->dout, work->din[0], work->add[0]);
    return HEED_OK;
}

static heed_status sort_forward(const heed_work *work)
{
    sort_in(work, work->in[0], work->out, false);
    return HEED_OK;
}

static heed_status sort_backward(const heed_work *work)
{
    pick(work, work->dout, work->din[0], work->add[0]);
    return HEED_OK;
}

static void places_free(heed_nn_node *node)
{
    free(node->own);
    node->own = NULL;
}

static const heed_op pick_op = {
    .name = "pick", .forward = pick_forward, .backward = pick_backward, .free = places_free};
static const heed_op sort_op = {
    .name = "sort in", .forward = sort_forward, .backward = sort_backward, .free = places_free};

static heed_variable make(heed_graph *graph, const heed_op *op, heed_variable x, const int32_t *place,
                          int64_t to)
{
    heed_nn_node *node = heed_nn_make(graph, op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *from = heed_nn_in(graph, node, 0);
    if (from->rank < 2 || to < 1 || to > INT32_MAX)
        return heed_nn_fail(graph, HEED_INVALID, "%s: x %s to rows of %lld", op->name,
                            heed_nn_shape_text(from).text, (long long)to);
    const int64_t n = from->shape[from->rank - 2], last = heed_nn_last(from);
    const int64_t cells = op == &pick_op ? to : last, wide = op == &pick_op ? last : to;
    for (int64_t i = 0; i < n * cells; i++)
        if (place[i] >= wide)
            return heed_nn_fail(graph, HEED_INVALID, "%s: place %d is beyond rows of %lld", op->name,
                                place[i], (long long)wide);
    node->own = calloc((size_t)(n * cells) + 1, sizeof *place);
    if (!node->own)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for a table of places");
    memcpy(node->own, place, (size_t)(n * cells) * sizeof *place);
    heed_nn_shape_of(node, from);
    node->shape[node->rank - 1] = to;
    node->whole[ROWS] = n;
    node->whole[WIDE] = wide;
    node->whole[CELLS] = cells;
    node->whole[3] = heed_nn_rows(from);
    return heed_nn_done(graph, node);
}

heed_variable heed_nn_pick(heed_graph *graph, heed_variable x, const int32_t *place, int64_t to)
{
    return make(graph, &pick_op, x, place, to);
}

heed_variable heed_nn_sort_in(heed_graph *graph, heed_variable x, const int32_t *place, int64_t to)
{
    return make(graph, &sort_op, x, place, to);
}
