/* Every `where` form, and expressions of them, against the oracle. */
#include "support/attend.h"

#include <math.h>
#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const forms[] = {
    "all",
    "none",
    "causal",
    "causal(align=start)",
    "window(1)",
    "window(4)",
    "window(64)",
    "window(1000)",
    "dilated(3, 2)",
    "dilated(10, 7)",
    "dilated(1, 5)",
    "first(1)",
    "first(70)",
    "last(1)",
    "last(66)",
    "block(1)",
    "block(16)",
    "block(50)",
    "strided(1)",
    "strided(3)",
    "strided(64)",
    "global(1)",
    "global(65)",
    "self",
    "neighbourhood(9, 8, 1)",
    "neighbourhood(3, 30, 2)",
    "neighbourhood(16, 16, 5)",
    "neighbourhood(2, 40, 3)",
    "neighbourhood(10, 10, 0)",
    "random(1, 8, 3)",
    "random(3, 16, 0)",
    "random(100, 64, 5)",
    "random(2, 33, 11)",
    "pr_blocks",
    "pr_blocks(lam=0.3, pmin=0.05, seed=4, block=8)",
    "pr_blocks(0, 1, -7, 16)",
    "pr_blocks(50, 0.5, 9, 3)",
    "columns(5)",
    "columns(16, 3, 2)",
    "power(1)",
    "power(7, 2, 0)",
    "power(16, 1, 2)",
    "halo(9, 8, 3, 1)",
    "halo(16, 16, 16, 0)",
    "halo(6, 30, 1, 2)",
    "lsg(8, 5, 3, 2)",
    "lsg(16, 4, 2, 0)",
    "lsg(300)",
};

static const char *const expressions[] = {
    "causal & window(5)",
    "causal & (window(5) | first(2))",
    "causal & window(70) & !self",
    "!causal",
    "!(causal | self)",
    "!window(9) & causal",
    "causal & !first(3) | self",
    "first(2) | last(2) | window(3)",
    "causal & pr_blocks(lam=0.5, pmin=0.1, block=5)",
    "causal & (random(2, 16, 7) | global(2) | window(8))",
    "block(32) & !causal | strided(7) & causal",
    "!!causal",
    "!(first(10) & !last(100)) & (causal | window(2))",
    "none | self",
    "causal & (block(12) | columns(12, 2))",
    "causal & power(4, 2)",
    "causal & lsg(8, 4)",
    "all & !none & causal",
};

static char *spec_of(const char *where)
{
    static char spec[256];
    snprintf(spec, sizeof spec, "where=%s", where);
    return spec;
}

static void forms_equal_the_oracle(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(forms); i++)
        attend_sweep(&(attend_case){.spec = spec_of(forms[i]), .seed = 10 * i, .way.weights = true}, 2000000);
}

static void expressions_equal_the_oracle(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(expressions); i++)
        attend_sweep(&(attend_case){.spec = spec_of(expressions[i]), .seed = 10 * i + 1, .way.weights = true},
                     0);
}

static void given_positions_equal_the_oracle(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(forms); i++)
        for (int kind = POSITIONS_SHARED; kind <= POSITIONS_BATCHED; kind++)
            attend_check(&(attend_case){.spec = spec_of(forms[i]),
                                        .batch = 2,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .queries = 71,
                                        .keys = 130,
                                        .positions = (attend_positions)kind,
                                        .seed = i,
                                        .way.weights = true});
    for (size_t i = 0; i < COUNT(expressions); i++)
        attend_check(&(attend_case){.spec = spec_of(expressions[i]),
                                    .batch = 3,
                                    .heads = 1,
                                    .queries = 40,
                                    .keys = 66,
                                    .positions = POSITIONS_BATCHED,
                                    .seed = i,
                                    .way.weights = true});
}

static void lengths_equal_the_oracle(void **state)
{
    (void)state;
    for (int ragged = RAGGED_SEQ; ragged <= RAGGED_Q_SEQ; ragged++) {
        for (size_t i = 0; i < COUNT(forms); i++)
            attend_check(&(attend_case){.spec = spec_of(forms[i]),
                                        .batch = 5,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .queries = 67,
                                        .keys = 67,
                                        .ragged = (attend_ragged)ragged,
                                        .seed = i,
                                        .way.weights = true});
        for (size_t i = 0; i < COUNT(expressions); i++)
            attend_check(&(attend_case){.spec = spec_of(expressions[i]),
                                        .batch = 4,
                                        .heads = 1,
                                        .queries = 20,
                                        .keys = 150,
                                        .ragged = (attend_ragged)ragged,
                                        .seed = i,
                                        .way.weights = true});
    }
    attend_check(&(attend_case){.spec = "where=last(5)",
                                .batch = 4,
                                .queries = 9,
                                .keys = 90,
                                .ragged = RAGGED_SEQ,
                                .positions = POSITIONS_BATCHED,
                                .seed = 1,
                                .way.weights = true});
    attend_check(&(attend_case){.spec = "position=alibi",
                                .batch = 6,
                                .queries = 90,
                                .keys = 30,
                                .ragged = RAGGED_SEQ,
                                .seed = 2,
                                .way.weights = true});
}

static void segments_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {"where=segments",
                                        "where=causal & segments",
                                        "where=arrow",
                                        "where=arrow(one_way=yes) & !self",
                                        "where=!segments | self",
                                        "where=segments & window(6); position=alibi"};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int shared = 1; shared <= 2; shared++) {
            attend_check(&(attend_case){.spec = specs[i],
                                        .batch = 2,
                                        .heads = 2,
                                        .queries = 130,
                                        .segments = shared,
                                        .seed = i,
                                        .way.weights = true});
            attend_check(&(attend_case){.spec = specs[i],
                                        .batch = 2,
                                        .queries = 7,
                                        .keys = 70,
                                        .segments = shared,
                                        .ragged = RAGGED_SEQ,
                                        .seed = i,
                                        .way.weights = true});
        }
}

static void masks_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {"where=mask", "where=causal & mask", "where=!mask",
                                        "where=mask | self"};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int mask = MASK_NM; mask <= MASK_B1NM; mask++) {
            attend_check(&(attend_case){.spec = specs[i],
                                        .batch = 3,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .queries = 33,
                                        .keys = 65,
                                        .mask = (attend_mask)mask,
                                        .seed = i,
                                        .way.weights = true});
            attend_check(&(attend_case){.spec = specs[i],
                                        .batch = 2,
                                        .heads = 2,
                                        .queries = 130,
                                        .keys = 129,
                                        .mask = (attend_mask)mask,
                                        .seed = i,
                                        .way.weights = true});
        }
}

/* Numerator and denominator are those of all keys, in the mean over seeds, if what is drawn counts 1/p times.
 */
static void draws_are_right_in_the_mean(void **state)
{
    (void)state;
    enum { KEYS = 200, SEEDS = 600 };
    attend_data *d =
        attend_make(&(attend_case){.spec = "where=causal", .queries = 3, .keys = KEYS, .spread = 0.5});
    attend_result *all = attend_run(d, &d->c.way);
    double denominator[3] = {0}, numerator[3] = {0};
    for (int seed = 0; seed < SEEDS; seed++) {
        char spec[200];
        snprintf(spec, sizeof spec,
                 "where=causal & pr_blocks(0.3, 0.2, %d, 8); position=pr_blocks(0.3, 0.2, %d, 8)", seed,
                 seed);
        d->c.spec = spec;
        attend_result *r = attend_run(d, &(attend_way){.threads = 1});
        for (int i = 0; i < 3; i++) {
            const double sum = exp((double)r->lse[i] - (double)all->lse[i]) / SEEDS;
            denominator[i] += sum;
            numerator[i] += sum * (double)r->out[i * 8];
        }
        attend_result_free(r);
    }
    for (int i = 0; i < 3; i++)
        if (fabs(denominator[i] - 1) > 0.05 || fabs(numerator[i] - (double)all->out[i * 8]) > 0.05)
            fail_msg("row %d: the mean denominator is %g of the exact one, the numerator %g, not %g", i,
                     denominator[i], numerator[i], (double)all->out[i * 8]);
    attend_result_free(all);
    attend_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_equal_the_oracle),           cmocka_unit_test(expressions_equal_the_oracle),
        cmocka_unit_test(given_positions_equal_the_oracle), cmocka_unit_test(lengths_equal_the_oracle),
        cmocka_unit_test(segments_equal_the_oracle),        cmocka_unit_test(masks_equal_the_oracle),
        cmocka_unit_test(draws_are_right_in_the_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
