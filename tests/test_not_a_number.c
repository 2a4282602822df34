/* NaN and infinity reach what they must and nothing else; huge logits are harmless. */
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

static const char *const poisoned[] = {
    "where=causal",
    "position=rope; where=causal",
    "score=cosine; where=causal",
    "score=additive(dim=3); where=causal",
    "score=mlp(dim=3); where=causal",
    "score=laplace; where=causal",
    "score=gaussian; where=causal",
    "score=bilinear; where=causal",
    "where=causal; position=shaw(max=3) + alibi",
    "where=causal; position=cope(max=4)",
    "where=causal & window(9); position=xpos",
    "where=causal; normalise=softmax1",
    "where=causal; normalise=sink",
    "where=causal; normalise=sigmoid",
    "where=causal; normalise=relu",
    "where=causal; normalise=sparsemax",
    "where=causal; normalise=entmax",
    "where=causal; normalise=softcap(2)",
    "where=causal; normalise=softcap(2) > sparsemax",
    "where=causal; select=top_k(3)",
    "where=causal; select=top_p(0.5)",
    "where=causal; select=threshold(0.3)",
    "where=causal; select=quest(page=4, budget=8)",
    "where=causal; select=moba(block=4, k=2)",
    "where=causal; read=gate",
};

static void nan_in_a_query_stays_in_its_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(poisoned); i++)
        for (int64_t row = 0; row < 70; row += 23) {
            attend_data *d = attend_prepare(
                &(attend_case){.spec = poisoned[i], .heads = 2, .queries = 70, .dim = 10, .seed = i});
            d->q[(70 + row) * 10 + 3] = NAN;
            attend_check_changed(d);
            attend_free(d);
        }
}

static void nan_in_a_key_reaches_the_rows_that_see_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(poisoned); i++)
        for (int64_t key = 3; key < 70; key += 30) {
            attend_data *d = attend_prepare(&(attend_case){
                .spec = poisoned[i], .heads = 2, .kv_heads = 1, .queries = 70, .dim = 10, .seed = i});
            d->k[key * 10 + 9] = NAN;
            attend_check_changed(d);
            attend_free(d);
        }
}

static void nan_in_a_value_reaches_its_column(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(poisoned); i++)
        for (int64_t key = 3; key < 70; key += 30) {
            attend_data *d = attend_prepare(&(attend_case){.spec = poisoned[i],
                                                           .heads = 2,
                                                           .kv_heads = 1,
                                                           .queries = 70,
                                                           .dim = 10,
                                                           .value_dim = 20,
                                                           .seed = i});
            d->v[key * 20 + 17] = NAN;
            attend_check_changed(d);
            attend_free(d);
        }
}

/* Every kernel and instruction set: NaN in all of q, k and v at once, one of each, seen by some rows only. */
static void every_kernel_treats_nan_alike(void **state)
{
    (void)state;
    static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16};
    for (size_t way = 0; way < COUNT(kernels) * COUNT(types); way++)
        for (const heed_isa *isa = test_isas(); *isa; isa++)
            for (int64_t queries = 3; queries <= 67; queries += 64) {
                const heed_kernel kernel = kernels[way / COUNT(types)];
                const heed_type type = types[way % COUNT(types)];
                if (kernel == HEED_KERNEL_DECODE && queries > 4)
                    continue;
                attend_data *d = attend_make(&(attend_case){.spec = "where=window(40)",
                                                            .batch = 2,
                                                            .heads = 2,
                                                            .kv_heads = 1,
                                                            .queries = queries,
                                                            .keys = 200,
                                                            .dim = 12,
                                                            .seed = 1,
                                                            .q_type = type,
                                                            .k_type = type,
                                                            .v_type = type,
                                                            .way = {.kernel = kernel, .isa = *isa}});
                d->q[12 * (queries - 1)] = NAN;
                d->k[12 * 150 + 7] = NAN;
                d->k[12 * (200 + 5)] = NAN; /* behind closed pairs in the second entry */
                d->v[12 * (200 + 170) + 5] = NAN;
                attend_check_changed(d);
                attend_free(d);
            }
}

/* What is captured of a row of NaN: NaN where the pair is open, even if its weight would have vanished, and 0
 * where `where` or a score of -inf closes it. */
static void closed_pairs_weigh_nothing_in_rows_of_nan(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "where=causal & window(40)",  "where=strided(3)",    "position=alibi; where=causal",
        "normalise=sigmoid(bias=0)",  "normalise=softmax1",  "where=causal; normalise=softcap(2)",
        "where=block(50) | first(9)", "normalise=sparsemax", "where=mask; normalise=relu"};
    enum { KEYS = 300, D = 4 };
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t kernel = 0; kernel < COUNT(kernels); kernel++)
            for (int64_t way = 0; test_isas()[way / 2]; way++) {
                const int64_t queries = way % 2 ? 103 : 3;
                attend_data *d = attend_make(&(attend_case){.spec = specs[i],
                                                            .heads = 2,
                                                            .kv_heads = 1,
                                                            .queries = queries,
                                                            .keys = KEYS,
                                                            .dim = D,
                                                            .mask = MASK_NM,
                                                            .seed = i,
                                                            .way = {.kernel = kernels[kernel],
                                                                    .isa = test_isas()[way / 2],
                                                                    .weights = true,
                                                                    .statistics = true}});
                for (int64_t n = 0; n < 2 * queries; n++)
                    d->q[n * D] = (float)(fabs(d->q[n * D]) + 0.1);
                d->q[(queries - 1) * D + 1] = NAN;
                d->k[150 * D + 2] = NAN;
                for (int j = 1; j < KEYS; j += 7)
                    d->k[j * D] = j % 2 ? -INFINITY : -4000; /* closed, and next to nothing */
                attend_changed(d);
                attend_expect(d);
                attend_result *r = attend_try(d, &d->c.way);
                if (r->status != HEED_UNSUPPORTED)
                    attend_match(d, r);
                finish(d, r);
            }
}

static void nothing_is_read_through_closed_pairs(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "",
        "where=causal",
        "position=rope",
        "score=cosine",
        "score=additive(dim=3)",
        "score=laplace",
        "score=bilinear",
        "normalise=sparsemax",
        "normalise=sigmoid",
        "select=top_k(4)",
        "heads=talking",
        "position=cope(max=4); where=causal",
        "position=xpos; where=causal",
        "select=quest(page=8, budget=16)",
        "select=moba(block=8, k=2)",
    };
    static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16};
    for (size_t i = 0; i < COUNT(specs); i++)
        for (int64_t queries = 1; queries <= 60; queries += 59) {
            attend_data *d = attend_make(&(attend_case){.spec = specs[i],
                                                        .batch = 3,
                                                        .heads = 2,
                                                        .queries = queries,
                                                        .keys = 100,
                                                        .dim = 10,
                                                        .ragged = RAGGED_Q_SEQ,
                                                        .seed = i,
                                                        .q_type = types[i % 3],
                                                        .k_type = types[i % 3],
                                                        .v_type = types[i % 3],
                                                        .way = {.backward = true, .weights = true}});
            for (int64_t b = 0; b < 3; b++)
                for (int64_t h = 0; h < 2; h++) { /* what lies beyond the lengths is rubbish */
                    for (int64_t j = d->seq[b]; j < 100; j++)
                        for (int64_t x = 0; x < 10; x++)
                            d->k[((b * 2 + h) * 100 + j) * 10 + x] = d->v[((b * 2 + h) * 100 + j) * 10 + x] =
                                x % 2 ? NAN : INFINITY;
                    for (int64_t n = d->q_seq[b]; n < queries; n++)
                        for (int64_t x = 0; x < 10; x++)
                            d->q[((b * 2 + h) * queries + n) * 10 + x] =
                                d->dout[((b * 2 + h) * queries + n) * 10 + x] = NAN;
                }
            attend_check_changed(d);
            attend_free(d);
        }
}

static void masked_rubbish_leaves_gradients_alone(void **state)
{
    (void)state;
    static const char *const specs[] = {"where=mask",
                                        "where=mask; normalise=sparsemax",
                                        "where=mask; score=cosine; position=alibi",
                                        "where=mask; score=additive(dim=3)",
                                        "where=mask; normalise=sink; position=rope",
                                        "where=mask; position=cope(max=4)",
                                        "where=mask; heads=talking"};
    enum { N = 40, D = 8 };
    for (size_t i = 0; i < COUNT(specs); i++) {
        attend_data *d = attend_make(&(attend_case){.spec = specs[i],
                                                    .heads = 2,
                                                    .queries = N,
                                                    .dim = D,
                                                    .mask = MASK_NM,
                                                    .seed = i,
                                                    .way.backward = true});
        for (int n = 0; n < N; n++)
            d->mask[n * N + 7] = d->mask[n * N + 35] = 0;
        for (int h = 0; h < 2; h++)
            for (int x = 0; x < D; x++) {
                d->k[(h * N + 7) * D + x] = NAN;
                d->k[(h * N + 35) * D + x] = INFINITY;
                d->v[(h * N + 7) * D + x] = INFINITY;
                d->v[(h * N + 35) * D + x] = NAN;
            }
        attend_check_changed(d);
        attend_free(d);
    }
}

/* Scores of -inf close their pair (its value is not read), of +inf turn the row into NaN. */
static void infinite_scores(void **state)
{
    (void)state;
    static const char *const specs[] = {"",
                                        "where=causal",
                                        "normalise=sparsemax",
                                        "normalise=sigmoid",
                                        "normalise=relu",
                                        "normalise=sink",
                                        "select=top_k(4)",
                                        "normalise=softcap(3)",
                                        "where=window(30)"};
    enum { N = 66, D = 4 };
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t kernel = 0; kernel < COUNT(kernels); kernel++)
            for (int sign = -1; sign <= 1; sign += 2) {
                attend_data *d = attend_make(&(attend_case){.spec = specs[i],
                                                            .queries = N,
                                                            .dim = D,
                                                            .initial = true,
                                                            .seed = i,
                                                            .way.kernel = kernels[kernel]});
                for (int n = 0; n < N; n++)
                    d->q[n * D] =
                        (float)(fabs(d->q[n * D]) + 0.1); /* so that the sign is that of the key's entry */
                d->k[40 * D] = (float)(sign * INFINITY);
                d->v[40 * D + 1] = sign < 0 ? NAN : 1;
                attend_changed(d);
                attend_expect(d);
                attend_result *r = attend_try(d, &d->c.way);
                if (r->status != HEED_UNSUPPORTED)
                    attend_match(d, r);
                finish(d, r);
            }
}

/* Products of whole numbers are exact in f32, so that logits of 1e4 leave no excuse. */
static void huge_logits_are_as_exact_as_small_ones(void **state)
{
    (void)state;
    static const char *const specs[] = {"score=dot(1)",
                                        "score=dot(1); where=causal",
                                        "score=dot(1); normalise=sink",
                                        "score=dot(1); normalise=softmax1",
                                        "score=dot(1); normalise=sparsemax",
                                        "score=dot(1); normalise=sigmoid(bias=0)",
                                        "score=dot(1); select=top_k(5)"};
    enum { N = 130, D = 8 };
    for (size_t i = 0; i < COUNT(specs); i++)
        for (size_t kernel = 0; kernel < 2; kernel++) {
            attend_data *d =
                attend_make(&(attend_case){.spec = specs[i],
                                           .heads = 2,
                                           .queries = N,
                                           .dim = D,
                                           .spread = 40,
                                           .exact_scores = true,
                                           .seed = i,
                                           .way = {.backward = true,
                                                   .weights = true,
                                                   .kernel = kernel ? HEED_KERNEL_ROWS : HEED_KERNEL_AUTO}});
            for (int x = 0; x < 2 * N * D; x++) {
                d->q[x] = rintf(d->q[x]);
                d->k[x] = rintf(d->k[x]);
            }
            for (int j = 1; j < 2 * N;
                 j += 2) { /* rivals of the winner: logits a few units below, or the same */
                memcpy(d->k + j * D, d->k + (j - 1) * D, D * sizeof *d->k);
                d->k[j * D] += (float)(j % 4 == 1);
            }
            for (int n = 0; n < 2 * N; n++)
                d->q[n * D] = rintf(d->q[n * D] / 20);
            attend_check_changed(d);
            attend_free(d);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_in_a_query_stays_in_its_row),
        cmocka_unit_test(nan_in_a_key_reaches_the_rows_that_see_it),
        cmocka_unit_test(nan_in_a_value_reaches_its_column),
        cmocka_unit_test(every_kernel_treats_nan_alike),
        cmocka_unit_test(closed_pairs_weigh_nothing_in_rows_of_nan),
        cmocka_unit_test(nothing_is_read_through_closed_pairs),
        cmocka_unit_test(masked_rubbish_leaves_gradients_alone),
        cmocka_unit_test(infinite_scores),
        cmocka_unit_test(huge_logits_are_as_exact_as_small_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
