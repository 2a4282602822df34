/* Selectors that search: where the search must find what there is, and what it finds where scores are smooth.
 */
#include "support/attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 8 };

static attend_data *scene(int64_t queries, int64_t keys)
{
    return attend_make(&(attend_case){
        .spec = "where=causal", .heads = 2, .kv_heads = 1, .queries = queries, .keys = keys, .dim = DIM});
}

/* All queries (1, 1, 0, ...), so that scores are the sums of a key's first two entries over sqrt(dim). */
static void look_alike(attend_data *d)
{
    for (int64_t i = 0; i < 2 * d->c.queries * DIM; i++)
        d->q[i] = i % DIM < 2;
    memset(d->k, 0, (size_t)(d->c.keys * DIM) * sizeof *d->k);
}

static void all_keys_found_is_attending_to_all(void **state)
{
    (void)state;
    static const char *const specs[] = {"select=hip(k=200, queries=16); where=causal",
                                        "select=hip(k=192, block=64, sinks=0, window=0); where=causal",
                                        "select=hip(k=1, sinks=200); where=causal",
                                        "select=hip(k=1, window=200); where=causal"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int64_t queries = 1; queries < 200; queries += 91) {
            attend_data *d = scene(queries, 192);
            attend_expect(d);
            attend_result *dense = attend_run(d, &d->c.way);
            d->c.spec = specs[i];
            attend_result *found = attend_run(d, &d->c.way);
            attend_agree(d, dense, found);
            attend_result_free(dense);
            attend_result_free(found);
            attend_free(d);
        }
}

/* Scores that fall from the first key to the last, or rise: the best blocks are the first or the last ones.
 */
static void monotone_scores_are_searched_exactly(void **state)
{
    (void)state;
    static const int64_t queries[] = {1, 40};
    for (int rise = 0; rise < 2; rise++)
        for (int n = 0; n < 2; n++) {
            attend_data *d = scene(queries[n], 333);
            look_alike(d);
            for (int64_t j = 0; j < 333; j++)
                d->k[j * DIM] = (float)(rise ? j : 333 - j) / 64;
            attend_changed(d);
            d->c.spec = "select=hip(k=32, block=4, queries=40, sinks=0, window=0); where=causal";
            attend_result *r = attend_run(d, &(attend_way){.weights = true});
            const int64_t first = 333 - queries[n], last = 332 / 4;
            for (int64_t i = 0; i < queries[n]; i++)
                for (int64_t j = 0; j <= first + i; j++) {
                    const bool best = rise ? j / 4 > last - 8 : j / 4 < 8;
                    assert_int_equal(r->weights[i * 333 + j] > 0, best || j / 4 >= first / 4);
                }
            attend_result_free(r);
            attend_free(d);
        }
}

/* Of the 64 best keys among 1024, whose scores are a sum of slow waves, nearly all are found; chance would
 * find one in 16 (and the window and the query's own block add nothing here). */
static void smooth_scores_are_found(void **state)
{
    (void)state;
    enum { KEYS = 1024, WANTED = 64 };
    double found = 0;
    for (int trial = 0; trial < 8; trial++) {
        attend_data *d = scene(1, KEYS);
        look_alike(d);
        for (int64_t j = 0; j < KEYS; j++) {
            d->k[j * DIM] = sinf(0.006f * (float)j * (float)(1 + trial % 3) + (float)trial);
            d->k[j * DIM + 1] = 0.7f * cosf(0.017f * (float)j + 2.0f * (float)trial);
        }
        attend_changed(d);
        d->c.spec = "select=hip(k=64, sinks=0, window=0); where=causal";
        attend_result *r = attend_run(d, &(attend_way){.weights = true});
        for (int64_t j = 0; j < KEYS; j++) {
            int better = 0;
            for (int64_t o = 0; o < KEYS; o++)
                better += d->k[o * DIM] + d->k[o * DIM + 1] > d->k[j * DIM] + d->k[j * DIM + 1];
            found += better < WANTED && r->weights[j] > 0;
        }
        attend_result_free(r);
        attend_free(d);
    }
    if (found < 0.9 * 8 * WANTED)
        fail_msg("%g of %d best keys were found", found, 8 * WANTED);
}

static void summaries_may_come_with_the_keys(void **state)
{
    (void)state;
    for (int page = 0; page <= 32; page += 32)
        for (int share = 0; share < 2; share++) {
            attend_data *d = scene(1, 300);
            d->c.spec = share ? "select=hip(k=40, block=8, share=group); where=causal"
                              : "select=hip(k=40, block=8); where=causal & window(150)";
            d->c.way.page = page;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_keys_found_is_attending_to_all),
        cmocka_unit_test(monotone_scores_are_searched_exactly),
        cmocka_unit_test(smooth_scores_are_found),
        cmocka_unit_test(summaries_may_come_with_the_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
