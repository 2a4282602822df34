/* FAST over all keys (row 004.020): polynomial attention by moments of the keys. scan=fast is the causal
 * form.
 *
 *     f(qh_i·kh_j) / sum_n f(qh_i·kh_n),     f(s) = 1 + s (+ s^2 / 2 where p = 2),     xh = (x -
 * mean)/deviation
 *
 * The features 1, x, x x^T / sqrt 2 make one matrix of moments [F][d + 1], its last column for the divisor.
 * Gerami et al.: FAST: Factorizable Attention for Speeding up Transformers, 2024.
 */
#include "nn/graph.h"
#include "nn/layers.h"

#include <math.h>
#include <stdlib.h>

/* [B, H, N, 1] of ones */
static heed_variable ones(const heed_layer_call *call)
{
    const int64_t b = call->model->batch, n = call->model->context, heads = call->model->heads,
                  shape[] = {b, heads, n, 1};
    float *values = calloc((size_t)(b * heads * n), sizeof *values);
    if (!values)
        return heed_nn_fail(call->graph, HEED_NO_MEMORY, "no memory for %lld tokens", (long long)n);
    for (int64_t i = 0; i < b * heads * n; i++)
        values[i] = 1;
    const heed_variable made = heed_nn_constant(call->graph, 4, shape, values);
    free(values);
    return made;
}

static heed_variable features(const heed_layer_call *call, heed_variable x)
{
    heed_graph *graph = call->graph;
    const int64_t d = call->model->head_dim;
    x = heed_nn_layer_norm(graph, x, HEED_NO_INPUT, HEED_NO_INPUT, 1e-10f);
    const heed_variable squares =
        heed_nn_multiply(graph, heed_part_each(call, x, d), heed_part_repeat(call, x, d));
    const heed_variable all[] = {ones(call), x, heed_nn_scale(graph, squares, sqrtf(0.5f), 0)};
    return heed_nn_concatenate(graph, call->form->arg[0].number > 1 ? 3 : 2, all, 3);
}

static heed_variable make(const heed_layer_call *call)
{
    heed_graph *graph = call->graph;
    const int64_t heads = call->model->heads, d = call->model->head_dim, wide = heads * d;
    const heed_variable q = features(
                            call, heed_part_heads(call, heed_part_map(call, "q_proj", call->x, wide), heads)),
                        k = features(
                            call, heed_part_heads(call, heed_part_map(call, "k_proj", call->x, wide), heads));
    const heed_variable v[] = {heed_part_heads(call, heed_part_map(call, "v_proj", call->x, wide), heads),
                               ones(call)};
    const heed_variable moments = heed_nn_product(graph, heed_nn_transpose(graph, k, (int[]){0, 1, 3, 2}),
                                                  heed_nn_concatenate(graph, 2, v, 3), false);
    const heed_variable sums = heed_nn_product(graph, q, moments, false);
    const heed_variable norm = heed_part_each(call, heed_nn_slice(graph, sums, 3, d, 1), d);
    return heed_part_out(
        call, heed_part_merge(call, heed_nn_divide(graph, heed_nn_slice(graph, sums, 3, 0, d), norm)));
}

static const heed_arg args[] = {
    {.name = "p", .kind = HEED_ARG_INT, .value = 2, .least = 1, .most = 2, .summary = "highest power"},
    {0},
};

static const heed_layer_rule rule = {.make = make};
const heed_form heed_lowrank_form_fast = {
    .name = "fast",
    .stage = HEED_LOWRANK,
    .summary = "the Taylor series of exp on standardised queries and keys, by moments of all keys",
    .formula = "weights 1 + s + s^2/2 over their sum, s = qh·kh, xh = (x - mean)/deviation",
    .source = "Gerami et al.: FAST, 2024",
    .row = "004.020",
    .args = args,
    .layer = &rule,
};
