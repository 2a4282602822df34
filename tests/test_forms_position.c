/* Every position form against the oracle. */
#include "support/attend.h"

#include <stdlib.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void rotations_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "position=rope",
        "position=rope(base=500, pairs=adjacent); where=causal",
        "position=rope(dim=2)",
        "position=rope(dim=2, pairs=adjacent); score=cosine",
        "position=rope(scaling=linear(4)); score=bilinear",
        "position=rope(scaling=yarn(4, 64))",
        "position=rope(scaling=yarn(8, 64, beta_fast=16, beta_slow=2)); where=causal",
        "position=rope(scaling=yarn(0.5, 64))",
        "position=rope(base=1000, scaling=llama3(8, 64))",
        "position=rope(scaling=llama3(factor=4, original=200, low=2, high=8), pairs=adjacent)",
        "position=xpos; where=causal",
        "position=xpos(base=100, scale_base=40); where=causal & window(30)",
        "position=self_extend(group=3, window=7); where=causal",
        "position=self_extend(500, 4, 16)",
        "position=rope; score=gaussian",
        "position=rope; score=laplace",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_sweep(&(attend_case){.spec = specs[i], .seed = 10 * i + 3, .way.weights = true}, 2000000);
    attend_sweep(&(attend_case){.spec = "position=rope(scaling=ntk(4))", .dim = 8, .seed = 4}, 0);
}

static void biases_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "position=alibi",
        "position=alibi(slopes=published); where=causal",
        "position=t5",
        "position=t5(buckets=8, max=20)",
        "score=dot(1); position=t5; where=causal",
        "position=t5(buckets=12, max=100); where=causal & window(90)",
        "position=t5; where=causal | self", /* causal is no factor here: both halves are used */
        "position=shaw",
        "position=shaw(max=3); where=causal",
        "position=shaw(max=2); score=dot(0.7)",
        "position=shaw(max=5); score=cosine",
        "position=kerple",
        "position=kerple(kind=power); where=causal",
        "position=sandwich",
        "position=sandwich(dims=6); where=causal",
        "position=pr_blocks(lam=0.4, block=7)",
        "position=pr_blocks(block=16) + rope; where=causal & pr_blocks(block=16)",
        "position=none",
        "position=alibi + kerple",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_sweep(&(attend_case){.spec = specs[i], .seed = 10 * i + 5, .way.weights = true}, 0);
    attend_sweep(
        &(attend_case){.spec = "position=alibi(slopes=published)", .heads = 6, .kv_heads = 3, .seed = 6},
        2000000);
}

static void forms_that_need_more_than_a_distance_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "position=fire",
        "position=fire; where=causal",
        "position=cope; where=causal",
        "position=cope(max=4)",
        "position=cope(max=8) + rope; where=causal & window(40)",
        "position=cope(max=6) + alibi + shaw(max=4); where=causal",
        "position=cope(max=6); where=causal & !first(2); score=additive(dim=4)",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_sweep(&(attend_case){.spec = specs[i], .seed = 10 * i + 7, .way.weights = true}, 300000);
}

static void sums_of_forms_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "position=rope + alibi; where=causal",
        "position=rope + t5(buckets=16, max=40) + shaw(max=4)",
        "position=alibi + t5 + kerple + sandwich; where=causal",
        "position=xpos + alibi; where=causal",
        "position=rope(scaling=yarn(4, 64)) + kerple(kind=power) + fire; score=bilinear",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_sweep(&(attend_case){.spec = specs[i], .seed = 10 * i + 8, .way.weights = true}, 300000);
}

static void given_positions_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "position=rope",
        "position=rope(pairs=adjacent, scaling=llama3(4, 64)); where=causal",
        "position=alibi; where=causal",
        "position=t5",
        "position=t5; where=causal",
        "position=shaw(max=6)",
        "position=kerple",
        "position=kerple(kind=power)",
        "position=fire",
        "position=xpos(scale_base=64); where=causal",
        "position=cope; where=causal",
        "position=sandwich",
        "position=rope + alibi + t5(buckets=8, max=30)",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int kind = POSITIONS_SHARED; kind <= POSITIONS_BATCHED; kind++) {
            attend_check(&(attend_case){.spec = specs[i],
                                        .batch = 2,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .queries = 37,
                                        .keys = 70,
                                        .positions = (attend_positions)kind,
                                        .seed = i,
                                        .way.weights = true});
            attend_check(&(attend_case){.spec = specs[i],
                                        .batch = 2,
                                        .heads = 2,
                                        .queries = 66,
                                        .keys = 33,
                                        .dim = 16,
                                        .positions = (attend_positions)kind,
                                        .seed = 40 + i});
        }
}

/* Of q_pos and k_pos one may be absent: the default positions stand in for it. */
static void one_sided_positions_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {"position=rope; where=causal", "position=alibi; where=window(30)",
                                        "where=last(9); position=t5"};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int side = 0; side < 2; side++)
            for (int kind = POSITIONS_SHARED; kind <= POSITIONS_BATCHED; kind++) {
                attend_data *d = attend_make(&(attend_case){.spec = specs[i],
                                                            .batch = 2,
                                                            .heads = 2,
                                                            .queries = 30,
                                                            .keys = 65,
                                                            .positions = (attend_positions)kind,
                                                            .seed = i,
                                                            .way.weights = true});
                int32_t **absent = side ? &d->q_pos : &d->k_pos;
                free(*absent);
                *absent = NULL;
                attend_check_changed(d);
                attend_free(d);
            }
}

/* With one key, the lse of a row is the score of its pair: a bias or an angle can be looked at one distance
 * at a time. */
static void scores_are_right_one_distance_at_a_time(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "position=t5",
        "position=t5; where=causal",
        "position=t5(buckets=10, max=50)",
        "position=t5(buckets=64, max=1000)",
        "position=t5(buckets=6, max=1000000); where=causal",
        "position=kerple",
        "position=alibi",
        "position=sandwich",
        "position=fire",
        "position=shaw(max=100)",
    };
    enum { ROWS = 1500 };
    for (size_t i = 0; i < COUNT(specs); i++) {
        attend_data *d = attend_make(&(attend_case){
            .spec = specs[i], .heads = 2, .queries = ROWS, .keys = 1, .dim = 4, .value_dim = 1, .seed = i});
        d->q_pos = calloc(ROWS, sizeof *d->q_pos);
        d->k_pos = calloc(1, sizeof *d->k_pos);
        for (int n = 0; n < ROWS; n++) /* all small distances, then ever larger ones */
            d->q_pos[n] = n < 1100 ? n - 300 : (n - 1100) * (n - 1100) * 7;
        attend_check_changed(d);
        attend_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotations_equal_the_oracle),
        cmocka_unit_test(biases_equal_the_oracle),
        cmocka_unit_test(forms_that_need_more_than_a_distance_equal_the_oracle),
        cmocka_unit_test(sums_of_forms_equal_the_oracle),
        cmocka_unit_test(given_positions_equal_the_oracle),
        cmocka_unit_test(one_sided_positions_equal_the_oracle),
        cmocka_unit_test(scores_are_right_one_distance_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
