/* Keys prepared once, as a cache keeps them, give what keys prepared anew at each execution give. */
#include "support/isas.h"
#include "support/random.h"
#include <heed/attend.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 4, GROUPS = 2, KEYS = 203, DIM = 36 };

typedef struct data {
    float q[HEADS * KEYS * DIM], k[GROUPS * KEYS * DIM], v[GROUPS * KEYS * DIM];
    float ready[GROUPS * KEYS * DIM];
    int32_t pos[KEYS];
} data;

static data *make(uint64_t seed)
{
    data *d = calloc(1, sizeof *d);
    assert_non_null(d);
    test_random random = {seed};
    for (int i = 0; i < HEADS * KEYS * DIM; i++)
        d->q[i] = (float)random_normal(&random);
    for (int i = 0; i < GROUPS * KEYS * DIM; i++) {
        d->k[i] = (float)random_normal(&random);
        d->v[i] = (float)random_normal(&random);
    }
    for (int i = 0; i < KEYS; i++)
        d->pos[i] = i;
    return d;
}

static heed_problem problem_of(int queries, bool ready, heed_isa isa)
{
    return (heed_problem){.batch = 1,
                          .heads = HEADS,
                          .kv_heads = GROUPS,
                          .queries = queries,
                          .keys = KEYS,
                          .dim = DIM,
                          .isa = isa,
                          .with = ready ? HEED_WITH_PREPARED_KEYS : 0};
}

/* The last `queries` queries against all keys, given as they are or prepared. Returns the kernel. */
static heed_kernel attend(data *d, const char *spec, int queries, bool ready, heed_isa isa, float *out)
{
    const heed_problem problem = problem_of(queries, ready, isa);
    heed_plan *plan;
    if (heed_plan_create(&plan, spec, &problem))
        fail_msg("%s: %s", spec, heed_message());
    if (ready) {
        static float work[KEYS * DIM];
        for (int g = 0; g < GROUPS; g++)
            for (int first = 0; first < KEYS; first += 50) { /* in pieces, as a cache gets them */
                const int count = KEYS - first < 50 ? KEYS - first : 50;
                const int64_t at = ((int64_t)g * KEYS + first) * DIM;
                memcpy(work, d->k + at, sizeof(float) * (size_t)count * DIM);
                const heed_new_keys keys = {.kv_head = g,
                                            .count = count,
                                            .pos = d->pos + first,
                                            .k = work,
                                            .k_stride = DIM,
                                            .out = d->ready + at,
                                            .out_stride = DIM};
                assert_int_equal(heed_plan_prepare_keys(plan, &keys), HEED_OK);
            }
    }
    const int64_t kv_shape[] = {1, GROUPS, KEYS, DIM}, q_shape[] = {1, HEADS, queries, DIM};
    heed_tensor q = heed_tensor_dense(d->q + (KEYS - queries) * DIM, HEED_F32, 4, q_shape);
    q.stride[1] = KEYS * DIM * (int64_t)sizeof(float);
    const heed_tensor k = heed_tensor_dense(ready ? d->ready : d->k, HEED_F32, 4, kv_shape);
    const heed_tensor v = heed_tensor_dense(d->v, HEED_F32, 4, kv_shape);
    const heed_tensor o = heed_tensor_dense(out, HEED_F32, 4, q_shape);
    if (heed_attend(plan, &q, &k, &v, &o, NULL))
        fail_msg("%s: %s", spec, heed_message());
    heed_plan_info info;
    heed_plan_get_info(plan, &info);
    heed_plan_free(plan);
    return info.kernel;
}

static const char *const specs[] = {
    "where=causal",
    "position=rope; where=causal",
    "position=rope(base=500000, dim=20, pairs=adjacent, scaling=llama3(8, 64)); where=causal & window(40)",
    "position=rope(scaling=yarn(4, 32)); where=causal; normalise=softcap(20)",
    "score=cosine; where=causal",
    "position=rope + alibi; score=cosine(4); where=causal; normalise=sink",
    "position=rope + shaw(max=5); where=causal",
    "position=rope; select=quest(page=16, budget=64); where=causal",
    "heads 0-1: position=rope; heads 2,3: position=rope(base=100); where=causal",
    "position=rope; where=causal; heads=talking",
};

static void prepared_keys_give_the_same_output(void **state)
{
    (void)state;
    static float plain[HEADS * KEYS * DIM], ready[HEADS * KEYS * DIM];
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int isa = HEED_ISA_PORTABLE; isa <= HEED_ISA_NEON; isa++) {
            if (!test_isa_runs((heed_isa)isa))
                continue;
            data *d = make(s + 1);
            static const int queries[] = {1, 3, 70, KEYS};
            for (int n = 0; n < 4; n++) {
                attend(d, specs[s], queries[n], false, (heed_isa)isa, plain);
                attend(d, specs[s], queries[n], true, (heed_isa)isa, ready);
                for (int i = 0; i < HEADS * queries[n] * DIM; i++)
                    if (!(fabsf(plain[i] - ready[i]) <= 2e-5f))
                        fail_msg("%s, %s, %d queries: output %d is %.9g from prepared keys and %.9g from "
                                 "plain ones",
                                 specs[s], heed_isa_name((heed_isa)isa), queries[n], i, (double)ready[i],
                                 (double)plain[i]);
            }
            free(d);
        }
}

static void a_turned_query_reads_prepared_keys_where_they_lie(void **state)
{
    (void)state;
    static float out[HEADS * KEYS * DIM];
    data *d = make(5);
    assert_int_equal(attend(d, "position=rope; where=causal", 1, true, HEED_ISA_AUTO, out),
                     HEED_KERNEL_DECODE);
    assert_int_equal(attend(d, "position=rope; where=causal", 1, false, HEED_ISA_AUTO, out),
                     HEED_KERNEL_FLASH);
    free(d);
}

static void refused(const char *spec, unsigned with, const char *what)
{
    heed_problem problem = problem_of(4, true, HEED_ISA_AUTO);
    problem.with |= with;
    heed_plan *plan;
    const heed_status status = heed_plan_create(&plan, spec, &problem);
    if (status != HEED_UNSUPPORTED || !strstr(heed_message(), what))
        fail_msg("%s: status %d, \"%s\"", spec, status, heed_message());
}

static void what_cannot_be_prepared_once_is_refused(void **state)
{
    (void)state;
    refused("score=additive", 0, "score=additive");
    refused("heads 0: position=rope; heads 1: position=rope(base=5); heads 2-3: position=rope", 0,
            "kv head 0");
    refused("heads 3: position=rope", 0, "kv head 1");
    refused("position=rope", HEED_WITH_BACKWARD, "backward");
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    data *d = make(1);
    heed_problem problem = problem_of(1, false, HEED_ISA_AUTO);
    heed_plan *plan;
    heed_new_keys keys = {
        .count = 1, .pos = d->pos, .k = d->k, .k_stride = DIM, .out = d->ready, .out_stride = DIM};
    assert_int_equal(heed_plan_create(&plan, "position=rope", &problem), HEED_OK);
    assert_int_equal(heed_plan_prepare_keys(plan, &keys), HEED_INVALID);
    heed_plan_free(plan);
    problem.with = HEED_WITH_PREPARED_KEYS;
    assert_int_equal(heed_plan_create(&plan, "position=rope", &problem), HEED_OK);
    assert_int_equal(heed_plan_prepare_keys(plan, &keys), HEED_OK);
    keys.kv_head = GROUPS;
    assert_int_equal(heed_plan_prepare_keys(plan, &keys), HEED_INVALID);
    keys.kv_head = 0;
    keys.out_stride = DIM - 1;
    assert_int_equal(heed_plan_prepare_keys(plan, &keys), HEED_INVALID);
    keys.out_stride = DIM;
    d->pos[0] = INT32_MAX;
    assert_int_equal(heed_plan_prepare_keys(plan, &keys), HEED_INVALID);
    heed_plan_free(plan);
    free(d);
}

static void prepare(const heed_plan *plan, int g, const int32_t *pos, const float *k, float *out)
{
    static float work[KEYS * DIM];
    memcpy(work, k, sizeof work);
    const heed_new_keys keys = {
        .kv_head = g, .count = KEYS, .pos = pos, .k = work, .k_stride = DIM, .out = out, .out_stride = DIM};
    assert_int_equal(heed_plan_prepare_keys(plan, &keys), HEED_OK);
}

static void near(const char *spec, const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 2e-5f))
            fail_msg("%s: entry %d is %.9g and %.9g", spec, i, (double)a[i], (double)b[i]);
}

static void moved_keys_are_keys_prepared_elsewhere(void **state)
{
    (void)state;
    static const char *const moving[] = {"position=rope; where=causal",
                                         "position=rope(dim=20, pairs=adjacent); where=causal",
                                         "position=rope(scaling=yarn(4, 32)); where=causal",
                                         "position=rope; score=cosine; where=causal",
                                         "position=xpos; where=causal",
                                         "position=alibi; where=causal"};
    for (size_t s = 0; s < sizeof moving / sizeof *moving; s++)
        for (int isa = HEED_ISA_PORTABLE; isa <= HEED_ISA_NEON; isa++) {
            if (!test_isa_runs((heed_isa)isa))
                continue;
            data *d = make(s + 50);
            const heed_problem problem = problem_of(1, true, (heed_isa)isa);
            heed_plan *plan;
            assert_int_equal(heed_plan_create(&plan, moving[s], &problem), HEED_OK);
            static float here[KEYS * DIM], there[KEYS * DIM], moved[KEYS * DIM];
            int32_t by[KEYS], to[KEYS];
            for (int i = 0; i < KEYS; i++) {
                by[i] = i % 3 == 0 ? -i : 5000 * (i % 7);
                to[i] = d->pos[i] + by[i];
            }
            prepare(plan, 1, d->pos, d->k, here);
            prepare(plan, 1, to, d->k, there);
            const heed_new_keys keys = {.kv_head = 1,
                                        .count = KEYS,
                                        .pos = by,
                                        .k = here,
                                        .k_stride = DIM,
                                        .out = moved,
                                        .out_stride = DIM};
            assert_int_equal(heed_plan_move_keys(plan, &keys), HEED_OK);
            near(moving[s], moved, there, KEYS * DIM);
            heed_plan_free(plan);
            free(d);
        }
}

/* The logarithm of the ratio of two weights is the difference of two scores. */
static void prepared_queries_make_scores_with_prepared_keys(void **state)
{
    (void)state;
    static const char *const scored[] = {"position=rope; where=causal", "position=rope; score=cosine(4)",
                                         "position=rope(scaling=yarn(4, 32))", "score=dot(scale=0.3)",
                                         "heads 0-1: position=rope; heads 2,3: position=rope(base=100)"};
    for (size_t s = 0; s < sizeof scored / sizeof *scored; s++) {
        data *d = make(s + 70);
        heed_problem problem = problem_of(1, true, HEED_ISA_AUTO);
        problem.with |= HEED_WITH_TOP;
        problem.top = KEYS;
        heed_plan *plan;
        assert_int_equal(heed_plan_create(&plan, scored[s], &problem), HEED_OK);
        static float ready[GROUPS][KEYS * DIM], weight[HEADS * KEYS], out[HEADS * DIM], row[DIM];
        int32_t key[HEADS * KEYS], last = KEYS - 1;
        for (int g = 0; g < GROUPS; g++)
            prepare(plan, g, d->pos, d->k + g * KEYS * DIM, ready[g]);
        const heed_tensor q = heed_tensor_dense(d->q, HEED_F32, 4, (int64_t[]){1, HEADS, 1, DIM}),
                          k = heed_tensor_dense(ready, HEED_F32, 4, (int64_t[]){1, GROUPS, KEYS, DIM}),
                          o = heed_tensor_dense(out, HEED_F32, 4, (int64_t[]){1, HEADS, 1, DIM});
        const heed_extra extra = {.capture = {.top_weight = weight, .top_key = key}};
        assert_int_equal(heed_attend(plan, &q, &k, &k, &o, &extra), HEED_OK);
        for (int h = 0; h < HEADS; h++) {
            float work[DIM];
            memcpy(work, d->q + h * DIM, sizeof work);
            const heed_new_keys rows = {.kv_head = h,
                                        .count = 1,
                                        .pos = &last,
                                        .k = work,
                                        .k_stride = DIM,
                                        .out = row,
                                        .out_stride = DIM};
            assert_int_equal(heed_plan_prepare_queries(plan, &rows), HEED_OK);
            double first = 0;
            for (int n = 0; n < 20; n++) {
                const float *to = ready[h / (HEADS / GROUPS)] + key[h * KEYS + n] * DIM;
                double score = 0;
                for (int i = 0; i < DIM; i++)
                    score += (double)row[i] * to[i];
                first = n == 0 ? score : first;
                const double ratio = log((double)weight[h * KEYS + n] / weight[h * KEYS]);
                if (!(fabs(score - first - ratio) <= 1e-4))
                    fail_msg("%s: head %d, key %d: %g, expected %g", scored[s], h, key[h * KEYS + n],
                             score - first, ratio);
            }
        }
        heed_plan_free(plan);
        free(d);
    }
}

static heed_status ask_queries(const char *spec)
{
    data *d = make(1);
    const heed_problem problem = problem_of(1, true, HEED_ISA_AUTO);
    heed_plan *plan;
    const heed_new_keys rows = {
        .count = 1, .pos = d->pos, .k = d->k, .k_stride = DIM, .out = d->ready, .out_stride = DIM};
    assert_int_equal(heed_plan_create(&plan, spec, &problem), HEED_OK);
    const heed_status status = heed_plan_prepare_queries(plan, &rows);
    heed_plan_free(plan);
    free(d);
    return status;
}

static void queries_that_make_no_products_are_refused(void **state)
{
    (void)state;
    assert_int_equal(ask_queries("position=xpos; where=causal"), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "position=xpos"));
    assert_int_equal(ask_queries("score=bilinear"), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "score=bilinear"));
    assert_int_equal(ask_queries(""), HEED_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepared_keys_give_the_same_output),
        cmocka_unit_test(a_turned_query_reads_prepared_keys_where_they_lie),
        cmocka_unit_test(what_cannot_be_prepared_once_is_refused),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(moved_keys_are_keys_prepared_elsewhere),
        cmocka_unit_test(prepared_queries_make_scores_with_prepared_keys),
        cmocka_unit_test(queries_that_make_no_products_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
