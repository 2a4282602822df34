/* One spec means the same by every route: instruction set, kernel, threads, decoding, pages, memory layout,
 * who owns the scratch. */
#include "support/attend.h"
#include "support/isas.h"

#include <math.h>
#include <stdlib.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* One of each kind of hook. */
static const char *const specs[] = {
    "",
    "where=causal",
    "position=rope; where=causal & (window(20) | first(2))",
    "position=alibi + t5; where=causal",
    "position=shaw(max=4) + kerple; score=cosine",
    "position=fire",
    "position=cope(max=6); where=causal",
    "position=xpos; where=causal",
    "score=bilinear; normalise=sink",
    "score=additive(dim=3); normalise=softmax1",
    "score=mlp(dim=3); where=strided(3) | self",
    "score=gaussian; normalise=sigmoid; where=causal",
    "score=laplace; normalise=relu(power=2)",
    "normalise=softcap(2) > sparsemax; where=causal",
    "normalise=entmax(alpha=1.3)",
    "select=top_k(9); where=causal",
    "select=top_p(0.8) > threshold(0.05); position=sandwich",
    "select=moba(block=16, k=2); where=causal",
    "heads=talking; where=causal",
    "read=gate; where=random(2, 16, 3) | global(1); normalise=softcap(3)",
};

static void every_instruction_set_equals_the_oracle(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(specs); i++)
        for (const heed_isa *isa = test_isas(); *isa; isa++) {
            attend_check(&(attend_case){.spec = specs[i],
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .queries = 65,
                                        .keys = 70,
                                        .dim = 34,
                                        .value_dim = 17,
                                        .seed = i,
                                        .way = {.isa = *isa, .backward = true}});
            attend_check(&(attend_case){.spec = specs[i],
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .queries = 1,
                                        .keys = 140,
                                        .dim = 64,
                                        .value_dim = 48,
                                        .seed = i,
                                        .way.isa = *isa});
        }
}

static void the_wanted_instruction_set_is_used(void **state)
{
    (void)state;
    for (const heed_isa *isa = test_isas(); *isa; isa++) {
        attend_data *d = attend_make(&(attend_case){.spec = "", .queries = 4, .way.isa = *isa});
        attend_result *r = attend_run(d, &d->c.way);
        assert_int_equal(r->info.isa, *isa);
        attend_result_free(r);
        attend_free(d);
    }
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const attend_case sizes[] = {
        {.batch = 2, .heads = 4, .kv_heads = 2, .queries = 70, .keys = 131, .dim = 16},
        {.heads = 2, .queries = 257, .dim = 8},
        {.batch = 1, .heads = 4, .kv_heads = 1, .queries = 1, .keys = 300, .dim = 32},
        {.batch = 3, .heads = 1, .queries = 5, .keys = 257, .dim = 6, .ragged = RAGGED_SEQ},
        {.heads = 2, .kv_heads = 1, .queries = 2, .keys = 2100, .dim = 4},
    };
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            attend_case c = sizes[s];
            c.spec = specs[i];
            c.seed = i;
            c.way = (attend_way){
                .threads = 1, .backward = true, .weights = true, .statistics = s % 2, .top = s % 2 ? 3 : 0};
            attend_data *d = attend_make(&c);
            attend_result *one = attend_run(d, &d->c.way);
            for (int threads = 2; threads <= 5; threads += threads == 3 ? 2 : 1) {
                attend_way way = c.way;
                way.threads = threads;
                attend_result *more = attend_run(d, &way);
                attend_same_bits(d, one, more);
                attend_result_free(more);
            }
            attend_result_free(one);
            attend_free(d);
        }
}

static void every_kernel_that_may_run_equals_the_oracle(void **state)
{
    (void)state;
    int decoded = 0, flashed = 0;
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int64_t queries = 1; queries <= 66; queries += 65) {
            attend_data *d = attend_prepare(&(attend_case){.spec = specs[i],
                                                           .heads = 4,
                                                           .kv_heads = 2,
                                                           .queries = queries,
                                                           .keys = 140,
                                                           .dim = 20,
                                                           .value_dim = 9,
                                                           .seed = i});
            for (int kernel = HEED_KERNEL_FLASH; kernel <= HEED_KERNEL_DECODE; kernel++) {
                d->c.way = (attend_way){.kernel = (heed_kernel)kernel, .weights = true};
                attend_result *r = attend_try(d, &d->c.way);
                if (r->status ==
                    HEED_UNSUPPORTED) { /* refused when it cannot run the spec; rows always can */
                    assert_int_not_equal(kernel, HEED_KERNEL_ROWS);
                } else {
                    assert_int_equal(r->status, HEED_OK);
                    assert_int_equal(r->info.kernel, kernel);
                    attend_match(d, r);
                    decoded += kernel == HEED_KERNEL_DECODE;
                    flashed += kernel == HEED_KERNEL_FLASH;
                }
                attend_result_free(r);
            }
            attend_free(d);
        }
    assert_true(decoded >= 8);
    assert_true(flashed >= 20);
}

/* Longer than a piece of a cache, a tile of rows, or a run of queries. */
static void long_sequences_equal_the_oracle(void **state)
{
    (void)state;
    static const char *const some[] = {
        "where=causal",
        "position=rope; where=causal & (window(1500) | first(4)); normalise=sink",
        "normalise=softcap(3) > softmax1; position=alibi",
        "select=top_k(40); where=causal",
        "normalise=sparsemax",
        "where=random(3, 128, 5) | block(200)",
        "normalise=sigmoid; where=strided(11)",
    };
    static const int64_t sizes[][2] = {{1, 1023}, {1, 1025}, {3, 2049},
                                       {8, 3100}, {9, 1500}, {193, 1030}}; /* queries, keys */
    static const heed_type types[] = {HEED_F32, HEED_BF16, HEED_Q8, HEED_Q4, HEED_F16};
    for (size_t i = 0; i < COUNT(some); i++)
        for (size_t n = 0; n < COUNT(sizes); n++) {
            const heed_type type = types[(i + n) % COUNT(types)];
            attend_check(&(attend_case){.spec = some[i],
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .queries = sizes[n][0],
                                        .keys = sizes[n][1],
                                        .dim = 12,
                                        .value_dim = 10,
                                        .q_type = type == HEED_BF16 ? type : HEED_F32,
                                        .k_type = type,
                                        .v_type = type,
                                        .seed = n,
                                        .way = {.weights = true,
                                                .statistics = true,
                                                .top = 3,
                                                .threads = 1 + (int)n % 3,
                                                .page = n % 2 ? 64 : 0}});
        }
}

/* The specs whose rows do not depend on how many keys come later. */
static const char *const decodable[] = {
    "where=causal",
    "position=rope; where=causal & window(9)",
    "position=rope(scaling=llama3(4, 32)) + alibi; where=causal",
    "position=t5; where=causal & (window(12) | first(2))",
    "position=xpos; where=causal",
    "position=cope(max=6); where=causal",
    "position=fire + shaw(max=3); where=causal",
    "position=kerple; where=causal; normalise=sink",
    "normalise=softmax1; where=causal",
    "normalise=sparsemax; where=causal",
    "select=top_k(5); where=causal",
    "select=top_p(0.7); where=causal & block(16)",
    "score=cosine; normalise=softcap(2); where=causal",
    "score=additive(dim=4); where=causal",
    "heads=talking; where=causal",
    "normalise=sigmoid(bias=-2); where=causal",
    "normalise=relu; where=causal & dilated(4, 3)",
};

static void token_by_token_equals_all_at_once(void **state)
{
    (void)state;
    enum { M = 45, E = 8 };
    for (size_t i = 0; i < COUNT(decodable); i++) {
        attend_data *all = attend_prepare(&(attend_case){.spec = decodable[i],
                                                         .heads = 4,
                                                         .kv_heads = 2,
                                                         .queries = M,
                                                         .dim = 16,
                                                         .value_dim = E,
                                                         .seed = i});
        attend_result *prefill = attend_run(all, &all->c.way);
        attend_match(all, prefill);
        for (int64_t t = 1; t <= M; t += t < 20 ? 1 : 5)
            for (int64_t queries = 1; queries <= 3 && queries <= t;
                 queries += 2) { /* one token, or a chunk of three */
                attend_data *part = attend_slice(all, t - queries, queries, t);
                attend_result *step = attend_run(part, &part->c.way);
                for (int64_t h = 0; h < 4; h++)
                    for (int64_t n = 0; n < queries; n++)
                        for (int64_t e = 0; e < E; e++) {
                            const int64_t row = h * M + t - queries + n;
                            const double got = step->out[(h * queries + n) * E + e],
                                         expected = prefill->out[row * E + e];
                            if (fabs(got - expected) > 2e-6 * fmax(1, all->o->out_magnitude[row * E + e]))
                                fail_msg("%s: row %lld of head %lld is %.9g in a step of %lld, %.9g at once",
                                         decodable[i], (long long)(t - queries + n), (long long)h, got,
                                         (long long)queries, expected);
                        }
                attend_result_free(step);
                attend_free(part);
            }
        attend_result_free(prefill);
        attend_free(all);
    }
}

static void pages_equal_the_oracle_and_contiguous_keys(void **state)
{
    (void)state;
    static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16, HEED_Q8, HEED_Q4};
    static const int64_t pages[] = {1, 2, 16, 64, 128, 256};
    static const char *const some[] = {"where=causal",
                                       "position=rope; where=causal & window(40)",
                                       "score=additive(dim=3)",
                                       "select=top_k(7)",
                                       "normalise=sparsemax; where=causal",
                                       "heads=talking",
                                       "select=quest(page=16, budget=32)"};
    for (size_t i = 0; i < COUNT(some); i++)
        for (size_t p = 0; p < COUNT(pages); p++)
            for (int64_t queries = 1; queries <= 34; queries += 33) {
                const heed_type type = types[(i + p) % COUNT(types)];
                attend_case c = {.spec = some[i],
                                 .batch = 3,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .queries = queries,
                                 .keys = 150,
                                 .dim = 40,
                                 .value_dim = 24,
                                 .k_type = type,
                                 .v_type = type,
                                 .seed = i,
                                 .ragged = p % 2 ? RAGGED_Q_SEQ : RAGGED_NOT,
                                 .way.page = pages[p]};
                attend_data *d = attend_prepare(&c);
                attend_result *paged = attend_run(d, &d->c.way);
                attend_result *plain = attend_run(d, &(attend_way){0});
                attend_match(d, paged);
                attend_agree(d, paged, plain);
                attend_result_free(paged);
                attend_result_free(plain);
                attend_free(d);
            }
}

static void strides_do_not_matter(void **state)
{
    (void)state;
    static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16, HEED_Q8};
    for (int layout = LAYOUT_HEADS_INSIDE; layout <= LAYOUT_TRANSPOSED; layout++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (int64_t queries = 1; queries <= 70; queries += 69) {
                attend_case c = {.spec = "position=rope; where=causal",
                                 .batch = 2,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .queries = queries,
                                 .keys = 71,
                                 .dim = 34,
                                 .value_dim = 19,
                                 .q_type = types[t] == HEED_Q8 ? HEED_F32 : types[t],
                                 .k_type = types[t],
                                 .v_type = types[t],
                                 .seed = t,
                                 .way = {.layout = (attend_layout)layout, .backward = types[t] != HEED_Q8}};
                attend_data *d = attend_prepare(&c);
                attend_result *r = attend_run(d, &d->c.way),
                              *dense = attend_run(d, &(attend_way){.backward = c.way.backward});
                attend_match(d, r);
                attend_same_bits(d, r, dense);
                attend_result_free(r);
                attend_result_free(dense);
                attend_free(d);
            }
}

static void the_callers_scratch_is_enough(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(specs); i++) {
        attend_case c = {
            .spec = specs[i],
            .batch = 2,
            .heads = 4,
            .kv_heads = 2,
            .queries = 67,
            .keys = 130,
            .seed = i,
            .way = {.threads = 2, .own_scratch = true, .backward = true, .statistics = true, .top = 4}};
        attend_data *d = attend_make(&c);
        attend_way plain = c.way;
        plain.own_scratch = false;
        attend_result *r = attend_run(d, &c.way), *expected = attend_run(d, &plain);
        attend_same_bits(d, r, expected);
        attend_result_free(r);
        attend_result_free(expected);
        attend_free(d);
    }
}

/* What a row gives must not depend on its neighbours in the batch. */
static void a_batch_entry_alone_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i + 1 < COUNT(specs); i++) { /* the gate's shape follows the batch */
        attend_data *both =
            attend_make(&(attend_case){.spec = specs[i], .batch = 3, .heads = 2, .queries = 50, .seed = i});
        attend_data *one =
            attend_make(&(attend_case){.spec = specs[i], .batch = 1, .heads = 2, .queries = 50, .seed = i});
        const int64_t entry = 2 * 50 * 8; /* of q, k, v: heads, rows, dim */
        for (int64_t x = 0; x < entry; x++) {
            one->q[x] = both->q[2 * entry + x];
            one->k[x] = both->k[2 * entry + x];
            one->v[x] = both->v[2 * entry + x];
        }
        attend_changed(one);
        for (int p = 0; p < one->o->params; p++)
            for (int64_t x = 0; x < one->o->param[p].count; x++)
                one->o->param[p].value[x] = both->o->param[p].value[x];
        attend_result *in_batch = attend_run(both, &both->c.way), *alone = attend_run(one, &one->c.way);
        for (int64_t x = 0; x < entry; x++)
            assert_true(in_batch->out[2 * entry + x] == alone->out[x]);
        attend_result_free(in_batch);
        attend_result_free(alone);
        attend_free(both);
        attend_free(one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_equals_the_oracle),
        cmocka_unit_test(the_wanted_instruction_set_is_used),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(every_kernel_that_may_run_equals_the_oracle),
        cmocka_unit_test(long_sequences_equal_the_oracle),
        cmocka_unit_test(token_by_token_equals_all_at_once),
        cmocka_unit_test(pages_equal_the_oracle_and_contiguous_keys),
        cmocka_unit_test(strides_do_not_matter),
        cmocka_unit_test(the_callers_scratch_is_enough),
        cmocka_unit_test(a_batch_entry_alone_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
