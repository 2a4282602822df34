/* Dynamic convolution attention (row 000.058): weights that move on from those of the step before.
 *
 *     e_ij = v·tanh(U f_j + T g_j + b) + p_j,   a_i = softmax(e_i)
 *     f = F * a_{i-1}, learnt filters;   g = G(s_i) * a_{i-1}, filters that the state makes by a hidden layer
 *     p = log(P * a_{i-1} + 1e-30), P the beta-binomial distribution over steps forward
 *
 * a_{-1} is 1 at place 0. Gradients go back through all steps. Battenberg et al.: Location-Relative Attention
 * Mechanisms for Robust Long-Form Speech Synthesis, 2019.
 */
#include "nn/graph.h"
#include "nn/layers.h"
#include "nn/sources.h"

#include <math.h>
#include <stdlib.h>

/* Entries j - t + back of rows [B, 1, m] for t < taps, 0 outside: [B, m, taps] */
static heed_variable shifted(heed_graph *graph, heed_variable a, int64_t taps, int64_t back)
{
    const int64_t b = heed_graph_size(graph, a, 0), m = heed_graph_size(graph, a, 2), shape[] = {b, m, taps};
    int32_t *place = calloc((size_t)(m * taps), sizeof *place);
    if (!place)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for %lld places", (long long)m);
    for (int64_t i = 0; i < m * taps; i++) {
        const int64_t from = i / taps - i % taps + back;
        place[i] = (int32_t)(from < 0 || from >= m ? -1 : from);
    }
    const heed_variable made = heed_nn_pick(graph, a, place, m * taps);
    free(place);
    return heed_nn_reshape(graph, made, 3, shape);
}

/* P[k] = C(n, k) B(k + alpha, n - k + beta) / B(alpha, beta), k = 0 .. n = taps - 1: [taps, 1] */
static heed_variable prior(heed_graph *graph, const heed_dynamic *how)
{
    const int64_t n = how->prior - 1, shape[] = {how->prior, 1};
    const double x = (double)how->alpha, y = (double)how->beta;
    float *values = calloc((size_t)how->prior, sizeof *values);
    if (!values)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for a prior");
    for (int64_t k = 0; k <= n; k++)
        values[k] = (float)exp(lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) +
                               lgamma((double)k + x) + lgamma((double)(n - k) + y) -
                               lgamma((double)n + x + y) + lgamma(x + y) - lgamma(x) - lgamma(y));
    const heed_variable made = heed_nn_constant(graph, 2, shape, values);
    free(values);
    return made;
}

/* Weights that are 1 at place 0: [B, 1, m] */
static heed_variable at_first(heed_graph *graph, int64_t b, int64_t m)
{
    const int64_t shape[] = {b, 1, m};
    float *values = calloc((size_t)(b * m), sizeof *values);
    if (!values)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for %lld places", (long long)m);
    for (int64_t i = 0; i < b; i++)
        values[i * m] = 1;
    const heed_variable made = heed_nn_constant(graph, 3, shape, values);
    free(values);
    return made;
}

heed_variable heed_source_dynamic(heed_graph *graph, const char *name, float deviation, heed_variable states,
                                  int64_t places, const heed_dynamic *how)
{
    const int64_t b = heed_graph_size(graph, states, 0), n = heed_graph_size(graph, states, 1),
                  wide = how->width * how->filters;
    const int64_t filters_shape[] = {how->width, how->filters}, made_shape[] = {b, how->width, how->filters},
                  row[] = {b, 1, places}, size[] = {how->dim};
    const heed_initial initial = {.kind = HEED_INITIAL_NORMAL, .size = deviation};
    if (how->width % 2 == 0 || how->prior < 1 || n > 4096)
        return heed_nn_fail(graph, HEED_INVALID,
                            "dynamic convolution: the width must be odd, and steps at most 4096");
#define MAP(part, x, out, bias)                                                                              \
    heed_layer_linear(graph, heed_layer_under(name, part).text, x, out, bias, deviation)
    const heed_variable F = heed_nn_parameter(graph, heed_layer_under(name, "filters").text, 2, filters_shape,
                                              initial),
                        v = heed_nn_parameter(graph, heed_layer_under(name, "v").text, 1, size, initial),
                        P = prior(graph, how);
    const heed_variable made =
        MAP("made_filters", heed_nn_apply(graph, HEED_FN_TANH, MAP("state", states, how->dim, true)), wide,
            false);
    heed_variable a = at_first(graph, b, places), *step = calloc((size_t)n, sizeof *step);
    if (!step)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for %lld steps", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const heed_variable before = shifted(graph, a, how->width, how->width / 2);
        const heed_variable G = heed_nn_reshape(graph, heed_nn_slice(graph, made, 1, i, 1), 3, made_shape);
        const heed_variable f = MAP("of_static", heed_nn_product(graph, before, F, false), how->dim, true),
                            g = MAP("of_made", heed_nn_product(graph, before, G, false), how->dim, false);
        const heed_variable hidden = heed_nn_apply(graph, HEED_FN_TANH, heed_nn_add(graph, f, g));
        const heed_variable energy =
            heed_nn_reshape(graph, heed_nn_sum(graph, heed_nn_multiply(graph, hidden, v)), 3, row);
        const heed_variable moved = heed_nn_product(graph, shifted(graph, a, how->prior, 0), P, false);
        const heed_variable log_prior = heed_nn_reshape(
            graph, heed_nn_apply(graph, HEED_FN_LOG, heed_nn_scale(graph, moved, 1, 1e-30f)), 3, row);
        a = step[i] = heed_nn_softmax(graph, heed_nn_add(graph, energy, log_prior));
    }
#undef MAP
    heed_variable all = step[0];
    for (int64_t i = 1; i < n; i += HEED_NN_INPUTS - 1) { /* as many at once as an operation takes */
        heed_variable some[HEED_NN_INPUTS] = {all};
        int count = 1;
        for (int64_t j = i; j < n && count < HEED_NN_INPUTS; j++)
            some[count++] = step[j];
        all = heed_nn_concatenate(graph, count, some, 1);
    }
    free(step);
    return all;
}
