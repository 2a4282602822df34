/* Gradients of q, k, v and every parameter against the oracle's, whose own are checked by differences and by
 * autograd. */
#include "support/attend.h"

#include <math.h>
#include <stdlib.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const cheap[] = {
    "",
    "where=causal",
    "score=dot(0.3); where=causal & window(20)",
    "score=cosine",
    "score=cosine(scale=3, eps=2)",
    "score=gaussian; where=causal",
    "score=bilinear",
    "position=rope; where=causal",
    "position=rope(pairs=adjacent, dim=2)",
    "position=rope(scaling=yarn(4, 64)); score=bilinear",
    "position=rope; score=cosine",
    "position=rope; score=gaussian",
    "position=xpos(scale_base=64); where=causal",
    "position=alibi; where=causal",
    "position=t5",
    "position=t5(buckets=8, max=20); where=causal",
    "position=shaw(max=3)",
    "position=shaw + rope; where=causal",
    "position=skew(max=6); where=causal",
    "position=shaw(max=9); score=cosine",
    "position=kerple",
    "position=kerple(kind=power); where=causal",
    "position=sandwich; where=causal & (window(4) | first(1))",
    "where=random(2, 16, 3) | self",
    "where=block(16)",
    "where=causal & pr_blocks(0.5, 0.1, 2, 8); position=pr_blocks(0.5, 0.1, 2, 8)",
    "select=top_k(5)",
    "select=top_p(0.8); where=causal",
    "select=threshold(0.1) > top_k(9)",
    "normalise=softmax(temperature=0.5)",
    "normalise=softmax1",
    "normalise=sink; where=causal",
    "normalise=sigmoid; where=causal",
    "normalise=relu(power=2)",
    "normalise=relu",
    "normalise=head_scale; where=causal",
    "normalise=head_scale(0.1) > sink",
    "score=coca; where=causal",
    "position=self_extend(group=3, window=7); where=causal",
    "normalise=softcap(1)",
    "normalise=softcap(2) > sink",
    "normalise=softcap(2) > sigmoid; position=rope",
    "read=gate; where=causal",
};

static const char *const costly[] = {
    "score=laplace",
    "normalise=entmax_learnt",
    "normalise=entmax_learnt; where=causal",
    "score=laplace(sigma=2); position=rope; where=causal",
    "score=additive(dim=5)",
    "score=additive(dim=5); position=rope",
    "score=mlp(dim=5); where=causal",
    "position=fire; where=causal",
    "position=fire",
    "position=cope(max=6); where=causal",
    "position=cope(max=5) + rope",
    "position=cope(max=4) + shaw(max=2); score=additive(dim=3); where=causal",
    "normalise=sparsemax; where=causal",
    "normalise=entmax",
    "normalise=entmax(alpha=1.2); where=causal",
    "normalise=softcap(2) > sparsemax",
    "heads=talking; where=causal",
    "heads=talking; normalise=sink; position=t5; where=causal",
    "heads=talking; normalise=sparsemax; position=kerple",
    "heads=talking; read=gate; normalise=softcap(2); select=top_k(7)",
    "heads=talking; position=cope(max=5); where=causal",
};

static void gradients_equal_the_oracle(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cheap); i++)
        attend_sweep(&(attend_case){.spec = cheap[i],
                                    .seed = 20 * i + 1,
                                    .way = {.backward = true, .row_state = i % 2}},
                     1200000);
}

static void gradients_of_costly_forms_equal_the_oracle(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(costly); i++)
        attend_sweep(&(attend_case){.spec = costly[i],
                                    .seed = 20 * i + 2,
                                    .way = {.backward = true, .row_state = i % 2}},
                     300000);
}

/* Weights that are products of two functions pass rounding on otherwise than exponentials do. */
static void gradients_of_weights_below_0(void **state)
{
    (void)state;
    static const char *const specs[] = {"score=comate; normalise=plain",
                                        "score=comate(a=2, b=0.5); normalise=plain; where=causal",
                                        "normalise=plain; where=causal & window(9)"};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int64_t queries = 1; queries <= 70; queries += 23)
            attend_check(&(attend_case){.spec = specs[i],
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .queries = queries,
                                        .keys = queries + 5,
                                        .dim = 12,
                                        .tolerance = 5e-5,
                                        .seed = i + (uint64_t)queries,
                                        .way.backward = true});
}

/* Above alpha = 2 the slope at the border of the support is without bound, so the data must keep well away
 * from it. */
static void gradients_of_a_steep_entmax(void **state)
{
    (void)state;
    for (int64_t queries = 2; queries <= 6; queries++)
        attend_check(&(attend_case){.spec = "normalise=entmax(alpha=2.5)",
                                    .heads = 2,
                                    .queries = queries,
                                    .keys = 7,
                                    .away = 5e-3,
                                    .tolerance = 5e-5,
                                    .seed = (uint64_t)queries,
                                    .way.backward = true});
}

static void gradients_with_lengths_positions_masks_and_segments(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "where=mask",
        "where=mask & causal & segments; position=rope",
        "where=mask; normalise=sparsemax",
        "where=mask; normalise=sigmoid",
        "where=mask; normalise=sink; position=alibi",
        "where=mask; heads=talking",
        "where=mask; position=cope(max=5)",
        "where=mask; normalise=relu(power=2); position=t5",
        "where=segments; position=shaw(max=4) + kerple; read=gate",
        "where=mask; score=additive(dim=3); position=fire",
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int ragged = RAGGED_NOT; ragged <= RAGGED_Q_SEQ; ragged++)
            attend_check(&(attend_case){.spec = specs[i],
                                        .batch = 3,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .queries = 34,
                                        .keys = 41,
                                        .mask = MASK_BHNM,
                                        .segments = 2,
                                        .ragged = (attend_ragged)ragged,
                                        .seed = i,
                                        .positions = (attend_positions)ragged,
                                        .way.backward = true});
}

static void gates_of_every_shape_have_gradients(void **state)
{
    (void)state;
    for (unsigned ones = 0; ones < 16; ones++)
        attend_check(&(attend_case){.spec = "read=gate; where=causal",
                                    .batch = 2,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .queries = 33,
                                    .value_dim = 5,
                                    .gate_ones = ones,
                                    .seed = ones,
                                    .way.backward = true});
}

static void parameters_at_their_initial_values_have_gradients(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "position=t5",    "position=shaw(max=4)", "position=kerple",
        "position=fire",  "score=bilinear",       "position=cope(max=5); where=causal",
        "normalise=sink", "heads=talking",        "score=additive(dim=4)"};
    for (size_t i = 0; i < COUNT(specs); i++)
        attend_check(&(attend_case){.spec = specs[i],
                                    .heads = 2,
                                    .queries = 20,
                                    .keys = 23,
                                    .initial = true,
                                    .seed = i,
                                    .away = -1, /* fire starts on a kink, whose unit has no weight yet */
                                    .way.backward = true});
}

/* q = k = 0, four keys of value 1: each weighs 0.2 and so does the sink; d sink = -p_sink (dout . out) =
 * -0.16 a row. */
static void the_gradient_of_a_sink_worked_out_by_hand(void **state)
{
    (void)state;
    attend_data *d = attend_make(&(attend_case){.spec = "normalise=sink",
                                                .queries = 4,
                                                .dim = 2,
                                                .value_dim = 1,
                                                .initial = true,
                                                .way = {.backward = true}});
    for (int i = 0; i < 8; i++)
        d->q[i] = d->k[i] = 0;
    for (int i = 0; i < 4; i++)
        d->v[i] = d->dout[i] = 1;
    attend_changed(d);
    attend_result *r = attend_run(d, &d->c.way);
    for (int i = 0; i < 4; i++) {
        assert_float_equal(r->out[i], 0.8, 1e-6);
        assert_float_equal(r->lse[i], log(4), 1e-6); /* without the sink */
        assert_float_equal(r->dv[i], 0.8, 1e-6);
    }
    assert_float_equal(r->dparam[0][0], 4 * -0.16, 1e-6);
    attend_result_free(r);
    attend_free(d);
}

/* dq, dk and dv alone, and none of the parameters', when the rest is not asked for. */
static void gradients_that_are_not_asked_for_are_not_needed(void **state)
{
    (void)state;
    enum { N = 40, D = 8 };
    attend_data *d = attend_make(&(attend_case){.spec = "score=bilinear; position=t5; where=causal",
                                                .queries = N,
                                                .dim = D,
                                                .seed = 5,
                                                .way = {.backward = true}});
    attend_result *whole = attend_run(d, &d->c.way);
    const float *const expected[3] = {whole->dq, whole->dk, whole->dv};
    const heed_problem problem = {
        .batch = 1, .heads = 1, .queries = N, .keys = N, .dim = D, .threads = 1, .with = HEED_WITH_BACKWARD};
    heed_plan *plan;
    assert_int_equal(heed_plan_create(&plan, d->c.spec, &problem), HEED_OK);
    const int64_t shape[4] = {1, 1, N, D};
    float *param[2];
    heed_tensor params[2];
    for (int i = 0; i < 2; i++) {
        heed_plan_param_info info;
        assert_int_equal(heed_plan_param(plan, i, &info), HEED_OK);
        const oracle_param *p = oracle_find_param(d->o, info.name);
        param[i] = malloc((size_t)p->count * sizeof(float));
        for (int64_t x = 0; x < p->count; x++)
            param[i][x] = (float)p->value[x];
        params[i] = heed_tensor_dense(param[i], HEED_F32, p->rank, p->shape);
    }
    const heed_extra extra = {.params = params};
    for (int wanted = 0; wanted < 3; wanted++) {
        float got[N * D];
        heed_gradients g = {.q = heed_tensor_dense(d->q, HEED_F32, 4, shape),
                            .k = heed_tensor_dense(d->k, HEED_F32, 4, shape),
                            .v = heed_tensor_dense(d->v, HEED_F32, 4, shape),
                            .dout = heed_tensor_dense(d->dout, HEED_F32, 4, shape),
                            .extra = &extra};
        *(wanted == 0 ? &g.dq : wanted == 1 ? &g.dk : &g.dv) = heed_tensor_dense(got, HEED_F32, 4, shape);
        assert_int_equal(heed_attend_backward(plan, &g), HEED_OK);
        for (int i = 0; i < N * D; i++)
            assert_true(got[i] == expected[wanted][i]);
    }
    heed_plan_free(plan);
    free(param[0]);
    free(param[1]);
    attend_result_free(whole);
    attend_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_the_oracle),
        cmocka_unit_test(gradients_of_costly_forms_equal_the_oracle),
        cmocka_unit_test(gradients_of_a_steep_entmax),
        cmocka_unit_test(gradients_of_weights_below_0),
        cmocka_unit_test(gradients_with_lengths_positions_masks_and_segments),
        cmocka_unit_test(gates_of_every_shape_have_gradients),
        cmocka_unit_test(parameters_at_their_initial_values_have_gradients),
        cmocka_unit_test(the_gradient_of_a_sink_worked_out_by_hand),
        cmocka_unit_test(gradients_that_are_not_asked_for_are_not_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
