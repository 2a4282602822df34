/* End points at which a form is another one. */
#include <heed/heed.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { H = 4, N = 40, D = 8, SIZE = H * N * D };

static float number(int i, int salt)
{
    return sinf(1.7f * (float)i + 0.9f * (float)salt) * 1.3f;
}

/* Of 4 heads, with the initial values of parameters unless they are given in order; kv heads repeat where
 * there are fewer. */
static void run(const char *spec, int64_t kv_heads, const float *const *given, float *out)
{
    static float q[SIZE], k[SIZE], v[SIZE], values[4][4096];
    const heed_problem problem = {
        .batch = 1, .heads = H, .kv_heads = kv_heads, .queries = N, .keys = N, .dim = D, .threads = 1};
    heed_tensor params[4];
    heed_plan *plan;
    for (int i = 0; i < SIZE; i++) {
        q[i] = number(i, 1);
        const int head = i / (N * D), from = kv_heads == 2 ? 2 * head : head;
        k[i] = number(from * N * D + i % (N * D), 2);
        v[i] = number(from * N * D + i % (N * D), 3);
    }
    if (heed_plan_create(&plan, spec, &problem))
        fail_msg("%s: %s", spec, heed_message());
    for (int i = 0; i < heed_plan_params(plan); i++) {
        heed_plan_param_info info;
        assert_int_equal(heed_plan_param(plan, i, &info), HEED_OK);
        assert_int_equal(heed_plan_param_initial(plan, i, values[i]), HEED_OK);
        params[i] = heed_tensor_dense(given ? (float *)(uintptr_t)given[i] : values[i], HEED_F32, info.rank,
                                      info.shape);
    }
    const int64_t queries[] = {1, H, N, D}, keys[] = {1, kv_heads, N, D};
    const heed_tensor Q = heed_tensor_dense(q, HEED_F32, 4, queries),
                      K = heed_tensor_dense(k, HEED_F32, 4, keys),
                      V = heed_tensor_dense(v, HEED_F32, 4, keys),
                      O = heed_tensor_dense(out, HEED_F32, 4, queries);
    const heed_extra extra = {.params = params};
    if (heed_attend(plan, &Q, &K, &V, &O, &extra))
        fail_msg("%s: %s", spec, heed_message());
    heed_plan_free(plan);
}

static void same(const char *one, const float *const *params, const char *other, double most)
{
    static float a[SIZE], b[SIZE];
    run(one, H, params, a);
    run(other, H, NULL, b);
    for (int i = 0; i < SIZE; i++)
        if (!(fabs((double)a[i] - b[i]) <= most))
            fail_msg("%s and %s: entry %d is %.9g and %.9g", one, other, i, (double)a[i], (double)b[i]);
}

/* Groups of one position, and a window that holds all. */
static void self_extend_is_rope(void **state)
{
    (void)state;
    same("position=self_extend(group=1, window=5); where=causal", NULL, "position=rope; where=causal", 1e-5);
    same("position=self_extend(group=4, window=40); where=causal", NULL, "position=rope; where=causal", 1e-5);
}

static void kerple_of_power_1_is_alibi(void **state)
{
    (void)state;
    const float slopes[H] = {0.25f, 0.0625f, 0.015625f, 0.00390625f}, ones[H] = {1, 1, 1, 1};
    const float *const params[] = {slopes, ones};
    same("position=kerple(kind=power); where=causal", params, "position=alibi; where=causal", 1e-5);
}

static void normalisers_at_their_ends(void **state)
{
    (void)state;
    const float two[H] = {2, 2, 2, 2},
                far[H] = {40, 40, 40, 40}, *const doubled[] = {two}, *const sparse[] = {far};
    const float low[H] = {-9, -9, -9, -9}, *const soft[] = {low};
    same("normalise=head_scale", NULL, "normalise=softmax", 0);
    same("normalise=head_scale; where=causal", doubled, "normalise=softmax(temperature=0.5); where=causal",
         1e-5);
    same("normalise=entmax_learnt", NULL, "normalise=entmax(1.5)", 1e-5);
    same("normalise=entmax_learnt", sparse, "normalise=sparsemax", 1e-5);
    same("normalise=entmax_learnt", soft, "normalise=softmax", 1e-3);
}

/* Keys that are the same: the weight is largest where the distance is 0 (all q and k are the same too). */
static void collinear_scores_are_largest_at_distance_0(void **state)
{
    (void)state;
    enum { M = 16 };
    static float q[M * D], k[M * D], v[M * M], out[M * M];
    const heed_problem problem = {
        .batch = 1, .heads = 1, .queries = M, .keys = M, .dim = D, .value_dim = M, .threads = 1};
    const int64_t rows[] = {1, 1, M, D}, wide[] = {1, 1, M, M};
    heed_plan *plan;
    for (int i = 0; i < M * D; i++) {
        q[i] = number(i % D, 4);
        k[i] = fabsf(number(i % D, 5));
    }
    for (int i = 0; i < M; i++)
        v[i * M + i] = 1;
    assert_int_equal(heed_plan_create(&plan, "score=coca", &problem), HEED_OK);
    const heed_tensor Q = heed_tensor_dense(q, HEED_F32, 4, rows),
                      K = heed_tensor_dense(k, HEED_F32, 4, rows),
                      V = heed_tensor_dense(v, HEED_F32, 4, wide),
                      O = heed_tensor_dense(out, HEED_F32, 4, wide);
    assert_int_equal(heed_attend(plan, &Q, &K, &V, &O, NULL), HEED_OK);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++)
            assert_true(out[i * M + j] <= out[i * M + i] + 1e-6f);
    heed_plan_free(plan);
}

/* Two kv heads are four whose pairs are alike. */
static void grouped_heads_are_repeated_heads(void **state)
{
    (void)state;
    static float grouped[SIZE], whole[SIZE];
    run("where=causal", 2, NULL, grouped);
    static float q[SIZE], k[SIZE], v[SIZE];
    for (int i = 0; i < SIZE;
         i++) { /* kv head g of `run` above is filled from head 2 g of the same numbers */
        const int g = i / (N * D) / 2 * 2;
        q[i] = number(i, 1);
        k[i] = number(g * N * D + i % (N * D), 2);
        v[i] = number(g * N * D + i % (N * D), 3);
    }
    const heed_problem problem = {.batch = 1, .heads = H, .queries = N, .keys = N, .dim = D, .threads = 1};
    const int64_t shape[] = {1, H, N, D};
    const heed_tensor Q = heed_tensor_dense(q, HEED_F32, 4, shape),
                      K = heed_tensor_dense(k, HEED_F32, 4, shape),
                      V = heed_tensor_dense(v, HEED_F32, 4, shape),
                      O = heed_tensor_dense(whole, HEED_F32, 4, shape);
    heed_plan *plan;
    assert_int_equal(heed_plan_create(&plan, "where=causal", &problem), HEED_OK);
    assert_int_equal(heed_attend(plan, &Q, &K, &V, &O, NULL), HEED_OK);
    heed_plan_free(plan);
    for (int i = 0; i < SIZE; i++)
        assert_float_equal(grouped[i], whole[i], 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self_extend_is_rope),
        cmocka_unit_test(kerple_of_power_1_is_alibi),
        cmocka_unit_test(normalisers_at_their_ends),
        cmocka_unit_test(collinear_scores_are_largest_at_distance_0),
        cmocka_unit_test(grouped_heads_are_repeated_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
