/* Indexes of keys: what each finds, against definitions in double precision, and how much it looks at. */
#include "attend/memory.h"
#include "support/random.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

enum { HEADS = 4, KV = 2, GROUP = HEADS / KV, DIM = 16, KEYS = 700 };

typedef struct indexed {
    heed_plan *plan;
    const heed_form_state *form;
    const heed_recall *recall;
    int64_t keys; /* the new one counted */
    float *key;   /* [KV][KEYS][DIM] */
    float query[HEADS][DIM];
    float *shown; /* [HEADS][shown][DIM] */
    int64_t shown_count;
    uint8_t *keep[KV];
    float *work;
    heed_memory memory;
} indexed;

static void load(const void *context, int g, int64_t first, int count, float *to, int64_t stride)
{
    const indexed *x = context;
    assert_true(first >= 0 && count <= 128 && first + count <= x->keys);
    for (int i = 0; i < count; i++)
        memcpy(to + i * stride, x->key + (g * (int64_t)KEYS + first + i) * DIM, DIM * sizeof *to);
}

static int64_t show(const void *context, int head, float *to)
{
    const indexed *x = context;
    memcpy(to, x->shown + head * x->shown_count * DIM, (size_t)(x->shown_count * DIM) * sizeof *to);
    return x->shown_count;
}

/* Queries that have much in common, and keys that lie elsewhere. */
static void draw_query(test_random *random, int head, float *to)
{
    for (int c = 0; c < DIM; c++)
        to[c] = (float)(random_normal(random) + 2.0 * cos(c + head));
}

static indexed *new_index(const char *spec, int64_t keys, uint64_t seed)
{
    indexed *x = calloc(1, sizeof *x);
    assert_non_null(x);
    test_random random = {seed};
    const heed_problem problem = {.batch = 1,
                                  .heads = HEADS,
                                  .kv_heads = KV,
                                  .queries = 1,
                                  .keys = KEYS,
                                  .dim = DIM,
                                  .with = HEED_WITH_MEMORY};
    if (heed_plan_create(&x->plan, spec, &problem))
        fail_msg("%s", heed_message());
    x->form = heed_recaller(&x->plan->pipeline[0]);
    x->recall = x->form->form->recall;
    x->keys = keys;
    x->key = malloc(KV * KEYS * DIM * sizeof *x->key);
    for (int64_t i = 0; i < KV * KEYS * DIM; i++)
        x->key[i] = (float)(random_normal(&random) - 1.5 * sin((double)(i % DIM)));
    x->shown_count = x->recall->shown ? x->recall->shown(x->form) : 0;
    x->shown = malloc((size_t)(HEADS * x->shown_count * DIM + 1) * sizeof *x->shown);
    for (int64_t i = 0; i < HEADS * x->shown_count; i++)
        draw_query(&random, (int)(i / x->shown_count), x->shown + i * DIM);
    for (int h = 0; h < HEADS; h++)
        draw_query(&random, h, x->query[h]);
    int64_t numbers, reals;
    heed_plan_memory(x->plan, KEYS, &numbers, &reals);
    x->memory = (heed_memory){.keys = -1,
                              .number = calloc((size_t)numbers + 1, sizeof(int32_t)),
                              .real = calloc((size_t)reals + 1, sizeof(float)),
                              .show = x->shown_count ? show : NULL,
                              .show_context = x};
    const int64_t more = x->recall->work ? x->recall->work(x->form, KEYS) : 0;
    x->work = malloc((size_t)(2 * KEYS + more) * sizeof *x->work);
    for (int g = 0; g < KV; g++)
        x->keep[g] = calloc(KEYS, 1);
    return x;
}

static void free_index(indexed *x)
{
    free(x->key);
    free(x->shown);
    free(x->work);
    free(x->memory.number);
    free(x->memory.real);
    for (int g = 0; g < KV; g++)
        free(x->keep[g]);
    heed_plan_free(x->plan);
    free(x);
}

/* Builds the index of all keys but the newest, and looks keys up. */
static void look_up(indexed *x, bool build)
{
    const float *query[HEADS];
    for (int h = 0; h < HEADS; h++)
        query[h] = x->query[h];
    heed_recalled now = {.heads = HEADS,
                         .kv_heads = KV,
                         .dim = DIM,
                         .keys = x->keys - 1,
                         .query = query,
                         .memory = &x->memory,
                         .work = x->work,
                         .load = load,
                         .context = x,
                         .keep = x->keep};
    if (build) {
        x->recall->remember(x->form, &now);
        x->memory.keys = x->keys - 1;
    }
    now.keys = x->keys;
    for (int g = 0; g < KV; g++)
        memset(x->keep[g], 0, KEYS);
    x->recall->recall(x->form, &now);
}

static double product(const indexed *x, int h, int64_t j)
{
    double sum = 0;
    for (int c = 0; c < DIM; c++)
        sum += (double)x->query[h][c] * x->key[(h / GROUP * (int64_t)KEYS + j) * DIM + c];
    return sum;
}

/* Marks the k largest of `n` values, of equal ones the lower. */
static void mark_best(const double *value, int64_t n, int64_t k, uint8_t *keep)
{
    uint8_t taken[KEYS] = {0};
    for (int64_t i = 0; i < k && i < n; i++) {
        int64_t best = -1;
        for (int64_t j = 0; j < n; j++)
            if (!taken[j] && (best < 0 || value[j] > value[best]))
                best = j;
        taken[best] = keep[best] = 1;
    }
}

/* Share of each query head's k best keys that are read, on average. */
static double recall_at(const indexed *x, int64_t k)
{
    double found = 0;
    for (int h = 0; h < HEADS; h++) {
        double value[KEYS];
        uint8_t best[KEYS] = {0};
        for (int64_t j = 0; j < x->keys - 1; j++)
            value[j] = product(x, h, j);
        mark_best(value, x->keys - 1, k, best);
        for (int64_t j = 0; j < x->keys - 1; j++)
            found += best[j] && x->keep[h / GROUP][j];
    }
    return found / (double)(HEADS * k);
}

static double share_kept(const indexed *x)
{
    double kept = 0;
    for (int g = 0; g < KV; g++)
        for (int64_t j = 0; j < x->keys; j++)
            kept += x->keep[g][j];
    return kept / (double)(KV * x->keys);
}

static void a_flat_index_finds_the_best_keys_and_both_ends(void **state)
{
    (void)state;
    indexed *x = new_index("select=retrieval(k=20, sinks=3, recent=10, index=flat)", 400, 1);
    look_up(x, true);
    for (int g = 0; g < KV; g++) {
        uint8_t keep[KEYS] = {0};
        for (int h = g * GROUP; h < (g + 1) * GROUP; h++) {
            double value[KEYS];
            for (int64_t j = 0; j < x->keys - 1; j++)
                value[j] = product(x, h, j);
            mark_best(value, x->keys - 1, 20, keep);
        }
        memset(keep, 1, 3);
        memset(keep + x->keys - 10, 1, 10);
        assert_memory_equal(keep, x->keep[g], (size_t)x->keys);
    }
    assert_true(x->memory.scanned == HEADS * (x->keys - 1));
    free_index(x);
}

static void clusters_are_read_whole_the_best_first(void **state)
{
    (void)state;
    enum { SIZE = 10, K = 75 };
    indexed *x = new_index("select=kmeans(size=10, k=75, rounds=3)", 503, 2);
    look_up(x, true);
    const int64_t keys = x->keys - 1, clusters = (keys + SIZE - 1) / SIZE, room = (KEYS + SIZE - 1) / SIZE;
    for (int g = 0; g < KV; g++) {
        const float *centroid = x->memory.real + g * room * DIM;
        const int32_t *of = x->memory.number + 1 + g * KEYS;
        double value[KEYS];
        uint8_t taken[KEYS] = {0};
        for (int64_t c = 0; c < clusters; c++) {
            value[c] = -INFINITY;
            for (int h = g * GROUP; h < (g + 1) * GROUP; h++) {
                double sum = 0;
                for (int d = 0; d < DIM; d++)
                    sum += (double)x->query[h][d] * centroid[c * DIM + d];
                value[c] = sum > value[c] ? sum : value[c];
            }
        }
        int64_t read = 0, wanted = 0;
        for (int64_t j = 0; j < keys; j++) { /* each key belongs to its nearest centroid */
            double nearest = INFINITY, own = 0;
            for (int64_t c = 0; c < clusters; c++) {
                double distance = 0;
                for (int d = 0; d < DIM; d++) {
                    const double apart =
                        x->key[(g * (int64_t)KEYS + j) * DIM + d] - (double)centroid[c * DIM + d];
                    distance += apart * apart;
                }
                nearest = distance < nearest ? distance : nearest;
                own = c == of[j] ? distance : own;
            }
            assert_true(own <= nearest + 1e-4);
        }
        while (read < K) {
            uint8_t before[KEYS];
            memcpy(before, taken, sizeof before);
            memset(taken, 0, sizeof taken);
            mark_best(value, clusters, ++wanted, taken);
            for (int64_t j = 0; j < keys; j++)
                read += taken[of[j]] && !before[of[j]];
        }
        for (int64_t j = 0; j < keys; j++)
            assert_int_equal(x->keep[g][j], taken[of[j]]);
    }
    assert_true(x->memory.scanned == KV * clusters);
    free_index(x);
}

static void codes_estimate_products_and_the_best_are_read(void **state)
{
    (void)state;
    enum { PARTS = 3, BITS = 4, PART = 6 }; /* 6 + 6 + 4 entries */
    indexed *x = new_index("select=pq(parts=3, bits=4, k=30)", 450, 3);
    look_up(x, true);
    for (int g = 0; g < KV; g++) {
        uint8_t keep[KEYS] = {0};
        for (int h = g * GROUP; h < (g + 1) * GROUP; h++) {
            double value[KEYS] = {0};
            for (int64_t j = 0; j < x->keys - 1; j++)
                for (int p = 0; p < PARTS; p++) {
                    const int entries = p == 2 ? 4 : PART,
                              code = x->memory.number[1 + g * KEYS + j] >> (p * BITS) & 15;
                    const float *centroid = x->memory.real + (((g * PARTS + p) * 16) * PART) + code * entries;
                    for (int c = 0; c < entries; c++)
                        value[j] += (double)x->query[h][p * PART + c] * centroid[c];
                }
            double sorted[KEYS];
            memcpy(sorted, value, sizeof sorted);
            uint8_t best[KEYS] = {0};
            mark_best(value, x->keys - 1, 30, best);
            double least = INFINITY;
            for (int64_t j = 0; j < x->keys - 1; j++)
                least = best[j] && value[j] < least ? value[j] : least;
            for (int64_t j = 0; j < x->keys - 1; j++) /* equal codes tie: their order is by rounding alone */
                if (value[j] > least + 1e-4)
                    keep[j] = 1;
        }
        int64_t count = 0;
        for (int64_t j = 0; j < x->keys - 1; j++) {
            assert_true(!keep[j] || x->keep[g][j]);
            count += x->keep[g][j];
        }
        assert_true(count >= 30 && count <= 30 * GROUP);
    }
    assert_true(recall_at(x, 10) > 0.5 && share_kept(x) < 0.15);
    free_index(x);
}

/* Two that lie at an angle share one of `tables` buckets with probability 1 - (1 - (1 -
 * angle/pi)^bits)^tables. */
static void buckets_are_shared_as_angles_say(void **state)
{
    (void)state;
    double expected = 0, found = 0, variance = 0;
    for (int seed = 0; seed < 6; seed++) {
        char spec[64];
        snprintf(spec, sizeof spec, "select=lsh(bits=4, tables=6, seed=%d)", seed);
        indexed *x = new_index(spec, KEYS, 40 + (uint64_t)seed);
        for (int g = 0; g < KV; g++) /* one query a kv head, so that nothing is added up */
            for (int h = g * GROUP; h < (g + 1) * GROUP; h++)
                memcpy(x->query[h], x->query[g * GROUP], sizeof x->query[h]);
        look_up(x, true);
        for (int g = 0; g < KV; g++) {
            double mean[DIM] = {0};
            for (int64_t j = 0; j < x->keys - 1; j++)
                for (int c = 0; c < DIM; c++)
                    mean[c] += x->key[(g * (int64_t)KEYS + j) * DIM + c] / (double)(x->keys - 1);
            for (int64_t j = 0; j < x->keys - 1; j++) {
                double qk = 0, qq = 0, kk = 0;
                for (int c = 0; c < DIM; c++) {
                    const double q = x->query[g * GROUP][c],
                                 k = x->key[(g * (int64_t)KEYS + j) * DIM + c] - mean[c];
                    qk += q * k;
                    qq += q * q;
                    kk += k * k;
                }
                const double p = 1 - pow(1 - pow(1 - acos(qk / sqrt(qq * kk)) / M_PI, 4), 6);
                expected += p;
                variance += p * (1 - p);
                found += x->keep[g][j];
            }
        }
        free_index(x);
    }
    /* keys of one index share their directions, so that they do not vary independently */
    assert_true(fabs(found - expected) < 0.15 * expected && found > 3 * sqrt(variance));
}

static void all_keys_are_found_where_all_are_asked_for(void **state)
{
    (void)state;
    static const char *const specs[] = {"select=kmeans(size=7, k=700)", "select=pq(k=700)",
                                        "select=retrieval(k=700, index=flat)",
                                        "select=retrieval(k=700, queries=8, links=4, degree=4)",
                                        "select=retrieval(k=700, queries=8, links=4, degree=4, index=keys)"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int64_t keys = 2; keys <= KEYS; keys += 349) {
            indexed *x = new_index(specs[i], keys, 5);
            look_up(x, true);
            if (recall_at(x, keys - 1) != 1)
                fail_msg("%s: %g of %lld keys", specs[i], recall_at(x, keys - 1), (long long)keys - 1);
            free_index(x);
        }
}

/* At the same number of keys looked at, links by queries find more than links by keys. */
static void queries_make_better_links_than_keys(void **state)
{
    (void)state;
    double found[2] = {0, 0}, scanned[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            char spec[160];
            snprintf(spec, sizeof spec,
                     "select=retrieval(k=10, sinks=0, recent=0, queries=60, links=12, degree=8, beam=16, "
                     "index=%s)",
                     i ? "keys" : "graph");
            indexed *x = new_index(spec, KEYS, 60 + seed);
            look_up(x, true);
            found[i] += recall_at(x, 10) / 8;
            scanned[i] += (double)x->memory.scanned / (8.0 * HEADS * KEYS);
            free_index(x);
        }
    if (!(found[0] > found[1] + 0.2 && found[0] > 0.6 && scanned[0] < 0.1))
        fail_msg("graph: %g of the best, %g looked at; keys: %g, %g", found[0], scanned[0], found[1],
                 scanned[1]);
}

/* A plan: what a memory says goes into what is read, in the step that makes it; newer keys are read as well.
 */
static void a_plan_reads_what_an_index_finds(void **state)
{
    (void)state;
    indexed *x = new_index("where=causal; select=retrieval(k=5, sinks=1, recent=0, index=flat)", 300, 7);
    float *value = malloc(KV * KEYS * DIM * sizeof *value), out[HEADS * DIM];
    for (int64_t i = 0; i < KV * KEYS * DIM; i++)
        value[i] = sinf((float)i);
    const heed_tensor q = heed_tensor_dense(x->query, HEED_F32, 4, (int64_t[]){1, HEADS, 1, DIM}),
                      k = heed_tensor_dense(x->key, HEED_F32, 4, (int64_t[]){1, KV, KEYS, DIM}),
                      v = heed_tensor_dense(value, HEED_F32, 4, (int64_t[]){1, KV, KEYS, DIM}),
                      o = heed_tensor_dense(out, HEED_F32, 4, (int64_t[]){1, HEADS, 1, DIM});
    heed_plan *plan;
    if (heed_plan_create(&plan, x->plan->spec,
                         &(heed_problem){.batch = 1,
                                         .heads = HEADS,
                                         .kv_heads = KV,
                                         .queries = 1,
                                         .keys = KEYS,
                                         .dim = DIM,
                                         .with = HEED_WITH_MEMORY | HEED_WITH_SEQ}))
        fail_msg("%s", heed_message());
    for (int step = 0; step < 3; step++) {
        int32_t seq = (int32_t)x->keys + step, one = 1;
        heed_memory *const memory = &x->memory;
        const heed_extra extra = {.seq = heed_tensor_dense(&seq, HEED_I32, 1, (int64_t[]){1}),
                                  .q_seq = heed_tensor_dense(&one, HEED_I32, 1, (int64_t[]){1}),
                                  .memory = &memory};
        if (heed_attend(plan, &q, &k, &v, &o, &extra))
            fail_msg("%s", heed_message());
        assert_true(x->memory.keys == x->keys - 1);
        look_up(x, false);
        for (int h = 0; h < HEADS; h++) {
            double sum = 0, total = 0;
            for (int64_t j = 0; j < seq; j++)
                if (x->keep[h / GROUP][j] || j >= x->keys - 1) {
                    const double w = exp(product(x, h, j) / sqrt(DIM) - 8);
                    total += w;
                    sum += w * value[(h / GROUP * (int64_t)KEYS + j) * DIM];
                }
            assert_true(fabs(sum / total - out[h * DIM]) < 1e-5);
        }
    }
    heed_plan_free(plan);
    free(value);
    free_index(x);
}

static void a_key_that_is_no_number_makes_every_step_full(void **state)
{
    (void)state;
    static const char *const specs[] = {"select=lsh", "select=kmeans", "select=pq",
                                        "select=retrieval(index=flat)"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        indexed *x = new_index(specs[i], 100, 8);
        const heed_recalled now = {.keys = x->keys, .memory = &x->memory};
        look_up(x, true);
        assert_false(x->recall->renews(x->form, &now));
        x->key[(KEYS + 30) * DIM + 3] = i % 2 ? NAN : INFINITY;
        look_up(x, true);
        assert_true(x->recall->renews(x->form, &now));
        free_index(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flat_index_finds_the_best_keys_and_both_ends),
        cmocka_unit_test(clusters_are_read_whole_the_best_first),
        cmocka_unit_test(codes_estimate_products_and_the_best_are_read),
        cmocka_unit_test(buckets_are_shared_as_angles_say),
        cmocka_unit_test(all_keys_are_found_where_all_are_asked_for),
        cmocka_unit_test(queries_make_better_links_than_keys),
        cmocka_unit_test(a_plan_reads_what_an_index_finds),
        cmocka_unit_test(a_key_that_is_no_number_makes_every_step_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
