/* Selectors whose choice outlives a step: what each step reads, against definitions in double precision. */
#include "support/isas.h"
#include "support/random.h"

#include <heed/attend.h>
#include <heed/recall.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

enum { BATCH = 2, HEADS = 6, KV = 2, GROUP = HEADS / KV, DIM = 16, MOST = 160, STEPS = 40 };

/* Sequences that are read token by token: all queries, keys and values that there will be. */
typedef struct decoding {
    float q[BATCH][HEADS][MOST][DIM], k[BATCH][KV][MOST][DIM], v[BATCH][KV][MOST][DIM];
    float out[BATCH][HEADS][DIM];
    int64_t start[BATCH]; /* keys of the prompt */
    heed_plan *plan;
    heed_memory memory[BATCH];
} decoding;

static void must(heed_status status)
{
    if (status)
        fail_msg("%s", heed_message());
}

static heed_plan *new_plan(const char *spec, int threads, heed_isa isa)
{
    heed_plan *plan;
    must(heed_plan_create(&plan, spec,
                          &(heed_problem){.batch = BATCH,
                                          .heads = HEADS,
                                          .kv_heads = KV,
                                          .queries = 1,
                                          .keys = MOST,
                                          .dim = DIM,
                                          .threads = threads,
                                          .isa = isa,
                                          .with = HEED_WITH_SEQ | HEED_WITH_MEMORY}));
    return plan;
}

static void give_memories(decoding *d)
{
    int64_t numbers, reals;
    heed_plan_memory(d->plan, MOST, &numbers, &reals);
    for (int b = 0; b < BATCH; b++)
        d->memory[b] = (heed_memory){.keys = -1,
                                     .number = calloc((size_t)numbers + 1, sizeof(int32_t)),
                                     .real = calloc((size_t)reals + 1, sizeof(float))};
}

static decoding *new_decoding(const char *spec, uint64_t seed, int threads, heed_isa isa)
{
    decoding *d = calloc(1, sizeof *d);
    test_random random = {seed};
    assert_non_null(d);
    float *all[] = {&d->q[0][0][0][0], &d->k[0][0][0][0], &d->v[0][0][0][0]};
    const size_t count[] = {sizeof d->q / 4, sizeof d->k / 4, sizeof d->v / 4};
    for (int i = 0; i < 3; i++)
        for (size_t n = 0; n < count[i]; n++)
            all[i][n] = (float)(random_normal(&random) * (i < 2 ? 1.4 : 1.0));
    for (int b = 0; b < BATCH; b++)
        d->start[b] = 90 + 17 * b;
    d->plan = new_plan(spec, threads, isa);
    give_memories(d);
    return d;
}

static void free_decoding(decoding *d)
{
    for (int b = 0; b < BATCH; b++) {
        free(d->memory[b].number);
        free(d->memory[b].real);
    }
    heed_plan_free(d->plan);
    free(d);
}

/* The token behind `keys[b]` - 1 others meets what it is to meet; `memories` NULL: none is given. Returns the
 * pairs that were read. */
static double step(decoding *d, const heed_plan *plan, const int64_t *keys, heed_memory *const *memories)
{
    float q[BATCH][HEADS][1][DIM];
    int32_t seq[BATCH];
    double pairs[2] = {0, 0};
    for (int b = 0; b < BATCH; b++) {
        seq[b] = (int32_t)keys[b];
        for (int h = 0; h < HEADS; h++)
            memcpy(q[b][h][0], d->q[b][h][keys[b] - 1], sizeof q[b][h][0]);
    }
    const heed_tensor Q = heed_tensor_dense(q, HEED_F32, 4, (int64_t[]){BATCH, HEADS, 1, DIM}),
                      K = heed_tensor_dense(d->k, HEED_F32, 4, (int64_t[]){BATCH, KV, MOST, DIM}),
                      V = heed_tensor_dense(d->v, HEED_F32, 4, (int64_t[]){BATCH, KV, MOST, DIM}),
                      O = heed_tensor_dense(d->out, HEED_F32, 4, (int64_t[]){BATCH, HEADS, 1, DIM});
    int32_t one[BATCH] = {1, 1};
    heed_extra extra = {.q_seq = heed_tensor_dense(one, HEED_I32, 1, (int64_t[]){BATCH}),
                        .seq = heed_tensor_dense(seq, HEED_I32, 1, (int64_t[]){BATCH}),
                        .memory = memories,
                        .capture.pairs = pairs};
    must(heed_attend(plan, &Q, &K, &V, &O, &extra));
    return pairs[0];
}

/* Softmax weights of the last of `keys` keys' query, over the keys with open[j] (NULL: all). */
static void weights_of(const decoding *d, int b, int h, int64_t keys, const uint8_t *open, double *w)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        w[j] = 0;
        for (int c = 0; c < DIM; c++)
            w[j] += (double)d->q[b][h][keys - 1][c] * d->k[b][h / GROUP][j][c];
        w[j] /= sqrt(DIM);
        most = (!open || open[j]) && w[j] > most ? w[j] : most;
    }
    for (int64_t j = 0; j < keys; j++)
        sum += w[j] = !open || open[j] ? exp(w[j] - most) : 0;
    for (int64_t j = 0; j < keys; j++)
        w[j] /= sum;
}

/* The output of one sequence must be that over the keys of each kv head's set. */
static void check_reads(const decoding *d, int b, int64_t keys, uint8_t (*open)[MOST], const char *what)
{
    double w[MOST];
    for (int h = 0; h < HEADS; h++) {
        weights_of(d, b, h, keys, open[h / GROUP], w);
        for (int c = 0; c < DIM; c++) {
            double sum = 0;
            for (int64_t j = 0; j < keys; j++)
                sum += w[j] * d->v[b][h / GROUP][j][c];
            if (!(fabs(sum - d->out[b][h][c]) < 2e-5))
                fail_msg("%s: %lld keys, sequence %d, head %d, entry %d: %g instead of %g", what,
                         (long long)keys, b, h, c, d->out[b][h][c], sum);
        }
    }
}

/* The k largest of x [n], of equal ones the lower, are set in keep. */
static void mark_best(const double *x, int64_t n, int64_t k, uint8_t *keep)
{
    for (int64_t i = 0; i < k; i++) {
        int64_t best = -1;
        for (int64_t j = 0; j < n; j++)
            if (!keep[j] && (best < 0 || x[j] > x[best]))
                best = j;
        if (best >= 0)
            keep[best] = 1;
    }
}

/* ---- recycled ---- */

typedef struct recycling {
    int64_t every, k;
    double cosine; /* above 1: none */
    bool max;
    int64_t full; /* keys at the last full step */
    uint8_t kept[KV][MOST];
    int steps; /* that were full */
} recycling;

static double mean_cosine(const decoding *d, int b, int64_t now, int64_t then)
{
    double sum = 0;
    for (int h = 0; h < HEADS; h++) {
        double ab = 0, aa = 0, bb = 0;
        for (int c = 0; c < DIM; c++) {
            const double x = d->q[b][h][now - 1][c], y = d->q[b][h][then - 1][c];
            ab += x * y;
            aa += x * x;
            bb += y * y;
        }
        sum += ab / sqrt(aa * bb);
    }
    return sum / HEADS;
}

/* One step by the definition: which keys each kv head reads. */
static void recycle(const decoding *d, int b, int64_t keys, recycling *r, uint8_t (*open)[MOST])
{
    const bool full = r->full < 0 || keys - r->full >= r->every ||
                      (r->cosine <= 1 && mean_cosine(d, b, keys, r->full) < r->cosine);
    for (int g = 0; g < KV; g++) {
        for (int64_t j = 0; j < keys; j++)
            open[g][j] = full || j >= r->full || r->kept[g][j];
        if (!full)
            continue;
        double pooled[MOST] = {0}, w[MOST];
        for (int h = g * GROUP; h < (g + 1) * GROUP; h++) {
            weights_of(d, b, h, keys, NULL, w);
            for (int64_t j = 0; j < keys; j++)
                pooled[j] = !r->max ? pooled[j] + w[j] : w[j] > pooled[j] ? w[j] : pooled[j];
        }
        memset(r->kept[g], 0, MOST);
        mark_best(pooled, keys, r->k, r->kept[g]);
    }
    r->full = full ? keys : r->full;
    r->steps += full;
}

static void recycled_reads_its_best_keys_and_newer_ones(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        recycling rule;
    } each[] = {
        {"where=causal; select=recycled(every=5, k=12)", {.every = 5, .k = 12, .cosine = 2}},
        {"where=causal; select=recycled(every=7, k=30, pool=max)",
         {.every = 7, .k = 30, .cosine = 2, .max = true}},
        {"where=causal; select=recycled(cosine=0.05, k=20)", {.every = 1000, .k = 20, .cosine = 0.05}},
        {"where=causal; select=recycled(every=6, cosine=-0.1, k=1)", {.every = 6, .k = 1, .cosine = -0.1}},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        for (const heed_isa *isa = test_isas(); *isa; isa++) {
            decoding *d = new_decoding(each[i].spec, 10 + i, 2, *isa);
            recycling rule[BATCH];
            int partial = 0;
            for (int b = 0; b < BATCH; b++) {
                rule[b] = each[i].rule;
                rule[b].full = -1;
            }
            for (int t = 0; t < STEPS; t++) {
                int64_t keys[BATCH];
                for (int b = 0; b < BATCH; b++)
                    keys[b] = d->start[b] + t + 1;
                step(d, d->plan, keys, (heed_memory *[]){&d->memory[0], &d->memory[1]});
                for (int b = 0; b < BATCH; b++) {
                    uint8_t open[KV][MOST] = {{0}};
                    const int before = rule[b].steps;
                    recycle(d, b, keys[b], &rule[b], open);
                    check_reads(d, b, keys[b], open, each[i].spec);
                    partial += rule[b].steps == before;
                }
            }
            assert_true(partial > STEPS / 4 && rule[0].steps > 1);
            free_decoding(d);
        }
}

/* A step after a full one reads exactly its k keys and the newest. */
static void a_step_after_a_full_one_reads_k_keys_and_the_new_one(void **state)
{
    (void)state;
    decoding *d = new_decoding("where=causal; select=recycled(every=100, k=9)", 3, 1, HEED_ISA_AUTO);
    heed_memory *const both[] = {&d->memory[0], &d->memory[1]};
    const int64_t first[] = {100, 120}, second[] = {101, 121}, third[] = {102, 122};
    assert_true(step(d, d->plan, first, both) == HEADS * (100 + 120));
    assert_true(step(d, d->plan, second, both) == HEADS * 2 * (9 + 1));
    assert_true(step(d, d->plan, third, both) == HEADS * 2 * (9 + 2));
    free_decoding(d);
}

/* ---- delta ---- */

enum { PAGE = 8 };

static void choose_pages(const decoding *d, int b, int64_t keys, int64_t budget, int64_t recent,
                         uint8_t *open)
{
    double all[MOST] = {0}, score[MOST / PAGE + 1] = {0}, w[MOST];
    uint8_t keep[MOST / PAGE + 1] = {0};
    const int64_t pages = (keys + PAGE - 1) / PAGE;
    int64_t forced = (recent + PAGE - 1) / PAGE;
    forced = forced < 1 ? 1 : forced > pages ? pages : forced;
    for (int h = 0; h < HEADS; h++) {
        weights_of(d, b, h, keys, NULL, w);
        for (int64_t j = 0; j < keys; j++)
            all[j] = w[j] > all[j] ? w[j] : all[j];
    }
    for (int64_t j = 0; j < keys; j++)
        score[j / PAGE] += all[j];
    mark_best(score, pages - forced, (budget + PAGE - 1) / PAGE - forced, keep);
    for (int64_t p = pages - forced; p < pages; p++)
        keep[p] = 1;
    for (int64_t j = 0; j < keys; j++)
        open[j] = keep[j / PAGE];
}

static void a_layer_that_follows_reads_the_pages_that_another_chose(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{40, 16}, {24, 0}, {8, 64}, {100, 9}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char spec[128];
        snprintf(spec, sizeof spec, "where=causal; select=delta(page=%d, budget=%d, recent=%d)", (int)PAGE,
                 (int)sizes[i][0], (int)sizes[i][1]);
        decoding *d = new_decoding(spec, 20 + i, 2, HEED_ISA_AUTO);
        heed_plan *follows = new_plan("where=causal; select=follow(page=8)", 2, HEED_ISA_AUTO),
                  *plain = new_plan("where=causal", 2, HEED_ISA_AUTO);
        heed_memory *const both[] = {&d->memory[0], &d->memory[1]};
        for (int t = 0; t < 12; t++) {
            const int64_t keys[] = {d->start[0] + t, d->start[1] + t};
            float full[BATCH][HEADS][DIM];
            step(d, plain, keys, NULL);
            memcpy(full, d->out, sizeof full);
            step(d, d->plan, keys, both);
            assert_memory_equal(full, d->out, sizeof full); /* a selection layer attends to all */
            const double read = step(d, follows, keys, both);
            double expected = 0;
            for (int b = 0; b < BATCH; b++) {
                uint8_t open[KV][MOST];
                choose_pages(d, b, keys[b], sizes[i][0], sizes[i][1], open[0]);
                memcpy(open[1], open[0], sizeof open[1]);
                check_reads(d, b, keys[b], open, spec);
                for (int64_t j = 0; j < keys[b]; j++)
                    expected += HEADS * open[0][j];
            }
            assert_true(read == expected);
        }
        heed_plan_free(follows);
        heed_plan_free(plain);
        free_decoding(d);
    }
}

/* ---- both ---- */

/* Nothing is left out where there is nothing to leave out; full steps are plain attention to the last bit. */
static void what_keeps_everything_equals_full_attention(void **state)
{
    (void)state;
    static const char *const specs[] = {"where=causal; select=recycled(every=1, k=1)",
                                        "where=causal; select=recycled(every=9, k=160)",
                                        "where=causal; select=delta(page=16, budget=160)"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        decoding *d = new_decoding(specs[i], 30 + i, 1, HEED_ISA_AUTO);
        heed_plan *plain = new_plan("where=causal", 1, HEED_ISA_AUTO),
                  *follows = new_plan("where=causal; select=follow(page=16)", 1, HEED_ISA_AUTO);
        for (int t = 0; t < 20; t++) {
            const int64_t keys[] = {d->start[0] + t, d->start[1] + t};
            float full[BATCH][HEADS][DIM];
            step(d, plain, keys, NULL);
            memcpy(full, d->out, sizeof full);
            step(d, d->plan, keys, (heed_memory *[]){&d->memory[0], &d->memory[1]});
            if (i == 2)
                step(d, follows, keys, (heed_memory *[]){&d->memory[0], &d->memory[1]});
            for (size_t n = 0; n < sizeof full / sizeof(float); n++)
                if (fabsf((&full[0][0][0])[n] - (&d->out[0][0][0])[n]) > (i == 0 ? 0.0f : 1e-6f))
                    fail_msg("%s: %g instead of %g", specs[i], (&d->out[0][0][0])[n], (&full[0][0][0])[n]);
        }
        heed_plan_free(plain);
        heed_plan_free(follows);
        free_decoding(d);
    }
}

/* Neither threads nor neighbours nor a memory that goes from hand to hand change a bit. */
static void neighbours_and_threads_change_no_bit(void **state)
{
    (void)state;
    static const char spec[] = "where=causal; select=recycled(every=4, k=10)";
    decoding *a = new_decoding(spec, 5, 1, HEED_ISA_AUTO), *b = new_decoding(spec, 5, 4, HEED_ISA_AUTO);
    for (int t = 0; t < 10; t++) {
        const int64_t keys[] = {95 + t, 110 + t};
        step(a, a->plan, keys, (heed_memory *[]){&a->memory[0], &a->memory[1]});
        step(b, b->plan, keys, (heed_memory *[]){&b->memory[0], NULL}); /* its neighbour reads a prompt */
        assert_memory_equal(a->out[0], b->out[0], sizeof a->out[0]);
    }
    free_decoding(a);
    free_decoding(b);
}

/* A key that is no number is read at full steps, and remembered, so that it shows as long as it would. */
static void a_key_that_is_no_number_is_remembered(void **state)
{
    (void)state;
    decoding *d = new_decoding("where=causal; select=recycled(every=50, k=4)", 6, 1, HEED_ISA_AUTO);
    d->k[0][0][7][3] = NAN;
    const int64_t keys[][BATCH] = {{95, 100}, {96, 101}};
    for (int t = 0; t < 2; t++) {
        step(d, d->plan, keys[t], (heed_memory *[]){&d->memory[0], &d->memory[1]});
        for (int h = 0; h < HEADS; h++)
            assert_true(isnan(d->out[0][h][0]) == (h < GROUP));
        assert_false(isnan(d->out[1][0][0]));
    }
    free_decoding(d);
}

/* Numbers of a saved memory are not trusted. */
static void a_broken_memory_reads_nothing_beyond(void **state)
{
    (void)state;
    decoding *d = new_decoding("where=causal; select=recycled(every=50, k=4)", 7, 1, HEED_ISA_AUTO);
    const int64_t keys[] = {95, 100};
    for (int b = 0; b < BATCH; b++) {
        d->memory[b].keys = 90;
        for (int i = 0; i < KV * 5; i++)
            d->memory[b].number[i] = i % 3 == 0 ? INT32_MAX : i % 3 == 1 ? INT32_MIN : 100000;
    }
    assert_true(step(d, d->plan, keys, (heed_memory *[]){&d->memory[0], &d->memory[1]}) == HEADS * (5 + 10));
    free_decoding(d);
}

static void what_cannot_be_served_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *says;
        unsigned with;
        int64_t queries;
    } each[] = {
        {"select=recycled", "HEED_WITH_MEMORY", 0, 1},
        {"select=recycled", "one query", HEED_WITH_MEMORY, 2},
        {"select=recycled > top_k(3)", "stands alone", HEED_WITH_MEMORY, 1},
        {"heads 0: select=recycled", "same spec", HEED_WITH_MEMORY, 1},
        {"select=recycled; normalise=sparsemax", "whole row", HEED_WITH_MEMORY, 1},
        {"select=recycled; score=laplace", "no product", HEED_WITH_MEMORY, 1},
        {"select=recycled(cosine=2)", "cosine", HEED_WITH_MEMORY, 1},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        heed_plan *plan;
        const heed_problem problem = {
            .batch = 1, .heads = 2, .queries = each[i].queries, .keys = 8, .dim = 4, .with = each[i].with};
        if (!heed_plan_create(&plan, each[i].spec, &problem) || !strstr(heed_message(), each[i].says))
            fail_msg("%s: %s", each[i].spec, heed_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recycled_reads_its_best_keys_and_newer_ones),
        cmocka_unit_test(a_step_after_a_full_one_reads_k_keys_and_the_new_one),
        cmocka_unit_test(a_layer_that_follows_reads_the_pages_that_another_chose),
        cmocka_unit_test(what_keeps_everything_equals_full_attention),
        cmocka_unit_test(neighbours_and_threads_change_no_bit),
        cmocka_unit_test(a_key_that_is_no_number_is_remembered),
        cmocka_unit_test(a_broken_memory_reads_nothing_beyond),
        cmocka_unit_test(what_cannot_be_served_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
