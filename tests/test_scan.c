/* Recurrences equal their formulas, wherever they are cut, forward and backward. */
#include "support/attend.h"
#include "support/isas.h"
#include "support/random.h"
#include "support/scan_case.h"

#include <stdlib.h>
#include <string.h>

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

static void match(const char *what, const float *got, const double *want, int64_t n, double relative)
{
    const double most = relative * (largest(want, n) + 1e-3);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= most))
            fail_msg("%s: entry %lld is %.9g, expected %.9g", what, (long long)i, got[i], want[i]);
}

static void each_form_is_its_formula(void **state)
{
    (void)state;
    for (const heed_isa *isa = test_isas(); *isa; isa++)
        for (int f = 0; f < scan_definition_count; f++) {
            scan_data d = scan_make(scan_definitions[f].spec, 4,
                                    scan_kv_heads_of(scan_definitions[f].spec, 4, f % 2 ? 2 : 4),
                                    f % 3 ? 130 : 9, f % 2 ? 8 : 13,
                                    f == 2  ? 32
                                    : f % 3 ? 40
                                            : 5,
                                    (uint64_t)f + 1);
            double *want = malloc((size_t)d.floats[OUT] * sizeof *want);
            scan_define(&scan_definitions[f], &d, want);
            heed_scan_plan *plan = scan_plan_of(scan_definitions[f].spec, &d, *isa, 2, false);
            const heed_scan_tensors t = scan_tensors_of(plan, &d, d.x, 0, d.problem.tokens);
            assert_int_equal(heed_scan(plan, &t), HEED_OK);
            match(scan_definitions[f].spec, d.x[OUT], want, d.floats[OUT], 2e-5);
            heed_scan_free(plan);
            free(want);
            scan_drop(&d);
        }
}

/* All at once, in runs of random lengths, and token by token; by one thread and by two. */
static void cut_anywhere_it_gives_the_same_bits(void **state)
{
    (void)state;
    for (int f = 0; f < scan_definition_count; f++) {
        scan_data d = scan_make(scan_definitions[f].spec, 2, scan_kv_heads_of(scan_definitions[f].spec, 2, 1),
                                150, 8, f == 2 ? 32 : 36, (uint64_t)f + 50);
        test_random random = {7};
        float *whole = malloc((size_t)d.floats[OUT] * sizeof *whole), *x[TENSORS];
        memcpy(x, d.x, sizeof x);
        x[OUT] = whole;
        heed_scan_plan *plan = scan_plan_of(scan_definitions[f].spec, &d, HEED_ISA_AUTO, 2, false);
        heed_scan_plan *alone = scan_plan_of(scan_definitions[f].spec, &d, HEED_ISA_AUTO, 1, false);
        const int64_t floats = BATCH * d.problem.kv_heads * heed_scan_state_floats(plan);
        float *end = calloc((size_t)floats, sizeof *end), *carried = calloc((size_t)floats, sizeof *end);
        heed_scan_tensors t = scan_tensors_of(plan, &d, x, 0, 150);
        t.state = end;
        assert_int_equal(heed_scan(plan, &t), HEED_OK);
        for (int64_t n = 0, count; n < 150; n += count) {
            count = n < 100 ? random_whole(&random, 1, 100 - n) : 1;
            t = scan_tensors_of(plan, &d, d.x, n, count);
            t.state = carried;
            assert_int_equal(heed_scan(n % 2 ? plan : alone, &t), HEED_OK);
        }
        assert_memory_equal(d.x[OUT], whole, (size_t)d.floats[OUT] * sizeof *whole);
        assert_memory_equal(carried, end, (size_t)floats * sizeof *end);
        heed_scan_free(plan);
        heed_scan_free(alone);
        free(whole);
        free(end);
        free(carried);
        scan_drop(&d);
    }
}

/* Of sum(dout * out) by the definition in double, by central differences. */
static double slope(const scan_definition *f, scan_data *d, const double *dout, double *x, double *out)
{
    const double was = *x, step = 1e-5;
    double sum[2] = {0, 0};
    for (int side = 0; side < 2; side++) {
        *x = side ? was - step : was + step;
        scan_define(f, d, out);
        for (int64_t i = 0; i < d->floats[OUT]; i++)
            sum[side] += dout[i] * out[i];
    }
    *x = was;
    return (sum[0] - sum[1]) / (2 * step);
}

static void gradients_are_finite_differences(void **state)
{
    (void)state;
    for (const heed_isa *isa = test_isas(); *isa; isa++)
        for (int f = 0; f < scan_definition_count; f++) {
            scan_data d =
                scan_make(scan_definitions[f].spec, 2,
                          scan_kv_heads_of(scan_definitions[f].spec, 2, f % 2 ? 1 : 2), f % 4 ? 7 : 70, 4,
                          f == 2  ? 32
                          : f % 2 ? 3
                                  : 34,
                          (uint64_t)f + 90);
            heed_scan_plan *plan = scan_plan_of(scan_definitions[f].spec, &d, *isa, 2, true);
            double *want = malloc((size_t)d.floats[OUT] * sizeof *want),
                   *dout = malloc((size_t)d.floats[OUT] * sizeof *dout);
            float *g[TENSORS] = {0}, *dout32 = malloc((size_t)d.floats[OUT] * sizeof *dout32);
            test_random random = {5};
            for (int64_t i = 0; i < d.floats[OUT]; i++)
                dout[i] = dout32[i] = (float)random_normal(&random);
            for (int w = 0; w < OUT; w++)
                g[w] = malloc((size_t)d.floats[w] * sizeof(float));
            const heed_scan_tensors t = scan_tensors_of(plan, &d, d.x, 0, d.problem.tokens);
            const heed_scan_tensors gradients = scan_tensors_of(plan, &d, g, 0, d.problem.tokens);
            heed_tensor along = t.out;
            along.data = dout32;
            assert_int_equal(heed_scan(plan, &t), HEED_OK);
            if (heed_scan_backward(plan, &t, &along, &gradients))
                fail_msg("%s: %s", scan_definitions[f].spec, heed_message());
            for (int w = 0; w < OUT; w++) {
                const double size = scan_reads(plan, w) ? 0 : 1;
                double most = size;
                for (int64_t i = 0; size == 0 && i < d.floats[w]; i++)
                    most = fabs((double)g[w][i]) > most ? fabs((double)g[w][i]) : most;
                for (int n = 0; scan_reads(plan, w) && n < 6; n++) {
                    const int64_t i = random_whole(&random, 0, d.floats[w] - 1);
                    const double s = slope(&scan_definitions[f], &d, dout, &d.exact[w][i], want);
                    if (!(fabs(s - g[w][i]) <= 1e-4 * most + 1e-6))
                        fail_msg("%s: gradient %lld of tensor %d is %.9g, expected %.9g",
                                 scan_definitions[f].spec, (long long)i, w, g[w][i], s);
                }
                free(g[w]);
            }
            heed_scan_free(plan);
            free(want);
            free(dout);
            free(dout32);
            scan_drop(&d);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_form_is_its_formula),
        cmocka_unit_test(cut_anywhere_it_gives_the_same_bits),
        cmocka_unit_test(gradients_are_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
