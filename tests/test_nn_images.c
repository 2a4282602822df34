/* Operations on images, cross-attention and losses of other kinds against their definitions. */
#include "nn/graph.h"
#include "support/nn.h"
#include "support/random.h"

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

MAKE(make_convolution)
{
    return heed_nn_convolution_2d(
        g, in[0], in[1],
        &(heed_convolution_2d){.stride = c->whole[0], .pad = c->whole[1], .depthwise = c->whole[2]});
}

DEFINE(define_convolution)
{
    const int64_t *size = c->in[0].size, *weight = c->in[1].size + (c->whole[2] ? 0 : 1);
    const int64_t stride = c->whole[0], pad = c->whole[1], in_c = size[3],
                  out_c = c->whole[2] ? in_c : c->in[1].size[0];
    const int64_t rows = (size[1] + 2 * pad - weight[0]) / stride + 1,
                  cols = (size[2] + 2 * pad - weight[1]) / stride + 1;
    for (int64_t b = 0; b < size[0]; b++)
        for (int64_t at = 0; at < rows * cols * out_c; at++) {
            const int64_t o = at % out_c, x = at / out_c % cols, y = at / out_c / cols;
            double sum = 0.0;
            for (int64_t i = 0; i < weight[0]; i++)
                for (int64_t j = 0; j < weight[1]; j++)
                    for (int64_t k = 0; k < in_c; k++) {
                        const int64_t row = y * stride + i - pad, col = x * stride + j - pad;
                        if (row < 0 || row >= size[1] || col < 0 || col >= size[2] || (c->whole[2] && k != o))
                            continue;
                        const int64_t w = (i * weight[1] + j) * in_c + k;
                        sum += in[1][c->whole[2] ? w : o * weight[0] * weight[1] * in_c + w] *
                               in[0][((b * size[1] + row) * size[2] + col) * in_c + k];
                    }
            out[b * rows * cols * out_c + at] = sum;
        }
}

static void convolutions_of_images(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++)
        nn_check(&(nn_case){
            .name = "convolution_2d",
            .in = {SHAPE(2, 7, 6, 3), i & 4 ? (nn_shape)SHAPE(3, 2, 3) : (nn_shape)SHAPE(4, 3, 2, 3)},
            .ins = 2,
            .whole = {1 + i % 2, i / 2 % 2 + (i >= 8), (i & 4) != 0},
            .make = make_convolution,
            .define = define_convolution});
}

MAKE(make_pool)
{
    return heed_nn_pool_2d(g, in[0], c->whole[0], c->whole[1], c->whole[2]);
}

DEFINE(define_pool)
{
    const int64_t *size = c->in[0].size, window = c->whole[0], stride = c->whole[1];
    const int64_t rows = (size[1] - window) / stride + 1, cols = (size[2] - window) / stride + 1;
    for (int64_t b = 0; b < size[0]; b++)
        for (int64_t at = 0; at < rows * cols * size[3]; at++) {
            const int64_t k = at % size[3], x = at / size[3] % cols, y = at / size[3] / cols;
            double sum = 0.0, most = -INFINITY;
            for (int64_t w = 0; w < window * window; w++) {
                const double value =
                    in[0][((b * size[1] + y * stride + w / window) * size[2] + x * stride + w % window) *
                              size[3] +
                          k];
                sum += value / (double)(window * window);
                most = value > most ? value : most;
            }
            out[b * rows * cols * size[3] + at] = c->whole[2] ? most : sum;
        }
}

static void pools_of_images(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        nn_check(&(nn_case){.name = "pool_2d",
                            .in = {SHAPE(3, 7, 6, 4)},
                            .ins = 1,
                            .whole = {2 + i % 2, 1 + i / 2 % 2, i / 4},
                            .make = make_pool,
                            .define = define_pool});
}

/* Four queries, six keys of another text. */
MAKE(make_across)
{
    (void)c;
    return heed_nn_attend_across(g, in[0], in[1], in[2],
                                 &(heed_nn_attention){.spec = "score=dot",
                                                      .name = "across",
                                                      .heads = 2,
                                                      .kv_heads = 1,
                                                      .positions = HEED_NO_INPUT,
                                                      .segments = HEED_NO_INPUT,
                                                      .gate = HEED_NO_INPUT},
                                 &(heed_nn_keys){HEED_NO_INPUT, HEED_NO_INPUT});
}

DEFINE(define_across)
{
    (void)c;
    for (int64_t b = 0; b < 2; b++)
        for (int64_t h = 0; h < 2; h++)
            for (int64_t i = 0; i < 4; i++) {
                double weight[6], sum = 0.0;
                for (int64_t j = 0; j < 6; j++) {
                    double score = 0.0;
                    for (int64_t d = 0; d < 3; d++)
                        score += in[0][((b * 4 + i) * 2 + h) * 3 + d] * in[1][(b * 6 + j) * 3 + d];
                    sum += weight[j] = exp(score / sqrt(3.0));
                }
                for (int64_t e = 0; e < 3; e++) {
                    double *to = out + ((b * 4 + i) * 2 + h) * 3 + e;
                    *to = 0.0;
                    for (int64_t j = 0; j < 6; j++)
                        *to += weight[j] / sum * in[2][(b * 6 + j) * 3 + e];
                }
            }
}

static void attention_to_another_text(void **state)
{
    (void)state;
    nn_check(&(nn_case){.name = "attention across",
                        .in = {SHAPE(2, 4, 6), SHAPE(2, 6, 3), SHAPE(2, 6, 3)},
                        .ins = 3,
                        .tolerance = 2e-5,
                        .make = make_across,
                        .define = define_across});
}

static const int32_t surprised[] = {2, -1, 0, 4};

MAKE(make_surprise)
{
    return heed_nn_surprise(g, in[0], in[c->ins]);
}

DEFINE(define_surprise)
{
    (void)c;
    for (int row = 0; row < 4; row++) {
        double sum = 0.0;
        for (int i = 0; i < 5; i++)
            sum += exp(in[0][row * 5 + i]);
        out[row] = surprised[row] < 0 ? 0.0 : log(sum) - in[0][row * 5 + surprised[row]];
    }
}

static void surprise_of_targets(void **state)
{
    (void)state;
    nn_check(&(nn_case){.name = "surprise",
                        .in = {SHAPE(2, 2, 5)},
                        .ins = 1,
                        .index = SHAPE(4),
                        .indices = surprised,
                        .make = make_surprise,
                        .define = define_surprise});
}

/* Keys of another segment than the query's are not seen, and get no gradient. */
static void padding_of_another_text_is_not_seen(void **state)
{
    (void)state;
    enum { QUERIES = 3, KEYS = 5, WIDTH = 4 };
    heed_parameters *parameters;
    heed_graph *graph;
    float first[QUERIES * WIDTH];
    const int64_t q[] = {1, QUERIES, WIDTH}, k[] = {1, KEYS, WIDTH}, of_q[] = {1, QUERIES},
                  of_k[] = {1, KEYS};
    const heed_initial normal = {.kind = HEED_INITIAL_NORMAL, .size = 1.0f};
    assert_int_equal(heed_parameters_create(&parameters, 3), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
    const heed_variable keys = heed_nn_parameter(graph, "k", 3, k, normal),
                        query = heed_nn_parameter(graph, "q", 3, q, normal),
                        q_segment = heed_nn_input(graph, HEED_I32, 2, of_q),
                        k_segment = heed_nn_input(graph, HEED_I32, 2, of_k);
    const heed_variable out = heed_nn_attend_across(graph, query, keys, keys,
                                                    &(heed_nn_attention){.spec = "where=segments",
                                                                         .name = "across",
                                                                         .heads = 1,
                                                                         .positions = HEED_NO_INPUT,
                                                                         .segments = q_segment,
                                                                         .gate = HEED_NO_INPUT},
                                                    &(heed_nn_keys){HEED_NO_INPUT, k_segment});
    const int64_t all[] = {QUERIES * WIDTH};
    const heed_variable loss = heed_nn_sum(graph, heed_nn_reshape(graph, out, 1, all));
    heed_graph_keep(graph, out);
    assert_int_equal(heed_graph_finish(graph, loss), HEED_OK);
    memcpy(heed_graph_data(graph, k_segment), (int32_t[]){0, 0, 0, 1, 1}, KEYS * sizeof(int32_t));
    assert_int_equal(heed_graph_forward(graph), HEED_OK);
    assert_int_equal(heed_graph_backward(graph, 1.0f, false), HEED_OK);
    memcpy(first, heed_graph_data(graph, out), sizeof first);
    heed_parameter *parameter = heed_parameters_find(parameters, "k");
    for (int i = 3 * WIDTH; i < KEYS * WIDTH; i++) {
        assert_true(parameter->gradient[i] == 0.0f);
        parameter->value[i] = 1e6f;
    }
    assert_int_equal(heed_graph_forward(graph), HEED_OK);
    assert_memory_equal(first, heed_graph_data(graph, out), sizeof first);
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

/* T^2 KL(teacher || x), and its gradient by central differences. */
static double divergence(const double *x, const double *t, double temperature)
{
    enum { CLASSES = 7 };
    double sum_x = 0.0, sum_t = 0.0, kl = 0.0;
    for (int i = 0; i < CLASSES; i++) {
        sum_x += exp(x[i] / temperature);
        sum_t += exp(t[i] / temperature);
    }
    for (int i = 0; i < CLASSES; i++)
        kl += exp(t[i] / temperature) / sum_t *
              (t[i] / temperature - log(sum_t) - x[i] / temperature + log(sum_x));
    return kl * temperature * temperature;
}

static void divergence_from_a_teacher(void **state)
{
    (void)state;
    enum { ROWS = 5, CLASSES = 7 };
    static const float temperatures[] = {1.0f, 2.5f};
    for (int n = 0; n < 2; n++) {
        heed_parameters *parameters;
        heed_graph *graph;
        test_random random = {4};
        float value[ROWS * CLASSES];
        double x[ROWS * CLASSES], t[ROWS * CLASSES], expected = 0.0;
        const int64_t shape[] = {ROWS, CLASSES}, rows[] = {ROWS};
        const int32_t target[ROWS] = {3, -1, 0, 6, 2};
        for (int i = 0; i < ROWS * CLASSES; i++) {
            value[i] = (float)random_normal(&random);
            x[i] = (double)value[i];
        }
        assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
        assert_int_equal(heed_graph_create(&graph, parameters, 3, HEED_ISA_AUTO), HEED_OK);
        const heed_variable mine = heed_nn_parameter(graph, "x", 2, shape, (heed_initial){.values = value}),
                            theirs = heed_nn_input(graph, HEED_F32, 2, shape),
                            targets = heed_nn_input(graph, HEED_I32, 1, rows);
        const heed_variable loss = heed_nn_divergence(graph, mine, theirs, targets, temperatures[n]);
        assert_int_equal(heed_graph_finish(graph, loss), HEED_OK);
        for (int i = 0; i < ROWS * CLASSES; i++) {
            const float other = (float)(2.0 * random_normal(&random));
            ((float *)heed_graph_data(graph, theirs))[i] = other;
            t[i] = (double)other;
        }
        memcpy(heed_graph_data(graph, targets), target, sizeof target);
        assert_int_equal(heed_graph_forward(graph), HEED_OK);
        assert_int_equal(heed_graph_backward(graph, 1.0f, false), HEED_OK);
        const float *gradient = heed_parameters_at(parameters, 0)->gradient;
        for (int row = 0; row < ROWS; row++)
            for (int i = row * CLASSES; i < (row + 1) * CLASSES; i++) {
                const double h = 1e-5, at = x[i];
                x[i] = at + h;
                const double above =
                    divergence(x + row * CLASSES, t + row * CLASSES, (double)temperatures[n]);
                x[i] = at - h;
                const double below =
                    divergence(x + row * CLASSES, t + row * CLASSES, (double)temperatures[n]);
                x[i] = at;
                const double slope = target[row] < 0 ? 0.0 : (above - below) / (2.0 * h) / 4.0;
                if (!(fabs((double)gradient[i] - slope) < 1e-5))
                    fail_msg("gradient %d is %g instead of %g", i, (double)gradient[i], slope);
            }
        for (int row = 0; row < ROWS; row++)
            expected += target[row] < 0
                            ? 0.0
                            : divergence(x + row * CLASSES, t + row * CLASSES, (double)temperatures[n]) / 4.0;
        assert_true(fabs((double)*(float *)heed_graph_data(graph, loss) - expected) <
                    1e-5 * (1.0 + expected));
        heed_graph_free(graph);
        heed_parameters_free(parameters);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    heed_parameters *parameters;
    const int64_t image[] = {1, 4, 4, 2}, weight[] = {3, 5, 2, 2}, rows[] = {1, 4};
    const struct {
        int which;
        const char *words;
    } each[] = {{0, "convolution_2d: [1, 4, 4, 2] does not fit a weight [3, 5, 2, 2]"},
                {1, "pool_2d: windows of 5 by steps of 1 do not fit [1, 4, 4, 2]"},
                {2, "the teacher would learn too"},
                {3, "a temperature of 0"}};
    assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        heed_graph *graph;
        assert_int_equal(heed_graph_create(&graph, parameters, 1, HEED_ISA_AUTO), HEED_OK);
        const heed_initial normal = {.kind = HEED_INITIAL_NORMAL, .size = 1.0f};
        const heed_variable x = heed_nn_input(graph, HEED_F32, 4, image),
                            w = heed_nn_parameter(graph, "w", 4, weight, normal),
                            y = heed_nn_parameter(graph, "y", 2, rows, normal),
                            t = heed_nn_input(graph, HEED_I32, 1, (int64_t[]){1}),
                            z = heed_nn_input(graph, HEED_F32, 2, rows);
        heed_variable out = HEED_NO_VARIABLE;
        if (each[i].which == 0)
            out = heed_nn_convolution_2d(graph, x, w, &(heed_convolution_2d){.stride = 1});
        if (each[i].which == 1)
            out = heed_nn_pool_2d(graph, x, 5, 1, true);
        if (each[i].which == 2)
            out = heed_nn_divergence(graph, y, y, t, 1.0f);
        if (each[i].which == 3)
            out = heed_nn_divergence(graph, y, z, t, 0.0f);
        assert_int_equal(out, HEED_NO_VARIABLE);
        assert_int_not_equal(heed_graph_finish(graph, HEED_NO_INPUT), HEED_OK);
        if (!strstr(heed_message(), each[i].words))
            fail_msg("'%s' does not say '%s'", heed_message(), each[i].words);
        heed_graph_free(graph);
    }
    heed_parameters_free(parameters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_of_images),
        cmocka_unit_test(pools_of_images),
        cmocka_unit_test(attention_to_another_text),
        cmocka_unit_test(surprise_of_targets),
        cmocka_unit_test(padding_of_another_text_is_not_seen),
        cmocka_unit_test(divergence_from_a_teacher),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
