/* ADORE (row 001.018): which tokens stay in a cache of `slots` is foretold by a recurrent controller.
 *
 *     h_t = gru(x_t, h_{t-1}),   s_t = w2·silu(W1 h_t + w t/n),   one controller a layer
 *     token i sees itself and the slots + rebuilt tokens before it of largest s
 *
 * Scores stay what they are, so dropping the lowest whenever the cache is full keeps just those. The `slots`
 * are the cache; the `rebuilt` come next: released tokens that are read anew beside token i. Here they keep
 * the keys that they had, which is what a first layer would make of them; a later one would see fewer tokens
 * behind them. The controller does not shape the model: it learns whether a token is among the `slots` that
 * full attention weighs most, the mean over the rows that see it and the heads, by cross-entropy beside the
 * loss. Where the GRU stands is our reading. Zhang et al.: Efficient Sparse Attention needs Adaptive Token
 * Release, 2024.
 */
#include "nn/layers.h"

#include "nn/graph.h"

#include <math.h>
#include <stdlib.h>

enum { SLOTS, REBUILT, GRU, SHARE };
enum { AT_ONCE = 16, MOST = AT_ONCE * AT_ONCE * AT_ONCE };

/* Joins rows [B, 1, c] to [B, count, c], in place of the first of them, AT_ONCE at a time. */
static heed_variable join_rows(heed_graph *graph, heed_variable *row, int64_t count)
{
    while (count > 1) {
        int64_t joined = 0;
        for (int64_t i = 0; i < count; i += AT_ONCE) {
            const int64_t here = count - i < AT_ONCE ? count - i : AT_ONCE;
            row[joined++] = here > 1 ? heed_nn_concatenate(graph, (int)here, row + i, 1) : row[i];
        }
        count = joined;
    }
    return row[0];
}

/* One step: x [B, 1, 3 g] is what the token gives to the update, the reset and the candidate. */
static heed_variable step(heed_graph *graph, heed_variable x, heed_variable h, int64_t g, heed_variable gates,
                          heed_variable candidate)
{
    const heed_variable own = heed_nn_slice(graph, x, 2, 0, 2 * g),
                        last = heed_nn_slice(graph, x, 2, 2 * g, g);
    const heed_variable both =
        heed_nn_apply(graph, HEED_FN_SIGMOID,
                      h < 0 ? own : heed_nn_add(graph, own, heed_nn_linear(graph, h, gates, HEED_NO_INPUT)));
    const heed_variable update = heed_nn_slice(graph, both, 2, 0, g);
    if (h < 0)
        return heed_nn_multiply(graph, update, heed_nn_apply(graph, HEED_FN_TANH, last));
    const heed_variable reset = heed_nn_multiply(graph, heed_nn_slice(graph, both, 2, g, g), h);
    const heed_variable next =
        heed_nn_apply(graph, HEED_FN_TANH,
                      heed_nn_add(graph, last, heed_nn_linear(graph, reset, candidate, HEED_NO_INPUT)));
    return heed_nn_add(graph, h, heed_nn_multiply(graph, update, heed_nn_subtract(graph, next, h)));
}

/* s [B, N] */
static heed_variable control(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t n = call->model->context, g = heed_arg_int(call->form, GRU), gates[] = {2 * g, g},
                  candidate[] = {g, g}, place[] = {n, 1}, row[] = {1, g}, shape[] = {call->model->batch, n};
    const float size = 1 / sqrtf((float)g);
    const heed_variable x = heed_part_map(call, "gru_proj", heed_nn_stop(graph, call->x), 3 * g),
                        to_gates =
                            heed_part_parameter(call, "gru_gates", 2, gates, HEED_INITIAL_NORMAL, size),
                        to_next = heed_part_parameter(call, "gru_candidate", 2, candidate,
                                                      HEED_INITIAL_NORMAL, size);
    heed_variable *state = calloc((size_t)n, sizeof *state), h = HEED_NO_INPUT;
    if (!state)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for a controller of %lld tokens", (long long)n);
    for (int64_t t = 0; t < n; t++)
        state[t] = h = step(graph, heed_nn_slice(graph, x, 1, t, 1), h, g, to_gates, to_next);
    const heed_variable all = join_rows(graph, state, n);
    free(state);
    const heed_variable places =
        heed_nn_product(graph, heed_part_filled(call, 2, place, 0, 1 / (float)n),
                        heed_part_parameter(call, "place", 2, row, HEED_INITIAL_NORMAL, size), false);
    const heed_variable middle = heed_nn_apply(
        graph, HEED_FN_SILU, heed_nn_add(graph, heed_part_map(call, "score_proj", all, g), places));
    return heed_nn_reshape(graph, heed_part_map(call, "score", middle, 1), 2, shape);
}

/* [N, N]: `on` above the diagonal, `at` on it, `below` under it */
static heed_variable triangle(const heed_layer_call *call, float on, float at, float below)
{
    const int64_t n = call->model->context, shape[] = {n, n};
    float *values = calloc((size_t)(n * n), sizeof *values);
    if (!values)
        return HEED_NO_VARIABLE;
    for (int64_t i = 0; i < n * n; i++)
        values[i] = i % n > i / n ? on : i % n == i / n ? at : below;
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}

/* [B, N, N] 0 where row i sees column j, -1e9 else; later tokens are not looked at. */
static heed_variable released(const heed_layer_call *call, heed_variable score)
{
    heed_graph *graph = call->graph;
    const int64_t ones[] = {1, call->model->context};
    const float room = (float)(heed_arg_int(call->form, SLOTS) + heed_arg_int(call->form, REBUILT));
    const heed_variable own =
        heed_nn_product(graph, heed_part_column(call, score), heed_part_filled(call, 2, ones, 1, 0), false);
    const heed_variable above = /* [j, j']: s_j' > s_j */
        heed_nn_step(graph, heed_nn_subtract(graph, heed_nn_transpose(graph, own, (int[]){0, 2, 1}), own), 0);
    const heed_variable rank =
        heed_nn_transpose(/* [i, j]: how many before i are above j */
                          graph, heed_nn_product(graph, above, triangle(call, 1, 0, 0), false),
                          (int[]){0, 2, 1});
    const heed_variable seen = heed_nn_step(graph, heed_nn_scale(graph, rank, -1, room - 0.5f), 0);
    return heed_nn_stop(
        graph, heed_nn_multiply(graph, heed_nn_scale(graph, seen, 1e9f, -1e9f), triangle(call, 1, 0, 1)));
}

/* [B, N] 1 for the `slots` tokens of largest mean weight. */
static heed_variable labels(const heed_layer_call *call, heed_variable full, int64_t slots)
{
    heed_graph *graph = call->graph;
    const int64_t n = call->model->context;
    const heed_variable by_key = heed_nn_sum(graph, heed_nn_transpose(graph, full, (int[]){0, 3, 1, 2})),
                        mass = heed_nn_sum(graph, by_key);
    float *rows = calloc((size_t)n, sizeof *rows);
    if (!rows)
        return HEED_NO_VARIABLE;
    for (int64_t j = 0; j < n; j++)
        rows[j] = 1 / (float)(n - j);
    const heed_variable mean = heed_nn_multiply(graph, mass, heed_nn_constant(graph, 1, &n, rows));
    free(rows);
    return heed_nn_stop(graph, heed_nn_step(graph, heed_nn_largest(graph, mean, slots), 0));
}

/* The controller's loss, and how many of the right tokens it, or taking the newest, would keep. */
static void teach(const heed_layer_call *call, heed_variable score, heed_variable label, int64_t slots)
{
    heed_graph *graph = call->graph;
    const int64_t n = call->model->context;
    heed_part_loss(call,
                   heed_part_mean(call, heed_nn_subtract(graph, heed_nn_apply(graph, HEED_FN_SOFTPLUS, score),
                                                         heed_nn_multiply(graph, score, label))),
                   (float)call->form->arg[SHARE].number);
    const heed_variable kept =
        heed_nn_step(graph, heed_nn_largest(graph, heed_nn_softmax(graph, score), slots), 0);
    const float each = (float)n / (float)slots;
    heed_part_measure(
        call, "precision",
        heed_nn_scale(graph, heed_part_mean(call, heed_nn_multiply(graph, kept, label)), each, 0));
    heed_part_measure(call, "precision_of_newest",
                      heed_part_mean(call, heed_nn_slice(graph, label, 1, n - slots, slots)));
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, d = model->head_dim, n = model->context,
                  slots = heed_arg_int(call->form, SLOTS);
    if (model->kv_heads != heads || n > MOST)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "layer=adore of %lld heads, %lld kv heads and %lld tokens: it needs as many kv heads as "
            "heads, and at most %d tokens",
            (long long)heads, (long long)model->kv_heads, (long long)n, MOST);
    const heed_variable q = heed_part_rope(call, heed_part_projected(call, "q_proj", heads)),
                        key = heed_part_rope(call, heed_part_projected(call, "k_proj", heads)),
                        value = heed_part_projected(call, "v_proj", heads);
    const heed_variable scores = heed_nn_add(graph, heed_part_scores(call, q, key, 1 / sqrtf((float)d)),
                                             triangle(call, -INFINITY, 0, 0));
    heed_variable seen = scores;
    if (slots < n) {
        const heed_variable score = control(call);
        teach(call, score, labels(call, heed_nn_softmax(graph, scores), slots), slots);
        static const int swap[] = {1, 0, 2, 3};
        seen = heed_nn_transpose(
            graph, heed_nn_add(graph, heed_nn_transpose(graph, scores, swap), released(call, score)), swap);
    }
    return heed_part_out(
        call, heed_part_merge(call, heed_nn_product(graph, heed_nn_softmax(graph, seen), value, false)));
}

static const heed_arg args[] = {
    [SLOTS] = {.name = "slots",
               .kind = HEED_ARG_INT,
               .value = 256,
               .least = 1,
               .most = 1 << 20,
               .summary = "tokens in the cache"},
    [REBUILT] = {.name = "rebuilt",
                 .kind = HEED_ARG_INT,
                 .value = 32,
                 .most = 1 << 20,
                 .summary = "released tokens that each token reads beside"},
    [GRU] = {.name = "gru",
             .kind = HEED_ARG_INT,
             .value = 128,
             .least = 1,
             .most = 4096,
             .summary = "numbers of the controller's state"},
    [SHARE] = {.name = "share",
               .value = 0.1,
               .least = 0,
               .most = 1000,
               .summary = "of the controller's cross-entropy, beside the loss"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_adore = {
    .name = "adore",
    .stage = HEED_LAYER,
    .summary = "a cache of few tokens, which a recurrent controller chooses as they come",
    .formula = "token i sees itself and the earlier tokens of largest s_j = mlp(gru(x)_j, j)",
    .source = "Zhang et al.: Adaptive Token Release, 2024; a GRU a layer",
    .row = "001.018",
    .args = args,
    .layer = &rule,
};
