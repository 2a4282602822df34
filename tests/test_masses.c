/* A key with mass n behaves like n equal keys. */
#include "support/attend.h"
#include "support/isas.h"
#include "support/random.h"

#include <string.h>

enum { HEADS = 4, GROUPS = 2, KEYS = 150, ALL = 3 * KEYS, DIM = 24, MOST = 20 };

typedef struct data {
    float q[HEADS * MOST * DIM];
    float k[GROUPS * KEYS * DIM], v[GROUPS * KEYS * DIM], many_k[GROUPS * ALL * DIM],
        many_v[GROUPS * ALL * DIM];
    int32_t pos[KEYS], many_pos[ALL], q_pos[MOST], from[ALL], seq, many;
    float mass[KEYS];
} data;

typedef struct outcome {
    float out[HEADS * MOST * DIM], lse[HEADS * MOST], sums[HEADS * ALL];
} outcome;

static void make(data *d, uint64_t seed)
{
    test_random random = {seed};
    for (int i = 0; i < HEADS * MOST * DIM; i++)
        d->q[i] = (float)random_normal(&random);
    for (int i = 0; i < GROUPS * KEYS * DIM; i++) {
        d->k[i] = (float)random_normal(&random);
        d->v[i] = (float)random_normal(&random);
    }
    d->seq = KEYS - 5;
    d->many = 0;
    for (int j = 0; j < KEYS; j++) {
        d->pos[j] = 2 * j;
        d->mass[j] = (float)random_whole(&random, 1, 3);
        for (int n = 0; n < (int)d->mass[j] && j < d->seq; n++, d->many++) {
            d->from[d->many] = j;
            d->many_pos[d->many] = d->pos[j];
        }
    }
    for (int j = d->seq; j < KEYS; j++)
        d->mass[j] = -1.0f; /* of keys that do not exist nothing is asked */
    for (int g = 0; g < GROUPS; g++)
        for (int n = 0; n < d->many; n++) {
            const size_t to = ((size_t)g * ALL + (size_t)n) * DIM;
            const size_t from = ((size_t)g * KEYS + (size_t)d->from[n]) * DIM;
            memcpy(d->many_k + to, d->k + from, DIM * sizeof(float));
            memcpy(d->many_v + to, d->v + from, DIM * sizeof(float));
        }
    for (int i = 0; i < MOST; i++)
        d->q_pos[i] = 100 + 11 * i;
}

static heed_kernel attend(data *d, const attend_way *way, const char *spec, int queries, bool massed,
                          outcome *o)
{
    const int64_t keys = massed ? KEYS : ALL;
    const heed_problem problem = {.batch = 1,
                                  .heads = HEADS,
                                  .kv_heads = GROUPS,
                                  .queries = queries,
                                  .keys = keys,
                                  .dim = DIM,
                                  .isa = way->isa,
                                  .kernel = way->kernel,
                                  .with = HEED_WITH_SEQ | HEED_WITH_POSITIONS | HEED_WITH_KEY_SUMS |
                                          (massed ? HEED_WITH_MASS : 0)};
    heed_plan *plan;
    if (heed_plan_create(&plan, spec, &problem))
        fail_msg("%s: %s", spec, heed_message());
    const int64_t shape[] = {1, GROUPS, keys, DIM}, wide[] = {1, HEADS, queries, DIM};
    heed_tensor q = heed_tensor_dense(d->q, HEED_F32, 4, (int64_t[]){1, HEADS, MOST, DIM});
    q.shape[2] = queries;
    const heed_tensor k = heed_tensor_dense(massed ? d->k : d->many_k, HEED_F32, 4, shape),
                      v = heed_tensor_dense(massed ? d->v : d->many_v, HEED_F32, 4, shape),
                      out = heed_tensor_dense(o->out, HEED_F32, 4, wide);
    int32_t here = queries;
    heed_extra extra = {.seq = heed_tensor_dense(massed ? &d->seq : &d->many, HEED_I32, 1, (int64_t[]){1}),
                        .q_seq = heed_tensor_dense(&here, HEED_I32, 1, (int64_t[]){1}),
                        .q_pos = heed_tensor_dense(d->q_pos, HEED_I32, 1, (int64_t[]){queries}),
                        .k_pos = heed_tensor_dense(massed ? d->pos : d->many_pos, HEED_I32, 1, &keys),
                        .lse = heed_tensor_dense(o->lse, HEED_F32, 3, (int64_t[]){1, HEADS, queries}),
                        .capture = {.key_sums = o->sums}};
    if (massed)
        extra.mass = heed_tensor_dense(d->mass, HEED_F32, 2, (int64_t[]){1, KEYS});
    if (heed_attend(plan, &q, &k, &v, &out, &extra))
        fail_msg("%s: %s", spec, heed_message());
    heed_plan_info info;
    heed_plan_get_info(plan, &info);
    heed_plan_free(plan);
    return info.kernel;
}

static void near(const char *spec, const attend_way *way, const char *what, int i, double a, double b)
{
    if (!(fabs(a - b) <= 1e-5 * (1 + fabs(b))))
        fail_msg("%s, %s, kernel %s: %s %d is %.9g, with equal keys %.9g", spec, heed_isa_name(way->isa),
                 heed_kernel_name(way->kernel), what, i, a, b);
}

static void check(const char *spec, const attend_way *way, int queries, uint64_t seed)
{
    static data d;
    static outcome massed, many;
    make(&d, seed);
    const heed_kernel kernel = attend(&d, way, spec, queries, true, &massed);
    if (way->kernel != HEED_KERNEL_AUTO)
        assert_int_equal(kernel, way->kernel);
    attend(&d, way, spec, queries, false, &many);
    for (int i = 0; i < HEADS * queries * DIM; i++)
        near(spec, way, "output", i, massed.out[i], many.out[i]);
    for (int i = 0; i < HEADS * queries; i++)
        near(spec, way, "lse", i, massed.lse[i], many.lse[i]);
    for (int h = 0; h < HEADS; h++)
        for (int j = 0, n = 0; j < d.seq; j++) {
            double sum = 0;
            for (; n < d.many && d.from[n] == j; n++)
                sum += many.sums[h * ALL + n];
            near(spec, way, "sum of weights of key", j, massed.sums[h * KEYS + j], sum);
        }
}

static void a_mass_of_n_is_n_equal_keys(void **state)
{
    (void)state;
    static const char *const specs[] = {"where=causal",
                                        "position=alibi; where=causal & window(60)",
                                        "position=rope; where=causal; normalise=softcap(2)",
                                        "where=causal; normalise=sink",
                                        "position=t5; normalise=softmax1",
                                        "select=threshold(0.5)"};
    for (const heed_isa *isa = test_isas(); *isa; isa++)
        for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
            for (int queries = 1; queries <= MOST; queries += MOST - 1)
                check(specs[s], &(attend_way){.isa = *isa}, queries, s + 1);
}

static void in_every_kernel(void **state)
{
    (void)state;
    static const heed_kernel kernels[] = {HEED_KERNEL_FLASH, HEED_KERNEL_SPARSE, HEED_KERNEL_ROWS,
                                          HEED_KERNEL_DECODE};
    for (const heed_isa *isa = test_isas(); *isa; isa++)
        for (int k = 0; k < 4; k++)
            check("position=alibi; where=causal", &(attend_way){.isa = *isa, .kernel = kernels[k]}, 5, 9);
}

static heed_status try(const char *spec, unsigned with)
{
    const heed_problem problem = {
        .batch = 1, .heads = 1, .queries = 1, .keys = 4, .dim = 4, .with = with | HEED_WITH_MASS};
    heed_plan *plan = NULL;
    const heed_status status = heed_plan_create(&plan, spec, &problem);
    heed_plan_free(plan);
    return status;
}

static void what_a_mass_cannot_be_is_refused(void **state)
{
    (void)state;
    assert_int_equal(try("normalise=sigmoid", 0), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "normalise=sigmoid"));
    assert_int_equal(try("", HEED_WITH_BACKWARD), HEED_UNSUPPORTED);
    assert_non_null(strstr(heed_message(), "mass"));
    const heed_problem problem = {
        .batch = 1, .heads = 1, .queries = 1, .keys = 4, .dim = 4, .with = HEED_WITH_MASS};
    heed_plan *plan;
    assert_int_equal(heed_plan_create(&plan, "", &problem), HEED_OK);
    float x[16] = {0}, out[4], mass[4] = {1, 2, 0, 1};
    const heed_tensor q = heed_tensor_dense(x, HEED_F32, 4, (int64_t[]){1, 1, 1, 4}),
                      k = heed_tensor_dense(x, HEED_F32, 4, (int64_t[]){1, 1, 4, 4}),
                      o = heed_tensor_dense(out, HEED_F32, 4, (int64_t[]){1, 1, 1, 4});
    const heed_extra extra = {.mass = heed_tensor_dense(mass, HEED_F32, 2, (int64_t[]){1, 4})};
    assert_int_equal(heed_attend(plan, &q, &k, &k, &o, &extra), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "mass[2] is 0"));
    mass[2] = NAN;
    assert_int_equal(heed_attend(plan, &q, &k, &k, &o, &extra), HEED_INVALID);
    mass[2] = 3;
    assert_int_equal(heed_attend(plan, &q, &k, &k, &o, &extra), HEED_OK);
    heed_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mass_of_n_is_n_equal_keys),
        cmocka_unit_test(in_every_kernel),
        cmocka_unit_test(what_a_mass_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
