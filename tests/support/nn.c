#include "support/nn.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct result {
    float value[NN_MOST], gradient[NN_INPUTS][NN_MOST];
    int64_t count;
} result;

static double data[NN_INPUTS][NN_MOST], weight[NN_MOST];

static void make_data(const nn_case *c)
{
    test_random random = {17};
    for (int i = 0; i < c->ins; i++)
        for (int64_t j = 0; j < nn_count(&c->in[i]); j++) {
            const double x = random_normal(&random);
            data[i][j] = (double)(float)(c->positive ? c->least + fabs(x) : x);
        }
    for (int64_t j = 0; j < NN_MOST; j++)
        weight[j] = (double)(float)random_normal(&random);
}

static void ok(const nn_case *c, heed_status status)
{
    if (status)
        fail_msg("%s: %s", c->name, heed_message());
}

/* loss = sum(weight op(inputs)), twice backward when `add`. */
static void run_graph(const nn_case *c, int threads, heed_isa isa, bool add, bool again, result *to)
{
    heed_parameters *parameters;
    heed_graph *graph;
    heed_variable in[NN_INPUTS + 1] = {0};
    float values[NN_MOST];
    ok(c, heed_parameters_create(&parameters, 1));
    ok(c, heed_graph_create(&graph, parameters, threads, isa));
    for (int i = 0; i < c->ins; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        for (int64_t j = 0; j < nn_count(&c->in[i]); j++)
            values[j] = (float)data[i][j];
        const heed_variable leaf =
            heed_nn_parameter(graph, name, c->in[i].rank, c->in[i].size, (heed_initial){.values = values});
        in[i] = leaf;
    }
    if (c->index.rank)
        in[c->ins] = heed_nn_input(graph, HEED_I32, c->index.rank, c->index.size);
    if (again)
        heed_graph_segment(graph);
    for (int i = 0; i < c->ins && again; i++) /* so that gradients go through an operation's memory too */
        in[i] = heed_nn_scale(graph, in[i], 1.0f, 0.0f);
    const heed_variable y = c->make(graph, c, in);
    to->count = 1;
    for (int d = 0; d < heed_graph_rank(graph, y); d++)
        to->count *= heed_graph_size(graph, y, d);
    const heed_variable w = heed_nn_input(graph, HEED_F32, 1, &to->count);
    const heed_variable product = heed_nn_multiply(graph, heed_nn_reshape(graph, y, 1, &to->count), w);
    if (again)
        heed_graph_segment_end(graph);
    const heed_variable loss = heed_nn_sum(graph, product);
    if (!again)
        heed_graph_keep(graph, y);
    ok(c, heed_graph_finish(graph, loss));
    float *to_weight = heed_graph_data(graph, w);
    for (int64_t j = 0; j < to->count; j++)
        to_weight[j] = (float)weight[j];
    if (c->index.rank)
        memcpy(heed_graph_data(graph, in[c->ins]), c->indices, (size_t)nn_count(&c->index) * sizeof(int32_t));
    for (int round = 0; round < 1 + add; round++) {
        ok(c, heed_graph_forward(graph));
        ok(c, heed_graph_backward(graph, 1.0f, round > 0));
    }
    if (!again)
        memcpy(to->value, heed_graph_data(graph, y), (size_t)to->count * sizeof(float));
    for (int i = 0; i < c->ins; i++) {
        const heed_parameter *p = heed_parameters_at(parameters, i);
        memcpy(to->gradient[i], p->gradient, (size_t)p->count * sizeof(float));
    }
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

static double loss_of(const nn_case *c, int64_t count)
{
    static double out[NN_MOST];
    const double *in[NN_INPUTS];
    double loss = 0.0;
    for (int i = 0; i < NN_INPUTS; i++)
        in[i] = data[i];
    c->define(c, in, out);
    for (int64_t j = 0; j < count; j++)
        loss += weight[j] * out[j];
    return loss;
}

static void compare(const nn_case *c, const char *what, const float *got, const double *expected, int64_t n,
                    double factor)
{
    const double tolerance = c->tolerance > 0.0 ? c->tolerance : 1e-5;
    double size = 0.0;
    for (int64_t j = 0; j < n; j++)
        size = fmax(size, fabs(expected[j]));
    for (int64_t j = 0; j < n; j++)
        if (!(fabs((double)got[j] - factor * expected[j]) <= factor * tolerance * (size + 0.1)))
            fail_msg("%s: %s %lld is %.9g instead of %.9g", c->name, what, (long long)j, (double)got[j],
                     factor * expected[j]);
}

static void check_numbers(const nn_case *c, const result *got, const double *out,
                          double gradient[NN_INPUTS][NN_MOST], double factor)
{
    char what[40];
    compare(c, "value", got->value, out, got->count, 1.0);
    for (int i = 0; i < c->ins; i++) {
        snprintf(what, sizeof what, "gradient of input %d at", i);
        compare(c, what, got->gradient[i], gradient[i], nn_count(&c->in[i]), factor);
    }
}

void nn_check(const nn_case *c)
{
    static result one, three, twice, again;
    static double out[NN_MOST], gradient[NN_INPUTS][NN_MOST];
    const double *in[NN_INPUTS];
    for (int i = 0; i < NN_INPUTS; i++)
        in[i] = data[i];
    make_data(c);
    run_graph(c, 1, HEED_ISA_AUTO, false, false, &one);
    c->define(c, in, out);
    for (int i = 0; i < c->ins; i++)
        for (int64_t j = 0; j < nn_count(&c->in[i]); j++) {
            const double x = data[i][j], h = 1e-5;
            data[i][j] = x + h;
            const double above = loss_of(c, one.count);
            data[i][j] = x - h;
            gradient[i][j] = (above - loss_of(c, one.count)) / (2.0 * h);
            data[i][j] = x;
        }
    check_numbers(c, &one, out, gradient, 1.0);
    run_graph(c, 3, HEED_ISA_AUTO, false, false, &three);
    run_graph(c, 1, HEED_ISA_AUTO, true, false, &twice);
    run_graph(c, 2, HEED_ISA_AUTO, false, true, &again);
    check_numbers(c, &twice, out, gradient, 2.0);
    for (int i = 0; i < c->ins; i++) {
        const size_t bytes = (size_t)nn_count(&c->in[i]) * sizeof(float);
        if (memcmp(one.gradient[i], three.gradient[i], bytes))
            fail_msg("%s: the gradient of input %d has other bits with 3 threads", c->name, i);
        for (int64_t j = 0; j < nn_count(&c->in[i]); j++) /* by value: adding 0 makes -0 to 0 */
            if (one.gradient[i][j] != again.gradient[i][j])
                fail_msg("%s: the gradient of input %d is another when values are computed again", c->name,
                         i);
    }
    for (heed_isa isa = HEED_ISA_PORTABLE; isa <= HEED_ISA_NEON; isa++)
        if (heed_isa_available(isa)) {
            run_graph(c, 1, isa, false, false, &three);
            check_numbers(c, &three, out, gradient, 1.0);
        }
}
