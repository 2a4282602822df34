/* select=hyper by its definition in double precision: hashes, blocks of sorted lists, samples and the halving
 * written out as a mass for every pair. */
#include "support/gathered.h"
#include "support/isas.h"
#include "support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hyper {
    int64_t block, m, base;
    int bits;
    bool causal;
} hyper;

typedef struct scene {
    const gathered *g;
    hyper h;
    int64_t b, head;
    double *mass; /* [queries][keys] */
} scene;

static int code(const scene *s, const float *row)
{
    test_random r = {0};
    int bits = 0, rank = 0;
    for (int n = 0; n < s->h.bits; n++) {
        double sum = 0;
        for (int64_t c = 0; c < s->g->dim; c++) {
            double direction = 0;
            for (int k = 0; k < 4; k++)
                direction += (double)(random_bits(&r) >> 40) * 0x1p-24 - 0.5;
            sum += (double)row[c] * direction;
        }
        if (fabs(sum) < 1e-6)
            fail_msg("a row lies on the border of a bucket: choose another seed");
        bits |= (sum > 0) << n;
    }
    while ((rank ^ (rank >> 1)) != bits) /* the number whose Gray code it is */
        rank++;
    return rank;
}

/* Stable: by code, then number. */
static void sorted(const int *code, int64_t n, int64_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int64_t j = 0; j < n; j++)
            at += code[j] < code[i] || (code[j] == code[i] && j < i);
        to[at] = i;
    }
}

static void open_all(const scene *s, int64_t q0, int64_t nq, int64_t k0, int64_t nk)
{
    const int64_t before = gathered_keys(s->g, s->b) - gathered_queries(s->g, s->b);
    for (int64_t i = q0; i < q0 + nq; i++)
        for (int64_t j = k0; j < k0 + nk; j++)
            if (!s->h.causal || j <= before + i)
                s->mass[i * s->g->keys + j] += 1;
}

static void cross(const scene *s, int64_t q0, int64_t nq, int64_t k0, int64_t nk)
{
    const int64_t blocks = (nk + s->h.block - 1) / s->h.block, m = s->h.m < nk ? s->h.m : nk;
    if (nq == 0 || nk == 0)
        return;
    if (blocks < 2 || nk <= s->h.base) {
        open_all(s, q0, nq, k0, nk);
        return;
    }
    const int64_t most = nq > nk ? nq : nk;
    int *codes = calloc((size_t)most, sizeof *codes);
    int64_t *query = calloc((size_t)nq, sizeof *query), *key = calloc((size_t)nk, sizeof *key);
    for (int64_t i = 0; i < nq; i++)
        codes[i] = code(s, gathered_query(s->g, s->g->q, s->b, s->head, q0 + i));
    sorted(codes, nq, query);
    for (int64_t j = 0; j < nk; j++)
        codes[j] = code(s, gathered_key(s->g, s->g->k, s->b, s->head, k0 + j));
    sorted(codes, nk, key);
    bool *drawn = calloc((size_t)nk, sizeof *drawn);
    test_random r = {1};
    r.state = random_bits(&r) ^ ((uint64_t)s->head << 40) ^ (uint64_t)(k0 + nk);
    for (int64_t n = 0, taken = 0; n < nk && taken < m; n++) {
        drawn[n] = random_uniform(&r) * (double)(nk - n) < (double)(m - taken);
        taken += drawn[n];
    }
    for (int64_t n = 0; n < nq; n++) {
        int64_t own = 0;
        while (n >= (own + 1) * nq / blocks)
            own++;
        for (int64_t j = 0; j < nk; j++)
            s->mass[(q0 + query[n]) * s->g->keys + k0 + key[j]] += j / s->h.block == own ? 1
                                                                   : drawn[j] ? (double)nk / (double)m
                                                                              : 0;
    }
    free(codes);
    free(query);
    free(key);
    free(drawn);
}

static void halve(const scene *s, int64_t q0, int64_t n, int64_t before)
{
    if (n <= s->h.base || n < 2) {
        open_all(s, q0, n, before + q0, n);
        return;
    }
    halve(s, q0, n / 2, before);
    halve(s, q0 + n / 2, n - n / 2, before);
    cross(s, q0 + n / 2, n - n / 2, before + q0, n / 2);
}

static void expect(gathered *g, hyper h)
{
    gathered_forget(g);
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t head = 0; head < g->heads; head++) {
            const int64_t queries = gathered_queries(g, b), keys = gathered_keys(g, b),
                          before = keys - queries;
            scene s = {g, h, b, head, calloc((size_t)(g->queries * g->keys), sizeof(double))};
            if (h.causal) {
                cross(&s, 0, queries, 0, before);
                halve(&s, 0, queries, before);
            } else {
                cross(&s, 0, queries, 0, keys);
            }
            gathered_add(g, b, head, s.mass, NULL);
            free(s.mass);
        }
}

static void check(gathered *g, hyper h, const char *more)
{
    char spec[200];
    snprintf(spec, sizeof spec, "select=hyper(block=%lld, m=%lld, bits=%d, base=%lld)%s%s",
             (long long)h.block, (long long)h.m, h.bits, (long long)h.base, h.causal ? "; where=causal" : "",
             more);
    expect(g, h);
    for (const heed_isa *isa = test_isas(); *isa; isa++)
        for (int backward = 0; backward < 2; backward++) {
            if (gathered_run(g, spec, *isa, 2, backward, NULL))
                fail_msg("%s: %s", spec, heed_message());
            gathered_match(g, spec, backward);
        }
}

static void lists_equal_the_definition_forward_and_backward(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{40, 40}, {150, 150}, {33, 170}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int causal = 0; causal < 2; causal++) {
            gathered *g = gathered_make(n == 0 ? 2 : 1, 4, 2, sizes[n][0], sizes[n][1], 12, 5 * n + 1);
            check(g, (hyper){16, 20, 8, 4, causal}, "");
            check(g, (hyper){7, 9, 30, 3, causal}, "");
            gathered_free(g);
        }
}

static void ragged_batches_go_by_what_exists(void **state)
{
    (void)state;
    gathered *g = gathered_make(3, 2, 1, 90, 130, 8, 3);
    g->seq = calloc(3, sizeof *g->seq);
    memcpy(g->seq, (int32_t[]){130, 77, 30}, 3 * sizeof *g->seq);
    check(g, (hyper){16, 12, 10, 4, true}, "");
    gathered_free(g);
}

/* block >= n, m >= n without repetition, and base >= n lose nothing. */
static void three_ways_to_be_exact(void **state)
{
    (void)state;
    static const char *const specs[] = {"select=hyper(block=1000, m=1, base=10)",
                                        "select=hyper(block=16, m=1000, base=10)",
                                        "select=hyper(block=16, m=4, base=1000)"};
    for (int causal = 0; causal < 2; causal++) {
        gathered *g = gathered_make(1, 2, 1, 140, 140, 16, 9);
        double *mass = calloc(140 * 140, sizeof *mass);
        for (int64_t i = 0; i < 140; i++)
            for (int64_t j = 0; j < 140; j++)
                mass[i * 140 + j] = !causal || j <= i;
        for (int64_t h = 0; h < 2; h++)
            gathered_add(g, 0, h, mass, NULL);
        for (size_t n = 0; n < sizeof specs / sizeof *specs; n++) {
            char spec[120];
            snprintf(spec, sizeof spec, "%s%s", specs[n], causal ? "; where=causal" : "");
            assert_int_equal(gathered_run(g, spec, HEED_ISA_AUTO, 1, true, NULL), HEED_OK);
            gathered_match(g, spec, true);
        }
        free(mass);
        gathered_free(g);
    }
}

/* Clustered keys: the error falls as blocks and samples grow, and blocks find what even sampling misses. */
static double error_of(gathered *g, const float *dense, int block, int m)
{
    char spec[120];
    double error = 0, size = 0;
    snprintf(spec, sizeof spec, "select=hyper(block=%d, m=%d, base=1)", block, m);
    assert_int_equal(gathered_run(g, spec, HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    for (int64_t i = 0; i < g->queries * g->dim; i++) {
        error += pow((double)g->got_out[i] - (double)dense[i], 2);
        size += pow((double)dense[i], 2);
    }
    return sqrt(error / size);
}

static void clusters_are_found(void **state)
{
    (void)state;
    enum { N = 1024, DIM = 32, CLUSTERS = 16 };
    gathered *g = gathered_make(1, 1, 1, N, N, DIM, 21);
    test_random r = {4};
    float centre[CLUSTERS][DIM];
    for (int c = 0; c < CLUSTERS; c++)
        for (int x = 0; x < DIM; x++)
            centre[c][x] = 2.2f * (float)random_normal(&r);
    for (int i = 0; i < N; i++)
        for (int x = 0; x < DIM; x++) {
            g->q[i * DIM + x] = centre[i % CLUSTERS][x] + 0.3f * g->q[i * DIM + x];
            g->k[i * DIM + x] = centre[i % CLUSTERS][x] + 0.3f * g->k[i * DIM + x];
        }
    assert_int_equal(gathered_run(g, "", HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    float *dense = malloc(N * DIM * sizeof *dense);
    memcpy(dense, g->got_out, N * DIM * sizeof *dense);
    const double sampled = error_of(g, dense, 1, 256), small = error_of(g, dense, 64, 64);
    const double blocks = error_of(g, dense, 128, 128), large = error_of(g, dense, 256, 256);
    if (!(large < blocks && blocks < small && blocks < sampled))
        fail_msg("errors: samples alone %.3f, 64 %.3f, 128 %.3f, 256 %.3f", sampled, small, blocks, large);
    free(dense);
    gathered_free(g);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    gathered *g = gathered_make(2, 4, 2, 200, 200, 16, 2);
    const size_t Q = 2 * 4 * 200 * 16, K = 2 * 2 * 200 * 16;
    float *once = malloc((2 * Q + 2 * K) * sizeof *once);
    for (int threads = 1; threads <= 3; threads++) {
        assert_int_equal(gathered_run(g, "select=hyper(block=16, m=8, base=20); where=causal", HEED_ISA_AUTO,
                                      threads, true, NULL),
                         HEED_OK);
        const float *got[] = {g->got_out, g->got_dq, g->got_dk, g->got_dv};
        const size_t size[] = {Q, Q, K, K};
        for (size_t n = 0, at = 0; n < 4; at += size[n++]) {
            if (threads == 1)
                memcpy(once + at, got[n], size[n] * sizeof *once);
            assert_memory_equal(once + at, got[n], size[n] * sizeof *once);
        }
    }
    free(once);
    gathered_free(g);
}

static void what_cannot_be_gathered_is_refused(void **state)
{
    (void)state;
    static const char *const specs[][2] = {
        {"select=hyper > top_k(3)", "no other selector"},
        {"select=hyper; normalise=entmax", "exponential"},
        {"select=hyper; score=additive(dim=4)", "product"},
        {"select=hyper; position=cope(max=4); where=causal", "whole rows"},
        {"select=hyper; where=causal(align=start)", "positions alone"},
        {"select=hyper; heads=talking", "whole rows"},
    };
    for (size_t n = 0; n < sizeof specs / sizeof *specs; n++) {
        gathered *g = gathered_make(1, 2, 2, 8, 8, 8, 1);
        gathered_refuse(g, specs[n][0], HEED_UNSUPPORTED, specs[n][1]);
        gathered_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_equal_the_definition_forward_and_backward),
        cmocka_unit_test(ragged_batches_go_by_what_exists),
        cmocka_unit_test(three_ways_to_be_exact),
        cmocka_unit_test(clusters_are_found),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(what_cannot_be_gathered_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
