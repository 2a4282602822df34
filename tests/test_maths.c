/* The elementary functions of heed/maths.h against libm in double, over all floats in steps, as each
 * instruction set builds them: with and without fused multiply-add their roundings differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <heed/maths.h>

enum { RUN = 1024, STEP = 1021 /* a prime: every bit of the mantissa takes both values */ };

#define LOOP(name, set, target)                                                                              \
    target static void name##_##set(const float *x, float *y, int n)                                         \
    {                                                                                                        \
        for (int i = 0; i < n; i++)                                                                          \
            y[i] = name(x[i]);                                                                               \
    }
#if defined(__x86_64__)
#define LOOPS(name)                                                                                          \
    LOOP(name, portable, )                                                                                   \
    LOOP(name, avx2, __attribute__((target("avx2,fma"))))                                                    \
    LOOP(name, avx512, __attribute__((target("avx512f,avx512dq,fma"))))
#else
#define LOOPS(name) LOOP(name, portable, )
#endif
LOOPS(heed_exp)
LOOPS(heed_log)
LOOPS(heed_log1p)
LOOPS(heed_sigmoid)
LOOPS(heed_tanh)

typedef void (*loop)(const float *x, float *y, int n);

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The distance between neighbouring floats at x. */
static double unit(double x)
{
    int exponent;
    frexp(x, &exponent);
    return ldexp(1.0, exponent < -125 ? -149 : exponent - 24);
}

/* Compares over all floats in [from, to]; results that are no normal float may be 0 where `flushed` says so.
 */
static void sweep(const char *name, loop function, double (*exact)(double), float from, float to,
                  double units, int flushed)
{
    float x[RUN], y[RUN];
    double worst = 0.0;
    float at = 0.0f;
    for (uint64_t bits = 0; bits < 0x100000000u;) {
        int n = 0;
        for (; n < RUN && bits < 0x100000000u; bits += STEP) {
            const float candidate = heed_float_from_bits((uint32_t)bits);
            if (candidate >= from && candidate <= to)
                x[n++] = candidate;
        }
        function(x, y, n);
        for (int i = 0; i < n; i++) {
            const double right = exact((double)x[i]);
            if (flushed && fabs(right) < 1.1754943508222875e-38 && y[i] == 0.0f)
                continue;
            double error;
            if (isinf((float)right) || isinf(y[i]))
                error = (float)right == y[i] ? 0.0 : INFINITY;
            else
                error = fabs((double)y[i] - right) / unit(right);
            if (!(error <= worst)) {
                worst = error;
                at = x[i];
            }
        }
    }
    if (!(worst <= units))
        fail_msg("%s(%.9g) is off by %.3f units in the last place, more than %.1f", name, (double)at, worst,
                 units);
}

static void sweep_all(const char *name, loop portable, loop avx2, loop avx512, double (*exact)(double),
                      float from, float to, double units, int flushed)
{
    sweep(name, portable, exact, from, to, units, flushed);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        sweep(name, avx2, exact, from, to, units, flushed);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        sweep(name, avx512, exact, from, to, units, flushed);
#else
    (void)avx2;
    (void)avx512;
#endif
}

#if defined(__x86_64__)
#define SWEEP(name, ...) sweep_all(#name, name##_portable, name##_avx2, name##_avx512, __VA_ARGS__)
#else
#define SWEEP(name, ...) sweep_all(#name, name##_portable, NULL, NULL, __VA_ARGS__)
#endif

static void exp_within_one_and_a_half_units(void **state)
{
    (void)state;
    SWEEP(heed_exp, exp, -INFINITY, INFINITY, 1.5, 1);
}

static void log_within_one_and_a_half_units(void **state)
{
    (void)state;
    SWEEP(heed_log, log, 0.0f, INFINITY, 1.5, 0);
}

static void log1p_within_two_units(void **state)
{
    (void)state;
    SWEEP(heed_log1p, log1p, 0.0f, INFINITY, 2.0, 0);
}

static void sigmoid_within_three_units(void **state)
{
    (void)state;
    SWEEP(heed_sigmoid, sigmoid, -INFINITY, INFINITY, 3.0, 1);
}

static void tanh_within_two_units(void **state)
{
    (void)state;
    SWEEP(heed_tanh, tanh, -INFINITY, INFINITY, 2.0, 0);
}

/* Results at the ends of the range are exact, not merely near. */
static void ends_are_exact(void **state)
{
    (void)state;
    assert_true(heed_exp(-INFINITY) == 0.0f);
    assert_true(heed_exp(-1e30f) == 0.0f);
    assert_true(heed_exp(0.0f) == 1.0f);
    assert_true(heed_exp(-0.0f) == 1.0f);
    assert_true(heed_exp(88.73f) == INFINITY);
    assert_true(heed_exp(INFINITY) == INFINITY);
    assert_true(heed_log(1.0f) == 0.0f);
    assert_true(heed_log(0.0f) == -INFINITY);
    assert_true(heed_log(INFINITY) == INFINITY);
    assert_true(heed_log1p(0.0f) == 0.0f);
    assert_true(heed_log1p(INFINITY) == INFINITY);
    assert_true(heed_sigmoid(0.0f) == 0.5f);
    assert_true(heed_sigmoid(-INFINITY) == 0.0f);
    assert_true(heed_sigmoid(INFINITY) == 1.0f);
    assert_true(heed_tanh(0.0f) == 0.0f);
    assert_true(heed_tanh(INFINITY) == 1.0f);
    assert_true(heed_tanh(-INFINITY) == -1.0f);
    assert_true(heed_tanh(-100.0f) == -1.0f);
}

static void nan_stays_nan(void **state)
{
    (void)state;
    const float nan[] = {NAN, -NAN, heed_float_from_bits(0x7f800001u), heed_float_from_bits(0xffffffffu)};
    for (int i = 0; i < 4; i++) {
        assert_true(isnan(heed_exp(nan[i])));
        assert_true(isnan(heed_log(nan[i])));
        assert_true(isnan(heed_log1p(nan[i])));
        assert_true(isnan(heed_sigmoid(nan[i])));
        assert_true(isnan(heed_tanh(nan[i])));
    }
    assert_true(isnan(heed_log(-1.0f)));
    assert_true(isnan(heed_log(-1e-40f)));
    assert_true(isnan(heed_log(-INFINITY)));
}

/* Where a softmax compares weights, a larger score never weighs visibly less: steps back are of one unit at
 * most. */
static void exp_is_nearly_monotone(void **state)
{
    (void)state;
    float before = 0.0f;
    for (int i = -88 * 4096; i <= 88 * 4096; i++) {
        const float y = heed_exp((float)i / 4096.0f);
        assert_true(y >= before);
        before = y;
    }
    for (uint32_t bits = heed_bits_of_float(0.3f); bits < heed_bits_of_float(0.4f); bits++) {
        const float low = heed_exp(heed_float_from_bits(bits)),
                    high = heed_exp(heed_float_from_bits(bits + 1));
        assert_true(high >= low - 1.2e-7f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_within_one_and_a_half_units),
        cmocka_unit_test(log_within_one_and_a_half_units),
        cmocka_unit_test(log1p_within_two_units),
        cmocka_unit_test(sigmoid_within_three_units),
        cmocka_unit_test(tanh_within_two_units),
        cmocka_unit_test(ends_are_exact),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(exp_is_nearly_monotone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
