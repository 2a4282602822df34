/* Every operation of a graph against its definition. */
#include "support/nn.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SHAPE(...)                                                                                           \
    {                                                                                                        \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .size = { __VA_ARGS__ }                  \
    }
#define MAKE(name) static heed_variable name(heed_graph *g, const nn_case *c, const heed_variable *in)
#define DEFINE(name) static void name(const nn_case *c, const double *const *in, double *out)

/* Functions of one number. */
static double function(int kind, double x)
{
    const double r = x > 0.0 ? x : 0.0;
    switch ((heed_function)kind) {
    case HEED_FN_SILU:
        return x / (1.0 + exp(-x));
    case HEED_FN_GELU:
        return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case HEED_FN_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case HEED_FN_RELU:
        return r;
    case HEED_FN_RELU2:
        return r * r;
    case HEED_FN_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case HEED_FN_TANH:
        return tanh(x);
    case HEED_FN_EXP:
        return exp(x);
    case HEED_FN_LOG:
        return log(x);
    case HEED_FN_SQUARE:
        return x * x;
    case HEED_FN_SQRT:
        return sqrt(x);
    case HEED_FN_SOFTPLUS:
        return log1p(exp(-fabs(x))) + r;
    case HEED_FN_SIN:
        return sin(x);
    case HEED_FN_COS:
        return cos(x);
    case HEED_FN_ERF:
        return erf(x);
    case HEED_FN_ABS:
        return fabs(x);
    default:
        return x;
    }
}

MAKE(make_apply)
{
    return heed_nn_apply(g, (heed_function)c->whole[0], in[0]);
}

DEFINE(define_apply)
{
    for (int64_t i = 0; i < nn_count(&c->in[0]); i++)
        out[i] = function(c->whole[0], in[0][i]);
}

MAKE(make_gate)
{
    return heed_nn_gate(g, (heed_function)c->whole[0], in[0], in[1]);
}

DEFINE(define_gate)
{
    for (int64_t i = 0; i < nn_count(&c->in[0]); i++)
        out[i] = function(c->whole[0], in[0][i]) * in[1][i];
}

static void functions_and_gates(void **state)
{
    (void)state;
    for (int f = 0; f < HEED_FUNCTIONS; f++) {
        const bool positive = f == HEED_FN_LOG || f == HEED_FN_SQRT;
        nn_check(&(nn_case){.name = heed_function_name((heed_function)f),
                            .in = {SHAPE(5, 37)},
                            .ins = 1,
                            .positive = positive,
                            .least = 0.1,
                            .whole = {f},
                            .make = make_apply,
                            .define = define_apply});
        nn_check(&(nn_case){.name = "gate",
                            .in = {SHAPE(3, 41), SHAPE(3, 41)},
                            .ins = 2,
                            .positive = positive,
                            .least = 0.1,
                            .whole = {f},
                            .make = make_gate,
                            .define = define_gate});
    }
}

/* Two places. */
typedef heed_variable two_place(heed_graph *, heed_variable, heed_variable);

MAKE(make_two)
{
    two_place *const each[] = {heed_nn_add, heed_nn_subtract, heed_nn_multiply, heed_nn_divide};
    return each[c->whole[0]](g, in[0], c->ins == 1 ? in[0] : in[1]);
}

DEFINE(define_two)
{
    const int64_t n = nn_count(&c->in[0]), m = c->ins == 1 ? n : nn_count(&c->in[1]);
    for (int64_t i = 0; i < n; i++) {
        const double a = in[0][i], b = in[c->ins == 1 ? 0 : 1][i % m];
        const double each[] = {a + b, a - b, a * b, a / b};
        out[i] = each[c->whole[0]];
    }
}

static void sums_differences_products_quotients(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        nn_case c = {.name = "two places",
                     .in = {SHAPE(4, 6, 9), SHAPE(4, 6, 9)},
                     .ins = 2,
                     .positive = true,
                     .least = 0.5,
                     .whole = {kind},
                     .make = make_two,
                     .define = define_two};
        nn_check(&c);
        c.in[1] = (nn_shape)SHAPE(6, 9);
        c.name = "two places, the second repeated";
        nn_check(&c);
        c.in[1] = (nn_shape)SHAPE(9);
        nn_check(&c);
        c.in[1] = (nn_shape)SHAPE(1);
        c.name = "two places, a single number";
        nn_check(&c);
        c.ins = 1;
        c.name = "two places, the same tensor";
        nn_check(&c);
    }
}

MAKE(make_scale)
{
    (void)c;
    return heed_nn_scale(g, in[0], -1.5f, 0.25f);
}

DEFINE(define_scale)
{
    for (int64_t i = 0; i < nn_count(&c->in[0]); i++)
        out[i] = -1.5 * in[0][i] + 0.25;
}

/* Products. */
MAKE(make_linear)
{
    return heed_nn_linear(g, in[0], in[1], c->ins > 2 ? in[2] : HEED_NO_INPUT);
}

DEFINE(define_linear)
{
    const int64_t n = c->in[1].size[0], k = c->in[1].size[1], rows = nn_count(&c->in[0]) / k;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            out[i * n + j] = c->ins > 2 ? in[2][j] : 0.0;
            for (int64_t l = 0; l < k; l++)
                out[i * n + j] += in[0][i * k + l] * in[1][j * k + l];
        }
}

MAKE(make_product)
{
    return heed_nn_product(g, in[0], in[1], c->whole[0]);
}

DEFINE(define_product)
{
    const int r = c->in[0].rank, s = c->in[1].rank;
    const int64_t m = c->in[0].size[r - 2], k = c->in[0].size[r - 1],
                  n = c->in[1].size[c->whole[0] ? s - 2 : s - 1];
    const int64_t batch = nn_count(&c->in[0]) / (m * k);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                const double *x = in[0] + (b * m + i) * k, *y = in[1] + (s == 2 ? 0 : b * k * n);
                double sum = 0.0;
                for (int64_t l = 0; l < k; l++)
                    sum += x[l] * y[c->whole[0] ? j * k + l : l * n + j];
                out[(b * m + i) * n + j] = sum;
            }
}

static void products(void **state)
{
    (void)state;
    nn_check(&(nn_case){
        .name = "scale", .in = {SHAPE(3, 7)}, .ins = 1, .make = make_scale, .define = define_scale});
    nn_check(&(nn_case){.name = "linear",
                        .in = {SHAPE(2, 13, 7), SHAPE(35, 7), SHAPE(35)},
                        .ins = 3,
                        .make = make_linear,
                        .define = define_linear});
    nn_check(&(nn_case){.name = "linear without bias",
                        .in = {SHAPE(9, 40), SHAPE(5, 40)},
                        .ins = 2,
                        .make = make_linear,
                        .define = define_linear});
    for (int transposed = 0; transposed < 2; transposed++) {
        nn_check(&(nn_case){
            .name = "product of batches",
            .in = {SHAPE(2, 3, 5, 4), transposed ? (nn_shape)SHAPE(2, 3, 6, 4) : (nn_shape)SHAPE(2, 3, 4, 6)},
            .ins = 2,
            .whole = {transposed},
            .make = make_product,
            .define = define_product});
        nn_check(
            &(nn_case){.name = "product with one matrix",
                       .in = {SHAPE(3, 5, 4), transposed ? (nn_shape)SHAPE(6, 4) : (nn_shape)SHAPE(4, 6)},
                       .ins = 2,
                       .whole = {transposed},
                       .make = make_product,
                       .define = define_product});
    }
}

MAKE(make_convolution)
{
    return heed_nn_convolution(
        g, in[0], in[1],
        &(heed_convolution){
            .stride = c->whole[0], .dilation = c->whole[1], .causal = c->whole[2], .depthwise = c->whole[3]});
}

DEFINE(define_convolution)
{
    const int64_t batch = c->in[0].size[0], n = c->in[0].size[1], width = c->in[0].size[2],
                  taps = c->in[1].size[0];
    const int64_t stride = c->whole[0], dilation = c->whole[1],
                  pad = dilation * (taps - 1) / (c->whole[2] ? 1 : 2);
    const int64_t rows = (n + stride - 1) / stride, to = c->whole[3] ? width : c->in[1].size[1];
    for (int64_t b = 0; b < batch; b++)
        for (int64_t t = 0; t < rows; t++)
            for (int64_t o = 0; o < to; o++) {
                double sum = 0.0;
                for (int64_t k = 0; k < taps; k++) {
                    const int64_t at = stride * t + dilation * k - pad;
                    if (at < 0 || at >= n)
                        continue;
                    const double *x = in[0] + (b * n + at) * width;
                    for (int64_t i = 0; i < width && !c->whole[3]; i++)
                        sum += in[1][(k * to + o) * width + i] * x[i];
                    sum += c->whole[3] ? in[1][k * width + o] * x[o] : 0.0;
                }
                out[(b * rows + t) * to + o] = sum;
            }
}

static void convolutions(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++)
        nn_check(&(nn_case){.name = "convolution",
                            .in = {SHAPE(2, 11, 5), i & 8 ? (nn_shape)SHAPE(3, 5) : (nn_shape)SHAPE(3, 4, 5)},
                            .ins = 2,
                            .whole = {1 + (i & 1), 1 + (i >> 1 & 1), i >> 2 & 1, i >> 3 & 1},
                            .make = make_convolution,
                            .define = define_convolution});
}

/* Rows. */
MAKE(make_norm)
{
    const heed_variable weight = c->ins > 1 ? in[1] : HEED_NO_INPUT,
                        bias = c->ins > 2 ? in[2] : HEED_NO_INPUT;
    return c->whole[0] ? heed_nn_layer_norm(g, in[0], weight, bias, 1e-3f)
                       : heed_nn_rms_norm(g, in[0], weight, 1e-3f);
}

DEFINE(define_norm)
{
    const int64_t n = c->in[0].size[c->in[0].rank - 1], rows = nn_count(&c->in[0]) / n;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0] + r * n;
        double mean = 0.0, variance = 0.0;
        for (int64_t i = 0; i < n && c->whole[0]; i++)
            mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            variance += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (int64_t i = 0; i < n; i++)
            out[r * n + i] = (x[i] - mean) / sqrt(variance + (double)1e-3f) * (c->ins > 1 ? in[1][i] : 1.0) +
                             (c->ins > 2 ? in[2][i] : 0.0);
    }
}

MAKE(make_softmax)
{
    (void)c;
    return heed_nn_softmax(g, in[0]);
}

DEFINE(define_softmax)
{
    const int64_t n = c->in[0].size[1];
    for (int64_t r = 0; r < c->in[0].size[0]; r++) {
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++)
            sum += exp(in[0][r * n + i]);
        for (int64_t i = 0; i < n; i++)
            out[r * n + i] = exp(in[0][r * n + i]) / sum;
    }
}

MAKE(make_sum)
{
    return c->whole[0] ? heed_nn_mean(g, in[0]) : heed_nn_sum(g, in[0]);
}

DEFINE(define_sum)
{
    const int64_t n = c->in[0].size[1];
    for (int64_t r = 0; r < c->in[0].size[0]; r++) {
        out[r] = 0.0;
        for (int64_t i = 0; i < n; i++)
            out[r] += in[0][r * n + i] / (c->whole[0] ? (double)n : 1.0);
    }
}

MAKE(make_pool)
{
    return heed_nn_pool(g, in[0], c->whole[0], c->whole[1], c->whole[2]);
}

DEFINE(define_pool)
{
    const int64_t n = c->in[0].size[1], width = c->in[0].size[2], rows = (n - c->whole[0]) / c->whole[1] + 1;
    for (int64_t b = 0; b < c->in[0].size[0]; b++)
        for (int64_t t = 0; t < rows; t++)
            for (int64_t i = 0; i < width; i++) {
                double most = -INFINITY, sum = 0.0;
                for (int64_t w = 0; w < c->whole[0]; w++) {
                    const double x = in[0][(b * n + t * c->whole[1] + w) * width + i];
                    most = fmax(most, x);
                    sum += x / c->whole[0];
                }
                out[(b * rows + t) * width + i] = c->whole[2] ? most : sum;
            }
}

static const int32_t targets[] = {3, -1, 0, 6, 6, -1, 2};

MAKE(make_cross)
{
    return heed_nn_cross_entropy(g, in[0], in[1], c->whole[0] ? 0.125f : 0.0f);
}

DEFINE(define_cross)
{
    const int64_t rows = c->in[0].size[0], n = c->in[0].size[1];
    const double smoothing = c->whole[0] ? 0.125 : 0.0;
    double loss = 0.0, counted = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0;
        if (targets[r] < 0)
            continue;
        counted += 1.0;
        for (int64_t i = 0; i < n; i++)
            sum += exp(in[0][r * n + i]);
        for (int64_t i = 0; i < n; i++)
            loss -= (smoothing / (double)n + (i == targets[r] ? 1.0 - smoothing : 0.0)) *
                    (in[0][r * n + i] - log(sum));
    }
    *out = loss / counted;
}

static void rows(void **state)
{
    (void)state;
    for (int centred = 0; centred < 2; centred++)
        for (int ins = 1; ins <= 2 + centred; ins++)
            nn_check(&(nn_case){.name = centred ? "layer norm" : "rms norm",
                                .in = {SHAPE(3, 5, 21), SHAPE(21), SHAPE(21)},
                                .ins = ins,
                                .whole = {centred},
                                .make = make_norm,
                                .define = define_norm});
    nn_check(&(nn_case){
        .name = "softmax", .in = {SHAPE(6, 19)}, .ins = 1, .make = make_softmax, .define = define_softmax});
    for (int i = 0; i < 2; i++) {
        nn_check(&(nn_case){.name = "sum",
                            .in = {SHAPE(7, 12)},
                            .ins = 1,
                            .whole = {i},
                            .make = make_sum,
                            .define = define_sum});
        nn_check(&(nn_case){.name = "cross entropy",
                            .in = {SHAPE(7, 9)},
                            .ins = 1,
                            .index = SHAPE(7),
                            .indices = targets,
                            .whole = {i},
                            .make = make_cross,
                            .define = define_cross});
        for (int stride = 1; stride < 5; stride++)
            nn_check(&(nn_case){.name = "pool",
                                .in = {SHAPE(2, 11, 3)},
                                .ins = 1,
                                .whole = {3, stride, i},
                                .make = make_pool,
                                .define = define_pool});
    }
}

/* Moving. */
static const int orders[][4] = {{0, 2, 1, 3}, {3, 1, 0, 2}, {1, 0, 2, 3}, {2, 3, 1, 0}};

MAKE(make_transpose)
{
    return heed_nn_transpose(g, in[0], orders[c->whole[0]]);
}

DEFINE(define_transpose)
{
    const int *order = orders[c->whole[0]];
    const int64_t *size = c->in[0].size;
    int64_t step[4] = {1, 1, 1, 1}, at = 0;
    for (int d = 2; d >= 0; d--)
        step[d] = step[d + 1] * size[d + 1];
    for (int64_t i = 0; i < size[order[0]]; i++)
        for (int64_t j = 0; j < size[order[1]]; j++)
            for (int64_t k = 0; k < size[order[2]]; k++)
                for (int64_t l = 0; l < size[order[3]]; l++)
                    out[at++] = in[0][i * step[order[0]] + j * step[order[1]] + k * step[order[2]] +
                                      l * step[order[3]]];
}

MAKE(make_concatenate)
{
    return heed_nn_concatenate(g, 3, in, c->whole[0]);
}

DEFINE(define_concatenate)
{
    const int axis = c->whole[0];
    int64_t outer = 1, inner = 1, at = 0;
    for (int d = 0; d < 3; d++)
        if (d < axis)
            outer *= c->in[0].size[d];
        else if (d > axis)
            inner *= c->in[0].size[d];
    for (int64_t o = 0; o < outer; o++)
        for (int i = 0; i < 3; i++)
            for (int64_t j = 0; j < c->in[i].size[axis] * inner; j++)
                out[at++] = in[i][o * c->in[i].size[axis] * inner + j];
}

MAKE(make_slice)
{
    return heed_nn_slice(g, in[0], c->whole[0], c->whole[1], c->whole[2]);
}

DEFINE(define_slice)
{
    const int64_t *size = c->in[0].size;
    int64_t at = 0;
    for (int64_t i = 0; i < size[0]; i++)
        for (int64_t j = 0; j < size[1]; j++)
            for (int64_t k = 0; k < size[2]; k++) {
                const int64_t along = c->whole[0] == 0 ? i : c->whole[0] == 1 ? j : k;
                if (along >= c->whole[1] && along < c->whole[1] + c->whole[2])
                    out[at++] = in[0][(i * size[1] + j) * size[2] + k];
            }
}

static const int32_t picked[] = {4, 0, 4, 2, 1, 4};

MAKE(make_gather)
{
    return c->whole[0] ? heed_nn_scatter(g, in[0], in[1], 5) : heed_nn_gather(g, in[0], in[1]);
}

DEFINE(define_gather)
{
    const int64_t cols = c->in[0].size[1];
    if (c->whole[0])
        memset(out, 0, (size_t)(5 * cols) * sizeof *out);
    for (int64_t i = 0; i < 6; i++)
        for (int64_t j = 0; j < cols; j++)
            if (c->whole[0])
                out[picked[i] * cols + j] += in[0][i * cols + j];
            else
                out[i * cols + j] = in[0][picked[i] * cols + j];
}

static void moving(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        nn_check(&(nn_case){.name = "transpose",
                            .in = {SHAPE(2, 3, 4, 5)},
                            .ins = 1,
                            .whole = {i},
                            .make = make_transpose,
                            .define = define_transpose});
    for (int axis = 0; axis < 3; axis++) {
        nn_case c = {.name = "concatenate",
                     .in = {SHAPE(3, 4, 5), SHAPE(3, 4, 5), SHAPE(3, 4, 5)},
                     .ins = 3,
                     .whole = {axis},
                     .make = make_concatenate,
                     .define = define_concatenate};
        c.in[1].size[axis] = 2;
        c.in[2].size[axis] = 1;
        nn_check(&c);
        nn_check(&(nn_case){.name = "slice",
                            .in = {SHAPE(3, 4, 5)},
                            .ins = 1,
                            .whole = {axis, 1, 2},
                            .make = make_slice,
                            .define = define_slice});
    }
    nn_check(&(nn_case){.name = "gather",
                        .in = {SHAPE(5, 70)},
                        .ins = 1,
                        .index = SHAPE(2, 3),
                        .indices = picked,
                        .make = make_gather,
                        .define = define_gather});
    nn_check(&(nn_case){.name = "scatter",
                        .in = {SHAPE(6, 70)},
                        .ins = 1,
                        .index = SHAPE(6),
                        .indices = picked,
                        .whole = {1},
                        .make = make_gather,
                        .define = define_gather});
}

/* Attention with a bias that is learnt: softmax(q.k / sqrt(D) + b[h, bucket]) v for keys up to the query. */
enum { B = 2, N = 9, H = 4, G = 2, D = 8, E = 4 };

MAKE(make_attend)
{
    (void)c;
    return heed_nn_attend(g, in[0], in[1], in[2],
                          &(heed_nn_attention){.spec = "where=causal; normalise=sink",
                                               .name = "a",
                                               .heads = H,
                                               .kv_heads = G,
                                               .positions = HEED_NO_INPUT,
                                               .segments = HEED_NO_INPUT,
                                               .gate = HEED_NO_INPUT});
}

DEFINE(define_attend)
{
    (void)c;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < N; i++) {
                double score[N], sum = 1.0; /* exp of the sink, 0 */
                double *to = out + ((b * N + i) * H + h) * E;
                for (int j = 0; j <= i; j++) {
                    score[j] = 0.0;
                    for (int d = 0; d < D; d++)
                        score[j] += in[0][((b * N + i) * H + h) * D + d] *
                                    in[1][((b * N + j) * G + h * G / H) * D + d];
                    score[j] = exp(score[j] / sqrt(D));
                    sum += score[j];
                }
                for (int e = 0; e < E; e++) {
                    to[e] = 0.0;
                    for (int j = 0; j <= i; j++)
                        to[e] += score[j] / sum * in[2][((b * N + j) * G + h * G / H) * E + e];
                }
            }
}

static void attention_by_a_spec(void **state)
{
    (void)state;
    nn_check(&(nn_case){.name = "attention",
                        .in = {SHAPE(B, N, H * D), SHAPE(B, N, G * D), SHAPE(B, N, G * E)},
                        .ins = 3,
                        .make = make_attend,
                        .define = define_attend});
}

/* A state that fades and is written by shares: S = exp(decay) S + beta k v^T, out = S^T q, as sums over the
 * past; and features of linear attention over their sum. Decays and shares are squares, so that they have the
 * right sign. */
MAKE(make_scan)
{
    heed_nn_recurrence how = {.spec = "scan=linear(map=exp)",
                              .heads = H,
                              .kv_heads = G,
                              .decay = HEED_NO_INPUT,
                              .beta = HEED_NO_INPUT,
                              .gate = HEED_NO_INPUT,
                              .erase = HEED_NO_INPUT,
                              .rate = HEED_NO_INPUT};
    if (!c->whole[0]) {
        how.spec = "scan=mamba2";
        how.decay = heed_nn_scale(g, heed_nn_apply(g, HEED_FN_SQUARE, in[3]), -0.1f, 0.0f);
        how.beta = heed_nn_apply(g, HEED_FN_SQUARE, in[4]);
    }
    return heed_nn_scan(g, in[0], in[1], in[2], &how);
}

DEFINE(define_scan)
{
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < N; i++) {
                double weight[N], sum = 0.0, faded = 0.0;
                double *to = out + ((b * N + i) * H + h) * E;
                for (int j = i; j >= 0; j--) {
                    const int row = (b * N + j) * G + h * G / H;
                    weight[j] = 0.0;
                    for (int d = 0; d < D; d++) {
                        const double q = in[0][((b * N + i) * H + h) * D + d], k = in[1][row * D + d];
                        weight[j] += c->whole[0] ? exp(q + k) : q * k;
                    }
                    weight[j] *= c->whole[0] ? 1.0 : exp(faded) * in[4][row] * in[4][row];
                    faded -= 0.1 * in[3][row] * in[3][row];
                    sum += weight[j];
                }
                for (int e = 0; e < E; e++) {
                    to[e] = 0.0;
                    for (int j = 0; j <= i; j++)
                        to[e] += weight[j] / (c->whole[0] ? sum : 1.0) *
                                 in[2][((b * N + j) * G + h * G / H) * E + e];
                }
            }
}

static void recurrences_by_a_spec(void **state)
{
    (void)state;
    for (int sums = 0; sums < 2; sums++)
        nn_check(&(nn_case){.name = sums ? "linear attention" : "recurrence",
                            .in = {SHAPE(B, N, H * D), SHAPE(B, N, G * D), SHAPE(B, N, G * E), SHAPE(B, N, G),
                                   SHAPE(B, N, G)},
                            .ins = sums ? 3 : 5,
                            .whole = {sums},
                            .make = make_scan,
                            .define = define_scan});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_and_gates),
        cmocka_unit_test(sums_differences_products_quotients),
        cmocka_unit_test(products),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(rows),
        cmocka_unit_test(moving),
        cmocka_unit_test(attention_by_a_spec),
        cmocka_unit_test(recurrences_by_a_spec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
