/* LAMA (row 001.106): many heads that one context vector asks, each by a bilinear form of low rank.
 *
 *     score_it = c^T A_i h_t,  A_i = P_i Q_i^T of rank r:  the sum over block i of (P^T c) (Q^T h_t)
 *     tanh of it, divided by its length over heads, softmax over t: A [heads][T];  M = A H [heads][D]
 *
 * P, Q [D][heads r] and c are learnt: 2 D heads r numbers and D. The states come from any encoder. Mehta et
 * al.: Low Rank Factorization for Compact Multi-Head Self-Attention, 2019.
 */
#include "nn/layers.h"
#include "nn/sources.h"

heed_variable heed_source_lama(heed_graph *graph, const char *name, float deviation, heed_variable states,
                               int64_t heads, int64_t rank)
{
    const heed_layer_call call = {.graph = graph};
    const int64_t b = heed_graph_size(graph, states, 0), T = heed_graph_size(graph, states, 1),
                  D = heed_graph_size(graph, states, 2), wide = heads * rank;
    const int64_t context_shape[] = {1, D}, flat[] = {wide}, apart[] = {b, T, heads, rank};
    const heed_variable c = heed_nn_parameter(graph, heed_layer_under(name, "context").text, 2, context_shape,
                                              (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = deviation});
    const heed_variable u = heed_nn_reshape(
        graph, heed_layer_linear(graph, heed_layer_under(name, "P").text, c, wide, false, deviation), 1,
        flat);
    const heed_variable w =
        heed_layer_linear(graph, heed_layer_under(name, "Q").text, states, wide, false, deviation);
    const heed_variable scores =
        heed_nn_apply(graph, HEED_FN_TANH,
                      heed_nn_sum(graph, heed_nn_reshape(graph, heed_nn_multiply(graph, w, u), 4, apart)));
    const int64_t rows[] = {b, T, 1};
    const heed_variable squares =
        heed_nn_reshape(graph, heed_nn_sum(graph, heed_nn_apply(graph, HEED_FN_SQUARE, scores)), 3, rows);
    const heed_variable length = heed_nn_apply(graph, HEED_FN_SQRT, heed_nn_scale(graph, squares, 1, 1e-12f));
    const heed_variable even = heed_nn_divide(graph, scores, heed_part_each(&call, length, heads));
    const heed_variable A = heed_nn_softmax(graph, heed_nn_transpose(graph, even, (int[]){0, 2, 1}));
    return heed_nn_product(graph, A, states, false);
}
