/* Operations entry by entry. */
#include "nn/graph.h"

#include <math.h>

/* f(x) */
static heed_status apply_forward(const heed_work *work)
{
    const int64_t n = work->node->count;
    const heed_function f = (heed_function)work->node->whole[0];
    HEED_NN_PIECES(work->threads, n, at, HEED_NN_PIECE)
    {
        const int64_t size = n - at < HEED_NN_PIECE ? n - at : HEED_NN_PIECE;
        work->kernels->apply(f, (const float *)work->in[0] + at, (float *)work->out + at, size);
    }
    return HEED_OK;
}

static heed_status apply_backward(const heed_work *work)
{
    const int64_t n = work->node->count;
    const heed_function f = (heed_function)work->node->whole[0];
    HEED_NN_PIECES(work->threads, n, at, HEED_NN_PIECE)
    {
        const int64_t size = n - at < HEED_NN_PIECE ? n - at : HEED_NN_PIECE;
        work->kernels->apply_back(f, (const float *)work->in[0] + at, work->dout + at, work->din[0] + at,
                                  work->add[0], size);
    }
    return HEED_OK;
}

static const heed_op apply_op = {.name = "function",
                                 .forward = apply_forward,
                                 .backward = apply_backward,
                                 .reads = 1,
                                 .flags = HEED_OP_IN_PLACE};

static const char *const function_names[] = {
    [HEED_FN_SILU] = "silu",         [HEED_FN_GELU] = "gelu",   [HEED_FN_GELU_TANH] = "gelu_tanh",
    [HEED_FN_RELU] = "relu",         [HEED_FN_RELU2] = "relu2", [HEED_FN_SIGMOID] = "sigmoid",
    [HEED_FN_TANH] = "tanh",         [HEED_FN_EXP] = "exp",     [HEED_FN_LOG] = "log",
    [HEED_FN_SQUARE] = "square",     [HEED_FN_SQRT] = "sqrt",   [HEED_FN_IDENTITY] = "identity",
    [HEED_FN_SOFTPLUS] = "softplus", [HEED_FN_SIN] = "sin",     [HEED_FN_COS] = "cos",
    [HEED_FN_ERF] = "erf",           [HEED_FN_ABS] = "abs",
};

const char *heed_function_name(heed_function function)
{
    return (unsigned)function < HEED_FUNCTIONS ? function_names[function] : NULL;
}

heed_variable heed_nn_apply(heed_graph *graph, heed_function function, heed_variable x)
{
    heed_nn_node *node = heed_nn_make(graph, &apply_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    if ((unsigned)function >= HEED_FUNCTIONS)
        return heed_nn_fail(graph, HEED_INVALID, "function %d is none", (int)function);
    heed_nn_shape_of(node, heed_nn_at(graph, x));
    node->whole[0] = function;
    return heed_nn_done(graph, node);
}

/* f(gate) x */
static heed_status gate_forward(const heed_work *work)
{
    const int64_t n = work->node->count;
    const heed_function f = (heed_function)work->node->whole[0];
    HEED_NN_PIECES(work->threads, n, at, HEED_NN_PIECE)
    {
        const int64_t size = n - at < HEED_NN_PIECE ? n - at : HEED_NN_PIECE;
        work->kernels->gate(f, (const float *)work->in[0] + at, (const float *)work->in[1] + at,
                            (float *)work->out + at, size);
    }
    return HEED_OK;
}

static heed_status gate_backward(const heed_work *work)
{
    const int64_t n = work->node->count;
    const heed_function f = (heed_function)work->node->whole[0];
    HEED_NN_PIECES(work->threads, n, at, HEED_NN_PIECE)
    {
        const int64_t size = n - at < HEED_NN_PIECE ? n - at : HEED_NN_PIECE;
        work->kernels->gate_back(f, (const float *)work->in[0] + at, (const float *)work->in[1] + at,
                                 work->dout + at, work->din[0] ? work->din[0] + at : NULL, work->add[0],
                                 work->din[1] ? work->din[1] + at : NULL, work->add[1], size);
    }
    return HEED_OK;
}

static const heed_op gate_op = {
    .name = "gate", .forward = gate_forward, .backward = gate_backward, .reads = 3};

heed_variable heed_nn_gate(heed_graph *graph, heed_function function, heed_variable gate, heed_variable x)
{
    const heed_variable in[] = {gate, x};
    heed_nn_node *node = heed_nn_make(graph, &gate_op, 2, in);
    if (!node)
        return HEED_NO_VARIABLE;
    const heed_nn_node *a = heed_nn_in(graph, node, 0), *b = heed_nn_in(graph, node, 1);
    if ((unsigned)function >= HEED_FUNCTIONS || a->count != b->count || heed_nn_last(a) != heed_nn_last(b))
        return heed_nn_fail(graph, HEED_INVALID, "gate: %s and %s must have the same shape",
                            heed_nn_shape_text(a).text, heed_nn_shape_text(b).text);
    heed_nn_shape_of(node, b);
    node->whole[0] = function;
    return heed_nn_done(graph, node);
}

/* factor x + shift */
static heed_status scale_forward(const heed_work *work)
{
    const int64_t n = work->node->count;
    HEED_NN_PIECES(work->threads, n, at, HEED_NN_PIECE)
    {
        const int64_t size = n - at < HEED_NN_PIECE ? n - at : HEED_NN_PIECE;
        work->kernels->scale((const float *)work->in[0] + at, work->node->number[0], work->node->number[1],
                             (float *)work->out + at, false, size);
    }
    return HEED_OK;
}

static heed_status scale_backward(const heed_work *work)
{
    const int64_t n = work->node->count;
    HEED_NN_PIECES(work->threads, n, at, HEED_NN_PIECE)
    {
        const int64_t size = n - at < HEED_NN_PIECE ? n - at : HEED_NN_PIECE;
        work->kernels->scale(work->dout + at, work->node->number[0], 0.0f, work->din[0] + at, work->add[0],
                             size);
    }
    return HEED_OK;
}

static const heed_op scale_op = {.name = "scale", .forward = scale_forward, .backward = scale_backward};

heed_variable heed_nn_scale(heed_graph *graph, heed_variable x, float factor, float shift)
{
    heed_nn_node *node = heed_nn_make(graph, &scale_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    heed_nn_shape_of(node, heed_nn_at(graph, x));
    node->number[0] = factor;
    node->number[1] = shift;
    return heed_nn_done(graph, node);
}

/* Random numbers of a node: its number is part of the stream, so that no two nodes drop alike. */
static void drop(const heed_work *work, const float *x, float *y, bool add)
{
    const int64_t n = work->node->count;
    const float p = work->graph->training ? work->node->number[0] : 0.0f;
    const uint32_t below = (uint32_t)((double)p * 0x1p32 < 0x1p32 - 1.0 ? (double)p * 0x1p32 : 0x1p32 - 1.0);
    const uint64_t stream = work->graph->step_number << 16 | (uint64_t)(work->node - work->graph->node);
    HEED_NN_PIECES(work->threads, n, at, HEED_NN_PIECE)
    {
        const int64_t size = n - at < HEED_NN_PIECE ? n - at : HEED_NN_PIECE;
        if (p > 0.0f)
            work->kernels->dropout(heed_parameters_seed(work->graph->parameters), stream, at, below,
                                   1.0f / (1.0f - p), x + at, y + at, add, size);
        else
            work->kernels->scale(x + at, 1.0f, 0.0f, y + at, add, size);
    }
}

static heed_status dropout_forward(const heed_work *work)
{
    drop(work, work->in[0], work->out, false);
    return HEED_OK;
}

static heed_status dropout_backward(const heed_work *work)
{
    drop(work, work->dout, work->din[0], work->add[0]);
    return HEED_OK;
}

static const heed_op dropout_op = {
    .name = "dropout", .forward = dropout_forward, .backward = dropout_backward};

heed_variable heed_nn_dropout(heed_graph *graph, heed_variable x, float p)
{
    if (!(p >= 0.0f && p < 1.0f))
        return heed_nn_fail(graph, HEED_INVALID, "dropout %g: 0 or more, and below 1, is needed", (double)p);
    if (p == 0.0f)
        return x;
    heed_nn_node *node = heed_nn_make(graph, &dropout_op, 1, &x);
    if (!node)
        return HEED_NO_VARIABLE;
    heed_nn_shape_of(node, heed_nn_at(graph, x));
    node->number[0] = p;
    return heed_nn_done(graph, node);
}
