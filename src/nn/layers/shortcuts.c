/* Attention over depth (row 001.025): the last state of a token asks its states of all layers.
 *
 *     q = Wq LN(h^L),  k_l = Wk LN(h^l),  v_l = Wv LN(h^l),  a = softmax_l(q·k_l / sqrt d) of each head
 *     added to h^L: Wo sum_l a_l v_l
 *
 * Only the token's own place is read, so nothing later is seen. Wo begins at 0: at first the model is the one
 * without shortcuts. Verma, Berger: Adaptive Large Language Models By Layerwise Attention Shortcuts, 2024.
 */
#include "nn/graph.h"
#include "nn/layers.h"
#include "nn/sources.h"

#include <math.h>

heed_variable heed_source_shortcuts(heed_graph *graph, const char *name, float deviation, int count,
                                    const heed_variable *layer, int64_t heads, float norm_eps)
{
    const heed_layer_call call = {.graph = graph};
    const heed_transformer norm = {.norm = HEED_LAYER_CENTRED, .norm_eps = norm_eps};
    const heed_variable last = layer[count - 1];
    const int64_t b = heed_graph_size(graph, last, 0), n = heed_graph_size(graph, last, 1),
                  width = heed_graph_size(graph, last, 2), d = width / heads;
    const int64_t apart[] = {b, n, heads, d}, column[] = {b, n, heads, 1}, rows[] = {b, n, heads};
    heed_variable scores[HEED_NN_INPUTS], values[HEED_NN_INPUTS], sum = HEED_NO_VARIABLE,
                                                                  q = HEED_NO_VARIABLE;
    if (count < 1 || count > HEED_NN_INPUTS || heads < 1 || width % heads)
        return heed_nn_fail(graph, HEED_INVALID, "shortcuts: %d layers of at most %d, and %lld heads of %lld",
                            count, HEED_NN_INPUTS, (long long)heads, (long long)width);
#define MAP(part, x) heed_layer_linear(graph, heed_layer_under(name, part).text, x, width, false, deviation)
    for (int l = count - 1; l >= 0; l--) { /* the last first, as it has the query */
        const heed_variable h =
            heed_layer_norm_rows(graph, heed_layer_under(name, "norm").text, &norm, layer[l]);
        q = l == count - 1 ? MAP("q_proj", h) : q;
        const heed_variable product = heed_nn_multiply(graph, q, MAP("k_proj", h));
        const heed_variable each = heed_nn_sum(graph, heed_nn_reshape(graph, product, 4, apart));
        scores[l] = heed_nn_reshape(graph, heed_nn_scale(graph, each, 1 / sqrtf((float)d), 0), 4, column);
        values[l] = MAP("v_proj", h);
    }
#undef MAP
    const heed_variable a = heed_nn_softmax(graph, heed_nn_concatenate(graph, count, scores, 3));
    for (int l = 0; l < count; l++) {
        const heed_variable share = heed_nn_reshape(graph, heed_nn_slice(graph, a, 3, l, 1), 3, rows);
        const heed_variable term = heed_nn_multiply(graph, values[l], heed_part_each(&call, share, d));
        sum = l ? heed_nn_add(graph, sum, term) : term;
    }
    const int64_t square[] = {width, width};
    return heed_nn_linear(graph, sum,
                          heed_nn_parameter(graph, heed_layer_under(name, "o_proj.weight").text, 2, square,
                                            (heed_initial){.kind = HEED_INITIAL_CONSTANT}),
                          HEED_NO_INPUT);
}
