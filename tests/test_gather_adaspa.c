/* select=adaspa by its definition in double precision, over steps that drift. */
#include "support/gathered.h"
#include "support/isas.h"
#include "support/pieces.h"
#include "support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, N = 70, DIM = 8, BLOCK = 8, BLOCKS = 9 };

typedef struct film {
    gathered *g;
    float *q, *k, *dq, *dk; /* at the first step, and what a step adds */
} film;

static film make_film(int64_t heads, int64_t n, int64_t dim, uint64_t seed)
{
    film f = {.g = gathered_make(1, heads, heads, n, n, dim, seed)};
    gathered *more = gathered_make(1, heads, heads, n, n, dim, seed + 1);
    const size_t bytes = (size_t)(heads * n * dim) * sizeof(float);
    f.q = malloc(bytes);
    f.k = malloc(bytes);
    f.dq = malloc(bytes);
    f.dk = malloc(bytes);
    memcpy(f.q, f.g->q, bytes);
    memcpy(f.k, f.g->k, bytes);
    memcpy(f.dq, more->q, bytes);
    memcpy(f.dk, more->k, bytes);
    gathered_free(more);
    return f;
}

static void free_film(film *f)
{
    gathered_free(f->g);
    free(f->q);
    free(f->k);
    free(f->dq);
    free(f->dk);
}

static void go_to(film *f, int step, float drift)
{
    for (int64_t i = 0; i < f->g->heads * f->g->queries * f->g->dim; i++) {
        f->g->q[i] = f->q[i] + drift * (float)step * f->dq[i];
        f->g->k[i] = f->k[i] + drift * (float)step * f->dk[i];
    }
}

static double score(const gathered *g, int64_t h, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t c = 0; c < g->dim; c++)
        sum += (double)gathered_query(g, g->q, 0, h, i)[c] * (double)gathered_key(g, g->k, 0, h, j)[c];
    return sum / sqrt((double)g->dim);
}

typedef struct index {
    double mass[HEADS][BLOCKS][BLOCKS], recall[HEADS];
    bool reads[HEADS][BLOCKS][BLOCKS];
} found;

static void keep(const double *mass, int64_t kept, bool *reads)
{
    for (int J = 0; J < BLOCKS; J++) {
        int above = 0;
        for (int K = 0; K < BLOCKS; K++)
            above += mass[K] > mass[J] || (mass[K] == mass[J] && K < J);
        reads[J] = above < kept;
    }
}

static int64_t kept_at(double sparsity)
{
    return (int64_t)fmax(1, floor((1 - sparsity) * BLOCKS + 0.5));
}

static void search(const gathered *g, double lse[HEADS][N], double sparsity, double delta, found *f)
{
    memset(f, 0, sizeof *f);
    double mean = 0;
    for (int h = 0; h < HEADS; h++) {
        double kept = 0, total = 0;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                f->mass[h][i / BLOCK][j / BLOCK] += exp(score(g, h, i, j) - lse[h][i]);
        for (int I = 0; I < BLOCKS; I++) {
            keep(f->mass[h][I], kept_at(sparsity), f->reads[h][I]);
            for (int J = 0; J < BLOCKS; J++) {
                total += f->mass[h][I][J];
                kept += f->reads[h][I][J] ? f->mass[h][I][J] : 0;
            }
        }
        f->recall[h] = kept / total;
        mean += f->recall[h] / HEADS;
    }
    int n = 0;
    for (int h = 0; h < HEADS; h++)
        n += f->recall[h] > mean;
    n = n < HEADS / 2 ? n : HEADS / 2;
    for (int h = 0; h < HEADS; h++) {
        int place = 0;
        for (int o = 0; o < HEADS; o++)
            place += f->recall[o] > f->recall[h];
        const double own = place < n ? sparsity + delta : place >= HEADS - n ? sparsity - delta : sparsity;
        for (int I = 0; I < BLOCKS; I++)
            keep(f->mass[h][I], kept_at(own), f->reads[h][I]);
    }
}

static void expect(gathered *g, const found *f)
{
    double *mass = calloc(N * N, sizeof *mass);
    gathered_forget(g);
    for (int h = 0; h < HEADS; h++) {
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                mass[i * N + j] = !f || f->reads[h][i / BLOCK][j / BLOCK];
        gathered_add(g, 0, h, mass, NULL);
    }
    free(mass);
}

static void steps_equal_the_definition(void **state)
{
    (void)state;
    static double lse[HEADS][N];
    static found index;
    film f = make_film(HEADS, N, DIM, 7);
    heed_memory memory = {.keys = -1};
    char what[80];
    for (int step = 0; step < 9; step++) {
        go_to(&f, step, 0.05f);
        if (step == 3 || step == 6)
            search(f.g, lse, 0.6, 0.2, &index);
        expect(f.g, step < 3 ? NULL : &index);
        snprintf(what, sizeof what, "step %d", step);
        if (read_piece(f.g, "select=adaspa(block=8, sparsity=0.6, delta=0.2, search=3, again=6)", 0, N, N,
                       &memory))
            fail_msg("%s: %s", what, heed_message());
        gathered_match(f.g, what, false);
        for (int h = 0; h < HEADS && step < 3; h++)
            for (int i = 0; i < N; i++) {
                double sum = 0;
                for (int j = 0; j < N; j++)
                    sum += exp(score(f.g, h, i, j));
                lse[h][i] = log(sum);
            }
    }
    free(memory.real);
    free(memory.number);
    free_film(&f);
}

/* With nothing moving, masses are the softmax's own: a head's sum to its queries. Sparsity 0 loses nothing.
 */
static void masses_sum_to_the_queries_and_nothing_is_lost_at_sparsity_0(void **state)
{
    (void)state;
    film f = make_film(HEADS, N, DIM, 3);
    heed_memory memory = {.keys = -1};
    expect(f.g, NULL);
    for (int step = 0; step < 4; step++) {
        if (read_piece(f.g, "select=adaspa(block=8, sparsity=0, delta=0, search=1, again=2)", 0, N, N,
                       &memory))
            fail_msg("%s", heed_message());
        gathered_match(f.g, "sparsity 0", false);
    }
    const float *mass = memory.real + HEADS * N + HEADS; /* behind log-sum-exps and recalls */
    for (int h = 0; h < HEADS; h++) {
        double sum = 0;
        for (int n = 0; n < BLOCKS * BLOCKS; n++)
            sum += (double)mass[h * BLOCKS * BLOCKS + n];
        assert_float_equal(sum, N, 1e-3);
    }
    free(memory.real);
    free(memory.number);
    free_film(&f);
}

/* Distance of what is read at the last of 50 steps from full attention. */
static double error_of(film *f, const char *spec, int last, const float *dense)
{
    heed_memory memory = {.keys = -1};
    double error = 0;
    for (int step = 0; step <= last; step++) {
        go_to(f, step, 0.01f);
        if (read_piece(f->g, spec, 0, f->g->queries, f->g->keys, &memory))
            fail_msg("%s", heed_message());
    }
    for (int64_t i = 0; i < f->g->heads * f->g->queries * f->g->dim; i++)
        error += pow((double)f->g->got_out[i] - (double)dense[i], 2);
    free(memory.real);
    free(memory.number);
    return sqrt(error);
}

static void an_index_serves_the_steps_after_it(void **state)
{
    (void)state;
    enum { LAST = 49, M = 128, D = 16 };
    film f = make_film(2, M, D, 13);
    test_random r = {2};
    float centre[8][D];
    for (int c = 0; c < 8 * D; c++)
        centre[c / D][c % D] = 1.6f * (float)random_normal(&r);
    for (int h = 0; h < 2; h++) /* blocks that are about the same thing, in another order for keys */
        for (int i = 0; i < M * D; i++) {
            f.q[h * M * D + i] = centre[i / D / 16][i % D] + 0.3f * f.q[h * M * D + i];
            f.k[h * M * D + i] = centre[(i / D / 16 * 3 + h) % 8][i % D] + 0.3f * f.k[h * M * D + i];
        }
    float *dense = malloc(2 * M * D * sizeof *dense);
    go_to(&f, LAST, 0.01f);
    assert_int_equal(gathered_run(f.g, "", HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    memcpy(dense, f.g->got_out, 2 * M * D * sizeof *dense);
    const double old =
        error_of(&f, "select=adaspa(block=16, sparsity=0.75, delta=0, search=10, again=30)", LAST, dense);
    const double fresh =
        error_of(&f, "select=adaspa(block=16, sparsity=0.75, delta=0, search=48, again=49)", LAST, dense);
    assert_int_equal(gathered_run(f.g, "where=window(17)", HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    double window = 0;
    for (int i = 0; i < 2 * M * D; i++)
        window += pow((double)f.g->got_out[i] - (double)dense[i], 2);
    if (!(old < 1.5 * fresh + 0.1 && old < 0.3 * sqrt(window)))
        fail_msg("errors: index of step 30 %.3f, fresh %.3f, window %.3f", old, fresh, sqrt(window));
    free(dense);
    free_film(&f);
}

static void what_has_no_steps_is_refused(void **state)
{
    (void)state;
    static const char *const specs[][2] = {
        {"select=adaspa", "HEED_WITH_MEMORY"},
        {"select=adaspa; where=causal", "one after the other"},
        {"select=adaspa(sparsity=0.95)", "at most 1"},
    };
    gathered *g = gathered_make(1, 2, 2, 8, 8, 8, 1);
    for (size_t n = 0; n < sizeof specs / sizeof *specs; n++)
        gathered_refuse(g, specs[n][0], HEED_OK, specs[n][1]);
    gathered_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_equal_the_definition),
        cmocka_unit_test(masses_sum_to_the_queries_and_nothing_is_lost_at_sparsity_0),
        cmocka_unit_test(an_index_serves_the_steps_after_it),
        cmocka_unit_test(what_has_no_steps_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
