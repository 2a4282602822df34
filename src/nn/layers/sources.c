/* Several sources at once (row 000.015).
 *
 *     e_ij^(k) = v·tanh(W s_i + U_k h_j^(k))
 *     flat: one softmax over all places of all sources;  c_i = sum_k sum_j a_ij^(k) P_k h_j^(k)
 *     hierarchical: c_i^(k) by a softmax of each source;  b_i = softmax_k(vb·tanh(Wb s_i + Ub_k c_i^(k))),
 *                   c_i = sum_k b_i^(k) Pb_k c_i^(k)
 *
 * The sentinel is one more slot, psi(s_i) = tanh(Wp s_i), by which a reader can look away from all sources.
 * Libovicky, Helcl: Attention Strategies for Multi-Source Sequence-to-Sequence Learning, 2017.
 */
#include "nn/sources.h"

#include "nn/graph.h"
#include "nn/layers.h"

#include <stdio.h>

typedef struct part_name {
    char text[96];
} part_name;

static part_name part(const heed_sources *how, const char *what, int k)
{
    part_name made;
    if (how->share)
        snprintf(made.text, sizeof made.text, "%s.%s", how->name, what);
    else
        snprintf(made.text, sizeof made.text, "%s.%s%d", how->name, what, k);
    return made;
}

static heed_variable map(const heed_sources *how, const char *name, heed_variable x)
{
    return heed_layer_linear(how->graph, name, x, how->dim, false, how->deviation);
}

/* A helper call that carries the graph for parts.c. */
static heed_layer_call call_of(heed_graph *graph)
{
    return (heed_layer_call){.graph = graph};
}

heed_variable heed_source_energies(heed_graph *graph, heed_variable a, heed_variable b, heed_variable v)
{
    const heed_layer_call call = call_of(graph);
    const int64_t n = heed_graph_size(graph, a, 1), m = heed_graph_size(graph, b, 1),
                  shape[] = {heed_graph_size(graph, a, 0), n, m};
    /* entries of all pairs side by side: [B, dim, n m] */
    const heed_variable mine = heed_part_each(&call, heed_nn_transpose(graph, a, (int[]){0, 2, 1}), m),
                        theirs = heed_part_repeat(&call, heed_nn_transpose(graph, b, (int[]){0, 2, 1}), n);
    const heed_variable hidden = heed_nn_apply(graph, HEED_FN_TANH, heed_nn_add(graph, mine, theirs));
    const heed_variable pairs = heed_nn_transpose(graph, hidden, (int[]){0, 2, 1});
    return heed_nn_reshape(graph, heed_nn_sum(graph, heed_nn_multiply(graph, pairs, v)), 3, shape);
}

static heed_variable vector(const heed_sources *how, const char *name)
{
    return heed_nn_parameter(how->graph, heed_layer_under(how->name, name).text, 1, &how->dim,
                             (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = how->deviation});
}

/* v·tanh(W s_i + U psi_i) of the reader's own slot: [B, n, 1] */
static heed_variable own_energy(const heed_sources *how, heed_variable a, heed_variable slot, heed_variable v)
{
    heed_graph *graph = how->graph;
    const int64_t shape[] = {heed_graph_size(graph, a, 0), heed_graph_size(graph, a, 1), 1};
    const heed_variable hidden =
        heed_nn_apply(graph, HEED_FN_TANH,
                      heed_nn_add(graph, a, map(how, heed_layer_under(how->name, "slot_key").text, slot)));
    return heed_nn_reshape(graph, heed_nn_sum(graph, heed_nn_multiply(graph, hidden, v)), 3, shape);
}

heed_variable heed_source_flat(const heed_sources *how)
{
    heed_graph *graph = how->graph;
    const heed_variable v = vector(how, "v"),
                        a = map(how, heed_layer_under(how->name, "state").text, how->states);
    heed_variable energies[HEED_SOURCES + 1], values[HEED_SOURCES + 1], slot = HEED_NO_VARIABLE;
    for (int k = 0; k < how->count; k++) {
        energies[k] = heed_source_energies(graph, a, map(how, part(how, "key", k).text, how->source[k]), v);
        values[k] = map(how, part(how, "value", k).text, how->source[k]);
    }
    if (how->sentinel) {
        slot = heed_nn_apply(graph, HEED_FN_TANH,
                             map(how, heed_layer_under(how->name, "slot").text, how->states));
        energies[how->count] = own_energy(how, a, slot, v);
    }
    const heed_variable w =
        heed_nn_softmax(graph, heed_nn_concatenate(graph, how->count + how->sentinel, energies, 2));
    const heed_variable all = heed_nn_concatenate(graph, how->count, values, 1);
    const int64_t places = heed_graph_size(graph, all, 1);
    if (how->weights)
        *how->weights = w;
    if (!how->sentinel)
        return heed_nn_product(graph, w, all, false);
    const heed_layer_call call = call_of(graph);
    const heed_variable mine = heed_part_each(&call, heed_nn_slice(graph, w, 2, places, 1), how->dim);
    return heed_nn_add(graph, heed_nn_product(graph, heed_nn_slice(graph, w, 2, 0, places), all, false),
                       heed_nn_multiply(graph, slot, mine));
}

heed_variable heed_source_hierarchical(const heed_sources *how)
{
    heed_graph *graph = how->graph;
    const heed_layer_call call = call_of(graph);
    const heed_variable v = vector(how, "v"), vb = vector(how, "upper_v"),
                        a = map(how, heed_layer_under(how->name, "state").text, how->states),
                        ab = map(how, heed_layer_under(how->name, "upper_state").text, how->states);
    const int64_t one[] = {heed_graph_size(graph, a, 0), heed_graph_size(graph, a, 1), 1};
    heed_variable energies[HEED_SOURCES], values[HEED_SOURCES], sum = HEED_NO_VARIABLE;
    for (int k = 0; k < how->count; k++) {
        const heed_variable w = heed_nn_softmax(
            graph, heed_source_energies(graph, a, map(how, part(how, "key", k).text, how->source[k]), v));
        const heed_variable c = heed_nn_product(graph, w, how->source[k], false);
        const heed_variable hidden = heed_nn_apply(
            graph, HEED_FN_TANH, heed_nn_add(graph, ab, map(how, part(how, "upper_key", k).text, c)));
        energies[k] = heed_nn_reshape(graph, heed_nn_sum(graph, heed_nn_multiply(graph, hidden, vb)), 3, one);
        values[k] = map(how, part(how, "upper_value", k).text, c);
    }
    const heed_variable b = heed_nn_softmax(graph, heed_nn_concatenate(graph, how->count, energies, 2));
    if (how->weights)
        *how->weights = b;
    for (int k = 0; k < how->count; k++) {
        const heed_variable term = heed_nn_multiply(
            graph, values[k], heed_part_each(&call, heed_nn_slice(graph, b, 2, k, 1), how->dim));
        sum = k ? heed_nn_add(graph, sum, term) : term;
    }
    return sum;
}
