/* Operations that choose and sample against their definitions: places, grids, noise, and where gradients
 * stop. */
#include "support/nn.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAKE(name) static heed_variable name(heed_graph *g, const nn_case *c, const heed_variable *in)
#define DEFINE(name) static void name(const nn_case *c, const double *const *in, double *out)

MAKE(make_take)
{
    return heed_nn_take(g, in[0], in[c->ins]);
}

DEFINE(define_take)
{
    const int64_t n = c->in[0].size[1], cols = c->in[0].size[2], m = c->index.size[1];
    for (int64_t i = 0; i < 2 * m * cols; i++) {
        const int32_t place = c->indices[i / cols];
        out[i] = place < 0 ? 0.0 : in[0][(i / cols / m * n + place) * cols + i % cols];
    }
}

MAKE(make_give)
{
    return heed_nn_give(g, in[0], in[c->ins], c->whole[0]);
}

DEFINE(define_give)
{
    const int64_t m = c->in[0].size[1], cols = c->in[0].size[2], rows = c->whole[0];
    memset(out, 0, (size_t)(2 * rows * cols) * sizeof *out);
    for (int64_t i = 0; i < 2 * m * cols; i++) {
        const int32_t place = c->indices[i / cols];
        if (place >= 0)
            out[(i / cols / m * rows + place) * cols + i % cols] += in[0][i];
    }
}

static void rows_by_places(void **state)
{
    (void)state;
    static const int32_t places[] = {3, 0, -1, 3, 2, 2, 1, 4};
    nn_check(&(nn_case){.name = "take",
                        .in = {{3, {2, 5, 3}}},
                        .ins = 1,
                        .index = {2, {2, 4}},
                        .indices = places,
                        .make = make_take,
                        .define = define_take});
    nn_check(&(nn_case){.name = "give",
                        .in = {{3, {2, 4, 3}}},
                        .ins = 1,
                        .index = {2, {2, 4}},
                        .indices = places,
                        .whole = {5},
                        .make = make_give,
                        .define = define_give});
}

MAKE(make_sparsemax)
{
    (void)c;
    return heed_nn_sparsemax(g, in[0]);
}

/* max(0, x - t) by halving the interval of t. */
DEFINE(define_sparsemax)
{
    const int64_t cols = c->in[0].size[1];
    for (int64_t r = 0; r < c->in[0].size[0]; r++) {
        const double *x = in[0] + r * cols;
        double low = -100.0, high = 100.0;
        for (int step = 0; step < 200; step++) {
            const double t = (low + high) / 2.0;
            double sum = 0.0;
            for (int64_t i = 0; i < cols; i++)
                sum += fmax(0.0, x[i] - t);
            *(sum > 1.0 ? &low : &high) = t;
        }
        for (int64_t i = 0; i < cols; i++)
            out[r * cols + i] = fmax(0.0, x[i] - high);
    }
}

static void sparsemax_is_the_projection(void **state)
{
    (void)state;
    nn_check(&(nn_case){.name = "sparsemax",
                        .in = {{2, {5, 7}}},
                        .ins = 1,
                        .make = make_sparsemax,
                        .define = define_sparsemax});
}

MAKE(make_sparsek)
{
    return heed_nn_sparsek(g, in[0], c->whole[0]);
}

/* clip(x - t, 0, 1) by halving the interval of t: what the conditions of Karush, Kuhn and Tucker ask for. */
DEFINE(define_sparsek)
{
    const int64_t cols = c->in[0].size[1];
    for (int64_t r = 0; r < c->in[0].size[0]; r++) {
        const double *x = in[0] + r * cols;
        double low = -100.0, high = 100.0;
        for (int step = 0; step < 200; step++) {
            const double t = (low + high) / 2.0;
            double sum = 0.0;
            for (int64_t i = 0; i < cols; i++)
                sum += fmin(1.0, fmax(0.0, x[i] - t));
            *(sum > (double)c->whole[0] ? &low : &high) = t;
        }
        for (int64_t i = 0; i < cols; i++)
            out[r * cols + i] = fmin(1.0, fmax(0.0, x[i] - high));
    }
}

/* With a sum of 1 it is sparsemax, and as many entries as the sum are whole. */
static void sparsek_is_the_projection(void **state)
{
    (void)state;
    nn_case how = {
        .name = "sparsek", .in = {{2, {5, 7}}}, .ins = 1, .make = make_sparsek, .define = define_sparsek};
    for (int k = 2; k < 7; k++) {
        how.whole[0] = k;
        nn_check(&how);
    }
    how.define = define_sparsemax;
    how.whole[0] = 1;
    nn_check(&how);
}

/* Places spread over the grid and beyond it. */
MAKE(make_sample)
{
    const int64_t size[] = {c->whole[0], c->whole[1]};
    return heed_nn_sample(g, in[0], c->whole[1] ? 2 : 1, size, heed_nn_scale(g, in[1], 1.4f, 1.1f));
}

/* The sum over all cells of the product of max(0, 1 - distance) in each direction. */
DEFINE(define_sample)
{
    const int dims = c->whole[1] ? 2 : 1;
    const int64_t m = c->in[1].size[1], cells = c->in[0].size[1], cols = c->in[0].size[2];
    for (int64_t p = 0; p < c->in[0].size[0] * m; p++)
        for (int64_t e = 0; e < cols; e++) {
            double *to = &out[p * cols + e];
            *to = 0.0;
            for (int64_t cell = 0; cell < cells; cell++) {
                double weight = 1.0;
                int64_t rest = cell;
                for (int d = dims - 1; d >= 0; d--) {
                    const int64_t size = c->whole[d], at = rest % size;
                    const double x = (double)1.4f * in[1][p * dims + d] + (double)1.1f,
                                 held = fmin(fmax(x, 0.0), (double)(size - 1));
                    rest /= size;
                    weight *= fmax(0.0, 1.0 - fabs(held - (double)at));
                }
                *to += weight * in[0][(p / m * cells + cell) * cols + e];
            }
        }
}

static void grids_are_linear_between_their_cells(void **state)
{
    (void)state;
    static const nn_case cases[] = {
        {.name = "linear", .in = {{3, {2, 5, 3}}, {3, {2, 6, 1}}}, .whole = {5}},
        {.name = "bilinear", .in = {{3, {2, 12, 3}}, {3, {2, 9, 2}}}, .whole = {3, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nn_case c = cases[i];
        c.ins = 2;
        c.make = make_sample;
        c.define = define_sample;
        nn_check(&c);
    }
}

/* A grid of three sizes has a dimension more than the cases of nn_check: its slope at some places. */
static void trilinear_slopes_are_those_of_differences(void **state)
{
    (void)state;
    enum { T = 2, H = 3, W = 3, CELLS = T * H * W, M = 5 };
    heed_parameters *parameters;
    heed_graph *graph;
    static const int64_t size[] = {T, H, W}, grid[] = {1, CELLS, 1}, places[] = {1, M, 3}, flat[] = {M};
    float x[CELLS];
    const float at[M * 3] = {0.3f, 1.2f,  0.7f, 0.9f, 0.1f, 1.6f, 0.5f, 1.9f,
                             1.1f, -1.0f, 0.5f, 5.0f, 0.2f, 1.4f, 0.2f};
    const double step = 1e-6;
    for (int i = 0; i < CELLS; i++)
        x[i] = sinf((float)(i * i));
    assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
    const heed_variable cells = heed_nn_parameter(graph, "x", 3, grid, (heed_initial){.values = x}),
                        where = heed_nn_parameter(graph, "at", 3, places, (heed_initial){.values = at}),
                        y = heed_nn_reshape(graph, heed_nn_sample(graph, cells, 3, size, where), 1, flat);
    heed_graph_keep(graph, y);
    assert_int_equal(heed_graph_finish(graph, heed_nn_sum(graph, heed_nn_apply(graph, HEED_FN_SQUARE, y))),
                     HEED_OK);
    assert_int_equal(heed_graph_forward(graph), HEED_OK);
    assert_int_equal(heed_graph_backward(graph, 1.0f, false), HEED_OK);
    double slope[CELLS] = {0.0};
    for (int p = 0; p < M; p++) {
        double value[7] = {0.0}, share[CELLS];
        for (int moved = 0; moved < 7; moved++) /* in its place, and a little off along each direction */
            for (int cell = 0; cell < CELLS; cell++) {
                double weight = 1.0;
                const int64_t in[] = {cell / (H * W), cell / W % H, cell % W};
                for (int d = 0; d < 3; d++) {
                    const double to = (double)at[p * 3 + d] +
                                      (moved && (moved - 1) / 2 == d ? (moved % 2 ? step : -step) : 0.0);
                    weight *=
                        fmax(0.0, 1.0 - fabs(fmin(fmax(to, 0.0), (double)size[d] - 1.0) - (double)in[d]));
                }
                value[moved] += weight * (double)x[cell];
                if (!moved)
                    share[cell] = weight;
            }
        assert_true(fabs((double)((float *)heed_graph_data(graph, y))[p] - value[0]) < 1e-6);
        for (int cell = 0; cell < CELLS; cell++)
            slope[cell] += 2.0 * value[0] * share[cell];
        for (int d = 0; d < 3; d++) {
            const double want =
                (value[1 + 2 * d] * value[1 + 2 * d] - value[2 + 2 * d] * value[2 + 2 * d]) / (2.0 * step);
            assert_true(fabs((double)heed_parameters_at(parameters, 1)->gradient[p * 3 + d] - want) < 1e-5);
        }
    }
    for (int cell = 0; cell < CELLS; cell++)
        assert_true(fabs((double)heed_parameters_at(parameters, 0)->gradient[cell] - slope[cell]) < 1e-5);
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

/* loss = sum w f(x) + sum w stop(x): what reaches x. */
static void gradients_stop_or_go_straight_through(void **state)
{
    (void)state;
    enum { N = 6 };
    static const float x[N] = {-1.0f, 0.4f, 0.6f, 2.0f, 0.5f, -0.2f},
                       w[N] = {1.0f, -2.0f, 3.0f, 0.5f, 4.0f, 1.5f};
    static const int64_t shape[] = {N};
    for (int stopped = 0; stopped < 2; stopped++) {
        heed_parameters *parameters;
        heed_graph *graph;
        assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
        assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
        const heed_variable in = heed_nn_parameter(graph, "x", 1, shape, (heed_initial){.values = x}),
                            weight = heed_nn_constant(graph, 1, shape, w),
                            y = stopped ? heed_nn_stop(graph, in) : heed_nn_step(graph, in, 0.5f),
                            both = heed_nn_add(graph, heed_nn_multiply(graph, y, weight), in);
        heed_graph_keep(graph, y);
        assert_int_equal(heed_graph_finish(graph, heed_nn_sum(graph, both)), HEED_OK);
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        assert_int_equal(heed_graph_backward(graph, 1.0f, false), HEED_OK);
        for (int i = 0; i < N; i++) {
            assert_true(((float *)heed_graph_data(graph, y))[i] == (stopped       ? x[i]
                                                                    : x[i] > 0.5f ? 1.0f
                                                                                  : 0.0f));
            assert_true(heed_parameters_at(parameters, 0)->gradient[i] == 1.0f + (stopped ? 0.0f : w[i]));
        }
        heed_graph_free(graph);
        heed_parameters_free(parameters);
    }
}

static void places_of_the_largest(void **state)
{
    (void)state;
    static const float x[] = {1.0f, 3.0f, NAN, 3.0f, 2.0f, 0.0f, -1.0f, 5.0f, 0.0f, 0.0f};
    static const int32_t want[] = {1, 3, 4, 2, 0, 3};
    static const int64_t shape[] = {2, 5};
    heed_parameters *parameters;
    heed_graph *graph;
    assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
    const heed_variable order = heed_nn_order(graph, heed_nn_constant(graph, 2, shape, x), 3);
    heed_graph_keep(graph, order);
    assert_int_equal(heed_graph_finish(graph, HEED_NO_INPUT), HEED_OK);
    assert_int_equal(heed_graph_forward(graph), HEED_OK);
    assert_memory_equal(heed_graph_data(graph, order), want, sizeof want);
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

/* Means and variances of many, others in each step, the same in the same, 0 when judging. */
static void noise_is_of_its_kind(void **state)
{
    (void)state;
    enum { N = 20000 };
    static const int64_t shape[] = {N};
    static const double mean[] = {0.57722, 0.0, 0.0}, variance[] = {1.64493, 3.28987, 1.0 / 3.0};
    static float first[N];
    for (int kind = HEED_NOISE_GUMBEL; kind <= HEED_NOISE_UNIFORM; kind++) {
        heed_parameters *parameters;
        heed_graph *graph;
        assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
        assert_int_equal(heed_graph_create(&graph, parameters, 2, HEED_ISA_AUTO), HEED_OK);
        const heed_variable noise = heed_nn_noise(graph, (heed_noise)kind, 1, shape);
        heed_graph_keep(graph, noise);
        assert_int_equal(heed_graph_finish(graph, HEED_NO_INPUT), HEED_OK);
        const float *x = heed_graph_data(graph, noise);
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        assert_true(x[0] == 0.0f && x[N - 1] == 0.0f);
        double sum = 0.0, squares = 0.0;
        heed_graph_training(graph, true, 7);
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        memcpy(first, x, sizeof first);
        for (int i = 0; i < N; i++) {
            sum += (double)x[i] / N;
            squares += (double)x[i] * (double)x[i] / N;
        }
        assert_true(fabs(sum - mean[kind]) < 0.05);
        assert_true(fabs(squares - sum * sum - variance[kind]) < 0.05 * variance[kind]);
        heed_graph_training(graph, true, 8);
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        assert_true(memcmp(first, x, sizeof first) != 0);
        heed_graph_training(graph, true, 7);
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        assert_memory_equal(first, x, sizeof first);
        heed_graph_free(graph);
        heed_parameters_free(parameters);
    }
}

/* From 1 to 0.5 in ten steps of training, and 0.5 when it is not. */
static void ramps_rise_with_steps(void **state)
{
    (void)state;
    heed_parameters *parameters;
    heed_graph *graph;
    assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
    const heed_variable ramp = heed_nn_ramp(graph, 1.0f, 0.5f, 10),
                        at_once = heed_nn_ramp(graph, 0.0f, 2.0f, 0);
    heed_graph_keep(graph, ramp);
    heed_graph_keep(graph, at_once);
    assert_int_equal(heed_graph_finish(graph, HEED_NO_INPUT), HEED_OK);
    for (int step = 0; step < 14; step++) {
        heed_graph_training(graph, step < 13, (uint64_t)step);
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        assert_float_equal(*(float *)heed_graph_data(graph, ramp), step < 10 ? 1 - 0.05 * step : 0.5, 1e-6);
        assert_float_equal(*(float *)heed_graph_data(graph, at_once), 2, 0);
    }
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_by_places),
        cmocka_unit_test(sparsemax_is_the_projection),
        cmocka_unit_test(sparsek_is_the_projection),
        cmocka_unit_test(grids_are_linear_between_their_cells),
        cmocka_unit_test(trilinear_slopes_are_those_of_differences),
        cmocka_unit_test(gradients_stop_or_go_straight_through),
        cmocka_unit_test(places_of_the_largest),
        cmocka_unit_test(noise_is_of_its_kind),
        cmocka_unit_test(ramps_rise_with_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
