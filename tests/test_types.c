/* Storage types: the oracle reads the values that the types hold, so that what is left is the kernels' own
 * rounding, for which 1e-5 is allowed as in f32, and 1e-4 in whole numbers. */
#include "support/attend.h"
#include "support/isas.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const heed_type kv_types[] = {HEED_F32, HEED_F16, HEED_BF16,       HEED_Q8,         HEED_Q4,
                                     HEED_Q3,  HEED_Q2,  HEED_ROTATED_Q8, HEED_ROTATED_Q4, HEED_ROTATED_Q2};
static const heed_type q_types[] = {HEED_F32, HEED_F16, HEED_BF16};

static void every_mix_of_types_equals_the_oracle(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(kv_types); k++)
        for (size_t v = 0; v < COUNT(kv_types); v++)
            for (size_t q = 0; q < (k < 5 && v < 5 ? COUNT(q_types) : 1); q++)
                for (int64_t queries = 1; queries <= 67; queries += 66)
                    attend_check(&(attend_case){.spec = "where=causal",
                                                .heads = 4,
                                                .kv_heads = 2,
                                                .queries = queries,
                                                .keys = 130,
                                                .dim = 64,
                                                .value_dim = 32,
                                                .q_type = q_types[q],
                                                .k_type = kv_types[k],
                                                .v_type = kv_types[v],
                                                .seed = k * 5 + v,
                                                .way.weights = true});
}

static void quantised_keys_and_values_at_odd_sizes(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(kv_types); k++)
        for (size_t v = 0; v < COUNT(kv_types); v++)
            attend_sweep(
                &(attend_case){.spec = "", .k_type = kv_types[k], .v_type = kv_types[v], .seed = 20 * k + v},
                k < 5 && v < 5 ? 2000000 : 50000);
}

static void every_kernel_reads_every_type(void **state)
{
    (void)state;
    static const heed_kernel kernels[] = {HEED_KERNEL_FLASH, HEED_KERNEL_ROWS, HEED_KERNEL_SPARSE,
                                          HEED_KERNEL_DECODE};
    for (size_t t = 0; t < COUNT(kv_types); t++)
        for (size_t i = 0; i <= COUNT(kernels); i++) /* the last time in whole numbers */
            for (const heed_isa *isa = test_isas(); *isa; isa++)
                attend_check(&(attend_case){.spec = "where=causal",
                                            .batch = 2,
                                            .heads = 6,
                                            .kv_heads = 2,
                                            .queries = 3,
                                            .keys = 200,
                                            .dim = 80,
                                            .value_dim = 72,
                                            .k_type = kv_types[t],
                                            .v_type = kv_types[t],
                                            .seed = t,
                                            .way = {.kernel = kernels[i < COUNT(kernels) ? i : i - 1],
                                                    .isa = *isa,
                                                    .whole_numbers = i == COUNT(kernels)}});
}

static void forms_read_every_type(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "position=rope; where=causal",
        "position=rope(pairs=adjacent) + alibi",
        "score=cosine",
        "score=laplace",
        "score=gaussian",
        "score=bilinear",
        "score=additive(dim=3)",
        "position=shaw(max=4)",
        "normalise=sparsemax",
        "select=top_k(9)",
        "heads=talking",
        "position=xpos; where=causal",
        "select=quest(page=16, budget=32)",
        "position=cope(max=5); where=causal",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t t = 1; t < COUNT(kv_types); t++)
            for (int64_t queries = 1; queries <= 40; queries += 39)
                attend_check(&(attend_case){.spec = specs[i],
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .queries = queries,
                                            .keys = 66,
                                            .dim = 40,
                                            .value_dim = 33,
                                            .k_type = kv_types[t],
                                            .v_type = kv_types[t],
                                            .q_type = t < 3 ? kv_types[t] : HEED_F16,
                                            .seed = i});
}

static void gradients_of_half_precision_inputs_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {"", "position=alibi; where=causal",
                                        "where=causal & (window(4) | first(1))",
                                        "position=rope; normalise=sink", "normalise=sparsemax; score=cosine"};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t t = 1; t < COUNT(q_types); t++)
            attend_check(&(attend_case){.spec = specs[i],
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .queries = 65,
                                        .keys = 70,
                                        .dim = 34,
                                        .q_type = q_types[t],
                                        .k_type = q_types[t],
                                        .v_type = q_types[t],
                                        .seed = i,
                                        .way.backward = true});
}

static void gradients_of_quantised_tensors_are_refused(void **state)
{
    (void)state;
    attend_data *d = attend_make(
        &(attend_case){.spec = "", .queries = 4, .dim = 32, .k_type = HEED_Q8, .way.backward = true});
    attend_result *r = attend_try(d, &d->c.way);
    assert_int_equal(r->status, HEED_UNSUPPORTED);
    attend_result_free(r);
    attend_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mix_of_types_equals_the_oracle),
        cmocka_unit_test(quantised_keys_and_values_at_odd_sizes),
        cmocka_unit_test(every_kernel_reads_every_type),
        cmocka_unit_test(forms_read_every_type),
        cmocka_unit_test(gradients_of_half_precision_inputs_equal_the_oracle),
        cmocka_unit_test(gradients_of_quantised_tensors_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
