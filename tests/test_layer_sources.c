/* Layers that read other texts or other layers, against their formulas, with the gradient of every parameter.
 */
#include "nn/sources.h"
#include "support/layer_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3, D = 6, HIDDEN = 5, ROOM = 2048 };
#define DEFINE(name) static void name(const layer_text *t, double *out)
#define BUILD(name) static heed_variable name(heed_graph *graph, heed_variable x)

/* Three tokens of x from 3 part on. */
static heed_variable tokens(heed_graph *graph, heed_variable x, int part)
{
    return heed_nn_slice(graph, x, 1, N * part, N);
}

static const double *token(const layer_text *t, int b, int part, int i)
{
    return t->x + (b * t->n + N * part + i) * t->width;
}

static void map(const layer_text *t, const char *name, const double *x, int in, int out, double *y)
{
    char full[80];
    snprintf(full, sizeof full, "%s.weight", name);
    layer_map(layer_value(t, full), x, 1, in, out, y);
}

/* v·tanh(a + b) */
static double energy(const double *a, const double *b, const double *v)
{
    double sum = 0;
    for (int c = 0; c < HIDDEN; c++)
        sum += v[c] * tanh(a[c] + b[c]);
    return sum;
}

static heed_sources sources_of(heed_graph *graph, heed_variable x, int count, bool share, bool sentinel)
{
    return (heed_sources){.graph = graph,
                          .name = "layer",
                          .deviation = 0.5f,
                          .states = tokens(graph, x, 0),
                          .count = count,
                          .source = {tokens(graph, x, 1), tokens(graph, x, 2)},
                          .dim = HIDDEN,
                          .share = share,
                          .sentinel = sentinel};
}

BUILD(flat)
{
    const heed_sources how = sources_of(graph, x, 2, false, true);
    return heed_source_flat(&how);
}

BUILD(flat_one)
{
    const heed_sources how = sources_of(graph, x, 1, true, false);
    return heed_source_flat(&how);
}

static const char *part_of(const char *what, int k, bool share)
{
    static char name[40];
    if (share)
        return what;
    snprintf(name, sizeof name, "%s%d", what, k);
    return name;
}

static void read_flat(const layer_text *t, int count, bool share, bool sentinel, double *out)
{
    for (int b = 0; b < LAYER_B; b++)
        for (int i = 0; i < N; i++) {
            double w[2 * N + 1], a[HIDDEN], u[HIDDEN], values[2 * N + 1][HIDDEN];
            const double *s = token(t, b, 0, i), *v = layer_value(t, "v");
            map(t, "state", s, D, HIDDEN, a);
            for (int k = 0; k < count; k++)
                for (int j = 0; j < N; j++) {
                    map(t, part_of("key", k, share), token(t, b, 1 + k, j), D, HIDDEN, u);
                    map(t, part_of("value", k, share), token(t, b, 1 + k, j), D, HIDDEN, values[k * N + j]);
                    w[k * N + j] = energy(a, u, v);
                }
            if (sentinel) {
                double *slot = values[count * N];
                map(t, "slot", s, D, HIDDEN, slot);
                for (int c = 0; c < HIDDEN; c++)
                    slot[c] = tanh(slot[c]);
                map(t, "slot_key", slot, HIDDEN, HIDDEN, u);
                w[count * N] = energy(a, u, v);
            }
            layer_softmax(w, count * N + sentinel);
            for (int c = 0; c < HIDDEN; c++, out++) {
                *out = 0;
                for (int j = 0; j < count * N + sentinel; j++)
                    *out += w[j] * values[j][c];
            }
        }
}

DEFINE(flat_both)
{
    read_flat(t, 2, false, true, out);
}

/* One source: additive attention. */
DEFINE(additive)
{
    read_flat(t, 1, true, false, out);
}

BUILD(hierarchical)
{
    const heed_sources how = sources_of(graph, x, 2, false, false);
    return heed_source_hierarchical(&how);
}

DEFINE(in_two_steps)
{
    for (int b = 0; b < LAYER_B; b++)
        for (int i = 0; i < N; i++, out += HIDDEN) {
            double a[HIDDEN], upper[HIDDEN], u[HIDDEN], values[2][HIDDEN], z[2];
            const double *s = token(t, b, 0, i);
            map(t, "state", s, D, HIDDEN, a);
            map(t, "upper_state", s, D, HIDDEN, upper);
            for (int k = 0; k < 2; k++) {
                double w[N], c[D] = {0};
                for (int j = 0; j < N; j++) {
                    map(t, part_of("key", k, false), token(t, b, 1 + k, j), D, HIDDEN, u);
                    w[j] = energy(a, u, layer_value(t, "v"));
                }
                layer_softmax(w, N);
                for (int j = 0; j < N; j++)
                    for (int e = 0; e < D; e++)
                        c[e] += w[j] * token(t, b, 1 + k, j)[e];
                map(t, part_of("upper_key", k, false), c, D, HIDDEN, u);
                z[k] = energy(upper, u, layer_value(t, "upper_v"));
                map(t, part_of("upper_value", k, false), c, D, HIDDEN, values[k]);
            }
            layer_softmax(z, 2);
            for (int c = 0; c < HIDDEN; c++)
                out[c] = z[0] * values[0][c] + z[1] * values[1][c];
        }
}

static void several_sources(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "flat", .build = flat, .define = flat_both, .n = 9, .width = D});
    layer_check(
        &(layer_case){.spec = "flat of one", .build = flat_one, .define = additive, .n = 9, .width = D});
    layer_check(&(layer_case){
        .spec = "hierarchical", .build = hierarchical, .define = in_two_steps, .n = 9, .width = D});
}

/* The last token of the second text's context and query is padding. */
static heed_variable padding(heed_graph *graph)
{
    const int64_t shape[] = {LAYER_B, N};
    const float values[] = {0, 0, 0, 0, 0, -1e30f};
    return heed_nn_constant(graph, 2, shape, values);
}

BUILD(flow)
{
    return heed_source_flow(graph, "layer", 0.5f, tokens(graph, x, 0), tokens(graph, x, 1), padding(graph),
                            padding(graph));
}

/* The similarity from the vector [h; u; h u] itself. */
DEFINE(flow_by_hand)
{
    for (int b = 0; b < LAYER_B; b++) {
        const int real = N - b;
        double S[N][N], best[N], whole[D] = {0};
        for (int i = 0; i < N; i++) {
            best[i] = -INFINITY;
            for (int j = 0; j < real; j++) {
                S[i][j] = 0;
                for (int c = 0; c < D; c++) {
                    const double h = token(t, b, 0, i)[c], u = token(t, b, 1, j)[c];
                    S[i][j] += layer_value(t, "of_context.weight")[c] * h +
                               layer_value(t, "of_query.weight")[c] * u + layer_value(t, "both")[c] * h * u;
                }
                best[i] = fmax(best[i], S[i][j]);
            }
        }
        layer_softmax(best, real);
        for (int i = 0; i < real; i++)
            for (int c = 0; c < D; c++)
                whole[c] += best[i] * token(t, b, 0, i)[c];
        for (int i = 0; i < N; i++, out += 4 * D) {
            layer_softmax(S[i], real);
            for (int c = 0; c < D; c++) {
                double read = 0;
                for (int j = 0; j < real; j++)
                    read += S[i][j] * token(t, b, 1, j)[c];
                const double h = token(t, b, 0, i)[c];
                out[c] = h;
                out[D + c] = read;
                out[2 * D + c] = h * read;
                out[3 * D + c] = h * whole[c];
            }
        }
    }
}

static void attention_that_flows_both_ways(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "flow", .build = flow, .define = flow_by_hand, .n = 6, .width = D});
}

BUILD(sentinel)
{
    return heed_source_sentinel(graph, "layer", 0.5f, tokens(graph, x, 0), tokens(graph, x, 1),
                                tokens(graph, x, 2), tokens(graph, x, 3), tokens(graph, x, 4), HIDDEN, NULL);
}

/* As beta s + (1 - beta) of a softmax of the regions alone. */
DEFINE(sentinel_by_hand)
{
    for (int b = 0; b < LAYER_B; b++)
        for (int i = 0; i < N; i++, out += D) {
            double s[D], was[D], g[HIDDEN], u[HIDDEN], z[N + 1];
            map(t, "input", token(t, b, 2, i), D, D, s);
            map(t, "before", token(t, b, 1, i), D, D, was);
            for (int c = 0; c < D; c++)
                s[c] = layer_sigmoid(s[c] + was[c]) * tanh(token(t, b, 3, i)[c]);
            map(t, "state", token(t, b, 0, i), D, HIDDEN, g);
            for (int j = 0; j < N; j++) {
                map(t, "region", token(t, b, 4, j), D, HIDDEN, u);
                z[j] = energy(g, u, layer_value(t, "w"));
            }
            map(t, "slot", s, D, HIDDEN, u);
            z[N] = energy(g, u, layer_value(t, "w"));
            double both[N + 1];
            memcpy(both, z, sizeof both);
            layer_softmax(both, N + 1);
            layer_softmax(z, N);
            for (int c = 0; c < D; c++) {
                double read = 0;
                for (int j = 0; j < N; j++)
                    read += z[j] * token(t, b, 4, j)[c];
                out[c] = both[N] * s[c] + (1 - both[N]) * read;
            }
        }
}

static void a_slot_of_the_decoders_own(void **state)
{
    (void)state;
    layer_check(&(layer_case){
        .spec = "sentinel", .build = sentinel, .define = sentinel_by_hand, .n = 15, .width = D});
}

enum { HEADS = 3, RANK = 2 };

BUILD(lama)
{
    return heed_source_lama(graph, "layer", 0.7f, x, HEADS, RANK);
}

/* By each head's whole matrix P_i Q_i^T. */
DEFINE(lama_by_hand)
{
    const double *P = layer_value(t, "P.weight"), *Q = layer_value(t, "Q.weight"),
                 *c = layer_value(t, "context");
    const int T = t->n, wide = t->width;
    for (int b = 0; b < LAYER_B; b++) {
        double A[HEADS][16];
        for (int s = 0; s < T; s++) {
            double length = 1e-12;
            for (int h = 0; h < HEADS; h++) {
                double score = 0;
                for (int i = 0; i < wide; i++)
                    for (int j = 0; j < wide; j++) {
                        double matrix = 0;
                        for (int r = h * RANK; r < (h + 1) * RANK; r++)
                            matrix += P[r * wide + i] * Q[r * wide + j];
                        score += c[i] * matrix * t->x[(b * T + s) * wide + j];
                    }
                A[h][s] = tanh(score);
                length += A[h][s] * A[h][s];
            }
            for (int h = 0; h < HEADS; h++)
                A[h][s] /= sqrt(length);
        }
        for (int h = 0; h < HEADS; h++) {
            layer_softmax(A[h], T);
            for (int i = 0; i < wide; i++, out++) {
                *out = 0;
                for (int s = 0; s < T; s++)
                    *out += A[h][s] * t->x[(b * T + s) * wide + i];
            }
        }
    }
}

static void heads_that_one_context_asks(void **state)
{
    (void)state;
    const layer_case c = {.spec = "lama", .build = lama, .define = lama_by_hand, .n = 5, .width = D};
    layer_check(&c);
    assert_int_equal(layer_parameters(&c), 2 * D * HEADS * RANK + D);
}

enum { PLACES = 7, BELLS = 2 };

BUILD(bells_v0)
{
    return heed_source_bells(graph, "layer", 0.3f, x, PLACES, BELLS, HIDDEN, HEED_BELLS_V0);
}

BUILD(bells_v1)
{
    return heed_source_bells(graph, "layer", 0.3f, x, PLACES, BELLS, HIDDEN, HEED_BELLS_V1);
}

BUILD(bells_v2)
{
    return heed_source_bells(graph, "layer", 0.3f, x, PLACES, BELLS, HIDDEN, HEED_BELLS_V2);
}

static double softplus(double x)
{
    return log1p(exp(x));
}

/* Step by step. */
static void move_bells(const layer_text *t, int kind, double *out)
{
    for (int b = 0; b < LAYER_B; b++) {
        double mu[BELLS] = {0};
        for (int i = 0; i < t->n; i++, out += PLACES) {
            double hidden[HIDDEN], p[3 * BELLS], w[BELLS];
            map(t, "hidden", t->x + (b * t->n + i) * t->width, t->width, HIDDEN, hidden);
            for (int c = 0; c < HIDDEN; c++)
                hidden[c] = tanh(hidden[c] + layer_value(t, "hidden.bias")[c]);
            map(t, "bells", hidden, HIDDEN, 3 * BELLS, p);
            for (int c = 0; c < 3 * BELLS; c++)
                p[c] += layer_value(t, "start")[c];
            memcpy(w, p, sizeof w);
            if (kind)
                layer_softmax(w, BELLS);
            memset(out, 0, PLACES * sizeof *out);
            for (int k = 0; k < BELLS; k++) {
                mu[k] += kind == 2 ? softplus(p[BELLS + k]) : exp(p[BELLS + k]);
                const double s = p[2 * BELLS + k];
                const double sigma = kind == 2 ? softplus(s) : kind == 1 ? sqrt(exp(s)) : sqrt(exp(-s) / 2);
                const double Z = kind ? sqrt(2 * acos(-1) * sigma * sigma) : 1;
                for (int j = 0; j < PLACES; j++)
                    out[j] += (kind ? w[k] : exp(w[k])) / Z * exp(-pow(j - mu[k], 2) / (2 * sigma * sigma));
            }
        }
    }
}

DEFINE(v0)
{
    move_bells(t, 0, out);
}

DEFINE(v1)
{
    move_bells(t, 1, out);
}

DEFINE(v2)
{
    move_bells(t, 2, out);
}

static void bells_that_move_on(void **state)
{
    (void)state;
    layer_check(&(layer_case){
        .spec = "bells V0", .build = bells_v0, .define = v0, .n = 4, .width = D, .tolerance = 1e-4});
    layer_check(&(layer_case){
        .spec = "bells V1", .build = bells_v1, .define = v1, .n = 4, .width = D, .tolerance = 1e-4});
    layer_check(&(layer_case){
        .spec = "bells V2", .build = bells_v2, .define = v2, .n = 4, .width = D, .tolerance = 1e-4});
}

static const heed_dynamic dynamic = {
    .filters = 2, .width = 3, .prior = 3, .dim = HIDDEN, .alpha = 0.5f, .beta = 0.9f};

BUILD(convolved)
{
    return heed_source_dynamic(graph, "layer", 0.5f, x, PLACES, &dynamic);
}

/* Step by step; P(0), P(1), P(2) of two draws by the urn: each draw is a step forward with a chance that
 * grows with those before. */
DEFINE(convolved_by_hand)
{
    const double x = (double)dynamic.alpha, y = (double)dynamic.beta, s = x + y;
    const double P[3] = {y / s * (y + 1) / (s + 1), 2 * x * y / s / (s + 1), x / s * (x + 1) / (s + 1)};
    enum { FILTERS = 2, WIDTH = 3 };
    for (int b = 0; b < LAYER_B; b++) {
        double a[PLACES] = {1};
        for (int i = 0; i < t->n; i++, out += PLACES) {
            double hidden[HIDDEN], G[WIDTH * FILTERS], e[PLACES];
            map(t, "state", t->x + (b * t->n + i) * t->width, t->width, HIDDEN, hidden);
            for (int c = 0; c < HIDDEN; c++)
                hidden[c] = tanh(hidden[c] + layer_value(t, "state.bias")[c]);
            map(t, "made_filters", hidden, HIDDEN, WIDTH * FILTERS, G);
            for (int j = 0; j < PLACES; j++) {
                double f[FILTERS] = {0}, g[FILTERS] = {0}, u[HIDDEN], w[HIDDEN], moved = 1e-30;
                for (int k = 0; k < WIDTH; k++)
                    for (int c = 0; c < FILTERS; c++) {
                        const int from = j - k + 1;
                        const double was = from < 0 || from >= PLACES ? 0 : a[from];
                        f[c] += layer_value(t, "filters")[k * FILTERS + c] * was;
                        g[c] += G[k * FILTERS + c] * was;
                    }
                for (int k = 0; k < 3 && k <= j; k++)
                    moved += P[k] * a[j - k];
                map(t, "of_static", f, FILTERS, HIDDEN, u);
                map(t, "of_made", g, FILTERS, HIDDEN, w);
                e[j] = log(moved);
                for (int c = 0; c < HIDDEN; c++)
                    e[j] += layer_value(t, "v")[c] * tanh(u[c] + layer_value(t, "of_static.bias")[c] + w[c]);
            }
            layer_softmax(e, PLACES);
            memcpy(a, e, sizeof a);
            memcpy(out, e, sizeof e);
        }
    }
}

static void weights_that_are_convolved(void **state)
{
    (void)state;
    layer_check(&(layer_case){.spec = "dynamic",
                              .build = convolved,
                              .define = convolved_by_hand,
                              .n = 4,
                              .width = D,
                              .tolerance = 1e-4});
}

static heed_variable over_depth(heed_graph *graph, heed_variable x, int count)
{
    heed_variable layer[3];
    for (int l = 0; l < count; l++)
        layer[l] = tokens(graph, x, l);
    return heed_source_shortcuts(graph, "layer", 0.5f, count, layer, 2, 1e-5f);
}

BUILD(three_layers)
{
    return over_depth(graph, x, 3);
}

BUILD(one_layer)
{
    return over_depth(graph, x, 1);
}

static void ask_layers(const layer_text *t, int count, double *out)
{
    for (int b = 0; b < LAYER_B; b++)
        for (int i = 0; i < N; i++, out += D) {
            double q[D] = {0}, k[3][D], v[3][D], y[D];
            for (int l = 0; l < count; l++) {
                double h[D], mean = 0, squares = 0;
                for (int c = 0; c < D; c++)
                    mean += token(t, b, l, i)[c] / D;
                for (int c = 0; c < D; c++)
                    squares += pow(token(t, b, l, i)[c] - mean, 2) / D;
                for (int c = 0; c < D; c++)
                    h[c] = (token(t, b, l, i)[c] - mean) / sqrt(squares + 1e-5) *
                               layer_value(t, "norm.weight")[c] +
                           layer_value(t, "norm.bias")[c];
                map(t, "q_proj", h, D, D, q); /* the last layer's stays */
                map(t, "k_proj", h, D, D, k[l]);
                map(t, "v_proj", h, D, D, v[l]);
            }
            for (int head = 0; head < 2; head++) {
                double a[3] = {0};
                for (int l = 0; l < count; l++)
                    for (int c = head * 3; c < head * 3 + 3; c++)
                        a[l] += q[c] * k[l][c] / sqrt(3);
                layer_softmax(a, count);
                for (int c = head * 3; c < head * 3 + 3; c++) {
                    y[c] = 0;
                    for (int l = 0; l < count; l++)
                        y[c] += a[l] * v[l][c];
                }
            }
            map(t, "o_proj", y, D, D, out);
        }
}

DEFINE(ask_three)
{
    ask_layers(t, 3, out);
}

DEFINE(ask_one)
{
    ask_layers(t, 1, out);
}

DEFINE(nothing)
{
    memset(out, 0, (size_t)(LAYER_B * N * D) * sizeof *out);
    (void)t;
}

/* At first nothing is added; of one layer the weight is 1. */
static void attention_over_depth(void **state)
{
    (void)state;
    layer_check(&(layer_case){
        .spec = "depth", .build = three_layers, .define = ask_three, .n = 9, .width = D, .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "depth of one",
                              .build = one_layer,
                              .define = ask_one,
                              .n = 9,
                              .width = D,
                              .tolerance = 1e-4});
    layer_check(&(layer_case){.spec = "depth at first",
                              .build = three_layers,
                              .define = nothing,
                              .n = 9,
                              .width = D,
                              .start = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_sources),
        cmocka_unit_test(attention_that_flows_both_ways),
        cmocka_unit_test(a_slot_of_the_decoders_own),
        cmocka_unit_test(heads_that_one_context_asks),
        cmocka_unit_test(bells_that_move_on),
        cmocka_unit_test(weights_that_are_convolved),
        cmocka_unit_test(attention_over_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
