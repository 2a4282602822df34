/* Mega (row 001.127): one head of gated attention over damped moving averages.
 *
 *     h_t = alpha beta x_t + (1 - alpha delta) h_{t-1},  EMA = eta·h   for each channel; alpha, delta
 * sigmoids X' = silu(EMA(X) + w X);  Z = silu(X' Wz + bz);  Q = kq Z + mq;  K = kk Z + mk;  V = silu(X Wv +
 * bv) O = f(Q K^T / tau + b_rel) V Y = phi Hh + (1 - phi) X,  phi = sigmoid(X' Wp),  Hh = silu(X' Wh +
 * (silu(X' Wg) O) Uh)
 *
 * f is softmax, tau = sqrt z, or laplace, (1 + erf((x - sqrt(1/2)) / (sqrt(1/(4 pi)) sqrt 2))) / 2 with tau
 * the number of keys seen. chunk: attention inside chunks only, the average carries on. Without causal the
 * average runs both ways. Ma et al.: Mega: Moving Average Equipped Gated Attention, 2022.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

enum { PACES, CHUNK, FUNCTION, CAUSAL };

static heed_variable map(const heed_layer_call *call, const char *part, heed_variable x, int64_t out)
{
    return heed_layer_linear(call->graph, heed_layer_under(call->name, part).text, x, out, true,
                             call->model->deviation);
}

static heed_variable apply(const heed_layer_call *call, heed_function f, heed_variable x)
{
    return heed_nn_apply(call->graph, f, x);
}

/* The tokens in reverse. */
static heed_variable reverse(const heed_layer_call *call, heed_variable x)
{
    const int64_t n = call->model->context, width = heed_graph_size(call->graph, x, 2);
    int32_t *place = calloc((size_t)(n * width), sizeof *place);
    if (!place)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for %lld places", (long long)(n * width));
    for (int64_t i = 0; i < n * width; i++)
        place[i] = (int32_t)(n - 1 - i % n);
    x = heed_nn_pick(call->graph, heed_nn_transpose(call->graph, x, (int[]){0, 2, 1}), place, n);
    free(place);
    return heed_nn_transpose(call->graph, x, (int[]){0, 2, 1});
}

static heed_variable average(const heed_layer_call *call, heed_variable x, const char *way)
{
    heed_graph *graph = call->graph;
    const int64_t shape[] = {call->model->width, heed_arg_int(call->form, PACES)};
    static const char *const parts[] = {"alpha", "delta", "beta", "eta"};
    heed_variable p[4];
    for (int i = 0; i < 4; i++)
        p[i] = heed_part_parameter(call, heed_layer_under(way, parts[i]).text, 2, shape, HEED_INITIAL_NORMAL,
                                   i < 2    ? 0.2f
                                   : i == 2 ? 1.0f
                                            : 1 / sqrtf((float)shape[1]));
    const heed_variable alpha = apply(call, HEED_FN_SIGMOID, p[0]),
                        delta = apply(call, HEED_FN_SIGMOID, p[1]);
    const heed_variable keep = heed_nn_scale(graph, heed_nn_multiply(graph, alpha, delta), -1, 1);
    return heed_nn_moving_average(graph, x, keep, heed_nn_multiply(graph, alpha, p[2]), p[3]);
}

/* [N][N]: which pairs are seen, as `open` or `closed`; divided by how many a row sees where `counted`. */
static heed_variable pairs(const heed_layer_call *call, float open, float closed, bool counted)
{
    const int64_t n = call->model->context, chunk = heed_arg_int(call->form, CHUNK), shape[] = {n, n};
    const bool causal = call->form->arg[CAUSAL].number == 0;
    float *values = calloc((size_t)(n * n), sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for %lld pairs", (long long)(n * n));
    for (int64_t i = 0; i < n; i++) {
        int64_t seen = 0;
        for (int64_t j = 0; j < n; j++) {
            const bool sees = (!causal || j <= i) && (!chunk || i / chunk == j / chunk);
            seen += sees;
            values[i * n + j] = sees ? open : closed;
        }
        for (int64_t j = 0; counted && j < n; j++)
            values[i * n + j] /= (float)seen;
    }
    const heed_variable made = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return made;
}

/* A learnt number of each offset, [N][N]. */
static heed_variable offsets(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t n = call->model->context, wide = 2 * n - 1, column[] = {n, 1}, row[] = {1, wide};
    int32_t *place = calloc((size_t)(n * n), sizeof *place);
    float *ones = calloc((size_t)n, sizeof *ones);
    heed_variable made = HEED_NO_VARIABLE;
    for (int64_t i = 0; place && ones && i < n * n; i++) {
        place[i] = (int32_t)(i % n - i / n + n - 1);
        ones[i / n] = 1;
    }
    if (place && ones) {
        const heed_variable bias = heed_part_parameter(call, "offsets", 2, row, HEED_INITIAL_CONSTANT, 0);
        made = heed_nn_pick(
            graph, heed_nn_product(graph, heed_nn_constant(graph, 2, column, ones), bias, false), place, n);
    } else {
        heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for offsets of %lld tokens", (long long)n);
    }
    free(place);
    free(ones);
    return made;
}

static heed_variable weights(const heed_layer_call *call, heed_variable q, heed_variable k, int64_t z)
{
    heed_graph *graph = call->graph;
    const heed_variable products = heed_nn_product(graph, q, k, true);
    if (call->form->arg[FUNCTION].number == 0) {
        const heed_variable x =
            heed_nn_add(graph, heed_nn_scale(graph, products, 1 / sqrtf((float)z), 0), offsets(call));
        return heed_nn_softmax(graph, heed_nn_add(graph, x, pairs(call, 0, -INFINITY, false)));
    }
    const float width = sqrtf(0.5f / acosf(-1.0f)); /* sqrt(1 / (4 pi)) sqrt 2 */
    const heed_variable x =
        heed_nn_add(graph, heed_nn_multiply(graph, products, pairs(call, 1, 0, true)), offsets(call));
    const heed_variable erf =
        apply(call, HEED_FN_ERF, heed_nn_scale(graph, x, 1 / width, -sqrtf(0.5f) / width));
    return heed_nn_multiply(graph, heed_nn_scale(graph, erf, 0.5f, 0.5f), pairs(call, 1, 0, false));
}

/* gain Z + shift, a vector each */
static heed_variable scaled(const heed_layer_call *call, heed_variable z, const char *gain, const char *shift)
{
    const int64_t size[] = {heed_graph_size(call->graph, z, 2)};
    return heed_nn_add(
        call->graph,
        heed_nn_multiply(call->graph, z, heed_part_parameter(call, gain, 1, size, HEED_INITIAL_CONSTANT, 1)),
        heed_part_parameter(call, shift, 1, size, HEED_INITIAL_CONSTANT, 0));
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t width = call->model->width, z = width / 4 ? width / 4 : 1, wide[] = {width};
    const heed_variable x = call->x;
    heed_variable ema = average(call, x, "forward");
    if (call->form->arg[CAUSAL].number != 0)
        ema = heed_nn_add(graph, ema, reverse(call, average(call, reverse(call, x), "backward")));
    const heed_variable skip =
        heed_nn_multiply(graph, x, heed_part_parameter(call, "skip", 1, wide, HEED_INITIAL_CONSTANT, 1));
    const heed_variable xs = apply(call, HEED_FN_SILU, heed_nn_add(graph, ema, skip));
    const heed_variable middle = apply(call, HEED_FN_SILU, map(call, "z_proj", xs, z));
    const heed_variable v = apply(call, HEED_FN_SILU, map(call, "v_proj", x, 2 * width));
    const heed_variable w = weights(call, scaled(call, middle, "q_gain", "q_shift"),
                                    scaled(call, middle, "k_gain", "k_shift"), z);
    const heed_variable o = heed_nn_product(graph, w, v, false);
    const heed_variable read =
        heed_nn_gate(graph, HEED_FN_SILU, heed_part_map(call, "gate_proj", xs, 2 * width), o);
    const heed_variable hidden =
        apply(call, HEED_FN_SILU,
              heed_nn_add(graph, map(call, "h_proj", xs, width), heed_part_map(call, "o_proj", read, width)));
    const heed_variable phi = apply(call, HEED_FN_SIGMOID, heed_part_map(call, "update_proj", xs, width));
    return heed_nn_add(graph, x, heed_nn_multiply(graph, phi, heed_nn_subtract(graph, hidden, x)));
}

static const heed_option functions[] = {{"softmax", NULL}, {"laplace", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [PACES] = {.name = "paces",
               .kind = HEED_ARG_INT,
               .value = 16,
               .least = 1,
               .most = 4096,
               .summary = "averages of a channel"},
    [CHUNK] = {.name = "chunk",
               .kind = HEED_ARG_INT,
               .most = 1 << 24,
               .summary = "tokens that see one another; 0: all"},
    [FUNCTION] = {.name = "function",
                  .kind = HEED_ARG_CHOICE,
                  .options = functions,
                  .summary = "scores to weights"},
    [CAUSAL] = HEED_CAUSAL_ARG,
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_mega = {
    .name = "mega",
    .stage = HEED_LAYER,
    .summary = "one head of gated attention over damped moving averages",
    .formula =
        "phi silu(X' Wh + (silu(X' Wg) f(Q K^T / tau + b) V) Uh) + (1 - phi) X, X' = silu(EMA(X) + w X)",
    .source = "Ma et al.: Mega: Moving Average Equipped Gated Attention, 2022",
    .row = "001.127",
    .args = args,
    .layer = &rule,
};
