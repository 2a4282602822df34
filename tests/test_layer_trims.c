/* Layers that read little of what there is, against their formulas, with the gradient of every parameter; and
 * that what they drop could as well not be there. */
#include "nn/sources.h"
#include "support/layer_check.h"

#include "nn/graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 2048 };
#define DEFINE(name) static void name(const layer_text *t, double *out)
#define BUILD(name) static heed_variable name(heed_graph *graph, heed_variable x)
static const char *spec_now;

/* A call by `spec_now`, as models make it. */
typedef struct made_call {
    heed_transformer model;
    heed_transformer_nodes nodes;
    heed_beside beside;
    heed_form_state form;
    char rest[HEED_LAYER_REST];
} made_call;

static heed_layer_call call_of(made_call *m, heed_graph *graph, heed_variable x, const char *name,
                               int64_t layer)
{
    m->model = (heed_transformer){.batch = LAYER_B,
                                  .context = heed_graph_size(graph, x, 1),
                                  .width = heed_graph_size(graph, x, 2),
                                  .layers = 2,
                                  .heads = 2,
                                  .kv_heads = 2,
                                  .head_dim = heed_graph_size(graph, x, 2) / 2,
                                  .vocabulary = 5,
                                  .deviation = 0.4f};
    m->nodes.tokens = m->nodes.segments = m->nodes.places = HEED_NO_INPUT;
    m->nodes.beside = &m->beside;
    assert_int_equal(heed_layer_of_spec(spec_now ? spec_now : "layer=trim", layer, &m->form, m->rest),
                     HEED_OK);
    return (heed_layer_call){graph, &m->form, name, &m->model, layer, &m->nodes, x, m->rest};
}

/* Tables of 3 and 5 numbers side by side, and 2 of a place. */
static int dare_k;

BUILD(make_dare)
{
    static made_call m;
    m = (made_call){.beside = {.loss = HEED_NO_INPUT}};
    const heed_layer_call call = call_of(&m, graph, x, "layer", 0);
    heed_variable place;
    const heed_variable time = heed_nn_parameter(graph, "layer.time", 2, (int64_t[]){6, 2},
                                                 (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = 1});
    return heed_source_dare(&call, heed_nn_slice(graph, x, 2, 0, 3), heed_nn_slice(graph, x, 2, 3, 5), time,
                            dare_k, &place);
}

DEFINE(define_dare)
{
    const double *time = layer_value(t, "time");
    for (int b = 0; b < LAYER_B; b++)
        for (int i = 0; i < t->n; i++, out += 5) {
            const double *own = t->x + (b * t->n + i) * 8;
            double s[8], sum = 0;
            for (int j = 0; j < i; j++) {
                const double *other = t->x + (b * t->n + j) * 8;
                s[j] = (time[i * 2] * time[j * 2] + time[i * 2 + 1] * time[j * 2 + 1]) / sqrt(2);
                for (int c = 0; c < 3; c++)
                    s[j] += own[c] * other[c] / sqrt(3);
            }
            memset(out, 0, 5 * sizeof *out);
            for (int pass = 0; pass < 2; pass++)
                for (int j = 0; j < i; j++) {
                    int above = 0;
                    for (int o = 0; o < i; o++)
                        above += s[o] > s[j];
                    if (above >= dare_k)
                        continue;
                    sum += pass ? 0 : exp(s[j]);
                    for (int c = 0; c < 5 && pass; c++)
                        out[c] += exp(s[j]) / sum * t->x[(b * t->n + j) * 8 + 3 + c] * own[3 + c];
                }
        }
}

/* Two of the tokens before, and all of them. */
static void what_is_read_is_apart_from_where(void **state)
{
    (void)state;
    spec_now = "layer=dare";
    for (dare_k = 2; dare_k <= 6; dare_k += 4)
        layer_check(&(layer_case){.spec = "dare", .build = make_dare, .define = define_dare});
}

typedef struct small {
    heed_parameters *parameters;
    heed_graph *graph;
    heed_transformer_nodes nodes;
    heed_beside beside;
    heed_variable targets, loss;
} small;

/* A model of two layers (three for pictures) and the tokens of one text; `whole` with nothing dropped. */
static void small_make(small *s, const char *spec, int layers, int n, const int32_t *token, bool whole)
{
    const heed_transformer how = {.batch = 1,
                                  .context = n,
                                  .vocabulary = 9,
                                  .width = 16,
                                  .layers = layers,
                                  .heads = 2,
                                  .hidden = 24,
                                  .spec = spec,
                                  .norm = HEED_LAYER_RMS,
                                  .norm_eps = 1e-5f,
                                  .function = HEED_FN_SILU,
                                  .gated = true,
                                  .deviation = 0.5f};
    const int64_t shape[] = {1, n};
    *s = (small){.beside = {.loss = HEED_NO_INPUT}};
    assert_int_equal(heed_parameters_create(&s->parameters, 3), HEED_OK);
    assert_int_equal(heed_graph_create(&s->graph, s->parameters, 1, HEED_ISA_AUTO), HEED_OK);
    s->nodes = (heed_transformer_nodes){.tokens = HEED_NO_INPUT,
                                        .segments = HEED_NO_INPUT,
                                        .places = HEED_NO_INPUT,
                                        .beside = whole ? NULL : &s->beside,
                                        .whole = whole};
    if (whole)
        s->nodes.tokens = heed_nn_input(s->graph, HEED_I32, 2, shape);
    heed_transformer_make(s->graph, &how, &s->nodes);
    s->targets = heed_nn_input(s->graph, HEED_I32, 2, shape);
    heed_graph_keep(s->graph, s->nodes.logits);
    for (int i = 0; i < s->beside.lefts; i++)
        heed_graph_keep(s->graph, s->beside.left[i].value);
    for (int i = 0; i < s->beside.measures; i++)
        heed_graph_keep(s->graph, s->beside.measure[i].value);
    s->loss = heed_nn_cross_entropy(s->graph, s->nodes.logits, s->targets, 0);
    if (heed_graph_finish(s->graph, s->loss))
        fail_msg("%s: %s", spec, heed_message());
    for (int i = 0; i < n; i++) {
        ((int32_t *)heed_graph_data(s->graph, s->nodes.tokens))[i] = token[i];
        ((int32_t *)heed_graph_data(s->graph, s->targets))[i] = i == n - 1 ? 1 : -1;
    }
}

static void small_run(const small *s)
{
    if (heed_graph_forward(s->graph) || heed_graph_backward(s->graph, 1, false))
        fail_msg("%s", heed_message());
}

static void small_free(small *s)
{
    heed_graph_free(s->graph);
    heed_parameters_free(s->parameters);
}

static const float *small_left(const small *s, int i)
{
    return heed_graph_data(s->graph, s->beside.left[i].value);
}

static double length(const small *s, const char *name)
{
    const heed_parameter *p = heed_parameters_find(s->parameters, name);
    double sum = 0;
    assert_non_null(p);
    for (int64_t i = 0; i < p->count; i++)
        sum += fabs((double)p->gradient[i]);
    return sum;
}

static const int32_t text[12] = {3, 1, 4, 1, 5, 8, 2, 6, 5, 3, 5, 7};

/* With one token read its weight is 1 whatever the scores are: nothing moves the table of scores, and of a
 * table of scores nothing is read. */
static void gradients_stay_in_their_table(void **state)
{
    (void)state;
    small s;
    small_make(&s, "layer=dare(k=1, attention=4, representation=6)", 1, 8, text, false);
    small_run(&s);
    assert_true(length(&s, "model.layers.0.self_attn.attention.weight") == 0);
    assert_true(length(&s, "model.layers.0.self_attn.representation.weight") > 1e-4);
    small_free(&s);
    small_make(&s, "layer=dare(k=4, attention=4, representation=6)", 1, 8, text, false);
    heed_parameter *r = heed_parameters_find(s.parameters, "model.layers.0.self_attn.representation.weight");
    memset(r->value, 0, (size_t)r->count * sizeof(float));
    small_run(&s);
    assert_true(length(&s, "model.layers.0.self_attn.attention.weight") == 0);
    small_free(&s);
}

/* Gates are 0 or 1 as they come out first; then they move as the sigmoid does (straight through). */
static bool first_time;

static double moved(double logit, double *kept, double *base)
{
    const double soft = layer_sigmoid(logit);
    if (first_time) {
        *kept = soft > 0.5;
        *base = soft;
    }
    return *kept + soft - *base;
}

static void normed(double *x, int n)
{
    double mean = 0, square = 0;
    for (int i = 0; i < n; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        x[i] = (x[i] - mean) / sqrt(square + 1e-5);
}

static void judged(const layer_text *t, const char *first, const char *second, const double *x, int in,
                   int hidden, int out, double *y)
{
    char name[60];
    double middle[32];
    snprintf(name, sizeof name, "%s.weight", first);
    layer_map(layer_value(t, name), x, 1, in, hidden, middle);
    snprintf(name, sizeof name, "%s.bias", first);
    for (int i = 0; i < hidden; i++) {
        const double v = middle[i] + layer_value(t, name)[i];
        middle[i] = v * (1 + erf(v / sqrt(2))) / 2;
    }
    snprintf(name, sizeof name, "%s.weight", second);
    layer_map(layer_value(t, name), middle, 1, hidden, out, y);
    snprintf(name, sizeof name, "%s.bias", second);
    for (int i = 0; i < out; i++)
        y[i] += 2 + layer_value(t, name)[i];
}

DEFINE(trim)
{
    enum { N = 6, W = 8, Z = 2, H = 2, D = 4 };
    static double q[ROOM], k[ROOM], v[ROOM], y[ROOM], kept[LAYER_B][N + H], base[LAYER_B][N + H];
    layer_mapped(t, "q_proj", W, q);
    layer_mapped(t, "k_proj", W, k);
    layer_mapped(t, "v_proj", W, v);
    for (int b = 0; b < LAYER_B; b++) {
        const double *first = t->x + b * N * W, *last = first + (N - 1) * W;
        double s[Z], other[Z], m[N], g[H], ends[2 * W];
        layer_map(layer_value(t, "first_proj.weight"), first, 1, W, Z, s);
        layer_map(layer_value(t, "last_proj.weight"), last, 1, W, Z, other);
        for (int i = 0; i < Z; i++)
            s[i] += other[i];
        normed(s, Z);
        for (int i = 0; i < N; i++) {
            double z[2 * Z], logit;
            layer_map(layer_value(t, "token_proj.weight"), first + i * W, 1, W, Z, z);
            normed(z, Z);
            for (int c = 0; c < Z; c++)
                z[Z + c] = z[c] * s[c];
            judged(t, "token_hidden", "token_gate", z, 2 * Z, Z, 1, &logit);
            m[i] = i == 0 || i == N - 1 ? 1 : moved(logit, &kept[b][i], &base[b][i]);
        }
        memcpy(ends, first, W * sizeof *ends);
        memcpy(ends + W, last, W * sizeof *ends);
        judged(t, "head_hidden", "head_gate", ends, 2 * W, 2, H, g);
        for (int h = 0; h < H; h++)
            g[h] = moved(g[h], &kept[b][N + h], &base[b][N + h]);
        for (int h = 0; h < H; h++)
            for (int i = 0; i < N; i++) {
                double w[N], sum = 0;
                for (int j = 0; j < N; j++) {
                    double dot = 0;
                    for (int c = 0; c < D; c++)
                        dot += q[(b * N + i) * W + h * D + c] * k[(b * N + j) * W + h * D + c];
                    sum += w[j] = m[j] * exp(dot / 2);
                }
                for (int c = 0; c < D; c++) {
                    double *to = &y[(b * N + i) * W + h * D + c];
                    *to = 0;
                    for (int j = 0; j < N; j++)
                        *to += g[h] * w[j] / sum * v[(b * N + j) * W + h * D + c];
                }
            }
    }
    first_time = false;
    layer_out(t, y, out);
}

static void gates_learn_straight_through(void **state)
{
    (void)state;
    first_time = true;
    layer_check(&(layer_case){.spec = "layer=trim", .define = trim, .tolerance = 1e-4});
}

static float logit_of(const small *s, int n, int i)
{
    return ((float *)heed_graph_data(s->graph, s->nodes.logits))[(n - 1) * 9 + i];
}

/* A model in which dropped tokens are masked says what one says that never had the tokens that its first
 * layer drops. */
static void masked_is_as_good_as_removed(void **state)
{
    (void)state;
    small all, few;
    int32_t kept[12];
    int count = 0;
    small_make(&all, "layer=trim", 2, 12, text, false);
    heed_parameters_find(all.parameters, "model.layers.0.self_attn.token_gate.bias")->value[0] = -2;
    small_run(&all);
    for (int i = 0; i < 12; i++)
        if (small_left(&all, 0)[i] > 0)
            kept[count++] = text[i];
    assert_in_range(count, 3, 10);
    for (int i = 0; i < 12; i++) /* what is dropped does not come back */
        assert_true(small_left(&all, 2)[i] <= small_left(&all, 0)[i]);
    small_make(&few, "layer=trim", 2, count, kept, false);
    heed_parameters_find(few.parameters, "model.layers.0.self_attn.token_gate.bias")->value[0] = -2;
    small_run(&few);
    for (int i = 0; i < 9; i++)
        assert_float_equal(logit_of(&all, 12, i), logit_of(&few, count, i),
                           1e-5 * (1 + fabs((double)logit_of(&few, count, i))));
    small_free(&all);
    small_free(&few);
}

static void open_gates_change_nothing(void **state)
{
    (void)state;
    small gated, whole;
    small_make(&gated, "layer=trim", 2, 12, text, false);
    small_make(&whole, "layer=trim", 2, 12, text, true);
    for (int layer = 0; layer < 2; layer++)
        for (int kind = 0; kind < 2; kind++) {
            char name[80];
            snprintf(name, sizeof name, "model.layers.%d.self_attn.%s_gate.bias", layer,
                     kind ? "head" : "token");
            heed_parameter *p = heed_parameters_find(gated.parameters, name);
            for (int64_t i = 0; i < p->count; i++)
                p->value[i] = 100;
        }
    small_run(&gated);
    small_run(&whole);
    for (int i = 0; i < 9; i++)
        assert_float_equal(logit_of(&gated, 12, i), logit_of(&whole, 12, i),
                           2e-6 * (1 + fabs((double)logit_of(&whole, 12, i))));
    assert_float_equal(small_left(&gated, 1)[0], 1, 1e-6); /* the cost of a layer */
    small_free(&gated);
    small_free(&whole);
}

/* Four cells in one frame each of two, of which 0, 1 and 6 read; two tones. */
static const float asked[LAYER_B][8] = {{1, 1, 0, 0, 0, 0, 1, 0}, {0, 0, 0, 0, 0, 0, 0, 1}};

BUILD(make_confident)
{
    static made_call m;
    m = (made_call){.beside = {.loss = HEED_NO_INPUT}};
    const heed_layer_call call = call_of(&m, graph, x, "layer", 0);
    return heed_source_confident(&call, heed_nn_slice(graph, x, 1, 0, 8), heed_nn_slice(graph, x, 1, 8, 2),
                                 heed_nn_constant(graph, 2, (int64_t[]){LAYER_B, 8}, &asked[0][0]));
}

DEFINE(define_confident)
{
    for (int b = 0; b < LAYER_B; b++)
        for (int i = 0; i < 8; i++, out += 8) {
            const double *own = t->x + (b * 10 + i) * 8, *tone = t->x + (b * 10 + 8) * 8;
            double q[8], k[16], v[16], y[8], read[8];
            layer_map(layer_value(t, "visual.q_proj.weight"), own, 1, 8, 8, q);
            layer_map(layer_value(t, "visual.k_proj.weight"), tone, 2, 8, 8, k);
            layer_map(layer_value(t, "visual.v_proj.weight"), tone, 2, 8, 8, v);
            for (int h = 0; h < 2; h++) {
                double w[2] = {0, 0};
                for (int j = 0; j < 2; j++)
                    for (int c = 0; c < 4; c++)
                        w[j] += q[h * 4 + c] * k[j * 8 + h * 4 + c] / 2;
                layer_softmax(w, 2);
                for (int c = 0; c < 4; c++)
                    y[h * 4 + c] = w[0] * v[h * 4 + c] + w[1] * v[8 + h * 4 + c];
            }
            layer_map(layer_value(t, "visual.o_proj.weight"), y, 1, 8, 8, read);
            for (int c = 0; c < 8; c++)
                out[c] = own[c] + (asked[b][i] > 0 ? read[c] : 0);
        }
}

BUILD(make_groups)
{
    static made_call m;
    m = (made_call){.beside = {.loss = HEED_NO_INPUT}};
    const heed_layer_call call = call_of(&m, graph, x, "layer", 0);
    return heed_source_groups(&call, heed_nn_slice(graph, x, 1, 0, 8), heed_nn_slice(graph, x, 1, 8, 2), 2);
}

DEFINE(define_groups)
{
    for (int b = 0; b < LAYER_B; b++)
        for (int i = 0; i < 8; i++)
            for (int g = 0; g < 2; g++, out += 4) {
                const double *own = t->x + (b * 10 + i) * 8 + g * 4;
                double tone[4], dot = 0, a = 0, c = 0;
                layer_map(layer_value(t, "shrink.weight"), t->x + (b * 10 + 8 + i / 4) * 8, 1, 8, 4, tone);
                for (int e = 0; e < 4; e++) {
                    dot += own[e] * tone[e];
                    a += own[e] * own[e] / 4 + 1e-6 / 4;
                    c += tone[e] * tone[e] / 4 + 1e-6 / 4;
                }
                for (int e = 0; e < 4; e++)
                    out[e] = own[e] * dot / 4 / sqrt(a * c);
            }
}

/* Cells that are not asked pass bit by bit. */
static void cells_that_are_sure_pass(void **state)
{
    (void)state;
    static float out[LAYER_B * 8 * 8];
    spec_now = "layer=confident";
    const layer_case c = {.spec = "confident", .build = make_confident, .define = define_confident, .n = 10};
    layer_check(&c);
    layer_check(&(layer_case){.spec = "groups", .build = make_groups, .define = define_groups, .n = 10});
    layer_output(&c, out);
    heed_parameters *parameters;
    assert_int_equal(heed_parameters_create(&parameters, 5), HEED_OK);
    heed_graph *graph;
    assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
    heed_nn_parameter(graph, "x", 3, (int64_t[]){LAYER_B, 10, 8},
                      (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = 1});
    const float *x = heed_parameters_at(parameters, 0)->value;
    int same = 0;
    for (int i = 0; i < LAYER_B * 8; i++)
        if (asked[i / 8][i % 8] == 0) {
            assert_memory_equal(out + i * 8, x + (i / 8 * 10 + i % 8) * 8, 8 * sizeof(float));
            same++;
        }
    assert_int_equal(same, 12);
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

/* Three stages of a picture of 8 by 8 cells: each asks only where those before did, and with tau = 1
 * everywhere. */
static void stages_ask_within_those_before(void **state)
{
    (void)state;
    int32_t cells[65];
    for (int i = 0; i < 65; i++)
        cells[i] = (i * 7 + i / 8 * 3) % 9;
    small s;
    small_make(&s, "layer=confident(frames=1, tau=0.87, groups=4)", 3, 65, cells, false);
    small_run(&s);
    const float *coarse = small_left(&s, 1), *fine = small_left(&s, 3); /* 4 by 4, then 8 by 8 */
    int open[2] = {0, 0};
    for (int i = 0; i < 64; i++) {
        open[0] += i < 16 && coarse[i] > 0;
        open[1] += fine[i] > 0;
        assert_true(fine[i] <= coarse[i / 8 / 2 * 4 + i % 8 / 2]);
    }
    assert_in_range(open[0], 1, 15);
    const double n = 16, kept = open[0], c = 16; /* of the second stage, by the formula */
    assert_float_equal(*(float *)heed_graph_data(s.graph, s.beside.measure[3].value),
                       (2 * n * c * c + 2 * kept * c * c + 4 * c * c + 2 * (n + kept) * c) /
                           (4 * n * c * c + 4 * c * c + 4 * n * c),
                       1e-5);
    small_free(&s);
    small_make(&s, "layer=confident(frames=1, tau=1, groups=4)", 3, 65, cells, false);
    small_run(&s);
    for (int i = 0; i < 64; i++)
        assert_true(small_left(&s, 3)[i] == 1);
    small_free(&s);
}

/* Two layers of the same tokens: two cells, four fine ones, two words. */
static double scene_a;
static int scene_open; /* 1: those that the layer before looks at, 2: all */

BUILD(make_scene)
{
    static made_call m;
    m = (made_call){.beside = {.loss = HEED_NO_INPUT}};
    const heed_layer_call first = call_of(&m, graph, x, "before", 0);
    (void)first.form->form->layer->make(&first);
    const heed_layer_call call = call_of(&m, graph, x, "layer", 1);
    return call.form->form->layer->make(&call);
}

enum { CELLS = 3, FINE = 2, WORDS = 2, ALL = CELLS + CELLS * FINE + WORDS, ORDINARY = CELLS + WORDS };

static int token_of(int i)
{
    return i < CELLS ? i : i + CELLS * FINE;
}

/* A map of one token, turned to its place: pairs of t and t + 2 of heads of 4. */
static void turned(const double *W, const double *x, int place, double *y)
{
    double raw[8];
    layer_map(W, x, 1, 8, 8, raw);
    for (int c = 0; c < 8; c++) {
        const double angle = place * pow(10000, -2.0 * (c % 2) / 4);
        const int other = c % 4 < 2 ? c + 2 : c - 2;
        y[c] = raw[c] * cos(angle) + (c % 4 < 2 ? -1 : 1) * raw[other] * sin(angle);
    }
}

static const double *weight(const layer_text *t, bool before, const char *name)
{
    char full[60];
    if (!before) {
        snprintf(full, sizeof full, "%s.weight", name);
    } else {
        /* names of the first layer have lost as many letters as "layer." has */
        snprintf(full, sizeof full, "before.%s.weight", name);
        memmove(full, full + 6, strlen(full) - 5);
    }
    return layer_value(t, full);
}

static double score(const double *q, const double *k, int h)
{
    double dot = 0;
    for (int c = 0; c < 4; c++)
        dot += q[h * 4 + c] * k[h * 4 + c];
    return dot / 2;
}

DEFINE(define_scene)
{
    static double y[ROOM];
    memset(y, 0, sizeof y);
    for (int b = 0; b < LAYER_B; b++) {
        const double *x = t->x + b * ALL * 8;
        for (int i = 0; i < ORDINARY; i++) {
            double q[8], look[CELLS] = {0}, most = -1, least = 1e9;
            turned(weight(t, true, "q_proj"), x + token_of(i) * 8, i, q);
            for (int h = 0; h < 2; h++) {
                double w[ORDINARY], k[8];
                for (int j = 0; j <= i; j++) {
                    turned(weight(t, true, "k_proj"), x + token_of(j) * 8, j, k);
                    w[j] = score(q, k, h);
                }
                layer_softmax(w, i + 1);
                for (int j = 0; j < CELLS && j <= i; j++)
                    look[j] += w[j];
            }
            for (int j = 0; j < CELLS; j++) {
                most = fmax(most, look[j]);
                least = fmin(least, look[j]);
            }
            turned(weight(t, false, "q_proj"), x + token_of(i) * 8, i, q);
            for (int h = 0; h < 2; h++)
                for (int joint = 0; joint < (scene_a > 0 ? 2 : 1); joint++) {
                    double w[ORDINARY + CELLS * FINE], v[ORDINARY + CELLS * FINE][8], k[8];
                    int n = 0;
                    for (int j = 0; j <= i; j++, n++) {
                        turned(weight(t, false, "k_proj"), x + token_of(j) * 8, j, k);
                        layer_map(weight(t, false, "v_proj"), x + token_of(j) * 8, 1, 8, 8, v[n]);
                        w[n] = score(q, k, h);
                    }
                    for (int f = 0; f < CELLS * FINE && joint; f++) {
                        const double at = (look[f / FINE] - least) / (most - least);
                        if (scene_open == 1 && at <= 96.0 / 255)
                            continue;
                        turned(weight(t, false, "fine_k_proj"), x + (CELLS + f) * 8, f / FINE, k);
                        layer_map(weight(t, false, "fine_v_proj"), x + (CELLS + f) * 8, 1, 8, 8, v[n]);
                        w[n++] = score(q, k, h);
                    }
                    layer_softmax(w, n);
                    const double share = i < CELLS ? !joint : joint ? scene_a : 1 - scene_a;
                    for (int j = 0; j < n; j++)
                        for (int c = 0; c < 4; c++)
                            y[(b * ALL + token_of(i)) * 8 + h * 4 + c] += share * w[j] * v[j][h * 4 + c];
                }
        }
    }
    layer_map(weight(t, false, "o_proj"), y, LAYER_B * ALL, 8, 8, out);
}

DEFINE(define_coarse)
{
    scene_a = 0;
    define_scene(t, out);
}

/* Reading those that are looked at, all, and none. */
static void words_read_where_they_look(void **state)
{
    (void)state;
    spec_now = "layer=scene(cells=3, fine=2, a=0.75)";
    scene_a = 0.75;
    scene_open = 1;
    layer_check(&(layer_case){.spec = spec_now, .build = make_scene, .define = define_scene, .n = ALL});
    spec_now = "layer=scene(cells=3, fine=2, threshold=-1)";
    scene_a = 1;
    scene_open = 2;
    layer_check(&(layer_case){.spec = spec_now, .build = make_scene, .define = define_scene, .n = ALL});
    spec_now = "layer=scene(cells=3, fine=2, a=0)";
    layer_check(&(layer_case){.spec = spec_now, .build = make_scene, .define = define_coarse, .n = ALL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_is_apart_from_where), cmocka_unit_test(gradients_stay_in_their_table),
        cmocka_unit_test(gates_learn_straight_through),     cmocka_unit_test(masked_is_as_good_as_removed),
        cmocka_unit_test(open_gates_change_nothing),        cmocka_unit_test(cells_that_are_sure_pass),
        cmocka_unit_test(stages_ask_within_those_before),   cmocka_unit_test(words_read_where_they_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
