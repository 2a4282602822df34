/* Every score against the oracle. */
#include "support/attend.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void products_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "",
        "score=dot",
        "score=dot(0.3)",
        "score=dot(scale=1); where=causal",
        "score=coca; where=causal",
        "score=coca(base=100)",
        "score=comate; normalise=plain",
        "score=comate(a=3, b=0.2); normalise=plain; where=causal",
        "score=cosine",
        "score=cosine(scale=3, eps=2)", /* shorter vectors than eps are met at small D */
        "score=gaussian",
        "score=gaussian(sigma=2); where=causal",
        "score=laplace",
        "score=laplace(sigma=3)",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_sweep(&(attend_case){.spec = specs[i], .seed = 10 * i + 1, .way.weights = true}, 0);
}

static void any_number_of_entries_equals_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {"where=causal", "score=cosine", "score=gaussian", "score=laplace"};
    static const int64_t dims[] = {1, 3, 7, 15, 17, 31, 33, 63, 65, 127, 129, 200};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t d = 0; d < COUNT(dims); d++)
            for (int64_t queries = 1; queries <= 41; queries += 20)
                attend_check(&(attend_case){.spec = specs[i],
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .queries = queries,
                                            .keys = 67,
                                            .dim = dims[d],
                                            .value_dim = dims[COUNT(dims) - 1 - d],
                                            .seed = d,
                                            .way.weights = true});
}

static void learnt_scores_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "score=bilinear", "score=bilinear(scale=0.2); where=causal", "score=additive(dim=5)",
        "score=additive", "score=mlp(dim=7); where=causal",          "score=mlp",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_sweep(&(attend_case){.spec = specs[i], .seed = 10 * i + 2, .way.weights = true}, 600000);
}

static void learnt_scores_start_from_their_initial_values(void **state)
{
    (void)state;
    static const char *const specs[] = {"score=bilinear", "score=additive", "score=additive(dim=3)",
                                        "score=mlp(dim=12)"};
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_check(&(attend_case){
            .spec = specs[i], .heads = 2, .queries = 9, .keys = 17, .initial = true, .seed = i});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_equal_the_oracle),
        cmocka_unit_test(any_number_of_entries_equals_the_oracle),
        cmocka_unit_test(learnt_scores_equal_the_oracle),
        cmocka_unit_test(learnt_scores_start_from_their_initial_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
