/**
 * @file nn.h
 * Graphs of tensor operations with gradients.
 *
 * A graph is made once for fixed shapes: each call adds a node and checks its shapes. heed_graph_finish plans
 * all memory; running allocates nothing. Numbers are f32, row-major; indices are i32. Results and gradients
 * have the same bits for any number of threads.
 *
 * A call that fails returns HEED_NO_VARIABLE, and so does every call that is given it: a layer can be written
 * without looking at each result, and heed_graph_finish returns the first failure and its sentence.
 */
#ifndef HEED_NN_H
#define HEED_NN_H

#include <heed/attend.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a parameter begins. Random numbers depend on the seed, the parameter's name and the place of the
 * entry. */
typedef enum heed_initial_kind {
    HEED_INITIAL_CONSTANT = 0, /**< size */
    HEED_INITIAL_NORMAL,       /**< mean 0, standard deviation size */
    HEED_INITIAL_UNIFORM,      /**< from -size to size */
} heed_initial_kind;

typedef struct heed_initial {
    heed_initial_kind kind;
    float size;
    const float *values; /**< these, if not NULL; copied */
} heed_initial;

/** A learnable tensor. */
typedef struct heed_parameter {
    char name[96];
    int rank;
    int64_t shape[HEED_MAX_RANK], count;
    float *value, *gradient; /**< [count]; the gradient is NULL until a graph with a loss was finished */
    bool frozen;             /**< no gradient is computed; set before the graph is finished */
    bool plain;              /**< no weight decay: norms, biases, parameters of forms of attention */
} heed_parameter;

/** Learnable tensors by name, shared by graphs: the same name is the same tensor. */
typedef struct heed_parameters heed_parameters;

HEED_API heed_status heed_parameters_create(heed_parameters **parameters, uint64_t seed);
/** After the graphs that use them. */
HEED_API void heed_parameters_free(heed_parameters *parameters);
HEED_API int heed_parameters_count(const heed_parameters *parameters);
/** In the order in which they were made. */
HEED_API heed_parameter *heed_parameters_at(const heed_parameters *parameters, int i);
/** NULL when there is none of this name. */
HEED_API heed_parameter *heed_parameters_find(const heed_parameters *parameters, const char *name);

typedef struct heed_graph heed_graph;
typedef int32_t heed_variable;
#define HEED_NO_VARIABLE (-1)
#define HEED_NO_INPUT (-2) /**< for an input that may be left out */

/** @param threads 0: one a core. @param isa as in heed_problem. */
HEED_API heed_status heed_graph_create(heed_graph **graph, heed_parameters *parameters, int threads,
                                       heed_isa isa);
HEED_API void heed_graph_free(heed_graph *graph);
/** Linear maps and products of this graph round what they multiply to bf16, forward and backward, and sum in
 * fp32; everything else, and what parameters are, stays fp32. @return HEED_UNSUPPORTED where the processor
 * has no such products */
HEED_API heed_status heed_graph_use_bf16(heed_graph *graph);

/** @name What goes in */
/**@{*/
/** Data that the caller writes to heed_graph_data before each run; f32 or i32. */
HEED_API heed_variable heed_nn_input(heed_graph *graph, heed_type type, int rank, const int64_t *shape);
/** The parameter of this name, made if there is none. */
HEED_API heed_variable heed_nn_parameter(heed_graph *graph, const char *name, int rank, const int64_t *shape,
                                         heed_initial initial);
/** Numbers that stay what they are; copied. */
HEED_API heed_variable heed_nn_constant(heed_graph *graph, int rank, const int64_t *shape,
                                        const float *values);
/**@}*/

/** @name Elementwise. In two-place operations b may have fewer leading dimensions than a, or one entry: it is
 * repeated. */
/**@{*/
HEED_API heed_variable heed_nn_add(heed_graph *graph, heed_variable a, heed_variable b);
HEED_API heed_variable heed_nn_subtract(heed_graph *graph, heed_variable a, heed_variable b);
HEED_API heed_variable heed_nn_multiply(heed_graph *graph, heed_variable a, heed_variable b);
HEED_API heed_variable heed_nn_divide(heed_graph *graph, heed_variable a, heed_variable b);
/** factor x + shift */
HEED_API heed_variable heed_nn_scale(heed_graph *graph, heed_variable x, float factor, float shift);

typedef enum heed_function {
    HEED_FN_SILU = 0, /**< x / (1 + e^-x) */
    HEED_FN_GELU,     /**< x (1 + erf(x / sqrt 2)) / 2 */
    HEED_FN_GELU_TANH,
    HEED_FN_RELU,
    HEED_FN_RELU2, /**< relu(x)^2 */
    HEED_FN_SIGMOID,
    HEED_FN_TANH,
    HEED_FN_EXP,
    HEED_FN_LOG,
    HEED_FN_SQUARE,
    HEED_FN_SQRT,
    HEED_FN_IDENTITY,
    HEED_FN_SOFTPLUS, /**< log(1 + e^x): -log sigmoid(-x) */
    HEED_FN_SIN,
    HEED_FN_COS,
    HEED_FN_ERF,
    HEED_FN_ABS, /**< slope 0 at 0 */
    HEED_FUNCTIONS
} heed_function;

/** "silu", "gelu", ...; NULL from HEED_FUNCTIONS on. */
HEED_API const char *heed_function_name(heed_function function);
HEED_API heed_variable heed_nn_apply(heed_graph *graph, heed_function function, heed_variable x);
/** function(gate) x: the middle of a gated feed-forward layer. */
HEED_API heed_variable heed_nn_gate(heed_graph *graph, heed_function function, heed_variable gate,
                                    heed_variable x);
/** Zero with probability p, else x / (1 - p), while training; x itself otherwise. */
HEED_API heed_variable heed_nn_dropout(heed_graph *graph, heed_variable x, float p);
/** x, without a gradient to it. */
HEED_API heed_variable heed_nn_stop(heed_graph *graph, heed_variable x);
/** 1 where x > above, else 0; the gradient goes on as if the result were x (straight through). */
HEED_API heed_variable heed_nn_step(heed_graph *graph, heed_variable x, float above);
typedef enum heed_noise {
    HEED_NOISE_GUMBEL = 0, /**< the largest of scores + these is drawn by softmax(scores) */
    HEED_NOISE_LOGISTIC,   /**< a score + this is above 0 with probability sigmoid(score) */
    HEED_NOISE_UNIFORM,    /**< from -1 to 1 */
} heed_noise;
/** Random numbers, others in each step of training; 0 when not training. */
HEED_API heed_variable heed_nn_noise(heed_graph *graph, heed_noise kind, int rank, const int64_t *shape);
/** A number [1] that goes from `from` to `to` over the first `steps` steps of training; `to` when not
 * training. */
HEED_API heed_variable heed_nn_ramp(heed_graph *graph, float from, float to, int64_t steps);
/**@}*/

/** @name Products */
/**@{*/
/** x [..., in], weight [out, in], bias [out] or HEED_NO_INPUT: [..., out]. */
HEED_API heed_variable heed_nn_linear(heed_graph *graph, heed_variable x, heed_variable weight,
                                      heed_variable bias);
/** a [..., m, k], b [..., k, n] of the same leading sizes, or [k, n]; with `transposed` b is [..., n, k]. */
HEED_API heed_variable heed_nn_product(heed_graph *graph, heed_variable a, heed_variable b, bool transposed);
/** x [batch, n, in], weight [taps, out, in]: out[t] = sum_k weight[k] x[stride t + dilation k - pad]. Causal:
 * pad = dilation (taps - 1), so that t sees nothing later; else half of it on either side. */
typedef struct heed_convolution {
    int64_t stride, dilation; /**< 0: 1 */
    bool causal;
    bool depthwise; /**< weight is [taps, in], each channel by itself */
} heed_convolution;
HEED_API heed_variable heed_nn_convolution(heed_graph *graph, heed_variable x, heed_variable weight,
                                           const heed_convolution *how);
/** x [batch, height, width, in], weight [out, tall, wide, in]: [batch, (height + 2 pad - tall) / stride + 1,
 * ..., out], with `pad` rows and columns of zeros around. */
typedef struct heed_convolution_2d {
    int64_t stride; /**< 0: 1 */
    int64_t pad;
    bool depthwise; /**< weight is [tall, wide, in], each channel by itself */
} heed_convolution_2d;
HEED_API heed_variable heed_nn_convolution_2d(heed_graph *graph, heed_variable x, heed_variable weight,
                                              const heed_convolution_2d *how);
/** A window that slides over the pairs of each map: x [batch, heads, n, m], weight [heads, rows, cols]:
 * out[i, j] = sum_{a, b} weight[a, b] x[i - a, j - b + floor(cols / 2)], 0 beyond the edges. */
HEED_API heed_variable heed_nn_window(heed_graph *graph, heed_variable x, heed_variable weight);
/** Moving averages: h_t = write x_t + keep h_{t-1}, out_t = sum over paces of read h_t; x [batch, n,
 * channels], keep, write and read [channels, paces]. */
HEED_API heed_variable heed_nn_moving_average(heed_graph *graph, heed_variable x, heed_variable keep,
                                              heed_variable write, heed_variable read);
/**@}*/

/** @name Rows */
/**@{*/
/** x / sqrt(mean of squares + eps) weight, over the last dimension; weight [last] or HEED_NO_INPUT. */
HEED_API heed_variable heed_nn_rms_norm(heed_graph *graph, heed_variable x, heed_variable weight, float eps);
/** (x - mean) / sqrt(variance + eps) weight + bias; either may be HEED_NO_INPUT. */
HEED_API heed_variable heed_nn_layer_norm(heed_graph *graph, heed_variable x, heed_variable weight,
                                          heed_variable bias, float eps);
HEED_API heed_variable heed_nn_softmax(heed_graph *graph, heed_variable x);
/** The nearest point with entries of at least 0 that sum to 1. */
HEED_API heed_variable heed_nn_sparsemax(heed_graph *graph, heed_variable x);
/** The nearest point with entries from 0 to 1 that sum to k; all 1 where there are no more than k. */
HEED_API heed_variable heed_nn_sparsek(heed_graph *graph, heed_variable x, int64_t k);
/** The largest entry of the last dimension, which goes away; its gradient goes to the first of equal ones. */
HEED_API heed_variable heed_nn_max(heed_graph *graph, heed_variable x);
/** Sum or mean over the last dimension, which goes away. */
HEED_API heed_variable heed_nn_sum(heed_graph *graph, heed_variable x);
HEED_API heed_variable heed_nn_mean(heed_graph *graph, heed_variable x);
/** Mean or largest of windows: x [batch, n, c] to [batch, (n - window) / stride + 1, c]. */
HEED_API heed_variable heed_nn_pool(heed_graph *graph, heed_variable x, int64_t window, int64_t stride,
                                    bool largest);
/** The same of square windows: x [batch, height, width, c]. */
HEED_API heed_variable heed_nn_pool_2d(heed_graph *graph, heed_variable x, int64_t window, int64_t stride,
                                       bool largest);
/**
 * A scalar: the mean over rows of -sum_c p(c) log softmax(logits)[c], p = 1 - smoothing at the target and
 * smoothing / classes everywhere. Rows with a target below 0 do not count; 0 when none does.
 * @param logits [..., classes] @param targets i32 [...]
 */
HEED_API heed_variable heed_nn_cross_entropy(heed_graph *graph, heed_variable logits, heed_variable targets,
                                             float smoothing);
/** -log softmax(logits)[target] of each row, 0 where the target is below 0: logits [..., classes], targets
 * i32
 * [...]. */
HEED_API heed_variable heed_nn_surprise(heed_graph *graph, heed_variable logits, heed_variable targets);
/**
 * A scalar: the mean over rows of T^2 KL(softmax(teacher / T) || softmax(x / T)). Rows with a target below 0
 * do not count. The teacher must not learn.
 * @param x, teacher [..., classes] @param targets i32 [...] @param temperature T, above 0
 */
HEED_API heed_variable heed_nn_divergence(heed_graph *graph, heed_variable x, heed_variable teacher,
                                          heed_variable targets, float temperature);
/**@}*/

/** Attention in two levels: out[i] = sum over groups g of p[i, g] times the softmax read of the group's keys.
 * Groups are consecutive keys, all of the same number; those with p = 0 are not looked at. q [batch, n, d], k
 * [batch, m, d], v [batch, m, e], p [batch, n, groups]: [batch, n, e]. */
HEED_API heed_variable heed_nn_two_level(heed_graph *graph, heed_variable q, heed_variable k, heed_variable v,
                                         heed_variable p);

/** @name Moving */
/**@{*/
/** The same numbers in another shape; costs nothing. */
HEED_API heed_variable heed_nn_reshape(heed_graph *graph, heed_variable x, int rank, const int64_t *shape);
/** Dimension d of the result is dimension order[d] of x. */
HEED_API heed_variable heed_nn_transpose(heed_graph *graph, heed_variable x, const int *order);
HEED_API heed_variable heed_nn_concatenate(heed_graph *graph, int count, const heed_variable *x, int axis);
HEED_API heed_variable heed_nn_slice(heed_graph *graph, heed_variable x, int axis, int64_t start,
                                     int64_t size);
/** out[..., n, c] = x[..., n, place[n, c]]: entries of rows by a table of places, shared by the leading
 * sizes; 0 where a place is below 0. x [..., n, from], place [n][to], copied. */
HEED_API heed_variable heed_nn_pick(heed_graph *graph, heed_variable x, const int32_t *place, int64_t to);
/** The other way: out[..., n, place[n, c]] += x[..., n, c]; x [..., n, c], out [..., n, to]. */
HEED_API heed_variable heed_nn_sort_in(heed_graph *graph, heed_variable x, const int32_t *place, int64_t to);
/** The k largest entries of each row, the others 0; of equal ones the earlier. No gradient flows through the
 * choice. */
HEED_API heed_variable heed_nn_largest(heed_graph *graph, heed_variable x, int64_t k);
/** Rows of table [rows, ...] by index i32 [...]: an embedding. An index outside is an error of the run. */
HEED_API heed_variable heed_nn_gather(heed_graph *graph, heed_variable table, heed_variable index);
/** x [m, ...] added up into rows by index i32 [m]. */
HEED_API heed_variable heed_nn_scatter(heed_graph *graph, heed_variable x, heed_variable index, int64_t rows);
/** Places of the k largest entries of each row, the largest first, of equal ones the earlier: x [..., n], the
 * result i32 [..., k]. No gradient. */
HEED_API heed_variable heed_nn_order(heed_graph *graph, heed_variable x, int64_t k);
/** out[..., i, :] = x[..., place[..., i], :], 0 where a place is below 0: x [..., n, c], place i32 [..., m],
 * the result [..., m, c]. */
HEED_API heed_variable heed_nn_take(heed_graph *graph, heed_variable x, heed_variable place);
/** The other way: out[..., place[..., i], :] += x[..., i, :]; x [..., m, c], the result [..., rows, c]. */
HEED_API heed_variable heed_nn_give(heed_graph *graph, heed_variable x, heed_variable place, int64_t rows);
/** Tokens of texts with gate [texts, n] above 0, packed into containers of n slots, first fit, those of a
 * text in one container: i32 [texts, n], each slot the number of its token among all or -1; with `segments`
 * the number of its text, and one of its own for each empty slot. */
HEED_API heed_variable heed_nn_pack(heed_graph *graph, heed_variable gate, bool segments);
/** Walks down a binary tree whose node i has the children 2i and 2i + 1, from node 1: q [batch, n, d], k
 * [batch, 2^(depth + 1), d], noise [batch, n, depth] from -1 to 1; the left child is taken where its chance,
 * the mean over heads of the softmax of q·k over both, is at least (1 + noise) / 2: i32 [batch, n, 2 depth],
 * at each branching the child that is taken and its sibling. */
HEED_API heed_variable heed_nn_walk(heed_graph *graph, heed_variable q, heed_variable k, heed_variable noise,
                                    int64_t heads);
/** The siblings along a walk and the leaf it ends at, whose subtrees have all leaves: [batch, n, depth + 1].
 */
HEED_API heed_variable heed_nn_walk_set(heed_graph *graph, heed_variable walk);
/** x [batch, cells, c], cells of a grid with one to three sizes, the last of them the fastest, at places
 * [batch, m, dims] counted in cells, between which it is linear: [batch, m, c]. Beyond the edge it is as at
 * the edge. */
HEED_API heed_variable heed_nn_sample(heed_graph *graph, heed_variable x, int dims, const int64_t *size,
                                      heed_variable at);
/**@}*/

/** Attention by a spec. */
typedef struct heed_nn_attention {
    const char *spec, *name; /**< parameters of forms are called name.stage.form.parameter */
    int64_t heads, kv_heads; /**< kv_heads 0: as many */
    int64_t layer;
    heed_variable positions; /**< i32 [batch, n] or HEED_NO_INPUT */
    heed_variable segments;  /**< i32 [batch, n] or HEED_NO_INPUT */
    heed_variable gate;      /**< for read=gate: [batch, heads, n, e]; HEED_NO_INPUT otherwise */
} heed_nn_attention;

/** q [batch, n, heads dim], k [batch, m, kv_heads dim], v [batch, m, kv_heads e]: [batch, n, heads e].
 * Parameters of the spec are made and learnt. */
HEED_API heed_variable heed_nn_attend(heed_graph *graph, heed_variable q, heed_variable k, heed_variable v,
                                      const heed_nn_attention *how);

/** What tells apart keys that are not the queries' own tokens: cross-attention. */
typedef struct heed_nn_keys {
    heed_variable positions; /**< i32 [batch, m]; there when the queries' are */
    heed_variable segments;  /**< likewise */
} heed_nn_keys;
/** heed_nn_attend with keys of another text, of m tokens. */
HEED_API heed_variable heed_nn_attend_across(heed_graph *graph, heed_variable q, heed_variable k,
                                             heed_variable v, const heed_nn_attention *how,
                                             const heed_nn_keys *keys);

/** A recurrence by a spec; see scan.h. */
typedef struct heed_nn_recurrence {
    const char *spec;
    int64_t heads, kv_heads; /**< kv_heads 0: as many */
    int64_t layer, layers;
    heed_variable decay, beta; /**< [batch, n, kv_heads], where the form reads them; else HEED_NO_INPUT */
    heed_variable gate, erase,
        rate; /**< [batch, n, kv_heads dim]; gate of forms with slots: kv_heads slots */
} heed_nn_recurrence;

/** q [batch, n, heads dim] and k [batch, n, kv_heads dim], or HEED_NO_INPUT for forms without, v [batch, n,
 * kv_heads e]: [batch, n, heads e]. */
HEED_API heed_variable heed_nn_scan(heed_graph *graph, heed_variable q, heed_variable k, heed_variable v,
                                    const heed_nn_recurrence *how);

/** Nodes made from here to the end are not kept for the backward run but computed again in it; those that
 * later nodes use stay. Segments do not nest. */
HEED_API void heed_graph_segment(heed_graph *graph);
HEED_API void heed_graph_segment_end(heed_graph *graph);

HEED_API int heed_graph_rank(const heed_graph *graph, heed_variable node);
HEED_API int64_t heed_graph_size(const heed_graph *graph, heed_variable node, int dimension);
/** The value can be read after a run. */
HEED_API void heed_graph_keep(heed_graph *graph, heed_variable node);

/** Plans. @param loss a scalar to differentiate, or HEED_NO_INPUT for a graph that only runs forward.
 * @return the first failure of any call before, or HEED_NO_MEMORY */
HEED_API heed_status heed_graph_finish(heed_graph *graph, heed_variable loss);

/** Where an input, a kept node or the loss lies; valid from heed_graph_finish on. */
HEED_API void *heed_graph_data(const heed_graph *graph, heed_variable node);

/** Which random numbers dropout takes, and whether it does anything. */
HEED_API void heed_graph_training(heed_graph *graph, bool training, uint64_t step);
HEED_API heed_status heed_graph_forward(heed_graph *graph);
/** After heed_graph_forward: gradients of scale loss. @param add to what the gradients of parameters hold */
HEED_API heed_status heed_graph_backward(heed_graph *graph, float scale, bool add);

/** Bytes planned for values and gradients of nodes, without parameters. */
HEED_API size_t heed_graph_bytes(const heed_graph *graph);
/** Multiplications and additions of products and attention in a forward run. */
HEED_API double heed_graph_flops(const heed_graph *graph);
/** Name of the operation, for messages. */
HEED_API const char *heed_graph_operation(const heed_graph *graph, heed_variable node);
/** Runs forward and looks for numbers that are not finite: the first parameter, input or operation that has
 * one; HEED_NO_VARIABLE when none has. */
HEED_API heed_variable heed_graph_not_finite(heed_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
