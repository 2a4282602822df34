/* Angles and distances far from 0, by numbers that are known. */
#include "support/attend.h"
#include "support/isas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))
#define LIMIT ((1 << 30) - 1) /* of positions */

static void finish(attend_data *d, attend_result *r)
{
    attend_result_free(r);
    attend_free(d);
}

/* q and k are the same unit vector, so that the score, which is the lse of a single key, is the cosine of one
 * angle. */
static double cosine_of(const char *spec, int64_t dim, int64_t entry, int32_t pos, heed_type type,
                        heed_isa isa)
{
    attend_data *d = attend_make(&(attend_case){.spec = spec,
                                                .queries = 1,
                                                .keys = 1,
                                                .dim = dim,
                                                .value_dim = 1,
                                                .q_type = type,
                                                .k_type = type,
                                                .way.isa = isa});
    memset(d->q, 0, (size_t)dim * sizeof *d->q);
    memset(d->k, 0, (size_t)dim * sizeof *d->k);
    d->q[entry] = d->k[entry] = 1;
    d->q_pos = calloc(1, sizeof *d->q_pos);
    d->k_pos = calloc(1, sizeof *d->k_pos);
    d->q_pos[0] = pos;
    attend_changed(d);
    attend_result *r = attend_run(d, &d->c.way);
    const double cosine = r->lse[0];
    finish(d, r);
    return cosine;
}

static void angles_are_exact_at_far_positions(void **state)
{
    (void)state;
    static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16};
    static const int32_t positions[] = {1857, 131071, 1048575, LIMIT, -LIMIT};
    for (size_t type = 0; type < COUNT(types); type++)
        for (const heed_isa *isa = test_isas(); *isa; isa++) {
            assert_float_equal(cosine_of("score=dot(1); position=rope", 32, 1, 1857, types[type], *isa),
                               0.30669, 1e-5);
            for (size_t p = 0; p < COUNT(positions); p++)
                for (int t = 0; t < 16; t++) {
                    const double angle = positions[p] * pow(10000, -2.0 * t / 32), expected = cos(angle);
                    const double half =
                        cosine_of("score=dot(1); position=rope", 32, t, positions[p], types[type], *isa);
                    const double adjacent = cosine_of("score=dot(1); position=rope(pairs=adjacent)", 32,
                                                      2 * t, positions[p], types[type], *isa);
                    if (fabs(half - expected) > 1e-5 || fabs(adjacent - expected) > 1e-5)
                        fail_msg("pair %d at %d: cosine %.9g and %.9g, not %.9g", t, positions[p], half,
                                 adjacent, expected);
                }
        }
}

/* Llama 3.1's frequencies: the fast pairs as they are, the slow ones an eighth, some between. */
static void llama3_scaling_by_its_numbers(void **state)
{
    (void)state;
    static const char scaled[] =
        "score=dot(1); position=rope(base=500000, dim=128, scaling=llama3(8, low=1, high=4, original=8192))";
    for (int t = 0; t < 64; t++) {
        const double f = pow(500000, -2.0 * t / 128);
        const double expected = t <= 28 ? f : t >= 35 ? f / 8 : t == 29 ? 0.0021666 : t == 34 ? 1.7851e-4 : 0;
        if (expected == 0)
            continue;
        const int32_t pos = (int32_t)(1 / expected); /* angles near 1 */
        const double got = cosine_of(scaled, 128, t, pos, HEED_F32, HEED_ISA_AUTO);
        if (fabs(got - cos(expected * pos)) >
            (t == 29 || t == 34 ? 5e-5 : 2e-6)) /* two are known to five digits */
            fail_msg("frequency %d: cosine at %d is %.8g, not %.8g", t, pos, got, cos(expected * pos));
    }
}

static void rope_sees_only_distances(void **state)
{
    (void)state;
    enum { N = 20, D = 16 };
    attend_data *d = attend_make(&(attend_case){.spec = "position=rope", .queries = N, .dim = D, .seed = 3});
    d->q_pos = calloc(N, sizeof *d->q_pos);
    d->k_pos = calloc(N, sizeof *d->k_pos);
    attend_result *r[3];
    for (int shift = 0; shift < 2; shift++) {
        for (int i = 0; i < N; i++)
            d->q_pos[i] = d->k_pos[i] = i + 100003 * shift;
        r[shift] = attend_run(d, &d->c.way);
    }
    for (int x = 0; x < N * D; x++)
        assert_float_equal(r[0]->out[x], r[1]->out[x], 2e-5);
    for (int i = 0; i < N; i++) /* everything in one place: no rotation between the two */
        d->q_pos[i] = d->k_pos[i] = 77;
    r[2] = attend_run(d, &d->c.way);
    d->c.spec = "";
    attend_result *plain = attend_run(d, &d->c.way);
    for (int x = 0; x < N * D; x++)
        assert_float_equal(r[2]->out[x], plain->out[x], 1e-5);
    for (int i = 0; i < 3; i++)
        attend_result_free(r[i]);
    finish(d, plain);
}

static void positions_at_their_limits(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "position=alibi",
        "position=t5",
        "position=shaw(max=4)",
        "position=kerple",
        "position=kerple(kind=power)",
        "position=fire",
        "position=rope",
        "position=sandwich",
        "where=causal",
        "where=window(2147483647)",
        "where=window(1000)",
        "where=strided(7)",
        "where=dilated(2000000000, 3)",
        "where=block(1000)",
        "where=block(2000000000)",
        "where=first(1)",
        "where=last(5)",
        "where=global(1)",
        "where=self",
        "where=neighbourhood(40000, 40000, 3)",
        "where=random(1, 1000000000, 2)",
        "position=cope(max=4); where=causal",
        "position=xpos; where=causal",
        "position=xpos(scale_base=16); where=causal",
    };
    enum { N = 6 };
    static const int32_t places[N] = {-LIMIT, -LIMIT + 1, -1, 0, LIMIT - 1, LIMIT};
    for (size_t i = 0; i < COUNT(specs); i++) {
        attend_data *d = attend_make(&(attend_case){
            .spec = specs[i], .heads = 2, .queries = N, .keys = N, .seed = i, .way.weights = true});
        d->q_pos = calloc(N, sizeof *d->q_pos);
        d->k_pos = calloc(N, sizeof *d->k_pos);
        memcpy(d->q_pos, places, sizeof places);
        memcpy(d->k_pos, places, sizeof places);
        attend_check_changed(d);
        attend_free(d);
    }
}

static void positions_beyond_the_limits_are_refused(void **state)
{
    (void)state;
    attend_data *d = attend_make(&(attend_case){.spec = "position=alibi", .queries = 2});
    d->q_pos = calloc(2, sizeof *d->q_pos);
    d->q_pos[1] = LIMIT + 1;
    attend_result *r = attend_try(d, &d->c.way);
    assert_int_equal(r->status, HEED_INVALID);
    finish(d, r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(angles_are_exact_at_far_positions),
        cmocka_unit_test(llama3_scaling_by_its_numbers),
        cmocka_unit_test(rope_sees_only_distances),
        cmocka_unit_test(positions_at_their_limits),
        cmocka_unit_test(positions_beyond_the_limits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
