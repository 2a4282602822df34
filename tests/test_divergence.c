/* How two distributions of next tokens differ, against plain definitions in double precision. */
#include "eval/divergence.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCABULARY = 9001 };

static void near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance * (1.0 + fabs(expected))))
        fail_msg("%.12g instead of %.12g", value, expected);
}

static void log_softmax(const float *logits, double *log_p)
{
    double most = -INFINITY, sum = 0.0;
    for (int i = 0; i < VOCABULARY; i++)
        most = fmax(most, (double)logits[i]);
    for (int i = 0; i < VOCABULARY; i++)
        sum += exp((double)logits[i] - most);
    for (int i = 0; i < VOCABULARY; i++)
        log_p[i] = (double)logits[i] - most - log(sum);
}

static void one_position_equals_its_definition(void **state)
{
    (void)state;
    static float a[VOCABULARY], b[VOCABULARY];
    static double p[VOCABULARY], q[VOCABULARY];
    test_random random = {5};
    for (int round = 0; round < 20; round++) {
        const double spread = round < 10 ? 3.0 : 30.0;
        double kl = 0.0;
        int top[2] = {0, 0};
        for (int i = 0; i < VOCABULARY; i++) {
            a[i] = (float)(spread * random_normal(&random));
            b[i] = a[i] + (float)random_normal(&random);
        }
        log_softmax(a, p);
        log_softmax(b, q);
        for (int i = 0; i < VOCABULARY; i++) {
            kl += exp(p[i]) * (p[i] - q[i]);
            top[0] = a[i] > a[top[0]] ? i : top[0];
            top[1] = b[i] > b[top[1]] ? i : top[1];
        }
        double second = -INFINITY;
        for (int i = 0; i < VOCABULARY; i++)
            second = i != top[0] ? fmax(second, p[i]) : second;
        const heed_difference d = heed_differ(a, b, VOCABULARY, 17);
        near(d.kl, kl, 1e-6);
        near(d.nll[0], -p[17], 1e-6);
        near(d.nll[1], -q[17], 1e-6);
        near(d.margin, p[top[0]] - second, 1e-6);
        assert_int_equal(d.top[0], top[0]);
        assert_int_equal(d.top[1], top[1]);
        near(heed_surprise(a, VOCABULARY, 17), -p[17], 1e-6);
    }
}

static void equal_logits_do_not_differ(void **state)
{
    (void)state;
    float logits[64];
    for (int i = 0; i < 64; i++)
        logits[i] = (float)(i * i % 37) * 0.5f;
    const heed_difference d = heed_differ(logits, logits, 64, -1);
    assert_true(d.kl == 0.0 && d.top[0] == d.top[1] && isnan(d.nll[0]));
}

static void what_is_no_number_shows(void **state)
{
    (void)state;
    float a[8] = {0}, b[8] = {0};
    b[3] = NAN;
    heed_divergence all = {.positions = 0};
    const heed_difference fine = heed_differ(a, a, 8, 1), bad = heed_differ(a, b, 8, 1);
    assert_true(isnan(bad.kl));
    assert_int_equal(heed_divergence_add(&all, 4, &fine), HEED_OK);
    assert_int_equal(heed_divergence_add(&all, 5, &bad), HEED_OK);
    assert_int_equal(all.worst, 5);
    assert_true(isnan(heed_divergence_mean(&all)));
    heed_divergence_free(&all);
}

static void many_positions_come_to_their_statistics(void **state)
{
    (void)state;
    enum { COUNT = 2500 };
    heed_divergence all = {.positions = 0};
    double nll = 0.0, squares = 0.0;
    for (int i = 0; i < COUNT; i++) {
        const int rank = i * 7 % COUNT; /* each of 0..COUNT-1 once */
        const heed_difference d = {
            .kl = rank / 100.0, .nll = {1.0, i == COUNT - 1 ? NAN : i % 5 * 0.25}, .top = {1, i % 4 == 0}};
        heed_difference one = d;
        if (i == COUNT - 1)
            one.nll[0] = NAN;
        else {
            nll += d.nll[1];
            squares += d.nll[1] * d.nll[1];
        }
        assert_int_equal(heed_divergence_add(&all, i, &one), HEED_OK);
    }
    const double n = COUNT - 1, mean = nll / n;
    assert_int_equal(all.positions, COUNT);
    assert_int_equal(all.scored, COUNT - 1);
    assert_int_equal(all.same_top, COUNT / 4);
    assert_int_equal(all.worst * 7 % COUNT, COUNT - 1);
    near(heed_divergence_mean(&all), (COUNT - 1) / 200.0, 1e-12);
    near(heed_divergence_quantile(&all, 0.99), (COUNT * 0.99 - 1.0) / 100.0, 1e-9);
    near(heed_divergence_quantile(&all, 1.0), (COUNT - 1) / 100.0, 1e-12);
    near(heed_divergence_perplexity(&all, 0), exp(1.0), 1e-12);
    near(heed_divergence_perplexity(&all, 1), exp(mean), 1e-12);
    near(heed_divergence_error(&all, 1), exp(mean) * sqrt((squares / n - mean * mean) / (n - 1.0)), 1e-9);
    heed_divergence_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_position_equals_its_definition),
        cmocka_unit_test(equal_logits_do_not_differ),
        cmocka_unit_test(what_is_no_number_shows),
        cmocka_unit_test(many_positions_come_to_their_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
