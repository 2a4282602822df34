/* heads and read against the oracle, and specs that differ from head to head. */
#include "support/attend.h"

#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void talking_heads_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "heads=talking",
        "heads=talking; where=causal",
        "heads=talking; where=causal & window(20); position=alibi",
        "heads=talking; normalise=sparsemax",
        "heads=talking; normalise=sink; position=rope",
        "heads=talking; select=top_k(9)",
        "heads=talking; normalise=sigmoid; score=cosine",
        "heads=talking; normalise=softcap(2)",
        "heads=talking; position=cope(max=5); where=causal",
        "heads=talking; score=additive(dim=3)",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_sweep(&(attend_case){.spec = specs[i], .seed = 10 * i, .way.weights = true}, 300000);
    attend_check(&(attend_case){.spec = "heads=talking; where=mask",
                                .batch = 2,
                                .heads = 4,
                                .kv_heads = 2,
                                .queries = 30,
                                .keys = 40,
                                .mask = MASK_BNM,
                                .ragged = RAGGED_SEQ,
                                .seed = 1,
                                .way.weights = true});
}

static void untouched_talking_heads_are_ordinary_heads(void **state)
{
    (void)state;
    attend_check(&(attend_case){.spec = "heads=talking; where=causal",
                                .heads = 4,
                                .kv_heads = 2,
                                .queries = 70,
                                .initial = true,
                                .seed = 3,
                                .way.weights = true});
}

static void gates_of_every_shape_equal_the_oracle(void **state)
{
    (void)state;
    for (unsigned ones = 0; ones < 16; ones++)
        attend_check(&(attend_case){.spec = "read=gate; where=causal",
                                    .batch = 2,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .queries = 66,
                                    .value_dim = 5,
                                    .gate_ones = ones,
                                    .seed = ones});
    attend_sweep(&(attend_case){.spec = "read=gate; normalise=sparsemax; heads=talking", .seed = 2}, 300000);
}

static void a_gate_must_be_given(void **state)
{
    (void)state;
    const heed_problem problem = {.batch = 1, .heads = 1, .queries = 2, .keys = 2, .dim = 2, .threads = 1};
    heed_plan *plan;
    assert_int_equal(heed_plan_create(&plan, "read=gate", &problem), HEED_OK);
    float x[4] = {1, 2, 3, 4}, initial[4], out[4];
    const heed_tensor t = heed_tensor_dense(x, HEED_F32, 4, (int64_t[]){1, 1, 2, 2});
    const heed_tensor o = heed_tensor_dense(out, HEED_F32, 4, (int64_t[]){1, 1, 2, 2});
    const heed_extra extra = {.params = NULL};
    assert_int_equal(heed_plan_param_initial(plan, 0, initial), HEED_INVALID);
    assert_int_equal(heed_attend(plan, &t, &t, &t, &o, &extra), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "gate"));
    heed_plan_free(plan);
}

static void every_query_head_reads_its_own_key_head(void **state)
{
    (void)state;
    static const int64_t heads[][2] = {{1, 1}, {4, 1}, {4, 2}, {4, 4}, {6, 3}, {9, 3}, {12, 4}, {16, 2}};
    for (size_t i = 0; i < COUNT(heads); i++)
        for (int64_t queries = 1; queries <= 65; queries += 32)
            attend_check(&(attend_case){.spec = "where=causal",
                                        .batch = 2,
                                        .heads = heads[i][0],
                                        .kv_heads = heads[i][1],
                                        .queries = queries,
                                        .keys = 70,
                                        .seed = i,
                                        .way.weights = true});
}

/* One head of a result. */
static void head_equals(const attend_result *mixed, const attend_result *alone, int64_t h, int64_t rows,
                        int64_t width)
{
    for (int64_t i = h * rows * width; i < (h + 1) * rows * width; i++)
        assert_true(mixed->out[i] == alone->out[i]);
}

static void a_spec_for_some_heads_leaves_the_others_alone(void **state)
{
    (void)state;
    attend_data *d =
        attend_make(&(attend_case){.spec = "", .heads = 4, .kv_heads = 2, .queries = 70, .seed = 1});
    static const char *const specs[] = {
        "where=causal; heads 0,2: where=window(4); heads 3: normalise=sparsemax; position=alibi",
        "where=causal",
        "where=window(4)",
        "where=causal; normalise=sparsemax; position=alibi",
    };
    static const int alone[] = {2, 1, 2, 3}; /* the spec of each head */
    attend_result *r[4];
    for (int i = 0; i < 4; i++) {
        d->c.spec = specs[i];
        r[i] = attend_run(d, &d->c.way);
    }
    for (int h = 0; h < 4; h++)
        head_equals(r[0], r[alone[h]], h, 70, 8);
    for (int i = 0; i < 4; i++)
        attend_result_free(r[i]);
    attend_free(d);
}

static void a_spec_for_some_layers_leaves_the_others_alone(void **state)
{
    (void)state;
    attend_data *d = attend_make(&(attend_case){.spec = "", .heads = 2, .queries = 70, .seed = 1});
    static const char *const alone[] = {"where=causal", "where=causal & window(9); normalise=sparsemax",
                                        "where=causal"};
    for (int layer = 0; layer < 3; layer++) {
        d->c.spec = "where=causal; layers 1: where=causal & window(9); normalise=sparsemax";
        attend_result *mixed = attend_run(d, &(attend_way){.layer = layer});
        d->c.spec = alone[layer];
        attend_result *one = attend_run(d, &(attend_way){0});
        attend_same_bits(d, mixed, one);
        attend_result_free(mixed);
        attend_result_free(one);
    }
    attend_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(talking_heads_equal_the_oracle),
        cmocka_unit_test(untouched_talking_heads_are_ordinary_heads),
        cmocka_unit_test(gates_of_every_shape_equal_the_oracle),
        cmocka_unit_test(a_gate_must_be_given),
        cmocka_unit_test(every_query_head_reads_its_own_key_head),
        cmocka_unit_test(a_spec_for_some_heads_leaves_the_others_alone),
        cmocka_unit_test(a_spec_for_some_layers_leaves_the_others_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
