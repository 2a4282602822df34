/* The distance of relations of tokens from a teacher's, by its formula. */
#include "support/nn.h"
#include "support/random.h"
#include "train/losses.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 2, N = 5, HEADS = 2, WIDTH = 6, THEIRS = 4 };

/* Row 3 of the first text and row 0 of the second are not asked for. */
static const int32_t targets[BATCH * N] = {1, 0, 2, -1, 4, -1, 3, 1, 1, 0};

static float teacher[3][BATCH * N * THEIRS];

static heed_variable make(heed_graph *graph, const nn_case *c, const heed_variable *in)
{
    const int64_t shape[] = {BATCH, N, THEIRS};
    heed_variable theirs[3];
    for (int i = 0; i < 3; i++)
        theirs[i] = heed_nn_constant(graph, 3, shape, teacher[i]);
    return heed_relation_loss(graph, in, theirs, in[3], c->whole[0]);
}

/* softmax over tokens 0..row of x_row x_j / sqrt(dim), of one head */
static void shares(const double *x, int64_t width, int head, int dim, int row, double *to)
{
    double sum = 0.0;
    for (int j = 0; j <= row; j++) {
        double product = 0.0;
        for (int d = 0; d < dim; d++)
            product += x[row * width + head * dim + d] * x[j * width + head * dim + d];
        to[j] = exp(product / sqrt(dim));
        sum += to[j];
    }
    for (int j = 0; j <= row; j++)
        to[j] /= sum;
}

static void define(const nn_case *c, const double *const *in, double *out)
{
    double sum = 0.0;
    int rows = 0;
    (void)c;
    for (int r = 0; r < BATCH * N; r++)
        rows += targets[r] >= 0;
    for (int i = 0; i < 3; i++)
        for (int b = 0; b < BATCH; b++)
            for (int head = 0; head < HEADS; head++)
                for (int row = 0; row < N; row++) {
                    double mine[N], theirs[N], x[N * THEIRS];
                    if (targets[b * N + row] < 0)
                        continue;
                    for (int n = 0; n < N * THEIRS; n++)
                        x[n] = (double)teacher[i][b * N * THEIRS + n];
                    shares(in[i] + b * N * WIDTH, WIDTH, head, WIDTH / HEADS, row, mine);
                    shares(x, THEIRS, head, THEIRS / HEADS, row, theirs);
                    for (int j = 0; j <= row; j++)
                        sum += theirs[j] * log(theirs[j] / mine[j]);
                }
    *out = sum / (3.0 * HEADS * rows);
}

static void relations_are_those_of_the_formula(void **state)
{
    (void)state;
    test_random random = {5};
    for (int i = 0; i < 3; i++)
        for (int n = 0; n < BATCH * N * THEIRS; n++)
            teacher[i][n] = (float)random_normal(&random);
    nn_case c = {.name = "relations",
                 .ins = 3,
                 .index = {2, {BATCH, N}},
                 .indices = targets,
                 .whole = {HEADS},
                 .make = make,
                 .define = define};
    for (int i = 0; i < 3; i++)
        c.in[i] = (nn_shape){3, {BATCH, N, WIDTH}};
    nn_check(&c);
    c.whole[0] = 0; /* 2 is the most that divides 6 and 4 */
    nn_check(&c);
}

static heed_graph *new_graph(heed_parameters **parameters)
{
    heed_graph *graph;
    assert_int_equal(heed_parameters_create(parameters, 1), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, *parameters, 1, HEED_ISA_AUTO), HEED_OK);
    return graph;
}

/* Nothing is far from itself; what has no queries, or other widths, is refused. */
static void ends_and_refusals(void **state)
{
    (void)state;
    heed_parameters *parameters;
    heed_graph *graph = new_graph(&parameters);
    const int64_t shape[] = {BATCH, N, THEIRS}, rows[] = {BATCH, N};
    heed_variable x[3];
    for (int i = 0; i < 3; i++)
        x[i] = heed_nn_constant(graph, 3, shape, teacher[i]);
    const heed_variable asked = heed_nn_input(graph, HEED_I32, 2, rows),
                        loss = heed_relation_loss(graph, x, x, asked, 4);
    heed_graph_keep(graph, loss);
    assert_int_equal(heed_graph_finish(graph, HEED_NO_INPUT), HEED_OK);
    for (int i = 0; i < BATCH * N; i++)
        ((int32_t *)heed_graph_data(graph, asked))[i] = targets[i];
    assert_int_equal(heed_graph_forward(graph), HEED_OK);
    assert_true(fabsf(*(const float *)heed_graph_data(graph, loss)) < 1e-6f);
    heed_graph_free(graph);
    heed_parameters_free(parameters);
    for (int wrong = 0; wrong < 2; wrong++) {
        graph = new_graph(&parameters);
        for (int i = 0; i < 3; i++)
            x[i] = heed_nn_constant(graph, 3, shape, teacher[i]);
        if (wrong)
            x[1] = HEED_NO_INPUT;
        heed_relation_loss(graph, x, x, heed_nn_input(graph, HEED_I32, 2, rows), 3);
        assert_int_not_equal(heed_graph_finish(graph, HEED_NO_INPUT), HEED_OK);
        assert_non_null(
            strstr(heed_message(), wrong ? "has no queries" : "relation_heads = 3 does not divide"));
        heed_graph_free(graph);
        heed_parameters_free(parameters);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(relations_are_those_of_the_formula),
                                       cmocka_unit_test(ends_and_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
