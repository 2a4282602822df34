/* A memory layer of the Focused Transformer (row 001.121): texts of a batch are each other's distractors.
 *
 *     memory = the first n - local tokens of this text and of `others` texts beside it in the batch
 *     out_i  = softmax over [memory, local tokens up to i] of q_i·k_j/sqrt(d), times v_j
 *
 * Tokens of the local part see all of the memory, or the `k` keys of it with the largest q·k; those before it
 * only their own text's. Keys carry no position here: what is remembered stands nowhere, and other layers
 * tell places apart. Gradients reach the other texts' keys, which are pushed apart from this text's: that is
 * what `others` is for. Evaluations may have more texts in the memory (`tested`). Tworkowski et al.: Focused
 * Transformer: Contrastive Training for Context Scaling, 2023.
 */
#include "nn/layers.h"

#include "nn/graph.h"

#include <math.h>
#include <stdlib.h>

enum { OTHERS, TESTED, LOCAL, K };
enum { MOST_OTHERS = 255, AT_ONCE = 16 }; /* AT_ONCE: texts that are joined at once */

/* Scores that may not count: 1 where closed is said of (row, column). */
typedef struct masked {
    int64_t rows, cols, before, own; /* the first `before` rows; the first `own` columns are theirs too */
} masked;

static heed_variable memory_mask(const heed_layer_call *call, const masked *m)
{
    const int64_t shape[] = {m->rows, m->cols};
    float *values = calloc((size_t)(m->rows * m->cols), sizeof *values);
    if (!values)
        return HEED_NO_VARIABLE;
    for (int64_t i = 0; i < m->before; i++)
        for (int64_t j = 0; j < m->cols; j++)
            values[i * m->cols + j] = j < m->own && j <= i ? 0 : -INFINITY;
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}

static heed_variable local_mask(const heed_layer_call *call, int64_t n, int64_t before)
{
    const int64_t local = n - before, shape[] = {n, local};
    float *values = calloc((size_t)(n * local), sizeof *values);
    if (!values)
        return HEED_NO_VARIABLE;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < local; j++)
            values[i * local + j] = before + j <= i ? 0 : -INFINITY;
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}

/* Rows 0..before of this text, and of the others: x [B, H, n, d] to [B, H, (1 + others) before, d]. */
static heed_variable remember(const heed_layer_call *call, heed_variable x, int64_t before, int64_t others)
{
    heed_graph *graph = call->graph;
    const int64_t batch = call->model->batch;
    heed_variable part[AT_ONCE], all[1 + MOST_OTHERS / AT_ONCE];
    const heed_variable first = heed_nn_slice(graph, x, 2, 0, before);
    part[0] = first;
    for (int64_t o = 1; o <= others; o++) {
        const heed_variable turned[] = {heed_nn_slice(graph, first, 0, o, batch - o),
                                        heed_nn_slice(graph, first, 0, 0, o)};
        part[o % AT_ONCE] = heed_nn_concatenate(graph, 2, turned, 0);
        if (o % AT_ONCE == AT_ONCE - 1)
            all[o / AT_ONCE] = heed_nn_concatenate(graph, AT_ONCE, part, 2);
    }
    const int64_t full = (others + 1) / AT_ONCE, left = (others + 1) % AT_ONCE;
    if (left)
        all[full] = heed_nn_concatenate(graph, (int)left, part, 2);
    return heed_nn_concatenate(graph, (int)(full + (left > 0)), all, 2);
}

/* -inf for the keys of the memory that are not among a row's k best; rows before the local part keep all. */
static heed_variable keep_best(const heed_layer_call *call, heed_variable scores, int64_t before, int64_t k)
{
    heed_graph *graph = call->graph;
    const int64_t n = call->model->context, cols = heed_graph_size(graph, scores, 3),
                  local[] = {n - before, cols}, early[] = {before, cols};
    const heed_variable rows[] = {heed_part_filled(call, 2, early, 0, 0),
                                  heed_part_filled(call, 2, local, 1, 0)};
    const heed_variable best =
        heed_nn_step(graph, heed_nn_largest(graph, heed_nn_softmax(graph, scores), k), 0);
    const heed_variable closed = heed_nn_scale(graph, best, 1e9f, -1e9f);
    return heed_nn_add(
        graph, scores,
        heed_nn_stop(graph, heed_nn_multiply(graph, closed, heed_nn_concatenate(graph, 2, rows, 0))));
}

/* The share of the memory's weight that the local part gives this text. */
static void measure(const heed_layer_call *call, heed_variable weights, int64_t before, int64_t remembered)
{
    heed_graph *graph = call->graph;
    const heed_variable local = heed_nn_slice(graph, weights, 2, before, call->model->context - before);
    const heed_variable own = heed_part_mean(call,
                                             heed_nn_sum(graph, heed_nn_slice(graph, local, 3, 0, before))),
                        all = heed_part_mean(
                            call, heed_nn_sum(graph, heed_nn_slice(graph, local, 3, 0, remembered)));
    heed_part_measure(call, "own_share", heed_nn_divide(graph, own, all));
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, d = model->head_dim, n = model->context;
    const int64_t local = heed_arg_int(call->form, LOCAL) ? heed_arg_int(call->form, LOCAL) : n - n / 2,
                  before = n - local, k = heed_arg_int(call->form, K);
    const int64_t others =
        heed_arg_int(call->form, model->judged && !isnan(call->form->arg[TESTED].number) ? TESTED : OTHERS);
    if (model->kv_heads != heads || before < 1 || others >= model->batch)
        return heed_nn_fail(
            graph, HEED_INVALID,
            "layer=focused(others=%lld, local=%lld): texts of %lld tokens in batches of %lld, with "
            "%lld heads and %lld kv heads; it needs fewer others than texts, a local part "
            "shorter than a text, and as many kv heads as heads",
            (long long)others, (long long)local, (long long)n, (long long)model->batch, (long long)heads,
            (long long)model->kv_heads);
    const heed_variable q = heed_part_projected(call, "q_proj", heads),
                        key = heed_part_projected(call, "k_proj", heads),
                        value = heed_part_projected(call, "v_proj", heads);
    const heed_variable keys[] = {remember(call, key, before, others),
                                  heed_nn_slice(graph, key, 2, before, local)},
                        values[] = {remember(call, value, before, others),
                                    heed_nn_slice(graph, value, 2, before, local)};
    const int64_t remembered = (1 + others) * before;
    const float scale = 1 / sqrtf((float)d);
    heed_variable far = heed_nn_add(graph, heed_part_scores(call, q, keys[0], scale),
                                    memory_mask(call, &(masked){n, remembered, before, before}));
    if (k > 0 && k < remembered)
        far = keep_best(call, far, before, k);
    const heed_variable scores[] = {
        far, heed_nn_add(graph, heed_part_scores(call, q, keys[1], scale), local_mask(call, n, before))};
    const heed_variable weights = heed_nn_softmax(graph, heed_nn_concatenate(graph, 2, scores, 3));
    measure(call, weights, before, remembered);
    return heed_part_out(
        call, heed_part_merge(
                  call, heed_nn_product(graph, weights, heed_nn_concatenate(graph, 2, values, 2), false)));
}

static const heed_arg args[] = {
    [OTHERS] = {.name = "others",
                .kind = HEED_ARG_INT,
                .value = 0,
                .most = MOST_OTHERS,
                .summary = "texts of the batch that are in the memory too, while learning"},
    [TESTED] = {.name = "tested",
                .kind = HEED_ARG_INT,
                .value = NAN,
                .most = MOST_OTHERS,
                .computed = "others",
                .summary = "the same in evaluations"},
    [LOCAL] = {.name = "local",
               .kind = HEED_ARG_INT,
               .value = 0,
               .most = 1 << 24,
               .summary = "tokens at the end of a text that are no memory; 0: half of them"},
    [K] = {.name = "k",
           .kind = HEED_ARG_INT,
           .value = 0,
           .most = 1 << 24,
           .summary = "keys of the memory that a token of the local part sees; 0: all"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_focused = {
    .name = "focused",
    .stage = HEED_LAYER,
    .summary = "attention to what stood before, in this text and as distractors in others of the batch",
    .formula = "softmax over [memory of 1 + others texts, local keys] of q.k/sqrt(d), gradients to all",
    .source = "Tworkowski et al.: Focused Transformer, 2023",
    .row = "001.121",
    .args = args,
    .layer = &rule,
};
