/* Tree cross attention (row 000.005): the last tokens read the others through a tree, log2 N + 1 nodes each.
 *
 *     leaves are the tokens before the last `queries`, in order, padded to a power of 2 by zeros
 *     e_parent = mean of one layer (attention, feed-forward) over its two children, which it learns nothing
 * from walk: p(child | q) = mean over heads of softmax over both children of Wq q·Wk e / sqrt d S = the
 * siblings of the nodes that are walked through, and both leaves at the end out = Wo softmax over S of (q·k /
 * sqrt d) v
 *
 * Training draws the walk, and evaluation takes the likelier child. The walk learns by REINFORCE, times
 * `reinforce`, with `entropy` times its entropy as a bonus. For the loss of full cross-attention a share
 * `full` of the queries in training, drawn anew each time, read all leaves. walk=random draws without
 * learning, also where it is judged by numbers that do not change. Feng, Tung, Hajimirsadeghi, Bengio, Ahmed:
 * Tree Cross Attention, 2023.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

enum { QUERIES, FULL, REINFORCE, ENTROPY, WALK };
enum { LEARNT, RANDOM, WHOLE };

/* One level up: nodes [B, m, width] to [B, m/2, width]. */
static heed_variable parents(const heed_layer_call *call, heed_variable nodes)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, m = heed_graph_size(graph, nodes, 1), w = call->model->width,
                  heads = call->model->heads, wide = heads * call->model->head_dim,
                  pairs[] = {b * m / 2, 2, w}, apart[] = {b * m / 2, 2, heads, call->model->head_dim},
                  merged[] = {b * m / 2, 2, wide}, up[] = {b, m / 2, w};
    const heed_transformer norm = {.norm = HEED_LAYER_RMS, .norm_eps = 1e-5f};
    const heed_variable x = heed_nn_reshape(graph, heed_nn_stop(graph, nodes), 3, pairs);
    const heed_variable h =
        heed_layer_norm_rows(graph, heed_layer_under(call->name, "up_norm").text, &norm, x);
#define HEADS(part)                                                                                          \
    heed_nn_transpose(graph, heed_nn_reshape(graph, heed_part_map(call, part, h, wide), 4, apart),           \
                      (int[]){0, 2, 1, 3})
    const heed_variable share =
        heed_nn_softmax(graph, heed_part_scores(call, HEADS("up_q_proj"), HEADS("up_k_proj"),
                                                1 / sqrtf((float)call->model->head_dim)));
    const heed_variable read = heed_nn_transpose(
        graph, heed_nn_product(graph, share, HEADS("up_v_proj"), false), (int[]){0, 2, 1, 3});
#undef HEADS
    const heed_variable y =
        heed_nn_add(graph, x, heed_part_map(call, "up_o_proj", heed_nn_reshape(graph, read, 3, merged), w));
    const heed_variable inner =
        heed_nn_apply(graph, HEED_FN_RELU, heed_part_map(call, "up_in_proj", y, 2 * w));
    const heed_variable all = heed_nn_add(graph, y, heed_part_map(call, "up_out_proj", inner, w));
    return heed_nn_reshape(graph, heed_nn_mean(graph, heed_nn_transpose(graph, all, (int[]){0, 2, 1})), 3,
                           up);
}

/* All nodes as in a heap, [B, 2 leaves, width]; number 0 is none. */
static heed_variable heap(const heed_layer_call *call, heed_variable leaves, int depth)
{
    heed_variable level[32];
    const int64_t none[] = {call->model->batch, 1, call->model->width};
    level[depth + 1] = leaves;
    for (int d = depth; d > 0; d--)
        level[d] = parents(call, level[d + 1]);
    level[0] = heed_part_zeros(call, 3, none);
    return heed_nn_concatenate(call->graph, depth + 2, level, 1);
}

/* Numbers from -1 to 1 for walks: of training, fixed ones, or 0. */
static heed_variable noise_of(const heed_layer_call *call, int64_t n, int depth)
{
    const int64_t shape[] = {call->model->batch, n, depth}, fixed[] = {n, depth};
    if (call->form->arg[WALK].number != RANDOM)
        return heed_nn_noise(call->graph, HEED_NOISE_UNIFORM, 3, shape);
    float *values = calloc((size_t)(n * depth), sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for a walk");
    uint32_t state = 1;
    for (int64_t i = 0; i < n * depth; i++) { /* left or right at random, as +-2 is beyond all chances */
        state = state * 1664525u + 1013904223u;
        values[i] = state >> 31 ? 2.0f : -2.0f;
    }
    const heed_variable made = heed_nn_constant(call->graph, 2, fixed, values);
    free(values);
    return heed_nn_add(call->graph, heed_part_zeros(call, 3, shape), made);
}

/* [B, n, m] nodes of each query as rows [B, n m, wide]. */
static heed_variable rows_of(const heed_layer_call *call, heed_variable x, heed_variable which)
{
    const int64_t b = call->model->batch, flat[] = {b, heed_graph_size(call->graph, which, 1) *
                                                           heed_graph_size(call->graph, which, 2)};
    return heed_nn_take(call->graph, x, heed_nn_reshape(call->graph, which, 2, flat));
}

/* Chances of both children at each branching, [B, n, depth, 2], the taken one first. */
static heed_variable chances(const heed_layer_call *call, heed_variable q, heed_variable k,
                             heed_variable walk, int depth)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, n = heed_graph_size(graph, q, 1), heads = call->model->heads,
                  each[] = {b * n, heads, depth, 2}, out[] = {b, n, depth, 2},
                  lines[] = {b * n, heads, depth * 2};
    const heed_variable p = heed_nn_softmax(
        graph, heed_nn_reshape(graph, heed_part_own_scores(call, q, rows_of(call, k, walk)), 4, each));
    const heed_variable by_node =
        heed_nn_transpose(graph, heed_nn_reshape(graph, p, 3, lines), (int[]){0, 2, 1});
    return heed_nn_reshape(graph, heed_nn_mean(graph, by_node), 4, out);
}

/* log p of the walk [B, n] and its entropy, to learn from; `counts` [B, n] is 0 where it was not used. The
 * last branching is no choice. */
static void learn(const heed_layer_call *call, heed_variable p, heed_variable counts, int depth)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, n = heed_graph_size(graph, counts, 1),
                  before = call->model->context - n, lead[] = {b, before}, pair[] = {b, n, (depth - 1) * 2},
                  taken[] = {b, n, depth - 1};
    if (depth < 2)
        return;
    const heed_variable choice = heed_nn_slice(graph, p, 2, 0, depth - 1);
    const heed_variable logs = heed_nn_apply(graph, HEED_FN_LOG, heed_nn_scale(graph, choice, 1, 1e-9f));
    const heed_variable walked =
        heed_nn_sum(graph, heed_nn_reshape(graph, heed_nn_slice(graph, logs, 3, 0, 1), 3, taken));
    const heed_variable chance = heed_nn_scale(graph, heed_nn_multiply(graph, walked, counts),
                                               (float)call->form->arg[REINFORCE].number, 0);
    const heed_variable both[] = {heed_part_zeros(call, 2, lead), chance};
    heed_part_chance(call, heed_nn_concatenate(graph, 2, both, 1));
    const heed_variable entropy =
        heed_nn_sum(graph, heed_nn_reshape(graph, heed_nn_multiply(graph, choice, logs), 3, pair));
    heed_part_loss(call, heed_part_mean(call, entropy), (float)call->form->arg[ENTROPY].number);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t b = model->batch, n = heed_arg_int(call->form, QUERIES), before = model->context - n,
                  heads = model->heads, wide = heads * model->head_dim;
    const int kind = (int)call->form->arg[WALK].number;
    int depth = 1;
    if (before < 2)
        return heed_nn_fail(graph, HEED_INVALID,
                            "layer=tree: of %lld tokens %lld ask, and two others are needed",
                            (long long)model->context, (long long)n);
    while ((int64_t)1 << depth < before)
        depth++;
    const int64_t leaves = (int64_t)1 << depth, padding[] = {b, leaves - before, model->width},
                  lead[] = {b, before, model->width}, drawn[] = {b, n};
    const heed_variable x = heed_nn_slice(graph, call->x, 1, before, n);
    heed_variable leaf = heed_nn_slice(graph, call->x, 1, 0, before);
    const heed_variable both[] = {leaf, leaves > before ? heed_part_zeros(call, 3, padding) : leaf};
    leaf = leaves > before ? heed_nn_concatenate(graph, 2, both, 1) : leaf;
    const heed_variable nodes = heap(call, leaf, depth);
    const heed_variable q = heed_part_map(call, "q_proj", x, wide),
                        k = heed_part_map(call, "k_proj", nodes, wide),
                        v = heed_part_map(call, "v_proj", nodes, wide);
    const heed_variable tall = heed_part_heads(call, heed_nn_slice(graph, k, 1, leaves, before), heads),
                        deep = heed_part_heads(call, heed_nn_slice(graph, v, 1, leaves, before), heads);
    const heed_variable w = heed_nn_softmax(graph, heed_part_scores(call, heed_part_heads(call, q, heads),
                                                                    tall, 1 / sqrtf((float)model->head_dim)));
    const heed_variable whole = heed_part_merge(call, heed_nn_product(graph, w, deep, false));
    heed_variable y = whole;
    if (kind != WHOLE) {
        const heed_variable scaled = heed_nn_scale(graph, q, 1 / sqrtf((float)model->head_dim), 0);
        const heed_variable walk = heed_nn_walk(graph, scaled, k, noise_of(call, n, depth), heads);
        const heed_variable set = heed_nn_walk_set(graph, walk);
        const heed_variable share =
            heed_nn_softmax(graph, heed_part_own_scores(call, q, rows_of(call, k, set)));
        y = heed_part_own_read(call, share, rows_of(call, v, set));
        /* which queries read all: u < 2 full - 1, never where u is 0, as there is no noise */
        const float full = (float)call->form->arg[FULL].number;
        const heed_variable u = heed_nn_noise(graph, HEED_NOISE_UNIFORM, 2, drawn);
        const heed_variable reads_all =
            heed_nn_multiply(graph, heed_nn_step(graph, heed_nn_scale(graph, u, -1, 2 * full - 1), 0),
                             heed_nn_step(graph, heed_nn_apply(graph, HEED_FN_ABS, u), 0));
        const heed_variable counts = heed_nn_stop(graph, heed_nn_scale(graph, reads_all, -1, 1));
        y = heed_nn_add(graph, heed_part_times(call, y, counts),
                        heed_part_times(call, whole, heed_nn_stop(graph, reads_all)));
        if (kind == LEARNT)
            learn(call, chances(call, q, k, walk, depth), counts, depth);
        heed_part_measure(call, "nodes",
                          heed_nn_scale(graph, heed_part_mean(call, counts), 0, (float)(depth + 1)));
    }
    const heed_variable parts[] = {heed_part_zeros(call, 3, lead), heed_part_out(call, y)};
    return heed_nn_concatenate(graph, 2, parts, 1);
}

static const heed_option walks[] = {
    [LEARNT] = {"learnt", NULL}, [RANDOM] = {"random", NULL}, [WHOLE] = {"whole", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [QUERIES] = {.name = "queries",
                 .kind = HEED_ARG_INT,
                 .value = 1,
                 .least = 1,
                 .most = 1 << 20,
                 .summary = "last tokens, which read the others"},
    [FULL] = {.name = "full",
              .kind = HEED_ARG_FLOAT,
              .value = 0.5,
              .most = 1,
              .summary = "share of queries that read all leaves while it learns"},
    [REINFORCE] = {.name = "reinforce",
                   .kind = HEED_ARG_FLOAT,
                   .value = 1,
                   .most = 1000,
                   .summary = "weight of what the walk learns from"},
    [ENTROPY] = {.name = "entropy",
                 .kind = HEED_ARG_FLOAT,
                 .value = 0.01,
                 .most = 1000,
                 .summary = "bonus for walks that are not sure"},
    [WALK] = {.name = "walk",
              .kind = HEED_ARG_CHOICE,
              .options = walks,
              .summary = "learnt, random, or none: whole reads all leaves"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_tree = {
    .name = "tree",
    .stage = HEED_LAYER,
    .summary = "the last tokens read the others through a tree, log2 N + 1 nodes each",
    .formula = "softmax over S of (q·k / sqrt d) v, S the siblings along a walk p(child) = softmax of "
               "q·k_child, and the last leaves",
    .source = "Feng, Tung, Hajimirsadeghi, Bengio, Ahmed: Tree Cross Attention, 2023",
    .row = "000.005",
    .args = args,
    .layer = &rule,
};
