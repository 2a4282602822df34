/* Nystromformer (row 001.143): softmax attention through a few landmarks.
 *
 *     F = softmax(Q Km^T / sqrt d),  A = softmax(Qm Km^T / sqrt d),  B = softmax(Qm K^T / sqrt d)
 *     out = F pinv(A) (B V) [+ a convolution of V over time, of each head]
 *     Z0 = A^T / (|A|_1 |A|_inf),  Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4
 *
 * Landmarks Qm, Km are means of N / m tokens in turn; |A|_inf is 1, as rows sum to 1. Tokens see later ones.
 * Xiong et al.: Nystromformer, 2021.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

enum { LANDMARKS, ROUNDS, TAPS };

static heed_variable landmarks(const heed_layer_call *call, heed_variable x, int64_t m)
{
    heed_graph *graph = call->graph;
    const int64_t b = call->model->batch, n = call->model->context, heads = call->model->heads,
                  d = call->model->head_dim, rows[] = {b * heads, n, d}, apart[] = {b, heads, m, d};
    return heed_nn_reshape(
        graph, heed_nn_pool(graph, heed_nn_reshape(graph, x, 3, rows), n / m, n / m, false), 4, apart);
}

/* size I - x */
static heed_variable less(const heed_layer_call *call, float size, heed_variable x, int64_t m)
{
    const int64_t shape[] = {m, m};
    float *values = calloc((size_t)(m * m), sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for %lld landmarks", (long long)m);
    for (int64_t i = 0; i < m; i++)
        values[i * m + i] = size;
    const heed_variable identity = heed_nn_constant(call->graph, 2, shape, values);
    free(values);
    return heed_nn_add(call->graph, heed_nn_scale(call->graph, x, -1, 0), identity);
}

static heed_variable inverse(const heed_layer_call *call, heed_variable A, int64_t m)
{
    heed_graph *graph = call->graph;
    const int64_t maps = call->model->batch * call->model->heads, one[] = {maps, 1},
                  shape[] = {call->model->batch, call->model->heads, m, m};
    const heed_variable At = heed_nn_transpose(graph, A, (int[]){0, 1, 3, 2});
    const heed_variable most = heed_nn_reshape(graph, heed_nn_max(graph, heed_nn_sum(graph, At)), 2, one);
    heed_variable Z =
        heed_nn_divide(graph, At, heed_nn_reshape(graph, heed_part_each(call, most, m * m), 4, shape));
    for (int round = 0; round < heed_arg_int(call->form, ROUNDS); round++) {
        const heed_variable AZ = heed_nn_product(graph, A, Z, false);
        heed_variable x = heed_nn_product(graph, AZ, less(call, 7, AZ, m), false);
        x = heed_nn_product(graph, AZ, less(call, 15, x, m), false);
        Z = heed_nn_scale(graph, heed_nn_product(graph, Z, less(call, 13, x, m), false), 0.25f, 0);
    }
    return Z;
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const heed_transformer *model = call->model;
    const int64_t heads = model->heads, wide = heads * model->head_dim,
                  m = heed_arg_int(call->form, LANDMARKS);
    const int64_t taps = heed_arg_int(call->form, TAPS), shape[] = {taps, heads};
    const float scale = 1 / sqrtf((float)model->head_dim);
    if (m > model->context || model->context % m || (taps && taps % 2 == 0))
        return heed_nn_fail(
            graph, HEED_INVALID,
            "lowrank=nystrom(m=%lld, taps=%lld): m must divide context, %lld, and taps be odd or 0",
            (long long)m, (long long)taps, (long long)model->context);
    const heed_variable rows = heed_part_map(call, "v_proj", call->x, wide);
    const heed_variable q = heed_part_heads(call, heed_part_map(call, "q_proj", call->x, wide), heads),
                        k = heed_part_heads(call, heed_part_map(call, "k_proj", call->x, wide), heads),
                        v = heed_part_heads(call, rows, heads);
    const heed_variable few_q = landmarks(call, q, m), few_k = landmarks(call, k, m);
    const heed_variable F = heed_nn_softmax(graph, heed_part_scores(call, q, few_k, scale)),
                        A = heed_nn_softmax(graph, heed_part_scores(call, few_q, few_k, scale)),
                        B = heed_nn_softmax(graph, heed_part_scores(call, few_q, k, scale));
    const heed_variable middle =
        heed_nn_product(graph, inverse(call, A, m), heed_nn_product(graph, B, v, false), false);
    heed_variable y = heed_part_merge(call, heed_nn_product(graph, F, middle, false));
    if (taps) {
        const heed_variable of_heads =
            heed_part_parameter(call, "taps", 2, shape, HEED_INITIAL_NORMAL, 1 / (float)taps);
        const heed_convolution how = {.depthwise = true};
        y = heed_nn_add(
            graph, y,
            heed_nn_convolution(graph, rows, heed_part_each(call, of_heads, model->head_dim), &how));
    }
    return heed_part_out(call, y);
}

static const heed_arg args[] = {
    [LANDMARKS] =
        {.name = "m", .kind = HEED_ARG_INT, .value = 64, .least = 1, .most = 1 << 24, .summary = "landmarks"},
    [ROUNDS] = {.name = "rounds",
                .kind = HEED_ARG_INT,
                .value = 6,
                .most = 100,
                .summary = "of the iteration towards the inverse"},
    [TAPS] = {.name = "taps",
              .kind = HEED_ARG_INT,
              .value = 33,
              .most = 1025,
              .summary = "tokens of the convolution; 0: none"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_lowrank_form_nystrom = {
    .name = "nystrom",
    .stage = HEED_LOWRANK,
    .summary = "softmax attention through a few landmarks",
    .formula = "softmax(Q Km^T) pinv(softmax(Qm Km^T)) softmax(Qm K^T) V",
    .source = "Xiong et al.: Nystromformer, 2021",
    .row = "001.143",
    .args = args,
    .layer = &rule,
};
