/* BiDAF (row 000.020): attention from a context to a query and back.
 *
 *     S_tj = w1·h_t + w2·u_j + (h_t w3)·u_j
 *     u~_t = sum_j softmax_j(S_t:)_j u_j,      h~ = sum_t softmax_t(max_j S_tj)_t h_t, the same for all t
 *     G_t = [h_t; u~_t; h_t u~_t; h_t h~]
 *
 * Padding is closed on both sides before either softmax. Seo, Kembhavi, Farhadi, Hajishirzi: Bidirectional
 * Attention Flow for Machine Comprehension, 2016.
 */
#include "nn/layers.h"
#include "nn/sources.h"

/* w·x of each row, [B, n, 1] */
static heed_variable along(heed_graph *graph, const char *name, const char *part, float deviation,
                           heed_variable x)
{
    return heed_layer_linear(graph, heed_layer_under(name, part).text, x, 1, false, deviation);
}

heed_variable heed_source_flow(heed_graph *graph, const char *name, float deviation, heed_variable context,
                               heed_variable query, heed_variable closed_context, heed_variable closed_query)
{
    const heed_layer_call call = {.graph = graph};
    const int64_t b = heed_graph_size(graph, context, 0), T = heed_graph_size(graph, context, 1),
                  J = heed_graph_size(graph, query, 1), d = heed_graph_size(graph, context, 2);
    const int64_t pairs[] = {b, T, J}, line[] = {b, 1, J}, column[] = {b, 1, T}, wide[] = {b, T, d},
                  size[] = {d};
    const heed_variable w3 =
        heed_nn_parameter(graph, heed_layer_under(name, "both").text, 1, size,
                          (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = deviation});
    heed_variable of_query =
        heed_nn_reshape(graph, along(graph, name, "of_query", deviation, query), 3, line);
    if (closed_query != HEED_NO_INPUT)
        of_query = heed_nn_add(graph, of_query, heed_nn_reshape(graph, closed_query, 3, line));
    heed_variable S = heed_nn_product(graph, heed_nn_multiply(graph, context, w3), query, true);
    S = heed_nn_add(graph, S, heed_part_each(&call, along(graph, name, "of_context", deviation, context), J));
    S = heed_nn_add(graph, S, heed_nn_reshape(graph, heed_part_repeat(&call, of_query, T), 3, pairs));
    const heed_variable to_query = heed_nn_product(graph, heed_nn_softmax(graph, S), query, false);
    heed_variable best = heed_nn_reshape(graph, heed_nn_max(graph, S), 3, column);
    if (closed_context != HEED_NO_INPUT)
        best = heed_nn_add(graph, best, heed_nn_reshape(graph, closed_context, 3, column));
    const heed_variable one = heed_nn_product(graph, heed_nn_softmax(graph, best), context, false);
    const heed_variable to_context = heed_nn_reshape(graph, heed_part_repeat(&call, one, T), 3, wide);
    const heed_variable all[] = {context, to_query, heed_nn_multiply(graph, context, to_query),
                                 heed_nn_multiply(graph, context, to_context)};
    return heed_nn_concatenate(graph, 4, all, 2);
}
