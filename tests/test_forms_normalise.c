/* Every normaliser against the oracle. */
#include "support/attend.h"

#include <stdio.h>

#include <math.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const normalisers[] = {
    "softmax",
    "softmax(temperature=0.3)",
    "softmax(3)",
    "softmax1",
    "sink",
    "sigmoid",
    "sigmoid(bias=-2)",
    "relu",
    "relu(power=2)",
    "sparsemax",
    "entmax",
    "entmax(alpha=1.2)",
    "entmax_learnt",
    "plain",
    "head_scale",
    "head_scale(0.5) > sigmoid",
    "entmax(2)",
    "entmax(alpha=1)",
    "softcap(2)",
    "softcap(1) > softmax(temperature=0.5)",
    "softcap(2) > softmax1",
    "softcap(3) > sink",
    "softcap(0.5) > sigmoid",
    "softcap(2) > relu",
    "softcap(1) > sparsemax",
    "softcap(2) > entmax",
};

static char *spec_of(const char *before, const char *normalise)
{
    static char spec[256];
    snprintf(spec, sizeof spec, "%snormalise=%s", before, normalise);
    return spec;
}

static void normalisers_equal_the_oracle(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(normalisers); i++)
        attend_sweep(
            &(attend_case){.spec = spec_of("", normalisers[i]), .seed = 10 * i + 1, .way.weights = true},
            2000000);
}

static void normalisers_equal_the_oracle_under_causal(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(normalisers); i++)
        attend_sweep(&(attend_case){.spec = spec_of("score=dot(1); where=causal; ", normalisers[i]),
                                    .seed = 10 * i + 2,
                                    .way.weights = true},
                     300000);
}

/* Landmarks; one block, and blocks of one token. */
static void landmarks_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const forms[] = {"landmark(block=7)", "landmark(block=1000)", "landmark(block=1)",
                                        "softcap(2) > landmark(block=5)"};
    for (size_t i = 0; i < COUNT(forms); i++)
        attend_sweep(&(attend_case){.spec = spec_of("position=rope; where=causal; ", forms[i]),
                                    .seed = 10 * i + 3,
                                    .way.weights = true},
                     200000);
}

static void normalisers_give_closed_rows_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(normalisers); i++)
        attend_check(&(attend_case){.spec = spec_of("where=mask; ", normalisers[i]),
                                    .batch = 3,
                                    .heads = 2,
                                    .queries = 67,
                                    .keys = 70,
                                    .mask = MASK_BHNM,
                                    .ragged = RAGGED_SEQ,
                                    .seed = i,
                                    .way.weights = true});
}

/* These are steep where a weight begins, so that the data must keep away from there. */
static void steep_normalisers_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const steep[] = {"relu(power=0.5)", "entmax(alpha=3)", "entmax(alpha=2.5)"};
    for (size_t i = 0; i < COUNT(steep); i++)
        for (int64_t n = 2; n < 30; n += 9)
            attend_check(&(attend_case){.spec = spec_of("", steep[i]),
                                        .heads = 2,
                                        .queries = n,
                                        .away = 2e-4,
                                        .seed = i,
                                        .way.weights = true});
}

static void a_sink_at_its_ends(void **state)
{
    (void)state;
    static const double values[] = {-INFINITY, -50, 0, 50};
    for (size_t i = 0; i < COUNT(values); i++) {
        attend_data *d = attend_make(&(attend_case){.spec = "normalise=sink; where=causal",
                                                    .heads = 2,
                                                    .queries = 40,
                                                    .seed = i,
                                                    .way.weights = true});
        oracle_param *sink = oracle_find_param(d->o, "normalise.sink.sink");
        sink->value[0] = sink->value[1] = values[i];
        attend_expect(d);
        attend_result *r = attend_run(d, &d->c.way);
        attend_match(d, r);
        attend_result_free(r);
        attend_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalisers_equal_the_oracle),
        cmocka_unit_test(normalisers_equal_the_oracle_under_causal),
        cmocka_unit_test(landmarks_equal_the_oracle),
        cmocka_unit_test(normalisers_give_closed_rows_nothing),
        cmocka_unit_test(steep_normalisers_equal_the_oracle),
        cmocka_unit_test(a_sink_at_its_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
