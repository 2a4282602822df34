/* SmartTrim (row 001.016): every layer decides which tokens and which heads are worth their cost.
 *
 *     z_i = norm(W x_i),  s = norm(W_f x_first + W_l x_last),  m_i = step(sigmoid(mlp[z_i, z_i * s] + b +
 * noise) - 1/2) w_ij = m_j exp(q_i·k_j / sqrt d) / sum_j m_j exp(q_i·k_j / sqrt d),      out = W_o [g_h sum_j
 * w_ij v_j]_h
 *
 * m is 0 or 1, with the gradient of the sigmoid (straight through); the first and the last token stay, what a
 * layer drops no later layer sees again. g_h of a head comes in the same way of an mlp of those two tokens.
 * Noise is logistic, the difference of two of Gumbel's, while training. Beside the loss counts
 *
 *     lambda (mean kept share of all layers' cost - target)^2,  target from 1 down to what is asked for in
 * `anneal` steps, cost of n of N tokens and h of H heads: h/H (4 n width^2 + 2 n^2 width) + 3 n width hidden
 *
 * The divergence from the same weights with nothing dropped is the config's `whole_share`. kind=random keeps
 * as large a share of tokens by chance. Wang et al.: SmartTrim, 2023.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

enum { TARGET, LAMBDA, TAU, ANNEAL, BOTTLENECK, KIND };
enum { LEARNT, RANDOM };

/* 1 with the probability sigmoid(x / tau) while training, and 1 where x > 0 otherwise. */
static heed_variable gate(const heed_layer_call *call, heed_variable x, int rank, const int64_t *shape)
{
    heed_graph *graph = call->graph;
    const heed_variable noisy = heed_nn_add(graph, x, heed_nn_noise(graph, HEED_NOISE_LOGISTIC, rank, shape));
    const heed_variable soft = heed_nn_apply(
        graph, HEED_FN_SIGMOID, heed_nn_scale(graph, noisy, 1.0f / heed_arg_float(call->form, TAU), 0.0f));
    return heed_nn_step(graph, soft, 0.5f);
}

/* Two layers of a map, which begin by keeping nearly all. */
static heed_variable judge(const heed_layer_call *call, const char *first, const char *second,
                           heed_variable x, int64_t hidden, int64_t out)
{
    heed_graph *graph = call->graph;
    const float deviation = call->model->deviation;
    const heed_variable middle = heed_nn_apply(
        graph, HEED_FN_GELU,
        heed_layer_linear(graph, heed_layer_under(call->name, first).text, x, hidden, true, deviation));
    const heed_variable y =
        heed_layer_linear(graph, heed_layer_under(call->name, second).text, middle, out, true, deviation);
    return heed_nn_scale(graph, y, 1.0f, 2.0f);
}

static heed_variable norm(const heed_layer_call *call, heed_variable x)
{
    return heed_nn_layer_norm(call->graph, x, HEED_NO_INPUT, HEED_NO_INPUT, 1e-5f);
}

/* [B, N]: which tokens are kept of those that are still there. */
static heed_variable keep(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t batch = call->model->batch, n = call->model->context, flat[] = {batch, n},
                  b = heed_arg_int(call->form, BOTTLENECK) ? heed_arg_int(call->form, BOTTLENECK)
                      : call->model->width >= 4            ? call->model->width / 4
                                                           : 1;
    heed_variable m = HEED_NO_VARIABLE;
    if (call->form->arg[KIND].number == RANDOM) {
        m = heed_nn_step(graph,
                         heed_nn_scale(graph, heed_part_chances(call, batch, n), -1.0f,
                                       heed_arg_float(call->form, TARGET)),
                         0.0f);
    } else {
        const heed_variable first = heed_nn_slice(graph, call->x, 1, 0, 1),
                            last = heed_nn_slice(graph, call->x, 1, n - 1, 1),
                            z = norm(call, heed_part_map(call, "token_proj", call->x, b)),
                            s = norm(call, heed_nn_add(graph, heed_part_map(call, "first_proj", first, b),
                                                       heed_part_map(call, "last_proj", last, b)));
        const heed_variable both[] = {z, heed_nn_multiply(graph, z, heed_part_spread(call, s, n))};
        const heed_variable logit =
            judge(call, "token_hidden", "token_gate", heed_nn_concatenate(graph, 2, both, 2), b, 1);
        m = gate(call, heed_nn_reshape(graph, logit, 2, flat), 2, flat);
    }
    float *stays = calloc((size_t)n, sizeof *stays), *goes = malloc((size_t)n * sizeof *goes);
    heed_variable ends = HEED_NO_VARIABLE, middle = HEED_NO_VARIABLE;
    for (int64_t i = 0; stays && goes && i < n; i++)
        goes[i] = 1.0f - (stays[i] = i == 0 || i == n - 1 ? 1.0f : 0.0f);
    if (stays && goes) {
        ends = heed_nn_constant(graph, 1, &n, stays);
        middle = heed_nn_constant(graph, 1, &n, goes);
    } else {
        heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for %lld tokens", (long long)n);
    }
    free(stays);
    free(goes);
    m = heed_nn_add(graph, heed_nn_multiply(graph, m, middle), ends);
    const heed_variable before = heed_part_left(call, 1);
    return before == HEED_NO_INPUT ? m : heed_nn_multiply(graph, m, before);
}

/* [B, 1, heads] */
static heed_variable keep_heads(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t n = call->model->context, shape[] = {call->model->batch, 1, call->model->heads};
    const heed_variable ends[] = {heed_nn_slice(graph, call->x, 1, 0, 1),
                                  heed_nn_slice(graph, call->x, 1, n - 1, 1)};
    const int64_t b = call->model->width >= 4 ? call->model->width / 4 : 1;
    return gate(call,
                judge(call, "head_hidden", "head_gate", heed_nn_concatenate(graph, 2, ends, 2), b,
                      call->model->heads),
                3, shape);
}

/* Mean share of the layer's cost that is left; m [B, N], g [B, 1, heads]. */
static heed_variable cost(const heed_layer_call *call, heed_variable m, heed_variable g)
{
    heed_graph *graph = call->graph;
    const double n = (double)call->model->context, w = (double)call->model->width, maps = 4.0 * n * w * w,
                 pairs = 2.0 * n * n * w, feed = 3.0 * n * w * (double)call->model->hidden,
                 all = maps + pairs + feed;
    const int64_t batch = call->model->batch;
    const heed_variable t = heed_nn_mean(graph, m),
                        h = heed_nn_reshape(graph, heed_nn_mean(graph, g), 1, &batch);
    const heed_variable attention =
        heed_nn_add(graph, heed_nn_scale(graph, t, (float)(maps / all), 0.0f),
                    heed_nn_scale(graph, heed_nn_multiply(graph, t, t), (float)(pairs / all), 0.0f));
    return heed_nn_mean(graph, heed_nn_add(graph, heed_nn_multiply(graph, attention, h),
                                           heed_nn_scale(graph, t, (float)(feed / all), 0.0f)));
}

/* In the last layer: the mean of all costs against the target. */
static void add_loss(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    heed_variable sum = heed_part_left(call, 0);
    int layers = 1;
    for (heed_variable one; (one = heed_part_left(call, 2 * layers)) != HEED_NO_INPUT; layers++)
        sum = heed_nn_add(graph, sum, one);
    const heed_variable off = heed_nn_subtract(
        graph,
        heed_nn_reshape(graph, heed_nn_scale(graph, sum, 1.0f / (float)layers, 0.0f), 1, (int64_t[]){1}),
        heed_nn_ramp(graph, 1.0f, heed_arg_float(call->form, TARGET), heed_arg_int(call->form, ANNEAL)));
    heed_part_loss(call, heed_nn_mean(graph, heed_nn_apply(graph, HEED_FN_SQUARE, off)),
                   heed_arg_float(call->form, LAMBDA));
}

/* Softmax over the keys that are kept. */
static heed_variable attend(const heed_layer_call *call, heed_variable m)
{
    heed_graph *graph = call->graph;
    const int64_t heads = call->model->heads, d = call->model->head_dim, n = call->model->context;
    const heed_variable q = heed_part_projected(call, "q_proj", heads),
                        k = heed_part_projected(call, "k_proj", heads),
                        v = heed_part_projected(call, "v_proj", heads);
    heed_variable w = heed_nn_softmax(graph, heed_part_scores(call, q, k, 1.0f / sqrtf((float)d)));
    if (m != HEED_NO_INPUT)
        w = heed_part_over_sum(
            call, heed_nn_scale(graph, heed_nn_multiply(graph, w, heed_part_over_keys(call, m, heads, n)),
                                1.0f, 1e-30f));
    return heed_part_merge(call, heed_nn_product(graph, w, v, false));
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t d = call->model->head_dim, n = call->model->context;
    if (call->nodes->whole)
        return heed_part_out(call, attend(call, HEED_NO_INPUT));
    const heed_variable m = keep(call);
    heed_variable y = attend(call, m), g = HEED_NO_VARIABLE;
    if (call->form->arg[KIND].number == RANDOM) {
        const int64_t shape[] = {call->model->batch, 1, 1};
        g = heed_nn_reshape(graph, heed_nn_mean(graph, heed_nn_scale(graph, m, 0.0f, 1.0f)), 3, shape);
    } else {
        g = keep_heads(call);
        y = heed_nn_multiply(graph, y, heed_part_each(call, heed_part_spread(call, g, n), d));
    }
    heed_part_leave(call, m);
    const heed_variable left = cost(call, m, g);
    heed_part_leave(call, left);
    heed_part_measure(call, "kept", heed_part_mean(call, m));
    heed_part_measure(call, "cost", left);
    if (call->layer == call->model->layers - 1 && call->nodes->beside &&
        call->form->arg[KIND].number != RANDOM)
        add_loss(call);
    return heed_part_out(call, y);
}

static const heed_option kinds[] = {{"learnt", NULL}, {"random", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [TARGET] = {.name = "target",
                .value = 0.5,
                .least = 0,
                .most = 1,
                .above = true,
                .summary = "share of the cost that shall be left"},
    [LAMBDA] = {.name = "lambda",
                .value = 20,
                .least = 0,
                .most = 1e6,
                .summary = "what missing it counts beside the loss"},
    [TAU] = {.name = "tau",
             .value = 1,
             .least = 0,
             .most = 1e6,
             .above = true,
             .summary = "temperature of gates"},
    [ANNEAL] = {.name = "anneal",
                .kind = HEED_ARG_INT,
                .value = 100,
                .most = 1 << 30,
                .summary = "steps in which the target falls from 1"},
    [BOTTLENECK] = {.name = "bottleneck",
                    .kind = HEED_ARG_INT,
                    .most = 1 << 20,
                    .summary = "numbers that judge a token; 0: width / 4"},
    [KIND] = {.name = "kind",
              .kind = HEED_ARG_CHOICE,
              .options = kinds,
              .summary = "learnt, or as large a share of tokens by chance, for comparison"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_layer_form_trim = {
    .name = "trim",
    .stage = HEED_LAYER,
    .summary =
        "every layer decides which tokens and heads are worth their cost; what is dropped stays dropped",
    .formula =
        "W_o [g_h sum_j w_ij v_j]_h, w_ij = m_j exp(s_ij) / sum m_j exp(s_ij), m, g in {0, 1} of gates",
    .source = "Wang et al.: SmartTrim: Adaptive Tokens and Attention Pruning for Efficient Vision-Language "
              "Models, 2023",
    .row = "001.016",
    .args = args,
    .layer = &rule,
};
