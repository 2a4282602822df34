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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepared_keys_give_the_same_output),
        cmocka_unit_test(a_turned_query_reads_prepared_keys_where_they_lie),
        cmocka_unit_test(what_cannot_be_prepared_once_is_refused),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
