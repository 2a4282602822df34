/* Adaptive tape reading (row 001.231): as many more tokens as a text asks for.
 *
 *     bank: learnt tokens, or `chunks` pieces of the text through a map;  q = mean of the tokens
 *     a step: the C unused ones of the bank with the largest q·k, k the first width / heads channels of LN(b)
 *             w = softmax of q·k / sqrt d over these; append sum w b, mark them used
 *             h += largest w;  q <- (q + sum w k) / 2;  no further step once h >= tau, at most `steps`
 *     loss += rho sum over steps of 1 - sum w^2;  tape tokens pass a gated map
 *     tokens and tape attend together; the tape has its own norms and feed-forward layer
 *
 * The first layer of this form reads the tape, later ones keep it. Steps that were not taken are hidden by a
 * mask. `read` is the mean number of steps. Xue et al.: Adaptive Computation with Elastic Input Sequence,
 * 2023.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>

enum { STEPS, TAU, TAKE, BANK, CHUNKS, RHO };
#define CLOSED 1e9f

/* Tokens that may be read, [B, M, width]. */
static heed_variable bank_of(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, w = call->model->width, n = call->model->context,
                  chunk = heed_arg_int(call->form, CHUNKS), many = heed_arg_int(call->form, BANK),
                  learnt[] = {many, w}, all[] = {b, many, w};
    if (!chunk)
        return heed_nn_add(graph, heed_part_zeros(call, 3, all),
                           heed_part_parameter(call, "bank", 2, learnt, HEED_INITIAL_NORMAL, 1));
    if (n % chunk)
        return heed_nn_fail(graph, HEED_INVALID,
                            "layer=adatape: chunks of %lld tokens do not divide the %lld there are",
                            (long long)chunk, (long long)n);
    const int64_t pieces[] = {b, n / chunk, chunk * w};
    return heed_part_map(call, "bank_proj", heed_nn_reshape(graph, call->x, 3, pieces), w);
}

typedef struct tape {
    heed_variable token[HEED_NN_INPUTS], open[HEED_NN_INPUTS]; /* [B, 1, width], [B, 1] */
    int steps;
} tape;

static heed_variable mean_of_rows(heed_graph *graph, heed_variable x)
{
    return heed_nn_mean(graph, heed_nn_transpose(graph, x, (int[]){0, 2, 1}));
}

static tape read_tape(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, w = call->model->width, d = w / call->model->heads,
                  take = heed_arg_int(call->form, TAKE);
    const heed_variable bank = bank_of(call);
    const int64_t many = heed_graph_size(graph, bank, 1), one[] = {b, 1, d}, rows[] = {b, take},
                  marks[] = {b, take, 1}, flat[] = {b, many}, line[] = {b, 1, take}, single[] = {b, 1};
    const heed_transformer norm = {.norm = HEED_LAYER_CENTRED, .norm_eps = 1e-5f};
    const heed_layer_name name = heed_layer_under(call->name, "tape_norm");
    tape t = {.steps = (int)heed_arg_int(call->form, STEPS)};
    if (t.steps * take > many) {
        heed_nn_fail(graph, HEED_INVALID, "layer=adatape: %d steps of %lld need a larger bank than %lld",
                     t.steps, (long long)take, (long long)many);
        return t;
    }
    const heed_variable key =
        heed_nn_slice(graph, heed_layer_norm_rows(graph, name.text, &norm, bank), 2, 0, d);
    heed_variable q = heed_nn_reshape(
        graph,
        heed_nn_slice(graph, mean_of_rows(graph, heed_layer_norm_rows(graph, name.text, &norm, call->x)), 1,
                      0, d),
        3, one);
    heed_variable used = heed_part_zeros(call, 2, flat), halting = heed_part_zeros(call, 2, single),
                  open = heed_nn_scale(graph, halting, 1, 1), ponder = HEED_NO_INPUT, count = HEED_NO_INPUT;
    for (int step = 0; step < t.steps; step++) {
        const heed_variable scores = heed_nn_reshape(graph, heed_nn_product(graph, q, key, true), 2, flat);
        const heed_variable which = heed_nn_order(
            graph, heed_nn_subtract(graph, scores, heed_nn_scale(graph, used, CLOSED, 0)), take);
        const heed_variable chosen =
            heed_nn_reshape(graph, heed_nn_product(graph, q, heed_nn_take(graph, key, which), true), 2, rows);
        const heed_variable share =
            heed_nn_softmax(graph, heed_nn_scale(graph, chosen, 1 / sqrtf((float)d), 0));
        const heed_variable across = heed_nn_reshape(graph, share, 3, line);
        t.token[step] = heed_nn_product(graph, across, heed_nn_take(graph, bank, which), false);
        t.open[step] = open;
        const heed_variable rest =
            heed_nn_scale(graph, heed_nn_sum(graph, heed_nn_multiply(graph, share, share)), -1, 1);
        const heed_variable cost =
            heed_part_mean(call, heed_nn_multiply(graph, heed_nn_reshape(graph, rest, 2, single), open));
        ponder = step ? heed_nn_add(graph, ponder, cost) : cost;
        count = step ? heed_nn_add(graph, count, heed_part_mean(call, open)) : heed_part_mean(call, open);
        halting = heed_nn_add(graph, halting, heed_nn_reshape(graph, heed_nn_max(graph, share), 2, single));
        const heed_variable on =
            heed_nn_step(graph, heed_nn_scale(graph, halting, -1, (float)call->form->arg[TAU].number), 0);
        open = heed_nn_stop(graph, heed_nn_multiply(graph, open, on));
        const heed_variable ones = heed_nn_scale(graph, heed_part_zeros(call, 3, marks), 1, 1);
        used =
            heed_nn_add(graph, used, heed_nn_reshape(graph, heed_nn_give(graph, ones, which, many), 2, flat));
        q = heed_nn_scale(
            graph,
            heed_nn_add(graph, q, heed_nn_product(graph, across, heed_nn_take(graph, key, which), false)),
            0.5f, 0);
    }
    heed_part_loss(call, ponder, (float)call->form->arg[RHO].number);
    heed_part_measure(call, "read", count);
    return t;
}

static heed_variable gated(const heed_layer_call *call, const char *gate, const char *up, const char *down,
                           heed_variable x)
{
    const int64_t w = call->model->width;
    const heed_variable inner = heed_nn_gate(call->graph, HEED_FN_SILU, heed_part_map(call, gate, x, 2 * w),
                                             heed_part_map(call, up, x, 2 * w));
    return heed_part_map(call, down, inner, w);
}

/* A last column on rows [B, H, n, d]: a key's 0 or -CLOSED, a query's 1. */
static heed_variable with_column(const heed_layer_call *call, heed_variable x, heed_variable column)
{
    const heed_variable both[] = {x, column};
    return heed_nn_concatenate(call->graph, 2, both, 3);
}

/* Attention of tokens and tape together [B, N + T, width], closed to steps that were not taken: open [B, T].
 */
static heed_variable attend(const heed_layer_call *call, heed_variable x, heed_variable open)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, heads = call->model->heads, n = call->model->context,
                  all = heed_graph_size(graph, x, 1), wide = heads * call->model->head_dim, lead[] = {b, n},
                  column[] = {b, all, 1}, ones[] = {b, heads, all, 1};
    const heed_variable parts[] = {heed_part_zeros(call, 2, lead),
                                   heed_nn_scale(graph, open, CLOSED, -CLOSED)};
    const heed_variable closed = heed_part_heads(
        call,
        heed_part_repeat(call, heed_nn_reshape(graph, heed_nn_concatenate(graph, 2, parts, 1), 3, column),
                         heads),
        heads);
    const heed_variable q = heed_nn_scale(
                            graph, heed_part_heads(call, heed_part_map(call, "q_proj", x, wide), heads),
                            1 / sqrtf((float)call->model->head_dim), 0),
                        k = heed_part_heads(call, heed_part_map(call, "k_proj", x, wide), heads),
                        v = heed_part_heads(call, heed_part_map(call, "v_proj", x, wide), heads);
    const heed_variable scores = heed_nn_product(
        graph, with_column(call, q, heed_nn_scale(graph, heed_part_zeros(call, 4, ones), 1, 1)),
        with_column(call, k, closed), true);
    return heed_part_out(
        call, heed_part_merge(call, heed_nn_product(graph, heed_nn_softmax(graph, scores), v, false)));
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t n = call->model->context, steps = heed_arg_int(call->form, STEPS);
    const heed_transformer norm = {.norm = HEED_LAYER_CENTRED, .norm_eps = 1e-5f};
    if (call->model->head_dim * call->model->heads != call->model->width || steps > HEED_NN_INPUTS)
        return heed_nn_fail(graph, HEED_INVALID,
                            "layer=adatape: heads must fill the width, and steps be at most %d",
                            HEED_NN_INPUTS);
    heed_variable open = heed_part_left(call, 0), tape_tokens = heed_part_left(call, 1);
    if (open == HEED_NO_INPUT) {
        const tape t = read_tape(call);
        open = heed_nn_concatenate(graph, t.steps, t.open, 1);
        tape_tokens = heed_nn_concatenate(graph, t.steps, t.token, 1);
        tape_tokens = gated(call, "tape_gate_proj", "tape_up_proj", "tape_down_proj", tape_tokens);
    }
    const heed_variable both[] = {
        call->x,
        heed_layer_norm_rows(graph, heed_layer_under(call->name, "tape_in").text, &norm, tape_tokens)};
    const heed_variable y = attend(call, heed_nn_concatenate(graph, 2, both, 1), open);
    tape_tokens = heed_nn_add(graph, tape_tokens, heed_nn_slice(graph, y, 1, n, steps));
    const heed_variable inside =
        heed_layer_norm_rows(graph, heed_layer_under(call->name, "tape_out").text, &norm, tape_tokens);
    heed_part_leave(call, heed_nn_add(graph, tape_tokens,
                                      gated(call, "own_gate_proj", "own_up_proj", "own_down_proj", inside)));
    heed_part_leave(call, open);
    return heed_nn_slice(graph, y, 1, 0, n);
}

static const heed_arg args[] = {
    [STEPS] = {.name = "steps",
               .kind = HEED_ARG_INT,
               .value = 10,
               .least = 1,
               .most = HEED_NN_INPUTS,
               .summary = "tape tokens at most"},
    [TAU] = {.name = "tau",
             .kind = HEED_ARG_FLOAT,
             .value = 2,
             .most = 1000,
             .summary = "sum of largest weights after which reading stops"},
    [TAKE] = {.name = "take",
              .kind = HEED_ARG_INT,
              .value = 5,
              .least = 1,
              .most = 4096,
              .summary = "tokens of the bank that make one"},
    [BANK] = {.name = "bank",
              .kind = HEED_ARG_INT,
              .value = 64,
              .least = 1,
              .most = 1 << 20,
              .summary = "learnt tokens, where it is not made of the text"},
    [CHUNKS] = {.name = "chunks",
                .kind = HEED_ARG_INT,
                .most = 4096,
                .summary = "tokens of the text that make one of the bank; 0: it is learnt"},
    [RHO] =
        {.name = "rho", .kind = HEED_ARG_FLOAT, .value = 0.01, .most = 1000, .summary = "what reading costs"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_adatape = {
    .name = "adatape",
    .stage = HEED_LAYER,
    .summary = "as many tokens more, read from a bank, as a text asks for",
    .formula = "attend([x, tape]), tape token t = sum over the C best unused of softmax(q·k / sqrt d) b, "
               "until sum of max w >= tau",
    .source = "Xue et al.: Adaptive Computation with Elastic Input Sequence, 2023",
    .row = "001.231",
    .args = args,
    .layer = &rule,
};
