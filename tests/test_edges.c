/* Where conventions and corners lie: closed rows, alignment, counting, empty problems, end points where one
 * form must equal another, what must not leak and what must not grow. */
#include "support/attend.h"
#include "support/isas.h"

#include <math.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const heed_kernel kernels[] = {HEED_KERNEL_FLASH, HEED_KERNEL_ROWS, HEED_KERNEL_SPARSE,
                                      HEED_KERNEL_DECODE};

static void finish(attend_data *d, attend_result *r)
{
    attend_result_free(r);
    attend_free(d);
}

/* ---- closed rows ---- */

static void a_closed_row_gives_nothing_and_disturbs_nobody(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{4, 1}, {130, 129}, {65, 64}, {64, 63}}; /* rows, the closed one */
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (size_t kernel = 0; kernel < COUNT(kernels); kernel++)
            for (const heed_isa *isa = test_isas(); *isa; isa++) {
                const int64_t n = sizes[s][0], closed = sizes[s][1];
                attend_data *d = attend_make(
                    &(attend_case){.spec = "where=mask",
                                   .queries = n,
                                   .dim = 2,
                                   .mask = MASK_NM,
                                   .seed = 1,
                                   .way = {.isa = *isa, .weights = true, .kernel = kernels[kernel]}});
                if (kernels[kernel] == HEED_KERNEL_DECODE && n > 4) {
                    attend_free(d);
                    continue;
                }
                memset(d->mask, 200, (size_t)(n * n)); /* any number but 0 is open */
                attend_result *open = attend_run(d, &d->c.way);
                memset(d->mask + closed * n, 0, (size_t)n);
                attend_result *r = attend_run(d, &d->c.way);
                for (int64_t i = 0; i < n; i++) {
                    if (i == closed)
                        assert_true(r->lse[i] == -INFINITY);
                    else
                        assert_float_equal(r->lse[i], open->lse[i], 1e-6);
                    for (int e = 0; e < 2; e++)
                        assert_float_equal(r->out[2 * i + e], i == closed ? 0 : open->out[2 * i + e],
                                           i == closed ? 0 : 1e-6);
                    for (int64_t j = 0; j < n; j++)
                        assert_float_equal(r->weights[i * n + j], i == closed ? 0 : open->weights[i * n + j],
                                           i == closed ? 0 : 1e-6);
                }
                attend_result_free(open);
                finish(d, r);
            }
}

static void a_closed_row_has_zero_gradients_and_leaves_the_others_alone(void **state)
{
    (void)state;
    static const char *const specs[] = {"where=mask",
                                        "where=mask; normalise=sparsemax",
                                        "where=mask; normalise=sigmoid",
                                        "where=mask; normalise=sink",
                                        "where=mask; normalise=entmax",
                                        "where=mask; normalise=softmax1",
                                        "where=mask; position=alibi; select=top_k(3)"};
    enum { N = 6, D = 4, ROW = 2 };
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int zero = 0; zero < 2; zero++) { /* the closed row's dout is 1 or 0: it must not matter */
            attend_data *d = attend_make(&(attend_case){
                .spec = specs[i], .queries = N, .dim = D, .mask = MASK_NM, .seed = i, .way.backward = true});
            for (int x = 0; x < N * D; x++)
                d->dout[x] = zero && x / D == ROW ? 0 : 1;
            for (int x = 0; x < N * N; x++)
                d->mask[x] = x / N != ROW;
            attend_changed(d);
            attend_expect(d);
            attend_result *r = attend_run(d, &d->c.way);
            attend_match(d, r);
            for (int x = 0; x < D; x++)
                assert_true(r->dq[ROW * D + x] == 0);
            for (int x = 0; x < N * D; x++)
                assert_true(isfinite(r->dq[x]) && isfinite(r->dk[x]) && isfinite(r->dv[x]));
            finish(d, r);
        }
}

/* ---- alignment and counting ---- */

static void the_last_query_is_aligned_with_the_last_key(void **state)
{
    (void)state;
    enum { M = 8, D = 8 };
    attend_data *all = attend_make(&(attend_case){.spec = "where=causal", .queries = M, .dim = D, .seed = 2});
    attend_result *whole = attend_run(all, &all->c.way);
    for (size_t kernel = 0; kernel < COUNT(kernels); kernel++)
        for (int64_t n = 1; n <= 3; n += 2) {
            attend_data *part = attend_slice(all, M - n, n, M);
            attend_result *r = attend_run(part, &(attend_way){.kernel = kernels[kernel], .weights = true});
            for (int64_t x = 0; x < n * D; x++)
                assert_float_equal(r->out[x], whole->out[(M - n) * D + x], 1e-6);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < M; j++)
                    assert_true((r->weights[i * M + j] > 0) == (j <= M - n + i));
            finish(part, r);
        }
    finish(all, whole);
}

static void a_window_counts_the_token_itself(void **state)
{
    (void)state;
    enum { N = 10 };
    attend_data *d = attend_make(
        &(attend_case){.spec = "where=causal & window(4)", .queries = N, .dim = 4, .way.weights = true});
    memset(d->q, 0, N * 4 * sizeof *d->q);
    memset(d->k, 0, N * 4 * sizeof *d->k);
    attend_changed(d);
    attend_result *r = attend_run(d, &d->c.way);
    for (int i = 0; i < N; i++) {
        const int seen = i + 1 < 4 ? i + 1 : 4;
        for (int j = 0; j < N; j++)
            assert_float_equal(r->weights[i * N + j], j <= i && j > i - 4 ? 1.0 / seen : 0,
                               j <= i && j > i - 4 ? 1e-6 : 0);
        attend_data *step = attend_slice(d, i, 1, i + 1);
        attend_result *one = attend_run(step, &(attend_way){.weights = true});
        for (int j = 0; j <= i; j++)
            assert_float_equal(one->weights[j], r->weights[i * N + j], 1e-6);
        finish(step, one);
    }
    finish(d, r);
}

static void a_sink_takes_its_share(void **state)
{
    (void)state;
    enum { M = 4 };
    for (size_t kernel = 0; kernel < COUNT(kernels); kernel++) {
        attend_data *d = attend_make(&(attend_case){.spec = "normalise=sink",
                                                    .queries = 1,
                                                    .keys = M,
                                                    .dim = 4,
                                                    .value_dim = 1,
                                                    .initial = true,
                                                    .way = {.weights = true, .kernel = kernels[kernel]}});
        memset(d->q, 0, 4 * sizeof *d->q);
        memset(d->k, 0, M * 4 * sizeof *d->k);
        for (int j = 0; j < M; j++)
            d->v[j] = 1;
        attend_changed(d);
        attend_result *r = attend_run(d, &d->c.way);
        assert_float_equal(r->out[0], 0.8, 1e-6);
        assert_float_equal(r->lse[0], log(4), 1e-6);
        for (int j = 0; j < M; j++)
            assert_float_equal(r->weights[j], 0.2, 1e-6);
        finish(d, r);
    }
}

/* ---- small and empty ---- */

static void one_of_everything(void **state)
{
    (void)state;
    static const char *const specs[] = {"",
                                        "where=causal",
                                        "score=cosine",
                                        "normalise=sparsemax",
                                        "normalise=sigmoid",
                                        "position=alibi",
                                        "score=additive",
                                        "heads=talking",
                                        "select=top_k(1)",
                                        "normalise=sink",
                                        "score=laplace"};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int64_t keys = 1; keys <= 5; keys += 4)
            for (const heed_isa *isa = test_isas(); *isa; isa++)
                attend_check(&(attend_case){
                    .spec = specs[i],
                    .queries = 1,
                    .keys = keys,
                    .dim = 1,
                    .seed = i,
                    .way = {.backward = true, .weights = true, .statistics = true, .top = 2, .isa = *isa}});
}

/* Sizes of 0, which the cases of the other tests cannot say. */
static void run_empty(int64_t batch, int64_t queries, int64_t keys, const char *spec)
{
    const heed_problem problem = {.batch = batch,
                                  .heads = 2,
                                  .queries = queries,
                                  .keys = keys,
                                  .dim = 4,
                                  .threads = 2,
                                  .with = HEED_WITH_BACKWARD};
    heed_plan *plan = NULL;
    if (heed_plan_create(&plan, spec, &problem) != HEED_OK)
        fail_msg("batch=%lld N=%lld M=%lld: %s", (long long)batch, (long long)queries, (long long)keys,
                 heed_message());
    float values[2][3 * 2 * 5 * 4], out[3 * 2 * 5 * 4], lse[3 * 2 * 5], dq[3 * 2 * 5 * 4], dk[3 * 2 * 5 * 4],
        dv[3 * 2 * 5 * 4];
    for (size_t x = 0; x < COUNT(values[0]); x++) {
        values[0][x] = values[1][x] = 0.5F;
        out[x] = dq[x] = dk[x] = dv[x] = NAN;
    }
    const int64_t rows[4] = {batch, 2, queries, 4}, columns[4] = {batch, 2, keys, 4};
    const heed_tensor q = heed_tensor_dense(values[0], HEED_F32, 4, rows),
                      k = heed_tensor_dense(values[1], HEED_F32, 4, columns);
    const heed_tensor o = heed_tensor_dense(out, HEED_F32, 4, rows);
    const heed_extra extra = {.lse = heed_tensor_dense(lse, HEED_F32, 3, rows)};
    assert_int_equal(heed_attend(plan, &q, &k, &k, &o, &extra), HEED_OK);
    heed_gradients g = {.q = q,
                        .k = k,
                        .v = k,
                        .dout = q,
                        .extra = &extra,
                        .dq = heed_tensor_dense(dq, HEED_F32, 4, rows),
                        .dk = heed_tensor_dense(dk, HEED_F32, 4, columns),
                        .dv = heed_tensor_dense(dv, HEED_F32, 4, columns)};
    assert_int_equal(heed_attend_backward(plan, &g), HEED_OK);
    for (int64_t x = 0; x < batch * 2 * queries * 4; x++)
        assert_true(out[x] == 0 && dq[x] == 0 && lse[x / 4] == -INFINITY);
    for (int64_t x = 0; x < batch * 2 * keys * 4; x++)
        assert_true(dk[x] == 0 && dv[x] == 0);
    heed_plan_free(plan);
}

static void empty_problems_give_empty_answers(void **state)
{
    (void)state;
    static const char *const specs[] = {"",
                                        "where=causal; position=rope",
                                        "normalise=sparsemax",
                                        "heads=talking",
                                        "where=random(1, 4, 1)",
                                        "where=last(2)",
                                        "select=top_k(2)",
                                        "select=moba(block=2, k=1)",
                                        "position=cope; where=causal"};
    for (size_t i = 0; i < COUNT(specs); i++) {
        run_empty(0, 3, 5, specs[i]);
        run_empty(2, 0, 5, specs[i]);
        run_empty(2, 3, 0, specs[i]);
        run_empty(0, 0, 0, specs[i]);
    }
}

/* ---- end points ---- */

static void specs_agree(const char *one, const char *other, const attend_case *base)
{
    attend_data *d[2];
    attend_result *r[2];
    for (int i = 0; i < 2; i++) {
        attend_case c = *base;
        c.spec = i ? other : one;
        c.initial = true;
        d[i] = attend_make(&c);
        attend_expect(d[i]);
        r[i] = attend_run(d[i], &d[i]->c.way);
    }
    d[0]->c.tolerance = 2e-6;
    attend_agree(d[0], r[0], r[1]);
    for (int i = 0; i < 2; i++)
        finish(d[i], r[i]);
}

static void forms_meet_at_their_end_points(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"where=causal & window(70)", "where=causal"},
        {"where=window(70)", ""},
        {"where=causal & segments", "where=causal"},
        {"where=segments", ""},
        {"select=top_p(1)", ""},
        {"select=top_k(70); where=causal", "where=causal"},
        {"select=threshold(0)", ""},
        {"select=quest(page=16, budget=80)", ""},
        {"select=moba(block=16, k=5); where=causal", "where=causal"},
        {"normalise=entmax(alpha=1)", ""},
        {"normalise=entmax(alpha=2)", "normalise=sparsemax"},
        {"normalise=softcap(100000); where=causal", "where=causal"},
        {"normalise=softmax(temperature=2)", "score=dot(0.125)"},
        {"score=bilinear", ""},
        {"position=t5", ""},
        {"position=shaw", ""},
        {"position=fire", ""},
        {"position=cope; where=causal", "where=causal"},
        {"heads=talking; where=causal", "where=causal"},
        {"where=block(1000)", ""},
        {"where=strided(1)", ""},
        {"where=dilated(70, 1)", ""},
        {"where=first(70)", ""},
        {"where=last(70)", ""},
        {"where=global(70)", ""},
        {"where=neighbourhood(10, 7, 20)", ""},
        {"where=random(1000, 4, 3)", ""},
        {"where=!none", ""},
        {"where=dilated(1, 1)", "where=self"},
        {"where=block(1)", "where=self"},
        {"where=neighbourhood(7, 10, 0)", "where=self"},
        {"where=dilated(5, 1)", "where=window(5)"},
        {"position=rope(scaling=linear(1))", "position=rope"},
        {"position=rope(scaling=ntk(1))", "position=rope"},
        {"position=rope(scaling=yarn(1, 4096))", "position=rope"},
        {"position=rope(scaling=llama3(1, 4096))", "position=rope"},
        {"position=alibi(slopes=published)", "position=alibi"},
        {"normalise=relu(power=1)", "normalise=relu"},
        {"normalise=softcap(3)", "normalise=softcap(3) > softmax"},
        {"score=dot(scale=0.25)", ""},
        {"where=causal(align=start)", "where=causal"},
    };
    for (size_t i = 0; i < COUNT(pairs); i++) {
        const attend_case base = {.heads = 2, .queries = 70, .dim = 16, .seed = i};
        attend_case with_segments = base;
        with_segments.segments = strstr(pairs[i][0], "segments") ? 1 : 0;
        if (!with_segments.segments) {
            specs_agree(pairs[i][0], pairs[i][1], &base);
            continue;
        }
        attend_data *d = attend_make(&(attend_case){
            .spec = pairs[i][0], .heads = 2, .queries = 70, .dim = 16, .segments = 1, .seed = i});
        memset(d->q_segment, 0, 70 * sizeof *d->q_segment); /* one segment */
        memset(d->k_segment, 0, 70 * sizeof *d->k_segment);
        attend_changed(d);
        attend_expect(d);
        attend_result *one = attend_run(d, &d->c.way);
        d->c.spec = pairs[i][1];
        attend_result *none = attend_run(d, &d->c.way);
        d->c.tolerance = 2e-6;
        attend_agree(d, one, none);
        attend_result_free(none);
        finish(d, one);
    }
}

static void a_sink_of_minus_infinity_is_softmax(void **state)
{
    (void)state;
    attend_data *d =
        attend_make(&(attend_case){.spec = "normalise=sink; where=causal", .queries = 70, .seed = 4});
    oracle_find_param(d->o, "normalise.sink.sink")->value[0] = -INFINITY;
    attend_expect(d);
    attend_result *sink = attend_run(d, &d->c.way);
    attend_data *plain = attend_make(&(attend_case){.spec = "where=causal", .queries = 70, .seed = 4});
    attend_result *softmax = attend_run(plain, &plain->c.way);
    d->c.tolerance = 1e-6;
    attend_agree(d, sink, softmax);
    finish(d, sink);
    finish(plain, softmax);
}

/* ---- what must not leak, and what must not grow ---- */

static void another_document_in_the_pack_changes_no_bit(void **state)
{
    (void)state;
    static const char *const specs[] = {"where=causal & segments",
                                        "where=causal & segments & window(9); position=alibi",
                                        "where=segments; position=rope; normalise=sparsemax"};
    enum { N = 80, FIRST = 37, D = 8 };
    for (size_t i = 0; i < COUNT(specs); i++) {
        attend_data *d =
            attend_make(&(attend_case){.spec = specs[i], .queries = N, .dim = D, .segments = 1, .seed = i});
        for (int n = 0; n < N; n++)
            d->q_segment[n] = d->k_segment[n] = n < FIRST ? 5 : -3;
        attend_changed(d);
        attend_result *before = attend_run(d, &d->c.way);
        for (int x = 0; x < FIRST * D; x++)
            d->q[x] = d->k[x] = d->v[x] = (float)(x % 7) * 100;
        attend_changed(d);
        attend_result *after = attend_run(d, &d->c.way);
        assert_memory_equal(before->out + FIRST * D, after->out + FIRST * D, (N - FIRST) * D * sizeof(float));
        attend_result_free(before);
        finish(d, after);
    }
}

static void ragged_batches_equal_their_sequences_alone(void **state)
{
    (void)state;
    static const int32_t lengths[3] = {3, 17, 40};
    enum { N = 40, D = 16 };
    attend_data *all = attend_make(&(attend_case){.spec = "position=rope; where=causal",
                                                  .batch = 3,
                                                  .queries = N,
                                                  .dim = D,
                                                  .ragged = RAGGED_SEQ,
                                                  .seed = 3});
    memcpy(all->seq, lengths, sizeof lengths);
    for (int b = 0; b < 3; b++)
        for (int x = lengths[b] * D; x < N * D; x++)
            all->q[b * N * D + x] = all->k[b * N * D + x] = all->v[b * N * D + x] = NAN;
    attend_changed(all);
    attend_result *together = attend_run(all, &all->c.way);
    for (int b = 0; b < 3; b++) {
        attend_data *one = attend_make(&(attend_case){.spec = all->c.spec, .queries = lengths[b], .dim = D});
        memcpy(one->q, all->q + b * N * D, (size_t)(lengths[b] * D) * sizeof *one->q);
        memcpy(one->k, all->k + b * N * D, (size_t)(lengths[b] * D) * sizeof *one->k);
        memcpy(one->v, all->v + b * N * D, (size_t)(lengths[b] * D) * sizeof *one->v);
        attend_changed(one);
        attend_result *alone = attend_run(one, &one->c.way);
        for (int x = 0; x < N * D; x++)
            assert_float_equal(together->out[b * N * D + x], x < lengths[b] * D ? alone->out[x] : 0,
                               x < lengths[b] * D ? 1e-6 : 0);
        finish(one, alone);
    }
    finish(all, together);
}

static void biases_of_hundreds_stay_finite(void **state)
{
    (void)state;
    static const heed_type types[] = {HEED_F32, HEED_BF16};
    static const int64_t lengths[] = {1, 2, 63, 65, 127, 129, 257};
    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t n = 0; n < COUNT(lengths); n++) {
            attend_data *d =
                attend_make(&(attend_case){.spec = "position=t5; where=causal",
                                           .queries = lengths[n],
                                           .dim = 64,
                                           .value_dim = 8,
                                           .q_type = types[t],
                                           .k_type = types[t],
                                           .v_type = types[t],
                                           .tolerance = 4e-5, /* logits of 256 carry 1.5e-5 of rounding */
                                           .seed = n,
                                           .way.backward = true});
            oracle_param *b = oracle_find_param(d->o, "position.t5.b");
            for (int i = 0; i < 32; i++)
                b->value[i] = 8 * (i + 1); /* grows with the distance */
            attend_check_changed(d);
            attend_free(d);
        }
}

static void lengths_around_a_tile_have_right_gradients(void **state)
{
    (void)state;
    static const char *const specs[] = {"position=alibi; where=causal",
                                        "where=causal & (window(4) | first(1))"};
    static const int64_t lengths[] = {1, 2, 63, 65, 127, 129, 257};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t n = 0; n < COUNT(lengths); n++)
            for (int half = 0; half < 2; half++) {
                const heed_type type = half ? HEED_BF16 : HEED_F32;
                attend_check(&(attend_case){.spec = specs[i],
                                            .queries = lengths[n],
                                            .dim = 64,
                                            .q_type = type,
                                            .k_type = type,
                                            .v_type = type,
                                            .seed = n,
                                            .way.backward = true});
            }
}

static size_t scratch_of(const char *spec, int64_t n, unsigned with)
{
    const heed_problem problem = {
        .batch = 1, .heads = 3, .queries = n, .keys = n, .dim = 32, .threads = 2, .with = with};
    heed_plan *plan;
    assert_int_equal(heed_plan_create(&plan, spec, &problem), HEED_OK);
    const size_t bytes = heed_plan_scratch(plan);
    heed_plan_free(plan);
    return bytes;
}

static void memory_does_not_grow_with_the_square(void **state)
{
    (void)state;
    static const char *const specs[] = {"where=causal & window(6)", "where=causal; position=t5",
                                        "where=causal; normalise=sink",
                                        "position=alibi; normalise=softcap(20)"};
    for (size_t i = 0; i < COUNT(specs); i++) {
        assert_in_range(scratch_of(specs[i], 25000, 0), 1, 64 << 20);
        assert_in_range(scratch_of(specs[i], 96000, 0), 1, 64 << 20);
        const size_t small = scratch_of(specs[i], 4096, HEED_WITH_BACKWARD),
                     large = scratch_of(specs[i], 16384, HEED_WITH_BACKWARD);
        assert_in_range(small, 1, 48 << 20); /* the square would be 67 MB a head */
        assert_in_range(large, 1, 5 * small);
    }
}

static void a_long_sequence_in_a_narrow_window(void **state)
{
    (void)state;
    enum { N = 20000 };
    attend_data *all =
        attend_make(&(attend_case){.spec = "where=causal & window(6)", .queries = N, .dim = 8, .seed = 7});
    attend_result *r = attend_run(all, &(attend_way){.threads = 2});
    static const int64_t places[] = {0, 63, 127, 9999, N - 9};
    for (size_t i = 0; i < COUNT(places); i++) {
        const int64_t from = places[i], rows = 9;
        attend_data *part = attend_slice(all, from, rows, from + rows);
        attend_expect(part);
        for (int64_t x = 0; x < rows * 8; x++)
            assert_float_equal(r->out[from * 8 + x], part->o->out[x], 1e-5);
        attend_free(part);
    }
    finish(all, r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_closed_row_gives_nothing_and_disturbs_nobody),
        cmocka_unit_test(a_closed_row_has_zero_gradients_and_leaves_the_others_alone),
        cmocka_unit_test(the_last_query_is_aligned_with_the_last_key),
        cmocka_unit_test(a_window_counts_the_token_itself),
        cmocka_unit_test(a_sink_takes_its_share),
        cmocka_unit_test(one_of_everything),
        cmocka_unit_test(empty_problems_give_empty_answers),
        cmocka_unit_test(forms_meet_at_their_end_points),
        cmocka_unit_test(a_sink_of_minus_infinity_is_softmax),
        cmocka_unit_test(another_document_in_the_pack_changes_no_bit),
        cmocka_unit_test(ragged_batches_equal_their_sequences_alone),
        cmocka_unit_test(biases_of_hundreds_stay_finite),
        cmocka_unit_test(lengths_around_a_tile_have_right_gradients),
        cmocka_unit_test(memory_does_not_grow_with_the_square),
        cmocka_unit_test(a_long_sequence_in_a_narrow_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
