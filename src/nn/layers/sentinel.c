/* Adaptive attention with a sentinel (row 001.001): a slot of the decoder's own beside the regions of a
 * picture.
 *
 *     s_t = sigmoid(Wx x_t + Wh h_{t-1}) tanh(m_t)
 *     z_i = w·tanh(Wv v_i + Wg h_t),  z_0 = w·tanh(Ws s_t + Wg h_t),  a = softmax([z_1..z_k, z_0])
 *     context = beta s_t + (1 - beta) c_t = sum_i a_i v_i + a_0 s_t,     beta = a_0
 *
 * Lu, Xiong, Parikh, Socher: Knowing When to Look, 2016.
 */
#include "nn/layers.h"
#include "nn/sources.h"

heed_variable heed_source_sentinel(heed_graph *graph, const char *name, float deviation, heed_variable h,
                                   heed_variable before, heed_variable x, heed_variable m, heed_variable v,
                                   int64_t dim, heed_variable *share)
{
    const heed_layer_call call = {.graph = graph};
    const int64_t n = heed_graph_size(graph, h, 1), k = heed_graph_size(graph, v, 1),
                  d = heed_graph_size(graph, v, 2), one[] = {heed_graph_size(graph, h, 0), n, 1};
#define MAP(part, from, out)                                                                                 \
    heed_layer_linear(graph, heed_layer_under(name, part).text, from, out, false, deviation)
    const heed_variable w = heed_nn_parameter(graph, heed_layer_under(name, "w").text, 1, &dim,
                                              (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = deviation});
    const heed_variable open = heed_nn_add(graph, MAP("input", x, d), MAP("before", before, d));
    const heed_variable s = heed_nn_gate(graph, HEED_FN_SIGMOID, open, heed_nn_apply(graph, HEED_FN_TANH, m));
    const heed_variable state = MAP("state", h, dim);
    const heed_variable own =
        heed_nn_apply(graph, HEED_FN_TANH, heed_nn_add(graph, state, MAP("slot", s, dim)));
    const heed_variable z[] = {
        heed_source_energies(graph, state, MAP("region", v, dim), w),
        heed_nn_reshape(graph, heed_nn_sum(graph, heed_nn_multiply(graph, own, w)), 3, one)};
#undef MAP
    const heed_variable a = heed_nn_softmax(graph, heed_nn_concatenate(graph, 2, z, 2));
    const heed_variable beta = heed_nn_slice(graph, a, 2, k, 1);
    if (share)
        *share = beta;
    return heed_nn_add(graph, heed_nn_product(graph, heed_nn_slice(graph, a, 2, 0, k), v, false),
                       heed_nn_multiply(graph, s, heed_part_each(&call, beta, d)));
}
