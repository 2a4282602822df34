/* How a decoder reads what an encoder gives, where that is no attention by a spec: a table. All are causal in
 * the decoder's states; all see every place of the encoder's text, so that it must have no padding. */
#include "nn/graph.h"
#include "nn/layers.h"
#include "nn/sources.h"

#include <math.h>
#include <stdlib.h>

typedef heed_variable reader(heed_graph *graph, const char *name, const heed_transformer *model,
                             heed_variable x, heed_variable memory);

/* Weights [B, n, m] over values of the places. */
static heed_variable weighed(heed_graph *graph, const char *name, const heed_transformer *model,
                             heed_variable weights, heed_variable memory)
{
    return heed_nn_product(graph, weights,
                           heed_layer_linear(graph, heed_layer_under(name, "v_proj").text, memory,
                                             model->width, model->bias, model->deviation),
                           false);
}

/* Row 000.058: five bells that move on, V2. */
static heed_variable by_bells(heed_graph *graph, const char *name, const heed_transformer *model,
                              heed_variable x, heed_variable memory)
{
    const heed_variable weights =
        heed_source_bells(graph, heed_layer_under(name, "bells").text, model->deviation, x,
                          heed_graph_size(graph, memory, 1), 5, model->width, HEED_BELLS_V2);
    return weighed(graph, name, model, weights, memory);
}

/* Row 000.058: sizes of filters and prior as Battenberg et al. have them. */
static heed_variable by_convolution(heed_graph *graph, const char *name, const heed_transformer *model,
                                    heed_variable x, heed_variable memory)
{
    const heed_dynamic how = {
        .filters = 8, .width = 21, .prior = 11, .dim = model->width, .alpha = 0.1f, .beta = 0.9f};
    const heed_variable weights =
        heed_source_dynamic(graph, heed_layer_under(name, "dynamic").text, model->deviation, x,
                            heed_graph_size(graph, memory, 1), &how);
    return weighed(graph, name, model, weights, memory);
}

/* The rows one token later, zeros first. */
static heed_variable one_later(heed_graph *graph, heed_variable x)
{
    const int64_t b = heed_graph_size(graph, x, 0), n = heed_graph_size(graph, x, 1),
                  d = heed_graph_size(graph, x, 2), shape[] = {b, 1, d};
    float *zeros = calloc((size_t)(b * d), sizeof *zeros);
    if (!zeros)
        return heed_nn_fail(graph, HEED_NO_MEMORY, "no memory for a row");
    const heed_variable both[] = {heed_nn_constant(graph, 3, shape, zeros),
                                  heed_nn_slice(graph, x, 1, 0, n - 1)};
    free(zeros);
    return n > 1 ? heed_nn_concatenate(graph, 2, both, 1) : both[0];
}

/* Row 001.001: a token's state is the decoder's input and its memory cell too. */
static heed_variable with_sentinel(heed_graph *graph, const char *name, const heed_transformer *model,
                                   heed_variable x, heed_variable memory)
{
    return heed_source_sentinel(graph, heed_layer_under(name, "sentinel").text, model->deviation, x,
                                one_later(graph, x), x, x, memory, model->width, NULL);
}

/* Row 000.015, of one source, beside a slot of the reader's own. */
static heed_variable additive(heed_graph *graph, const char *name, const heed_transformer *model,
                              heed_variable x, heed_variable memory)
{
    const heed_layer_name under = heed_layer_under(name, "additive");
    const heed_sources how = {.graph = graph,
                              .name = under.text,
                              .deviation = model->deviation,
                              .states = x,
                              .count = 1,
                              .source = {memory},
                              .dim = model->width,
                              .sentinel = true};
    return heed_source_flat(&how);
}

/* Row 000.015: the first and the second half of the text as two sources, weighed against each other. */
static heed_variable halves(heed_graph *graph, const char *name, const heed_transformer *model,
                            heed_variable x, heed_variable memory)
{
    const heed_layer_name under = heed_layer_under(name, "halves");
    const int64_t m = heed_graph_size(graph, memory, 1), half = m / 2;
    heed_sources how = {.graph = graph,
                        .name = under.text,
                        .deviation = model->deviation,
                        .states = x,
                        .count = 2,
                        .dim = model->width};
    if (half < 1)
        return heed_nn_fail(graph, HEED_INVALID, "reader = halves: a source of one token has no halves");
    how.source[0] = heed_nn_slice(graph, memory, 1, 0, half);
    how.source[1] = heed_nn_slice(graph, memory, 1, half, m - half);
    return heed_source_hierarchical(&how);
}

static const struct {
    const char *name;
    reader *read;
} readers[] = {
    {"attend", NULL},       {"gmm", by_bells}, {"dynamic", by_convolution}, {"sentinel", with_sentinel},
    {"additive", additive}, {"halves", halves}};

const char *heed_reader_word(int i)
{
    return i >= 0 && i < (int)(sizeof readers / sizeof *readers) ? readers[i].name : NULL;
}

heed_variable heed_layer_read(heed_graph *graph, const char *name, const heed_transformer *model,
                              heed_variable x, heed_variable memory)
{
    return heed_layer_linear(graph, heed_layer_under(name, "o_proj").text,
                             readers[model->reader].read(graph, name, model, x, memory), model->width,
                             model->bias, model->deviation / sqrtf(2.0f * (float)model->layers));
}
