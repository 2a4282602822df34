/* Structures written as tokens: nested operations on lists, and small graphs. */
#include "train/synthetic.h"

#include <stddef.h>

/* arg: length, depth, operands: an expression as [MAX 3 [MIN 4 1] 7], and behind it "=" asks for its value.
 * Digits are 0 to 9; opening brackets with MAX, MIN, MED and SM (the sum modulo 10) 10 to 13, the closing one
 * 14, "=" 15. In front blanks, 16, fill the place that is left. Nangia and Bowman: ListOps, 2018 */
enum { LENGTH, DEPTH, OPERANDS };
enum { MAX = 10, MIN, MED, SM, CLOSE, EQUALS, BLANK, LIST_TOKENS };
enum { MOST_OPERANDS = 16, MOST_LENGTH = 1 << 14 };

static int64_t list_vocabulary(const int64_t *arg)
{
    (void)arg;
    return LIST_TOKENS;
}

static int64_t list_length(const int64_t *arg)
{
    return arg[LENGTH];
}

static int32_t value_of(int32_t operation, int32_t *value, int64_t count)
{
    int32_t sum = 0;
    for (int64_t i = 0; i < count; i++) { /* in rising order */
        sum += value[i];
        for (int64_t j = i; j > 0 && value[j - 1] > value[j]; j--) {
            const int32_t swap = value[j];
            value[j] = value[j - 1];
            value[j - 1] = swap;
        }
    }
    return operation == MAX   ? value[count - 1]
           : operation == MIN ? value[0]
           : operation == MED ? value[(count - 1) / 2] /* the lower one of two */
                              : sum % 10;
}

/* An expression of at most `room` tokens, with operations in operations `depth` deep; returns its value. */
static int32_t write_list(const int64_t *arg, heed_draw *draw, int64_t depth, int64_t room, bool must,
                          int32_t *out, int64_t *size)
{
    if (depth == 0 || room < 4 || (!must && heed_draw_below(draw, 2))) {
        out[(*size)++] = (int32_t)heed_draw_below(draw, 10);
        return out[*size - 1];
    }
    const int64_t most = arg[OPERANDS] < room - 2 ? arg[OPERANDS] : room - 2,
                  count = 2 + heed_draw_below(draw, most - 1);
    const int32_t operation = (int32_t)(MAX + heed_draw_below(draw, 4));
    int32_t value[MOST_OPERANDS];
    int64_t spare = room - 2 - count;
    out[(*size)++] = operation;
    for (int64_t i = 0; i < count; i++) {
        const int64_t before = *size;
        value[i] = write_list(arg, draw, depth - 1, 1 + spare, false, out, size);
        spare -= *size - before - 1;
    }
    out[(*size)++] = CLOSE;
    return value_of(operation, value, count);
}

static void make_list(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = arg[LENGTH];
    int64_t size = 0;
    const int32_t value = write_list(arg, draw, arg[DEPTH], n - 1, true, token, &size);
    for (int64_t i = size; i-- > 0;)
        token[n - 1 - size + i] = token[i];
    for (int64_t i = 0; i < n - 1 - size; i++)
        token[i] = BLANK;
    token[n - 1] = EQUALS;
    target[n - 1] = value;
}

/* arg: nodes, edges: pairs of nodes that are joined, then two nodes: how many edges lead from one to the
 * other? Nodes are numbers from 0 on; the answer is `nodes` + the distance, or `nodes` where there is no
 * path. */
enum { NODES, EDGES, MOST_NODES = 64 };

static int64_t graph_vocabulary(const int64_t *arg)
{
    return 2 * arg[NODES];
}

static int64_t graph_length(const int64_t *arg)
{
    return 2 * arg[EDGES] + 2;
}

/* Edges from `from` to each node, 0 for those that no path leads to (and for itself), by going along all
 * edges again and again. */
static void find_distances(const int64_t *arg, const int32_t *edge, int32_t from,
                           int32_t distance[MOST_NODES])
{
    bool reached[MOST_NODES] = {false};
    for (int i = 0; i < MOST_NODES; i++)
        distance[i] = 0;
    reached[from] = true;
    for (int32_t far = 1, changed = 1; changed; far++) {
        bool next[MOST_NODES] = {false};
        changed = 0;
        for (int64_t e = 0; e < 2 * arg[EDGES]; e++) {
            const int32_t a = edge[e], b = edge[e ^ 1];
            if (reached[a] && !reached[b])
                next[b] = true;
        }
        for (int i = 0; i < arg[NODES]; i++)
            if (next[i]) {
                reached[i] = true;
                distance[i] = far;
                changed = 1;
            }
    }
}

static void make_graph(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t nodes = arg[NODES], edges = arg[EDGES];
    int32_t distance[MOST_NODES], choice[MOST_NODES];
    for (int64_t e = 0; e < edges; e++) {
        token[2 * e] = (int32_t)heed_draw_below(draw, nodes);
        const int64_t other = heed_draw_below(draw, nodes - 1);
        token[2 * e + 1] = (int32_t)(other + (other >= token[2 * e]));
    }
    const int32_t from = (int32_t)heed_draw_below(draw, nodes);
    find_distances(arg, token, from, distance);
    /* half of the questions are about nodes that can be reached, where both kinds are there */
    const bool reached = heed_draw_below(draw, 2);
    int64_t choices = 0;
    for (int64_t kind = 0; kind < 2 && choices == 0; kind++)
        for (int32_t i = 0; i < nodes; i++)
            if (i != from && (distance[i] > 0) == (reached != (kind == 1)))
                choice[choices++] = i;
    const int32_t to = choice[heed_draw_below(draw, choices)];
    token[2 * edges] = from;
    token[2 * edges + 1] = to;
    target[2 * edges + 1] = (int32_t)nodes + distance[to];
}

const heed_synthetic heed_synthetic_listops = {
    .name = "listops",
    .summary = "nested operations on lists of digits: what comes out?",
    .arg = {{"length", "tokens", 64, 5, MOST_LENGTH},
            {"depth", "operations within each other, at most", 4, 1, 64},
            {"operands", "operands of an operation, at most", 5, 2, MOST_OPERANDS}},
    .ceiling = 1.0,
    .vocabulary = list_vocabulary,
    .length = list_length,
    .make = make_list};
const heed_synthetic heed_synthetic_graph = {
    .name = "graph",
    .summary = "edges of a small graph, then two nodes: how far are they apart?",
    .arg = {{"nodes", "nodes", 12, 2, MOST_NODES}, {"edges", "edges", 12, 1, 4096}},
    .ceiling = 1.0,
    .vocabulary = graph_vocabulary,
    .length = graph_length,
    .make = make_graph};
