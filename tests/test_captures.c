/* What is captured on the way equals what follows from the oracle's weights, and capturing changes nothing
 * else. */
#include "support/attend.h"
#include "support/isas.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const specs[] = {
    "",
    "where=causal",
    "where=causal & window(30); position=alibi",
    "where=strided(5); score=cosine",
    "normalise=sink; where=causal",
    "normalise=softmax1",
    "normalise=sigmoid; where=causal",
    "normalise=relu(power=2)",
    "normalise=sparsemax",
    "normalise=entmax; where=causal",
    "normalise=softcap(1)",
    "select=top_k(6); where=causal",
    "select=quest(page=8, budget=16)",
    "position=cope(max=5); where=causal",
    "score=dot(3); normalise=softmax(temperature=0.5)",
    "position=rope; where=none | self",
};

static void statistics_equal_those_of_the_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(specs); i++) {
        const attend_way way = {.weights = true, .statistics = true, .top = 1 + (int)(i % 7)};
        attend_sweep(&(attend_case){.spec = specs[i], .seed = 10 * i + 1, .way = way}, 2000000);
        attend_check(&(attend_case){.spec = specs[i],
                                    .batch = 3,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .queries = 70,
                                    .keys = 140,
                                    .ragged = RAGGED_SEQ,
                                    .seed = i,
                                    .way = way});
    }
}

static void every_kernel_captures(void **state)
{
    (void)state;
    static const heed_kernel kernels[] = {HEED_KERNEL_FLASH, HEED_KERNEL_ROWS, HEED_KERNEL_SPARSE,
                                          HEED_KERNEL_DECODE};
    for (size_t i = 0; i < COUNT(kernels); i++)
        for (const heed_isa *isa = test_isas(); *isa; isa++)
            attend_check(&(attend_case){
                .spec = "where=causal; normalise=softcap(3)",
                .batch = 2,
                .heads = 4,
                .kv_heads = 2,
                .queries = 3,
                .keys = 300,
                .seed = i,
                .way = {.kernel = kernels[i], .isa = *isa, .weights = true, .statistics = true, .top = 5}});
}

/* Where all weights are next to nothing, or nothing at all in f32, so are the entropies. */
static void weights_that_vanish_have_entropies(void **state)
{
    (void)state;
    static const heed_kernel kernels[] = {HEED_KERNEL_FLASH, HEED_KERNEL_ROWS, HEED_KERNEL_SPARSE,
                                          HEED_KERNEL_DECODE};
    static const char *const vanishing[] = {"normalise=softmax1", "normalise=sigmoid", "normalise=sink",
                                            "normalise=relu",     "normalise=softmax", "normalise=sparsemax"};
    static const float logits[] = {-50, -80, -87, -90, -103, -200, -1e4F};
    for (size_t i = 0; i < COUNT(vanishing); i++)
        for (size_t l = 0; l < COUNT(logits); l++)
            for (size_t kernel = 0; kernel < COUNT(kernels); kernel++) {
                attend_data *d = attend_make(&(attend_case){
                    .spec = vanishing[i],
                    .queries = 2,
                    .keys = 70,
                    .dim = 1,
                    .initial = true,
                    .way = {.kernel = kernels[kernel], .statistics = true, .weights = true, .top = 2}});
                d->q[0] = d->q[1] = logits[l];
                for (int j = 0; j < 70; j++)
                    d->k[j] = 1 + (float)(j % 7) / 128;
                attend_changed(d);
                attend_expect(d);
                attend_result *r = attend_try(d, &d->c.way);
                if (r->status != HEED_UNSUPPORTED)
                    attend_match(d, r);
                attend_result_free(r);
                attend_free(d);
            }
}

static void more_links_than_keys_are_filled_up(void **state)
{
    (void)state;
    attend_data *d = attend_prepare(&(attend_case){.spec = "where=causal", .queries = 6, .way = {.top = 9}});
    attend_result *r = attend_run(d, &d->c.way);
    attend_match(d, r);
    for (int i = 0; i < 6; i++)
        for (int t = 0; t < 9; t++) {
            assert_true(t <= i ? r->top_key[i * 9 + t] >= 0 && r->top_key[i * 9 + t] <= i
                               : r->top_key[i * 9 + t] == -1);
            assert_true(t <= i ? r->top_weight[i * 9 + t] > 0 : r->top_weight[i * 9 + t] == 0);
        }
    attend_result_free(r);
    attend_free(d);
}

/* One query against many keys, of which far more than are asked for weigh the same: the first of them stand.
 */
static void the_first_of_equal_links_stand(void **state)
{
    (void)state;
    enum { KEYS = 1000, TOP = 20 };
    attend_data *d = attend_make(&(attend_case){
        .spec = "",
        .queries = 1,
        .keys = KEYS,
        .dim = 1,
        .initial = true,
        .way = {.kernel = HEED_KERNEL_DECODE, .statistics = true, .weights = true, .top = TOP}});
    for (int levels = 1; levels <= KEYS / TOP; levels += 7) {
        d->q[0] = 1;
        for (int j = 0; j < KEYS; j++)
            d->k[j] = (float)(j % levels);
        attend_changed(d);
        attend_expect(d);
        attend_result *r = attend_run(d, &d->c.way);
        for (int t = 0; t < TOP; t++)
            assert_int_equal(r->top_key[t], levels - 1 + t * levels);
        attend_result_free(r);
    }
    attend_free(d);
}

static void asking_for_captures_changes_no_bit_of_the_output(void **state)
{
    (void)state;
    static const int64_t queries[] = {1, 70, 200};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t n = 0; n < COUNT(queries); n++) {
            attend_data *d = attend_make(&(attend_case){
                .spec = specs[i], .heads = 2, .queries = queries[n], .keys = 200, .dim = 16, .seed = i});
            attend_result *plain = attend_run(d, &(attend_way){0});
            attend_result *all = attend_run(d, &(attend_way){.weights = true, .statistics = true, .top = 3});
            attend_same_bits(d, plain, all);
            attend_result_free(plain);
            attend_result_free(all);
            attend_free(d);
        }
}

typedef struct seen_heads {
    int tiles[4];
} seen_heads;

static void note_head(void *context, const heed_weights_tile *tile)
{
    seen_heads *seen = context;
#pragma omp atomic
    seen->tiles[tile->head]++;
}

static void only_the_chosen_heads_are_streamed(void **state)
{
    (void)state;
    enum { H = 4, N = 70, D = 8 };
    attend_data *d = attend_make(
        &(attend_case){.spec = "where=causal", .heads = H, .kv_heads = 2, .queries = N, .dim = D, .seed = 1});
    const heed_problem problem = {.batch = 1,
                                  .heads = H,
                                  .kv_heads = 2,
                                  .queries = N,
                                  .keys = N,
                                  .dim = D,
                                  .threads = 2,
                                  .with = HEED_WITH_WEIGHTS};
    heed_plan *plan;
    assert_int_equal(heed_plan_create(&plan, "where=causal", &problem), HEED_OK);
    const uint8_t wanted[H] = {0, 1, 0, 1};
    seen_heads seen = {{0}};
    const heed_extra extra = {.capture = {.sink = note_head, .sink_context = &seen, .sink_heads = wanted}};
    float out[H * N * D];
    const heed_tensor q = heed_tensor_dense(d->q, HEED_F32, 4, (int64_t[]){1, H, N, D});
    const heed_tensor k = heed_tensor_dense(d->k, HEED_F32, 4, (int64_t[]){1, 2, N, D});
    const heed_tensor v = heed_tensor_dense(d->v, HEED_F32, 4, (int64_t[]){1, 2, N, D});
    const heed_tensor o = heed_tensor_dense(out, HEED_F32, 4, (int64_t[]){1, H, N, D});
    assert_int_equal(heed_attend(plan, &q, &k, &v, &o, &extra), HEED_OK);
    for (int h = 0; h < H; h++)
        assert_true(wanted[h] ? seen.tiles[h] > 0 : seen.tiles[h] == 0);
    heed_plan_free(plan);
    attend_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_equal_those_of_the_weights),
        cmocka_unit_test(every_kernel_captures),
        cmocka_unit_test(weights_that_vanish_have_entropies),
        cmocka_unit_test(the_first_of_equal_links_stand),
        cmocka_unit_test(more_links_than_keys_are_filled_up),
        cmocka_unit_test(asking_for_captures_changes_no_bit_of_the_output),
        cmocka_unit_test(only_the_chosen_heads_are_streamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
