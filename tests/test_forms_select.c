/* Every selector against the oracle. */
#include "support/attend.h"

#include <stdio.h>

#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void selectors_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "select=none",
        "select=top_k(1)",
        "select=top_k(3)",
        "select=top_k(64); where=causal",
        "select=top_k(1000)",
        "select=top_p(0.5)",
        "select=top_p(0.9); where=causal",
        "select=top_p(1)",
        "select=top_p(0.001)",
        "select=threshold(0.1)",
        "select=threshold(0)",
        "select=threshold(1)",
        "select=threshold(0.3); where=window(9)",
        "select=quest(page=16, budget=48)",
        "select=quest(page=4)",
        "select=quest(page=8, budget=20); where=causal",
        "select=moba(block=16, k=2)",
        "select=moba(block=8, k=3); where=causal; position=rope",
        "select=landmark(block=7, k=3); where=causal; normalise=landmark(block=7)",
        "select=landmark(block=4, k=2, recent=0); where=causal",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_sweep(&(attend_case){.spec = specs[i], .seed = 10 * i + 1, .way.weights = true}, 2000000);
}

static void chains_see_what_is_left(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "select=top_k(20) > top_p(0.9)",
        "select=top_p(0.9) > top_k(20)",
        "select=threshold(0.01) > top_k(5); where=causal",
        "select=quest(page=16, budget=64) > top_p(0.8)",
        "select=top_k(40) > threshold(0.05) > top_p(0.7); position=alibi",
        "select=moba(block=16, k=4) > top_k(10); where=causal",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_sweep(&(attend_case){.spec = specs[i], .seed = 10 * i + 2, .way.weights = true}, 2000000);
}

/* b(over=a) is a > b, to the last bit. */
static void over_is_the_chain(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"select=top_k(20) > top_p(0.9)", "select=top_p(0.9, over=top_k(20))"},
        {"where=causal; select=quest(page=16, budget=64) > top_k(30) > top_p(0.8)",
         "where=causal; select=top_p(0.8, over=top_k(30, over=quest(page=16, budget=64)))"},
        {"select=quest > top_p(0.95); position=rope",
         "select=top_p(0.95, over=quest(page=16)); position=rope"},
    };
    for (size_t i = 0; i < COUNT(pairs); i++) {
        attend_data *d = attend_prepare(
            &(attend_case){.spec = pairs[i][0], .heads = 2, .queries = 150, .seed = i, .way.weights = true});
        attend_result *chain = attend_run(d, &d->c.way);
        d->c.spec = pairs[i][1];
        attend_result *over = attend_run(d, &d->c.way);
        attend_match(d, over);
        attend_same_bits(d, chain, over);
        attend_result_free(chain);
        attend_result_free(over);
        attend_free(d);
    }
}

/* Not only softmax; the selector sees scores before soft cap and temperature. */
static void selectors_go_before_every_normaliser(void **state)
{
    (void)state;
    static const char *const normalisers[] = {
        "softmax(temperature=0.2)",
        "softmax1",
        "sink",
        "sigmoid",
        "relu",
        "sparsemax",
        "entmax",
        "softcap(0.5)",
        "softcap(0.5) > softmax(temperature=3)",
    };
    static const char *const selectors[] = {"top_k(7)", "top_p(0.6)", "threshold(0.2)"};
    for (size_t i = 0; i < COUNT(normalisers); i++)
        for (size_t j = 0; j < COUNT(selectors); j++) {
            char spec[160];
            snprintf(spec, sizeof spec, "where=causal; select=%s; normalise=%s", selectors[j],
                     normalisers[i]);
            attend_check(&(attend_case){.spec = spec,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .queries = 66,
                                        .keys = 70,
                                        .seed = i,
                                        .way.weights = true});
        }
}

static void of_equal_scores_the_lower_index_stays(void **state)
{
    (void)state;
    static const char *const specs[] = {"select=top_k(5)",          "select=top_k(5); where=causal",
                                        "select=top_p(0.305)",      "select=top_p(0.305); where=!first(3)",
                                        "select=threshold(1)",      "select=quest(page=4, budget=8)",
                                        "select=moba(block=4, k=2)"};
    for (size_t i = 0; i < COUNT(specs); i++) {
        attend_data *d = attend_make(
            &(attend_case){.spec = specs[i], .queries = 140, .dim = 20, .seed = i, .way.weights = true});
        for (int n = 0; n < 70 * 20; n++)
            d->q[n] = 0; /* half of the queries find all keys equal */
        for (int n = 1; n < 140; n++)
            if (n % 3) /* and runs of three keys are the same for the others */
                memcpy(d->k + n * 20, d->k + (n - 1) * 20, 20 * sizeof *d->k);
        attend_check_changed(d);
        attend_free(d);
    }
}

static void selection_holds_with_lengths_positions_and_masks(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "select=top_k(6); where=mask", "select=top_p(0.7); where=mask & causal",
        "select=threshold(0.2); where=mask", "select=moba(block=8, k=2); where=mask",
        "select=quest(page=8, budget=16); where=mask"};
    for (size_t i = 0; i < COUNT(specs); i++) {
        attend_check(&(attend_case){.spec = specs[i],
                                    .batch = 3,
                                    .heads = 2,
                                    .queries = 40,
                                    .keys = 67,
                                    .mask = MASK_BHNM,
                                    .ragged = RAGGED_SEQ,
                                    .seed = i,
                                    .way.weights = true});
        attend_check(&(attend_case){.spec = specs[i],
                                    .batch = 2,
                                    .heads = 2,
                                    .queries = 40,
                                    .keys = 67,
                                    .mask = MASK_NM,
                                    .positions = POSITIONS_SHARED,
                                    .seed = i,
                                    .way.weights = true});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selectors_equal_the_oracle),
        cmocka_unit_test(chains_see_what_is_left),
        cmocka_unit_test(over_is_the_chain),
        cmocka_unit_test(selectors_go_before_every_normaliser),
        cmocka_unit_test(of_equal_scores_the_lower_index_stays),
        cmocka_unit_test(selection_holds_with_lengths_positions_and_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
