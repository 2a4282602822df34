/* GMM attention (row 000.058): bells over places that only move on, without keys.
 *
 *     (w^, D^, s^) = V tanh(W s_i + b),  K each;     mu_i = mu_{i-1} + D_i
 *     a_ij = sum_k w_k / Z_k exp(-(j - mu_k)^2 / (2 sg_k^2))
 *     V0: w, D = exp, sg = sqrt(exp(-s^) / 2), Z = 1;   V1: w = softmax, D = exp, sg = sqrt(exp(s^)),
 *     Z = sqrt(2 pi sg^2);   V2: w = softmax, D, sg = softplus, Z as V1
 *
 * The bias of D and s^ begins so that D is 1 and sg is 10. Gradients go back through all steps by the sums of
 * D. Battenberg et al.: Location-Relative Attention Mechanisms for Robust Long-Form Speech Synthesis, 2019.
 */
#include "nn/graph.h"
#include "nn/layers.h"
#include "nn/sources.h"

#include <math.h>
#include <stdlib.h>

/* Sums of D so far: [B, n, K] */
static heed_variable moved(heed_graph *graph, heed_variable D)
{
    const int64_t n = heed_graph_size(graph, D, 1), shape[] = {n, n};
    float *values = calloc((size_t)(n * n), sizeof *values);
    if (!values)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for %lld steps", (long long)n);
    for (int64_t i = 0; i < n * n; i++)
        values[i] = i % n <= i / n;
    const heed_variable earlier = heed_nn_constant(graph, 2, shape, values);
    free(values);
    const heed_variable sums =
        heed_nn_linear(graph, heed_nn_transpose(graph, D, (int[]){0, 2, 1}), earlier, HEED_NO_INPUT);
    return heed_nn_transpose(graph, sums, (int[]){0, 2, 1});
}

/* 0, 1, .. m - 1, K times in turn: [K m] */
static heed_variable all_places(heed_graph *graph, int64_t m, int64_t mixtures)
{
    const int64_t shape[] = {mixtures * m};
    float *values = calloc((size_t)(mixtures * m), sizeof *values);
    if (!values)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for %lld places", (long long)m);
    for (int64_t i = 0; i < mixtures * m; i++)
        values[i] = (float)(i % m);
    const heed_variable made = heed_nn_constant(graph, 1, shape, values);
    free(values);
    return made;
}

/* V tanh(W s + b) + the start: [B, n, 3 K] */
static heed_variable parameters_of(heed_graph *graph, const char *name, float deviation, heed_variable states,
                                   int64_t mixtures, int64_t dim, heed_bells kind)
{
    const int64_t wide = 3 * mixtures, shape[] = {wide};
    float *start = calloc((size_t)wide, sizeof *start);
    if (!start)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for %lld mixtures", (long long)mixtures);
    for (int64_t i = 0; i < mixtures; i++) {
        start[mixtures + i] = kind == HEED_BELLS_V2 ? logf(expm1f(1)) : 0;
        start[2 * mixtures + i] = kind == HEED_BELLS_V0   ? -logf(200)
                                  : kind == HEED_BELLS_V1 ? logf(100)
                                                          : 10 + logf(-expm1f(-10));
    }
    const heed_variable hidden = heed_nn_apply(
        graph, HEED_FN_TANH,
        heed_layer_linear(graph, heed_layer_under(name, "hidden").text, states, dim, true, deviation));
    const heed_variable made = heed_nn_add(
        graph, heed_layer_linear(graph, heed_layer_under(name, "bells").text, hidden, wide, false, deviation),
        heed_nn_parameter(graph, heed_layer_under(name, "start").text, 1, shape,
                          (heed_initial){.values = start}));
    free(start);
    return made;
}

heed_variable heed_source_bells(heed_graph *graph, const char *name, float deviation, heed_variable states,
                                int64_t places, int64_t mixtures, int64_t dim, heed_bells kind)
{
    const heed_layer_call call = {.graph = graph};
    const int64_t b = heed_graph_size(graph, states, 0), n = heed_graph_size(graph, states, 1), K = mixtures,
                  apart[] = {b, n, K, places};
    const heed_variable all = parameters_of(graph, name, deviation, states, K, dim, kind);
#define PART(i) heed_nn_slice(graph, all, 2, (i)*K, K)
#define APPLY(f, x) heed_nn_apply(graph, f, x)
    const heed_variable D = APPLY(kind == HEED_BELLS_V2 ? HEED_FN_SOFTPLUS : HEED_FN_EXP, PART(1));
    const heed_variable variance =
        kind == HEED_BELLS_V2 ? APPLY(HEED_FN_SQUARE, APPLY(HEED_FN_SOFTPLUS, PART(2)))
        : kind == HEED_BELLS_V1
            ? APPLY(HEED_FN_EXP, PART(2))
            : heed_nn_scale(graph, APPLY(HEED_FN_EXP, heed_nn_scale(graph, PART(2), -1, 0)), 0.5f, 0);
    heed_variable w = kind == HEED_BELLS_V0 ? APPLY(HEED_FN_EXP, PART(0)) : heed_nn_softmax(graph, PART(0));
    if (kind != HEED_BELLS_V0)
        w = heed_nn_divide(graph, w,
                           APPLY(HEED_FN_SQRT, heed_nn_scale(graph, variance, 2 * acosf(-1.0f), 0)));
    const heed_variable off =
        heed_nn_subtract(graph, heed_part_each(&call, moved(graph, D), places), all_places(graph, places, K));
    const heed_variable power =
        heed_nn_divide(graph, APPLY(HEED_FN_SQUARE, off),
                       heed_nn_scale(graph, heed_part_each(&call, variance, places), -2, 0));
    const heed_variable bells =
        heed_nn_multiply(graph, APPLY(HEED_FN_EXP, power), heed_part_each(&call, w, places));
#undef PART
#undef APPLY
    return heed_nn_sum(
        graph, heed_nn_transpose(graph, heed_nn_reshape(graph, bells, 4, apart), (int[]){0, 1, 3, 2}));
}
