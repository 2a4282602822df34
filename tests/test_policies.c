/* Judges of keys: scores and kept keys are those of their formulas in double precision. */
#include "attend/registry.h"
#include "support/judges.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void clause(const judge_case *c, int64_t budget, char *text, size_t size)
{
    snprintf(text, size, "%s(budget=%lld%s%s)", c->name, (long long)budget, *c->args ? ", " : "", c->args);
}

static void check_scores(layer *l, const judge_case *c, int g, const double *score)
{
    float *found = layer_scores(l, g);
    double largest = c->unit;
    for (int64_t j = 0; j < l->shape.count[g]; j++)
        largest = fmax(largest, fabs(score[j]));
    for (int64_t j = 0; j < l->shape.count[g]; j++)
        if (!(fabs(found[j] - score[j]) <= c->slack * largest))
            fail_msg("%s(%s): score of key %lld of %lld is %.9g, not %.9g (of %g)", c->name, c->args,
                     (long long)j, (long long)l->shape.count[g], found[j], score[j], largest);
    free(found);
}

static void check_case(const judge_case *c, const layer_shape *shape, int64_t budget, uint64_t seed)
{
    const judge_history history = {.rounds = 2, .queries = 3, .seed = seed + 100};
    char text[200];
    layer *l = layer_new(shape, seed);
    clause(c, budget, text, sizeof text);
    if (layer_chain(l, text, NULL))
        fail_msg("%s: %s", text, heed_message());
    for (int round = 0; round < history.rounds; round++)
        layer_observe(l, history.queries, history.seed + (uint64_t)round);
    layer_apply(l);
    for (int g = 0; g < shape->kv_heads; g++) {
        const int64_t count = shape->count[g];
        double *score = calloc((size_t)count + 1, sizeof *score), largest = c->unit;
        assert_non_null(score);
        c->define(l, g, &history, score);
        if (count)
            check_scores(l, c, g, score);
        for (int64_t j = 0; j < count; j++)
            largest = fmax(largest, fabs(score[j]));
        const int64_t recent = c->recent == -2 ? budget - c->first : c->recent == -1 ? budget / 2 : c->recent;
        layer_check_best(l, g, score, budget, c->first, recent, 2 * c->slack * largest);
        free(score);
    }
    layer_free(l);
}

static void scores_and_kept_keys_are_those_of_the_formula(void **state)
{
    (void)state;
    test_random random = {17};
    for (const judge_case *c = judge_cases; c->name; c++)
        for (int round = 0; round < 12; round++) {
            layer_shape shape = {.kv_heads = 2,
                                 .group = round % 3 + 1,
                                 .count = {1 + random_whole(&random, 0, 50), 31},
                                 .dim = round % 2 ? 6 : 16,
                                 .value_dim = round % 4 == 1 ? 9 : 6,
                                 .queries = round == 5 ? 1 : 8,
                                 .gap = round % 2 + 1,
                                 .visible = round == 7 ? 20 : 0,
                                 .ties = c->exact || round % 4 == 3,
                                 .merged = round == 8};
            if (!c->exact && !strcmp(c->name, "qfilters") && shape.ties)
                shape.ties = false; /* two directions may be alike */
            check_case(c, &shape, random_whole(&random, 8, 30), (uint64_t)(round + 1));
        }
}

static void sizes_of_none_and_one_are_no_fault(void **state)
{
    (void)state;
    for (const judge_case *c = judge_cases; c->name; c++)
        for (int round = 0; round < 3; round++) {
            const layer_shape shape = {.kv_heads = 3,
                                       .group = 2,
                                       .count = {0, 1, round ? 20 : 2},
                                       .dim = 2,
                                       .value_dim = 2,
                                       .queries = round == 2 ? 0 : 1,
                                       .gap = 1};
            char text[200];
            layer *l = layer_new(&shape, 3);
            clause(c, 8, text, sizeof text);
            if (layer_chain(l, text, NULL))
                fail_msg("%s: %s", text, heed_message());
            layer_apply(l);
            assert_int_equal(layer_kept(l, 1), 1);
            assert_int_equal(layer_kept(l, 2), round ? 8 : 2);
            layer_free(l);
        }
}

static void with_a_budget_for_all_keys_every_policy_keeps_them_as_they_are(void **state)
{
    (void)state;
    const layer_shape shape = {
        .kv_heads = 2, .group = 2, .count = {40, 40}, .dim = 8, .value_dim = 8, .queries = 8, .gap = 1};
    static const char *const text[] = {"%s(budget=40)", "%s(share=1)", "%s(share=1) > by_head(0.1)",
                                       "%s(budget=99) > chunks(7) > nearest",
                                       "%s(budget=40) > packed > every(3) > q8"};
    for (const judge_case *c = judge_cases; c->name; c++)
        for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
            char chain[200];
            layer *l = layer_new(&shape, 9), *as_was = layer_new(&shape, 9);
            snprintf(chain, sizeof chain, text[i], c->name);
            if (!strcmp(c->name, "finch") || !strcmp(c->name, "snapkv")) /* their windows are wide */
                snprintf(chain + strlen(c->name), sizeof chain - strlen(c->name), "(share=1, window=4)");
            layer_run(l, chain);
            for (int g = 0; g < 2; g++) {
                assert_int_equal(layer_kept(l, g), 40);
                assert_false(l->changed[g]);
                assert_memory_equal(l->key[g], as_was->key[g], 40 * 8 * sizeof(float));
            }
            layer_free(l);
            layer_free(as_was);
        }
}

static void random_keys_are_spread_and_differ_by_seed_layer_and_head(void **state)
{
    (void)state;
    layer_shape shape = {.kv_heads = 2, .group = 1, .count = {200, 200}, .dim = 2, .value_dim = 2, .gap = 1};
    static const char *const text[] = {"random(budget=100)", "random(budget=100, seed=1)"};
    uint8_t kept[2][2][2][200];
    for (int at = 0; at < 2; at++)
        for (int seed = 0; seed < 2; seed++) {
            shape.layer = at;
            shape.layers = 2;
            layer *l = layer_new(&shape, 1);
            layer_run(l, text[seed]);
            for (int g = 0; g < 2; g++) {
                int64_t early = 0;
                memcpy(kept[at][seed][g], l->keep[g], 200);
                for (int j = 0; j < 100; j++)
                    early += l->keep[g][j];
                assert_int_equal(layer_kept(l, g), 100);
                assert_in_range(early, 35, 65); /* four standard deviations */
            }
            layer_free(l);
        }
    const uint8_t *all[] = {kept[0][0][0], kept[0][0][1], kept[0][1][0], kept[1][0][0]};
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < a; b++) {
            int same = 0;
            for (int j = 0; j < 200; j++)
                same += all[a][j] == all[b][j];
            assert_in_range(same, 70, 130);
        }
}

static void uniform_keys_have_a_stride(void **state)
{
    (void)state;
    const layer_shape shape = {.kv_heads = 1, .group = 1, .count = {64}, .dim = 2, .value_dim = 2, .gap = 1};
    layer *l = layer_new(&shape, 1);
    layer_run(l, "uniform(budget=16)");
    for (int j = 0; j < 64; j++)
        assert_int_equal(l->keep[0][j], j % 4 == 0);
    layer_free(l);
}

/* Judges whose definition is above, and those that have tests of their own. */
static void every_judge_with_a_budget_has_a_definition_here(void **state)
{
    (void)state;
    const heed_form *const *form = heed_registry_stage(HEED_ISA_PORTABLE, HEED_CACHE);
    for (; *form; form++) {
        bool found = !(*form)->policy || !(*form)->policy->judge || (*form)->policy->repeats ||
                     !strcmp((*form)->name, "random");
        for (const judge_case *c = judge_cases; c->name; c++)
            found = found || !strcmp(c->name, (*form)->name);
        if (!found)
            fail_msg("cache=%s has no definition among the tests", (*form)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_and_kept_keys_are_those_of_the_formula),
        cmocka_unit_test(sizes_of_none_and_one_are_no_fault),
        cmocka_unit_test(with_a_budget_for_all_keys_every_policy_keeps_them_as_they_are),
        cmocka_unit_test(random_keys_are_spread_and_differ_by_seed_layer_and_head),
        cmocka_unit_test(uniform_keys_have_a_stride),
        cmocka_unit_test(every_judge_with_a_budget_has_a_definition_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
