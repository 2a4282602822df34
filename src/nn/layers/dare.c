/* Decoupled embeddings (row 004.142): one table says where to look, another what is seen there.
 *
 *     s_ti = e_att(t)·e_att(b_i) / sqrt(d_a) + p_t·p_i / sqrt(d_p),  i before t
 *     w    = softmax over the K largest s_ti,     u_t = (sum_i w_i e_rep(b_i)) * e_rep(t),     out = W [u,
 * e_rep]
 *
 * Scores move the first table alone and what is read the second, so that the first, by which the search goes,
 * can be narrow. kind=shared has one table for both, of d_r numbers. p are learnt vectors of places. A token
 * without one before it reads 0. Feng et al.: Long-Sequence Recommendation Models Need Decoupled Embeddings,
 * 2024.
 */
#include "nn/graph.h"
#include "nn/layers.h"
#include "nn/sources.h"

#include <math.h>
#include <stdlib.h>

enum { ATTENTION, REPRESENTATION, TIME, K, KIND, GROUP };
enum { CLOSED = -1000000000 };

heed_variable heed_source_dare(const heed_layer_call *call, heed_variable a, heed_variable r,
                               heed_variable time, int64_t k, heed_variable *place)
{
    heed_graph *graph = call->graph;
    const int64_t batch = heed_graph_size(graph, a, 0), n = heed_graph_size(graph, a, 1),
                  c = heed_graph_size(graph, r, 2), top = k < n ? k : n;
    float *closed = malloc((size_t)(n * n) * sizeof *closed);
    if (!closed)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for a mask of %lld tokens", (long long)n);
    for (int64_t i = 0; i < n * n; i++)
        closed[i] = i % n < i / n ? 0.0f : (float)CLOSED;
    const heed_variable mask = heed_nn_constant(graph, 2, (int64_t[]){n, n}, closed);
    free(closed);
    heed_variable s = heed_part_scores(call, a, a, 1.0f / sqrtf((float)heed_graph_size(graph, a, 2)));
    if (time != HEED_NO_INPUT)
        s = heed_nn_add(
            graph, s,
            heed_part_scores(call, time, time, 1.0f / sqrtf((float)heed_graph_size(graph, time, 1))));
    s = heed_nn_add(graph, s, mask);
    *place = heed_nn_order(graph, s, top);
    const heed_variable best = heed_nn_reshape(
        graph, heed_nn_take(graph, heed_nn_reshape(graph, s, 4, (int64_t[]){batch, n, n, 1}), *place), 3,
        (int64_t[]){batch, n, top});
    const heed_variable open = heed_nn_stop(graph, heed_nn_step(graph, best, 0.5f * (float)CLOSED)),
                        w = heed_nn_multiply(graph, heed_nn_softmax(graph, best), open);
    const heed_variable read =
        heed_nn_take(graph, r, heed_nn_reshape(graph, *place, 2, (int64_t[]){batch, n * top}));
    const heed_variable sum =
        heed_nn_product(graph, heed_nn_reshape(graph, w, 4, (int64_t[]){batch, n, 1, top}),
                        heed_nn_reshape(graph, read, 4, (int64_t[]){batch, n, top, c}), false);
    return heed_nn_multiply(graph, heed_nn_reshape(graph, sum, 3, (int64_t[]){batch, n, c}), r);
}

static heed_variable table(const heed_layer_call *call, const char *name, int64_t width)
{
    const int64_t shape[] = {call->model->vocabulary, width};
    return heed_nn_gather(
        call->graph, heed_part_parameter(call, name, 2, shape, HEED_INITIAL_NORMAL, call->model->deviation),
        call->nodes->tokens);
}

/* Of what the last token reads, the share in its own group of so many numbers one after another. */
static void measure_group(const heed_layer_call *call, heed_variable place, int64_t group)
{
    heed_graph *graph = call->graph;
    const int64_t v = call->model->vocabulary, batch = call->model->batch, n = call->model->context,
                  top = heed_graph_size(graph, place, 2), groups = (v + group - 1) / group;
    float *values = calloc((size_t)(v * groups), sizeof *values);
    if (!values) {
        heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for groups of tokens");
        return;
    }
    for (int64_t i = 0; i < v; i++)
        values[i * groups + i / group] = 1.0f;
    const heed_variable of = heed_nn_gather(graph, heed_nn_constant(graph, 2, (int64_t[]){v, groups}, values),
                                            call->nodes->tokens);
    free(values);
    const heed_variable same = heed_nn_reshape(graph, heed_nn_product(graph, of, of, true), 4,
                                               (int64_t[]){batch, n, n, 1}),
                        read = heed_nn_reshape(graph, heed_nn_take(graph, same, place), 3,
                                               (int64_t[]){batch, n, top});
    heed_part_measure(call, "precision", heed_part_mean(call, heed_nn_slice(graph, read, 1, n - 1, 1)));
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const bool shared = call->form->arg[KIND].number == 1;
    const int64_t da = heed_arg_int(call->form, ATTENTION), dr = heed_arg_int(call->form, REPRESENTATION),
                  dp = heed_arg_int(call->form, TIME), places[] = {call->model->context, dp};
    if (call->nodes->tokens < 0 || call->model->vocabulary < 1)
        return heed_nn_fail(graph, HEED_UNSUPPORTED, "layer=dare reads tokens, and there are none here");
    const heed_variable r = table(call, "representation.weight", dr),
                        a = shared ? r : table(call, "attention.weight", da);
    const heed_variable time = dp < 1 ? HEED_NO_INPUT
                                      : heed_part_parameter(call, "time.weight", 2, places,
                                                            HEED_INITIAL_NORMAL, call->model->deviation);
    heed_variable place = HEED_NO_VARIABLE;
    const heed_variable u = heed_source_dare(call, a, r, time, heed_arg_int(call->form, K), &place);
    if (heed_arg_int(call->form, GROUP) > 0 && call->nodes->beside && place >= 0)
        measure_group(call, place, heed_arg_int(call->form, GROUP));
    return heed_part_out(call, heed_nn_concatenate(graph, 2, (heed_variable[]){u, r}, 2));
}

static const heed_option kinds[] = {{"apart", NULL}, {"shared", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [ATTENTION] = {.name = "attention",
                   .kind = HEED_ARG_INT,
                   .value = 16,
                   .least = 1,
                   .most = 4096,
                   .summary = "numbers of a token in the table that says where to look"},
    [REPRESENTATION] = {.name = "representation",
                        .kind = HEED_ARG_INT,
                        .value = 64,
                        .least = 1,
                        .most = 4096,
                        .summary = "numbers of a token in the table that says what is there"},
    [TIME] = {.name = "time",
              .kind = HEED_ARG_INT,
              .value = 4,
              .most = 4096,
              .summary = "numbers of a place; 0: places do not count"},
    [K] = {.name = "k",
           .kind = HEED_ARG_INT,
           .value = 20,
           .least = 1,
           .most = 1 << 24,
           .summary = "earlier tokens that are read"},
    [KIND] = {.name = "kind",
              .kind = HEED_ARG_CHOICE,
              .options = kinds,
              .summary = "two tables apart, or one of `representation` numbers shared"},
    [GROUP] = {.name = "group",
               .kind = HEED_ARG_INT,
               .most = 1 << 24,
               .summary = "above 0: evaluations report which share of what the last token reads is of its "
                          "group, of so many tokens one after another"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_dare = {
    .name = "dare",
    .stage = HEED_LAYER,
    .summary = "one table of tokens says where to look, another what is seen there",
    .formula =
        "W [(sum over the k largest of w_i r_i) * r_t, r_t], w = softmax(a_t·a_i / sqrt(d_a) + p_t·p_i / "
        "sqrt(d_p))",
    .source = "Feng et al.: Long-Sequence Recommendation Models Need Decoupled Embeddings, 2024",
    .row = "004.142",
    .args = args,
    .layer = &rule,
};
