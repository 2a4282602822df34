/* Steps of optimisers against PyTorch's (and, for Lion and Muon, their formulas), schedules against theirs.
 */
#include "support/golden.h"
#include "train/optimiser.h"
#include "train/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const heed_optimiser_kind *kind_of(const char *name)
{
    for (int i = 0; heed_optimiser_kind_at(i); i++)
        if (!strcmp(heed_optimiser_kind_at(i)->name, name))
            return heed_optimiser_kind_at(i);
    fail_msg("no %s", name);
    return NULL;
}

/* Three steps from the golden file's weight with its gradients, scaled up and down again. */
static void check(const golden *reference, const char *expected, const char *name, heed_optimiser_how how,
                  int threads)
{
    enum { ROWS = 6, COLS = 10, SIZE = ROWS * COLS };
    const int64_t shape[] = {ROWS, COLS};
    heed_parameters *parameters;
    heed_graph *graph;
    heed_optimiser *optimiser;
    assert_int_equal(heed_parameters_create(&parameters, 1), HEED_OK);
    assert_int_equal(heed_graph_create(&graph, parameters, threads, HEED_ISA_AUTO), HEED_OK);
    const heed_variable w = heed_nn_parameter(
        graph, "w", 2, shape, (heed_initial){.values = golden_find(reference, "start")->data});
    assert_int_equal(heed_graph_finish(graph, heed_nn_sum(graph, heed_nn_sum(graph, w))), HEED_OK);
    assert_int_equal(
        heed_optimiser_create(&optimiser, kind_of(name), &how, parameters, threads, HEED_ISA_AUTO), HEED_OK);
    heed_parameter *p = heed_parameters_at(parameters, 0);
    const float *gradients = golden_find(reference, "gradients")->data;
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < SIZE; i++)
            p->gradient[i] = 4.0f * gradients[step * SIZE + i];
        heed_optimiser_step(optimiser, 0.5f, 0.25f);
    }
    double *right = golden_numbers(reference, expected);
    assert_non_null(right);
    for (int i = 0; i < SIZE; i++)
        if (!(fabs((double)p->value[i] - right[i]) < 2e-6))
            fail_msg("%s[%d]: %.9g instead of %.9g", expected, i, (double)p->value[i], right[i]);
    free(right);
    heed_optimiser_free(optimiser);
    heed_graph_free(graph);
    heed_parameters_free(parameters);
}

static void steps_equal_the_reference(void **state)
{
    (void)state;
    golden reference;
    assert_true(golden_read(&reference, HEED_TEST_DATA "/golden/nn/optimisers.safetensors"));
    for (int threads = 1; threads < 4; threads++) {
        check(&reference, "expected.adamw", "adamw",
              (heed_optimiser_how){.rate = 0.02f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f},
              threads);
        check(&reference, "expected.sgd", "sgd", (heed_optimiser_how){.rate = 0.1f, .beta1 = 0.9f}, threads);
        check(&reference, "expected.nesterov", "sgd",
              (heed_optimiser_how){.rate = 0.1f, .beta1 = 0.9f, .nesterov = true}, threads);
        check(&reference, "expected.lion", "lion",
              (heed_optimiser_how){.rate = 0.02f, .beta1 = 0.9f, .beta2 = 0.99f, .decay = 0.1f}, threads);
        check(&reference, "expected.muon", "muon",
              (heed_optimiser_how){.rate = 0.04f, .beta1 = 0.95f, .decay = 0.1f}, threads);
        check(&reference, "expected.adafactor", "adafactor",
              (heed_optimiser_how){.rate = 0.02f, .decay = 0.1f}, threads);
    }
    golden_free(&reference);
}

static void near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-12))
        fail_msg("%.15g instead of %.15g", value, expected);
}

static void schedules_are_their_formulas(void **state)
{
    (void)state;
    heed_schedule s = {
        .kind = HEED_SCHEDULE_COSINE, .warmup = 10, .steps = 110, .cooldown = 20, .floor = 0.1};
    near(heed_schedule_factor(&s, 0), 0.1);
    near(heed_schedule_factor(&s, 9), 1.0);
    near(heed_schedule_factor(&s, 10), 1.0);
    near(heed_schedule_factor(&s, 60), 0.55);
    near(heed_schedule_factor(&s, 35), 0.1 + 0.45 * (1.0 + sqrt(0.5)));
    near(heed_schedule_factor(&s, 110), 0.1);
    near(heed_schedule_factor(&s, 1000), 0.1);
    s.kind = HEED_SCHEDULE_LINEAR;
    near(heed_schedule_factor(&s, 60), 0.55);
    near(heed_schedule_factor(&s, 85), 0.325);
    s.kind = HEED_SCHEDULE_TRAPEZOID;
    near(heed_schedule_factor(&s, 89), 1.0);
    near(heed_schedule_factor(&s, 100), 0.55);
    s.kind = HEED_SCHEDULE_CONSTANT;
    near(heed_schedule_factor(&s, 100), 1.0);
    s.warmup = 0;
    near(heed_schedule_factor(&s, 0), 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_equal_the_reference),
                                       cmocka_unit_test(schedules_are_their_formulas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
