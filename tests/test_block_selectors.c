/* Selectors in decoding and in prefill: every route keeps what the definition keeps, and reads no more. */
#include "support/attend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const specs[] = {
    "select=quest(page=16, budget=48); where=causal",
    "select=quest(page=4, budget=30, share=group); where=causal",
    "select=quest(page=7, budget=20)",
    "select=quest(page=100, budget=100); where=window(150) & causal",
    "select=moba(block=16, k=3); where=causal",
    "select=moba(block=40, k=2, share=group); where=causal",
    "select=moba(block=200, k=1)",
    "select=quest(page=8, budget=64) > top_p(0.8); where=causal",
    "select=quest(page=16, budget=64, share=group) > top_k(9) > threshold(0.01); where=causal",
    "select=top_k(7); where=causal",
    "select=top_p(0.6) > top_k(30); position=alibi",
    "select=threshold(0.05); where=causal & (window(90) | first(3)); normalise=sigmoid",
    "select=quest(page=8, budget=40); position=t5; where=causal; normalise=softcap(2) > relu",
    "select=moba(block=8, k=4); where=dilated(40, 3)",
};

static void check_kernel(const attend_case *c, heed_kernel kernel)
{
    attend_data *d = attend_prepare(c);
    attend_result *r = attend_run(d, &d->c.way);
    if (r->info.kernel != kernel)
        fail_msg("%s runs through %s", attend_describe(&d->c, &d->c.way), heed_kernel_name(r->info.kernel));
    attend_match(d, r);
    attend_result_free(r);
    attend_free(d);
}

static void decoding_keeps_what_the_definition_keeps(void **state)
{
    (void)state;
    static const int64_t keys[] = {1, 15, 64, 129, 300, 1100};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t n = 0; n < COUNT(keys); n++)
            check_kernel(&(attend_case){.spec = specs[i],
                                        .batch = 1 + n % 2,
                                        .heads = 4,
                                        .kv_heads = 1 << n % 3,
                                        .queries = n % 2 ? 1 : 5,
                                        .keys = keys[n],
                                        .dim = 12,
                                        .value_dim = 9,
                                        .seed = 100 * i + n},
                         HEED_KERNEL_DECODE);
}

static void every_instruction_set_decodes_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(specs); i++)
        for (const heed_isa *isa = test_isas(); *isa; isa++)
            check_kernel(&(attend_case){.spec = specs[i],
                                        .heads = 6,
                                        .kv_heads = 2,
                                        .queries = 2,
                                        .keys = 260,
                                        .dim = 40,
                                        .seed = i,
                                        .way.isa = *isa},
                         HEED_KERNEL_DECODE);
}

/* Stored in every type, in pages, with positions, lengths and masks of their own. */
static void every_kind_of_cache_is_read(void **state)
{
    (void)state;
    static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16, HEED_Q8, HEED_Q4};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t t = 0; t < COUNT(types); t++)
            check_kernel(&(attend_case){.spec = specs[i],
                                        .batch = 3,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .queries = 3,
                                        .keys = 210,
                                        .dim = 64,
                                        .k_type = types[t],
                                        .v_type = types[(t + i) % COUNT(types)],
                                        .ragged = t % 2 ? RAGGED_SEQ : RAGGED_Q_SEQ,
                                        .seed = 10 * i + t,
                                        .way = {.page = t % 2 ? 16 : 0, .own_scratch = true, .threads = 3}},
                         HEED_KERNEL_DECODE);
}

static void masks_and_positions_close_before_the_choice(void **state)
{
    (void)state;
    static const char *const masked[] = {
        "select=quest(page=8, budget=24); where=mask",
        "select=moba(block=16, k=2, share=group); where=mask & causal",
        "select=quest(page=8, budget=48) > top_p(0.7); where=mask",
        "select=top_k(6); where=mask & causal",
    };
    for (size_t i = 0; i < COUNT(masked); i++)
        for (int n = 0; n < 2; n++)
            check_kernel(&(attend_case){.spec = masked[i],
                                        .batch = 2,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .queries = 4,
                                        .keys = 150,
                                        .mask = n ? MASK_BHNM : MASK_NM,
                                        .positions = n ? POSITIONS_SHARED : POSITIONS_DEFAULT,
                                        .seed = 10 * i + n},
                         HEED_KERNEL_DECODE);
}

static void same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(specs); i++) {
        attend_data *d = attend_prepare(&(attend_case){.spec = specs[i],
                                                       .batch = 2,
                                                       .heads = 4,
                                                       .kv_heads = 2,
                                                       .queries = 3,
                                                       .keys = 2100,
                                                       .dim = 8,
                                                       .seed = i,
                                                       .way.threads = 1});
        attend_result *one = attend_run(d, &d->c.way);
        for (int threads = 2; threads < 6; threads += 3) {
            attend_way way = d->c.way;
            way.threads = threads;
            attend_result *more = attend_run(d, &way);
            attend_same_bits(d, one, more);
            attend_result_free(more);
        }
        attend_result_free(one);
        attend_free(d);
    }
}

/* Summaries that come with the keys serve as those made in the execution do, to the last bit. */
static void summaries_may_come_with_the_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int page = 0; page <= 32; page += 32) {
            if (page > 0 && (strstr(specs[i], "page=7") || strstr(specs[i], "page=100") ||
                             strstr(specs[i], "block=40") || strstr(specs[i], "block=200")))
                continue;
            attend_data *d = attend_prepare(&(attend_case){.spec = specs[i],
                                                           .batch = 2,
                                                           .heads = 4,
                                                           .kv_heads = 2,
                                                           .queries = 2,
                                                           .keys = 333,
                                                           .dim = 16,
                                                           .k_type = HEED_F16,
                                                           .ragged = RAGGED_SEQ,
                                                           .seed = i,
                                                           .way.page = page});
            attend_result *made = attend_run(d, &d->c.way);
            d->c.way.summaries = true;
            attend_result *given = attend_run(d, &d->c.way);
            assert_int_equal(given->info.kernel, HEED_KERNEL_DECODE);
            attend_same_bits(d, made, given);
            attend_result_free(made);
            attend_result_free(given);
            attend_free(d);
        }
}

static void summaries_are_checked(void **state)
{
    (void)state;
    attend_data *d = attend_prepare(&(attend_case){.spec = "select=quest(page=12, budget=24); where=causal",
                                                   .queries = 2,
                                                   .keys = 70,
                                                   .way = {.summaries = true, .page = 16}});
    attend_result *r = attend_try(d, &d->c.way);
    assert_int_equal(r->status, HEED_INVALID);
    assert_non_null(strstr(r->message, "a page must hold whole blocks"));
    attend_result_free(r);
    attend_free(d);
    heed_plan *plan;
    const heed_problem problem = {.batch = 1, .heads = 1, .queries = 1, .keys = 64, .dim = 8};
    heed_problem with = problem;
    with.with = HEED_WITH_SUMMARIES;
    assert_int_equal(heed_plan_create(&plan, "position=rope; select=quest", &with), HEED_UNSUPPORTED);
    float x[64 * 8] = {0};
    assert_int_equal(heed_plan_create(&plan, "select=quest", &with), HEED_OK);
    assert_int_equal(heed_plan_summary_floats(plan, 64), 4 * 2 * 8);
    assert_int_equal(heed_plan_summarise(plan, NULL, 0, 64, 60, x, 8, 5, x), HEED_INVALID);
    assert_int_equal(heed_plan_summarise(plan, NULL, 1, 64, 0, x, 8, 5, x), HEED_INVALID);
    heed_plan_free(plan);
    assert_int_equal(heed_plan_create(&plan, "select=quest", &problem), HEED_OK);
    assert_int_equal(heed_plan_summarise(plan, NULL, 0, 64, 0, x, 8, 5, x), HEED_INVALID);
    heed_plan_free(plan);
}

/* Statistics come from the same lists; what is read is what is open after the choice. */
static void statistics_and_counts_follow_the_choice(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int n = 0; n < 2; n++) {
            attend_data *d = attend_prepare(
                &(attend_case){.spec = specs[i],
                               .batch = 2,
                               .heads = 4,
                               .kv_heads = 2,
                               .queries = n ? 40 : 3,
                               .keys = n ? 60 : 1333,
                               .dim = 8,
                               .ragged = RAGGED_Q_SEQ,
                               .seed = i,
                               .way = {.weights = true, .statistics = true, .top = 5, .pairs = true}});
            attend_result *r = attend_run(d, &d->c.way);
            attend_match(d, r);
            const oracle_problem *p = &d->o->problem;
            double read = 0;
            for (int64_t x = 0; x < p->batch * p->heads * p->queries * p->keys; x++)
                read += d->o->open[x];
            if (r->pairs[0] != read || !(r->pairs[1] >= read))
                fail_msg("%s: %g pairs of %g are said to be read, %g are", specs[i], r->pairs[0], r->pairs[1],
                         read);
            attend_result_free(r);
            attend_free(d);
        }
}

static void every_kernel_counts_open_pairs(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int64_t queries;
        double open;
    } cases[] = {{"where=causal", 70, 70 * 71 / 2},
                 {"where=causal & window(5)", 70, 10 + 66 * 5},
                 {"where=strided(7)", 70, 700},
                 {"where=causal", 1, 70},
                 {"normalise=sparsemax; where=causal", 70, 70 * 71 / 2},
                 {"select=top_k(3); where=causal", 70, 70 * 71 / 2}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        attend_data *d = attend_prepare(&(attend_case){
            .spec = cases[i].spec, .heads = 2, .queries = cases[i].queries, .keys = 70, .way.pairs = true});
        attend_result *r = attend_run(d, &d->c.way);
        assert_true(r->pairs[1] == 2 * cases[i].open);
        assert_true(r->pairs[0] == (i == 5 ? 2 * (1 + 2 + 68 * 3) : 2 * cases[i].open));
        attend_result_free(r);
        attend_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_keeps_what_the_definition_keeps),
        cmocka_unit_test(every_instruction_set_decodes_alike),
        cmocka_unit_test(every_kind_of_cache_is_read),
        cmocka_unit_test(masks_and_positions_close_before_the_choice),
        cmocka_unit_test(same_bits_for_any_number_of_threads),
        cmocka_unit_test(summaries_may_come_with_the_keys),
        cmocka_unit_test(summaries_are_checked),
        cmocka_unit_test(statistics_and_counts_follow_the_choice),
        cmocka_unit_test(every_kernel_counts_open_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
