/* What heed limits measures: by hand on small cases, by a dense matrix, and by the bounds that hold of all
 * weights. */
#include "eval/selection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 12, WIDTH = 5 };

static double uniform(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

static void softmax(const double *logit, int64_t n, double temperature, float *weight)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += exp(logit[i] / temperature);
    for (int64_t i = 0; i < n; i++)
        weight[i] = (float)(exp(logit[i] / temperature) / sum);
}

/* Two of three chosen: s = (0.5, 0.3), the third a x = (0.4, 0). */
static void a_case_by_hand(void **state)
{
    (void)state;
    const float weight[] = {0.3f, 0.2f, 0.5f}, token[] = {0, 1, 2, 0, 1, 0};
    heed_selection got;
    assert_int_equal(heed_selection_measure(weight, token, 3, 2, 2, &got), HEED_OK);
    assert_float_equal(got.held, 0.8, 1e-6);
    assert_float_equal(got.distance, hypot(0.1, 0.3), 1e-6);
    assert_float_equal(got.lower, fabs(hypot(0.5, 0.3) - 0.4), 1e-6);
    assert_float_equal(got.upper, hypot(0.5, 0.3) + 0.4, 1e-6);
    assert_float_equal(got.separable, 0.5, 1e-9); /* (0.5, 0) lies 0.3 away, (0, 0.3) lies 0.5 away */
    assert_int_equal(heed_selection_measure(weight, token, 3, 2, 0, &got), HEED_INVALID);
    assert_int_equal(heed_selection_measure(weight, token, 3, 2, 4, &got), HEED_INVALID);
}

/* The definition again: ranks by counting, all distances in double. */
static void agrees_with_the_definition(void **state)
{
    (void)state;
    uint64_t dice = 3;
    for (int round = 0; round < 50; round++) {
        double logit[N];
        float weight[N], token[N * WIDTH];
        for (int i = 0; i < N; i++)
            logit[i] = 4.0 * uniform(&dice);
        for (int i = 0; i < N * WIDTH; i++)
            token[i] = (float)(uniform(&dice) - 0.5);
        softmax(logit, N, 1.0, weight);
        for (int top = 1; top <= N; top++) {
            double s[WIDTH] = {0}, distance = 0, radius = INFINITY, near[N];
            bool chosen[N];
            for (int i = 0; i < N; i++) {
                int before = 0;
                for (int j = 0; j < N; j++)
                    before += weight[j] > weight[i] || (weight[j] == weight[i] && j < i);
                chosen[i] = before < top;
                for (int d = 0; d < WIDTH && chosen[i]; d++)
                    s[d] += (double)weight[i] * (double)token[i * WIDTH + d];
            }
            for (int i = 0; i < N; i++) {
                double sum = 0;
                for (int d = 0; d < WIDTH; d++)
                    sum += pow(s[d] - (double)weight[i] * (double)token[i * WIDTH + d], 2);
                near[i] = sqrt(sum);
                distance += chosen[i] ? 0.0 : near[i];
                radius = chosen[i] ? radius : fmin(radius, near[i]);
            }
            int inside = 0;
            for (int i = 0; i < N; i++)
                inside += chosen[i] && near[i] < radius;
            heed_selection got;
            assert_int_equal(heed_selection_measure(weight, token, N, WIDTH, top, &got), HEED_OK);
            assert_true(fabs(got.distance - distance) <= 1e-9 * (1 + distance));
            assert_true(fabs(got.separable - (double)inside / top) < 1e-12);
            assert_true(got.lower <= got.distance + 1e-12 && got.distance <= got.upper + 1e-12);
        }
    }
}

/* Norm of the matrix of finite differences of softmax, by repeated products. */
static double norm_by_differences(const double *logit, double temperature)
{
    double J[N][N], x[N], norm = 0;
    const double h = 1e-3;
    for (int j = 0; j < N; j++) {
        double up[N], down[N], sum[2] = {0, 0};
        for (int i = 0; i < N; i++) {
            up[i] = exp((logit[i] + (i == j ? h : 0)) / temperature);
            down[i] = exp((logit[i] - (i == j ? h : 0)) / temperature);
            sum[0] += up[i];
            sum[1] += down[i];
        }
        for (int i = 0; i < N; i++)
            J[i][j] = (up[i] / sum[0] - down[i] / sum[1]) / (2 * h);
        x[j] = 1 + 0.1 * j * j;
    }
    for (int round = 0; round < 3000; round++) {
        double y[N] = {0}, size = 0;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                y[i] += J[i][j] * x[j];
        for (int i = 0; i < N; i++)
            size += y[i] * y[i];
        norm = sqrt(size);
        for (int i = 0; i < N; i++)
            x[i] = y[i] / norm;
    }
    return norm;
}

static void slope_is_that_of_finite_differences(void **state)
{
    (void)state;
    static const double temperatures[] = {0.5, 1.0, 2.0};
    uint64_t dice = 9;
    for (int round = 0; round < 30; round++) {
        const double temperature = temperatures[round % 3];
        double logit[N];
        float weight[N];
        for (int i = 0; i < N; i++)
            logit[i] = 3.0 * uniform(&dice);
        softmax(logit, N, temperature, weight);
        const heed_weights_spread got = heed_weights_spread_of(weight, N, temperature);
        assert_true(fabs(got.steepest - norm_by_differences(logit, temperature)) < 1e-4 * got.steepest);
        assert_true(got.steepest <= 0.5 / temperature + 1e-9);
    }
}

static void bounds_are_reached(void **state)
{
    (void)state;
    const float tie[] = {0, 0.5f, 0, 0.5f}, one[] = {0, 1, 0};
    float flat[N];
    for (int i = 0; i < N; i++)
        flat[i] = 1.0f / N;
    const heed_weights_spread two = heed_weights_spread_of(tie, 4, 0.25),
                              all = heed_weights_spread_of(flat, N, 1.0),
                              single = heed_weights_spread_of(one, 3, 1.0);
    assert_float_equal(two.steepest, 2.0, 1e-9); /* 1 / (2 T) */
    assert_float_equal(two.entropy, log(2.0), 1e-9);
    assert_float_equal(all.entropy, log(N), 1e-6);
    assert_float_equal(all.steepest, 1.0 / N, 1e-7);
    assert_float_equal(single.steepest, 0.0, 1e-9);
    assert_float_equal(single.most, 1.0, 0.0);
    /* logits from -B to B: no weight above exp(2 B / T) / n */
    uint64_t dice = 4;
    for (int round = 0; round < 50; round++) {
        double logit[N];
        float weight[N];
        const double bound = 0.1 + uniform(&dice), temperature = 0.5 + uniform(&dice);
        for (int i = 0; i < N; i++)
            logit[i] = bound * (2.0 * uniform(&dice) - 1.0);
        softmax(logit, N, temperature, weight);
        assert_true(heed_weights_spread_of(weight, N, temperature).most <=
                    exp(2 * bound / temperature) / N + 1e-7);
    }
}

static void temper_is_softmax_at_that_temperature(void **state)
{
    (void)state;
    uint64_t dice = 7;
    double logit[N];
    float weight[N], wanted[N], none[3] = {0};
    for (int i = 0; i < N; i++)
        logit[i] = 5.0 * uniform(&dice);
    softmax(logit, N, 1.0, weight);
    softmax(logit, N, 0.3, wanted);
    heed_weights_temper(weight, N, 0.3);
    for (int i = 0; i < N; i++)
        assert_float_equal(weight[i], wanted[i], 1e-5);
    heed_weights_temper(none, 3, 0.5);
    assert_float_equal(none[1], 0.0, 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_case_by_hand),
        cmocka_unit_test(agrees_with_the_definition),
        cmocka_unit_test(slope_is_that_of_finite_differences),
        cmocka_unit_test(bounds_are_reached),
        cmocka_unit_test(temper_is_softmax_at_that_temperature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
