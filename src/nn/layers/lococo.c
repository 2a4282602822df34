/* LoCoCo (row 001.009): a memory of `slots` keys a head, into which a convolution mixes what no longer fits.
 *
 *     X = [K; V] of the s entries beside the h that received most weight, the newest `recent` among these
 *     W = softmax over s of relu(convolution(X)) [m, s],     m = slots - h
 *     K' = ((1 - g) S + g W) K,  V' alike,                   memory = [the h; the m]
 *
 * A text is read `block` tokens at a time, which see the memory and each other; after a block whatever is
 * more than the slots is mixed. S has a 1 a row, for the m entries of most weight in the order of the text,
 * so that g = 0 evicts by received weight (H2O). g is learnt from `start` on. Keys are turned by rope at
 * their own places before they are mixed. Cai et al.: LoCoCo: Dropping In Convolutions for Long Context
 * Compression, 2024.
 */
#include "nn/layers.h"

#include "nn/graph.h"

#include <math.h>
#include <stdlib.h>

enum { SLOTS, BLOCK, KEEP, RECENT, TAPS, START, LEARN };

/* What is remembered: rows [B, H, held, d] and the weight that each received [B, H, held]. */
typedef struct memory {
    heed_variable key, value, mass;
    int64_t held; /* 0: nothing yet */
} memory;

static heed_variable join(const heed_layer_call *call, heed_variable a, heed_variable b, int axis)
{
    const heed_variable both[] = {a, b};
    return heed_nn_concatenate(call->graph, 2, both, axis);
}

/* 0 where row i of a block sees column j of [memory, block]; -inf else. */
static heed_variable sight(const heed_layer_call *call, int64_t rows, int64_t held)
{
    const int64_t cols = held + rows, shape[] = {rows, cols};
    float *values = calloc((size_t)(rows * cols), sizeof *values);
    if (!values)
        return HEED_NO_VARIABLE;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = held + i + 1; j < cols; j++)
            values[i * cols + j] = -INFINITY;
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}

static heed_variable take_numbers(const heed_layer_call *call, heed_variable x, heed_variable place)
{
    heed_graph *graph = call->graph;
    const heed_variable taken = heed_nn_take(graph, heed_part_column(call, x), place);
    const int64_t shape[] = {heed_graph_size(graph, taken, 0), heed_graph_size(graph, taken, 1),
                             heed_graph_size(graph, taken, 2)};
    return heed_nn_reshape(graph, taken, 3, shape);
}

/* W [B, H, m, s] of the rows [B, H, s, d]: one convolution for all heads. */
static heed_variable mixing(const heed_layer_call *call, heed_variable key, heed_variable value, int64_t m)
{
    heed_graph *graph = call->graph;
    const int64_t batch = call->model->batch, heads = call->model->heads, d = call->model->head_dim,
                  s = heed_graph_size(graph, key, 2), taps = heed_arg_int(call->form, TAPS);
    const int64_t rows[] = {batch * heads, s, 2 * d}, shape[] = {taps, m, 2 * d},
                  apart[] = {batch, heads, m, s};
    const heed_variable weight =
        heed_part_parameter(call, "taps", 3, shape, HEED_INITIAL_NORMAL, 1 / sqrtf((float)(2 * d * taps)));
    const heed_variable all = heed_nn_reshape(graph, join(call, key, value, 3), 3, rows);
    const heed_convolution how = {.causal = false};
    const heed_variable logits =
        heed_nn_apply(graph, HEED_FN_RELU, heed_nn_convolution(graph, all, weight, &how));
    return heed_nn_softmax(
        graph, heed_nn_reshape(graph, heed_nn_transpose(graph, logits, (int[]){0, 2, 1}), 4, apart));
}

/* (1 - g) S x + g W x */
static heed_variable mixed(const heed_layer_call *call, heed_variable x, heed_variable picked,
                           heed_variable w, heed_variable g)
{
    heed_graph *graph = call->graph;
    const heed_variable best = heed_nn_take(graph, x, picked);
    const heed_variable change = heed_nn_subtract(graph, heed_nn_product(graph, w, x, false), best);
    return heed_nn_add(graph, best, heed_nn_multiply(graph, change, g));
}

static void compress(const heed_layer_call *call, memory *all)
{
    heed_graph *graph = call->graph;
    const int64_t slots = heed_arg_int(call->form, SLOTS), recent = heed_arg_int(call->form, RECENT),
                  keep = (int64_t)(call->form->arg[KEEP].number * (double)slots), m = slots - keep,
                  one[] = {1};
    const int64_t old[] = {all->held - recent}, young[] = {recent};
    heed_variable best, rest, picked;
    heed_variable score = all->mass;
    if (recent > 0)
        score = heed_nn_add(
            graph, score,
            join(call, heed_part_filled(call, 1, old, 0, 0), heed_part_filled(call, 1, young, 1e6f, 0), 0));
    heed_part_best(call, score, keep, &best, &rest);
    const heed_variable mass = take_numbers(call, all->mass, rest), key = heed_nn_take(graph, all->key, rest),
                        value = heed_nn_take(graph, all->value, rest);
    heed_part_best(call, mass, m, &picked, NULL);
    const heed_variable w = mixing(call, key, value, m),
                        g = call->form->arg[LEARN].number == 0
                                ? heed_part_parameter(call, "mix", 1, one, HEED_INITIAL_CONSTANT,
                                                      (float)call->form->arg[START].number)
                                : heed_part_filled(call, 1, one, (float)call->form->arg[START].number, 0);
    const int64_t shape[] = {call->model->batch, call->model->heads, m};
    const heed_variable masses =
        heed_nn_reshape(graph, mixed(call, heed_part_column(call, mass), picked, w, g), 3, shape);
    *all = (memory){join(call, heed_nn_take(graph, all->key, best), mixed(call, key, picked, w, g), 2),
                    join(call, heed_nn_take(graph, all->value, best), mixed(call, value, picked, w, g), 2),
                    heed_nn_stop(graph, join(call, take_numbers(call, all->mass, best), masses, 2)), slots};
}

/* A block attends to the memory and itself, and becomes part of it. */
static heed_variable read_block(const heed_layer_call *call, heed_variable q, heed_variable key,
                                heed_variable value, memory *all)
{
    heed_graph *graph = call->graph;
    const int64_t rows = heed_graph_size(graph, q, 2), held = all->held,
                  shape[] = {call->model->batch, call->model->heads, rows};
    all->key = held ? join(call, all->key, key, 2) : key;
    all->value = held ? join(call, all->value, value, 2) : value;
    const heed_variable weights = heed_nn_softmax(
        graph,
        heed_nn_add(graph, heed_part_scores(call, q, all->key, 1 / sqrtf((float)call->model->head_dim)),
                    sight(call, rows, held)));
    const heed_variable received = heed_nn_sum(graph, heed_nn_transpose(graph, weights, (int[]){0, 1, 3, 2})),
                        new = heed_part_filled(call, 3, shape, 0, 0);
    all->mass =
        heed_nn_stop(graph, held ? heed_nn_add(graph, join(call, all->mass, new, 2), received) : received);
    all->held = held + rows;
    const heed_variable out = heed_nn_product(graph, weights, all->value, false);
    if (all->held > heed_arg_int(call->form, SLOTS))
        compress(call, all);
    return out;
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, n = model->context, block = heed_arg_int(call->form, BLOCK),
                  slots = heed_arg_int(call->form, SLOTS),
                  keep = (int64_t)(call->form->arg[KEEP].number * (double)slots);
    if (model->kv_heads != heads || keep < heed_arg_int(call->form, RECENT) || keep < 1 || keep >= slots)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "layer=lococo: %lld of %lld slots stay as they are; it needs at least `recent` and one, "
            "fewer than all, and as many kv heads as heads",
            (long long)keep, (long long)slots);
    const heed_variable q = heed_part_rope(call, heed_part_projected(call, "q_proj", heads)),
                        key = heed_part_rope(call, heed_part_projected(call, "k_proj", heads)),
                        value = heed_part_projected(call, "v_proj", heads);
    memory all = {.held = 0};
    heed_variable out = HEED_NO_VARIABLE;
    for (int64_t at = 0; at < n; at += block) {
        const int64_t rows = n - at < block ? n - at : block;
        const heed_variable here =
            read_block(call, heed_nn_slice(graph, q, 2, at, rows), heed_nn_slice(graph, key, 2, at, rows),
                       heed_nn_slice(graph, value, 2, at, rows), &all);
        out = at ? join(call, out, here, 2) : here;
    }
    return heed_part_out(call, heed_part_merge(call, out));
}

static const heed_arg args[] = {
    [SLOTS] = {.name = "slots",
               .kind = HEED_ARG_INT,
               .value = 128,
               .least = 2,
               .most = 1 << 20,
               .summary = "keys that a head remembers"},
    [BLOCK] = {.name = "block",
               .kind = HEED_ARG_INT,
               .value = 512,
               .least = 1,
               .most = 1 << 20,
               .summary = "tokens that are read at once"},
    [KEEP] = {.name = "keep",
              .value = 0.5,
              .least = 0,
              .most = 1,
              .summary = "share of the slots whose entries stay as they are"},
    [RECENT] = {.name = "recent",
                .kind = HEED_ARG_INT,
                .value = 0,
                .most = 1 << 20,
                .summary = "newest entries that are among them in any case"},
    [TAPS] = {.name = "taps",
              .kind = HEED_ARG_INT,
              .value = 21,
              .least = 1,
              .most = 1023,
              .summary = "entries that the convolution sees"},
    [START] =
        {.name = "start", .value = 0.5, .least = 0, .most = 1, .summary = "g at first: 0 evicts, 1 mixes"},
    [LEARN] = {.name = "learn",
               .kind = HEED_ARG_CHOICE,
               .options = heed_yes_no,
               .summary = "whether g is learnt"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_lococo = {
    .name = "lococo",
    .stage = HEED_LAYER,
    .summary = "a memory of few slots, into which a convolution mixes what no longer fits",
    .formula = "K' = ((1 - g) S + g softmax(relu(convolution([K; V])))) K beside the heaviest h keys",
    .source = "Cai et al.: LoCoCo, 2024",
    .row = "001.009",
    .args = args,
    .layer = &rule,
};
