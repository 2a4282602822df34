#include "support/layer_check.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_VALUES = 40 };

struct layer_values {
    int count;
    char name[MOST_VALUES][96];
    double *value[MOST_VALUES];
    int64_t size[MOST_VALUES];
};

typedef struct made {
    layer_case c;
    heed_transformer model;
    heed_parameters *parameters;
    heed_graph *graph;
    heed_variable out, weight;
    int64_t count;
} made;

const double *layer_value(const layer_text *t, const char *name)
{
    for (int i = 0; i < t->values->count; i++)
        if (!strcmp(t->values->name[i], name))
            return t->values->value[i];
    fail_msg("the layer has no parameter %s", name);
    return NULL;
}

static void ok(const layer_case *c, heed_status status)
{
    if (status)
        fail_msg("%s: %s", c->spec, heed_message());
}

/* x is a parameter, so that it has a gradient. */
static made make(const layer_case *given)
{
    made m = {.c = *given};
    layer_case *c = &m.c;
    c->n = c->n ? c->n : 6;
    c->width = c->width ? c->width : 8;
    c->heads = c->heads ? c->heads : 2;
    c->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    c->tolerance = c->tolerance > 0 ? c->tolerance : 2e-5;
    m.model = (heed_transformer){.batch = LAYER_B,
                                 .context = c->n,
                                 .width = c->width,
                                 .layers = 3,
                                 .heads = c->heads,
                                 .kv_heads = c->kv_heads,
                                 .head_dim = c->width / c->heads,
                                 .spec = c->spec,
                                 .deviation = 0.4f};
    const int64_t shape[] = {LAYER_B, c->n, c->width};
    const heed_transformer_nodes nodes = {
        .tokens = HEED_NO_INPUT, .segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
    ok(c, heed_parameters_create(&m.parameters, 5));
    ok(c, heed_graph_create(&m.graph, m.parameters, 1, HEED_ISA_AUTO));
    const heed_variable x =
        heed_nn_parameter(m.graph, "x", 3, shape, (heed_initial){.kind = HEED_INITIAL_NORMAL, .size = 1});
    m.out = c->build ? c->build(m.graph, x)
                     : heed_layer_attention(m.graph, "layer", &m.model, c->layer, &nodes, x);
    m.count = 1;
    for (int d = 0; d < heed_graph_rank(m.graph, m.out); d++)
        m.count *= heed_graph_size(m.graph, m.out, d);
    m.weight = heed_nn_input(m.graph, HEED_F32, 1, &m.count);
    heed_graph_keep(m.graph, m.out);
    const heed_variable flat = heed_nn_reshape(m.graph, m.out, 1, &m.count);
    ok(c, heed_graph_finish(m.graph, heed_nn_sum(m.graph, heed_nn_multiply(m.graph, flat, m.weight))));
    for (int i = 1; !c->start && i < heed_parameters_count(m.parameters); i++) {
        heed_parameter *p = heed_parameters_at(m.parameters, i);
        test_random random = {(uint64_t)p->count};
        for (int64_t j = 0; j < p->count; j++)
            p->value[j] += 0.3f * (float)random_normal(&random);
    }
    return m;
}

static void drop(made *m)
{
    heed_graph_free(m->graph);
    heed_parameters_free(m->parameters);
}

static struct layer_values take(const made *m)
{
    struct layer_values v = {.count = heed_parameters_count(m->parameters)};
    assert_true(v.count <= MOST_VALUES);
    for (int i = 0; i < v.count; i++) {
        const heed_parameter *p = heed_parameters_at(m->parameters, i);
        snprintf(v.name[i], sizeof v.name[i], "%s", i ? p->name + strlen("layer.") : p->name);
        v.size[i] = p->count;
        v.value[i] = malloc((size_t)p->count * sizeof(double));
        for (int64_t j = 0; j < p->count; j++)
            v.value[i][j] = p->value[j];
    }
    return v;
}

static void near(const layer_case *c, const char *what, int64_t i, double got, double want, double size)
{
    if (!(fabs(got - want) <= c->tolerance * (size + 0.1)))
        fail_msg("%s: %s %lld is %.9g instead of %.9g", c->spec, what, (long long)i, got, want);
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

static void check_gradients(const made *m, const layer_text *t, struct layer_values *v, const double *weight)
{
    static double above[LAYER_MOST], below[LAYER_MOST], slope[LAYER_MOST];
    for (int i = 0; i < v->count; i++) {
        memset(slope, 0, sizeof slope);
        const heed_parameter *p = heed_parameters_at(m->parameters, i);
        if (p->frozen)
            continue;
        assert_true(v->size[i] <= LAYER_MOST);
        /* all entries of small parameters, every so many of large ones */
        const int64_t apart = v->size[i] / 24 + 1;
        for (int64_t j = 0; j < v->size[i]; j += apart) {
            const double was = v->value[i][j], step = 1e-5;
            v->value[i][j] = was + step;
            m->c.define(t, above);
            v->value[i][j] = was - step;
            m->c.define(t, below);
            v->value[i][j] = was;
            slope[j] = 0;
            for (int64_t e = 0; e < m->count; e++)
                slope[j] += weight[e] * (above[e] - below[e]) / (2 * step);
        }
        char what[140];
        snprintf(what, sizeof what, "gradient of %s", p->name);
        for (int64_t j = 0; j < v->size[i]; j += apart)
            near(&m->c, what, j, p->gradient[j], slope[j], largest(slope, v->size[i]));
    }
}

static void check_causal(const made *m)
{
    float *before = malloc((size_t)m->count * sizeof *before);
    const float *out = heed_graph_data(m->graph, m->out);
    float *x = heed_parameters_at(m->parameters, 0)->value;
    const int64_t row = m->c.width, text = m->c.n * row;
    memcpy(before, out, (size_t)m->count * sizeof *before);
    for (int64_t e = 0; e < row; e++)
        x[text - row + e] += 2; /* the last token of the first text */
    ok(&m->c, heed_graph_forward(m->graph));
    for (int64_t e = 0; e < text - row; e++)
        if (out[e] != before[e])
            fail_msg("%s: a later token changes output %lld", m->c.spec, (long long)e);
    free(before);
}

void layer_check(const layer_case *c)
{
    static double want[LAYER_MOST], weight[LAYER_MOST];
    made m = make(c);
    struct layer_values v = take(&m);
    const layer_text t = {m.c.n, m.c.width, m.c.heads, m.c.kv_heads, m.c.width / m.c.heads, v.value[0], &v};
    test_random random = {9};
    assert_true(m.count <= LAYER_MOST);
    for (int64_t i = 0; i < m.count; i++)
        weight[i] = ((float *)heed_graph_data(m.graph, m.weight))[i] = (float)random_normal(&random);
    ok(c, heed_graph_forward(m.graph));
    ok(c, heed_graph_backward(m.graph, 1, false));
    c->define(&t, want);
    for (int64_t i = 0; i < m.count; i++)
        near(&m.c, "output", i, ((float *)heed_graph_data(m.graph, m.out))[i], want[i],
             largest(want, m.count));
    if (!c->start)
        check_gradients(&m, &t, &v, weight);
    if (c->causal)
        check_causal(&m);
    for (int i = 0; i < v.count; i++)
        free(v.value[i]);
    drop(&m);
}

int64_t layer_parameters(const layer_case *c)
{
    made m = make(c);
    int64_t sum = 0;
    for (int i = 1; i < heed_parameters_count(m.parameters); i++)
        sum += heed_parameters_at(m.parameters, i)->count;
    drop(&m);
    return sum;
}

void layer_output(const layer_case *c, float *out)
{
    made m = make(c);
    ok(c, heed_graph_forward(m.graph));
    memcpy(out, heed_graph_data(m.graph, m.out), (size_t)m.count * sizeof *out);
    drop(&m);
}

void layer_map(const double *W, const double *x, int rows, int in, int out, double *y)
{
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < out; o++) {
            y[r * out + o] = 0;
            for (int i = 0; i < in; i++)
                y[r * out + o] += W[o * in + i] * x[r * in + i];
        }
}

double *layer_mapped(const layer_text *t, const char *name, int out, double *y)
{
    char weight[120];
    snprintf(weight, sizeof weight, "%s.weight", name);
    layer_map(layer_value(t, weight), t->x, LAYER_B * t->n, t->width, out, y);
    return y;
}

void layer_softmax(double *x, int n)
{
    double sum = 0, most = -INFINITY;
    for (int i = 0; i < n; i++)
        most = fmax(most, x[i]);
    for (int i = 0; i < n; i++)
        sum += x[i] = exp(x[i] - most);
    for (int i = 0; i < n; i++)
        x[i] /= sum;
}

void layer_attend(const layer_text *t, const double *q, const double *k, const double *v, bool causal,
                  double *y)
{
    const int n = t->n, d = t->d, wide = t->heads * d, narrow = t->kv_heads * d;
    double w[64];
    for (int b = 0; b < LAYER_B; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < n; i++) {
                const int g = h * t->kv_heads / t->heads, seen = causal ? i + 1 : n;
                for (int j = 0; j < seen; j++) {
                    w[j] = 0;
                    for (int c = 0; c < d; c++)
                        w[j] +=
                            q[(b * n + i) * wide + h * d + c] * k[(b * n + j) * narrow + g * d + c] / sqrt(d);
                }
                layer_softmax(w, seen);
                for (int c = 0; c < d; c++) {
                    double *to = &y[(b * n + i) * wide + h * d + c];
                    *to = 0;
                    for (int j = 0; j < seen; j++)
                        *to += w[j] * v[(b * n + j) * narrow + g * d + c];
                }
            }
}

void layer_out(const layer_text *t, const double *y, double *out)
{
    layer_map(layer_value(t, "o_proj.weight"), y, LAYER_B * t->n, t->heads * t->d, t->width, out);
}
