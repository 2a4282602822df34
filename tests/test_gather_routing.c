/* select=routing by its definition in double precision. */
#include "support/gathered.h"
#include "support/isas.h"
#include "support/random.h"

#include "attend/registry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scene {
    gathered *g;
    const float *mu; /* [heads][clusters][dim] */
    int64_t clusters, size;
    bool causal, last;
} scene;

static double along(const float *mu, const float *x, int64_t dim)
{
    double sum = 0;
    for (int64_t c = 0; c < dim; c++)
        sum += (double)mu[c] * (double)x[c];
    return sum;
}

/* Whether value[i] is among the `size` largest, ties to the lower. */
static bool among(const double *value, int64_t n, int64_t size, int64_t i)
{
    int64_t above = 0;
    for (int64_t j = 0; j < n; j++)
        above += value[j] > value[i] || (value[j] == value[i] && j < i);
    return above < size;
}

static void expect_head(const scene *s, int64_t b, int64_t h)
{
    gathered *g = s->g;
    const int64_t N = gathered_queries(g, b), M = gathered_keys(g, b), before = M - N;
    bool *q_in = calloc((size_t)(s->clusters * g->queries), 1),
         *k_in = calloc((size_t)(s->clusters * g->keys), 1);
    double *value = calloc((size_t)g->keys, sizeof *value),
           *query = calloc((size_t)g->queries, sizeof *query);
    for (int64_t c = 0; c < s->clusters; c++) {
        const float *mu = s->mu + (h * s->clusters + c) * g->dim;
        double least = INFINITY;
        for (int64_t j = 0; j < M; j++)
            value[j] = along(mu, gathered_key(g, g->k, b, h, j), g->dim);
        for (int64_t j = 0; j < M; j++) {
            k_in[c * g->keys + j] = among(value, M, s->size, j);
            least = k_in[c * g->keys + j] && value[j] < least ? value[j] : least;
        }
        for (int64_t i = 0; i < N; i++)
            query[i] = along(mu, gathered_query(g, g->q, b, h, i), g->dim);
        for (int64_t i = 0; i < N; i++)
            q_in[c * g->queries + i] = N == M ? among(query, N, s->size, i) : query[i] >= least;
    }
    double *mass = calloc((size_t)(g->queries * g->keys), sizeof *mass);
    double *share = calloc((size_t)g->queries, sizeof *share);
    for (int64_t c = 0; c < s->clusters; c++) {
        for (int64_t i = 0; i < N; i++) {
            int64_t count = 0, last = 0;
            for (int64_t d = 0; d < s->clusters; d++) {
                count += q_in[d * g->queries + i];
                last = q_in[d * g->queries + i] ? d : last;
            }
            const bool in = q_in[c * g->queries + i];
            share[i] = !in ? 0 : s->last ? last == c : 1 / (double)count;
            for (int64_t j = 0; j < M; j++)
                mass[i * g->keys + j] = in && k_in[c * g->keys + j] && (!s->causal || j <= before + i);
        }
        gathered_add(g, b, h, mass, share);
    }
    free(q_in);
    free(k_in);
    free(value);
    free(query);
    free(mass);
    free(share);
}

static float *centroids(int64_t n, uint64_t seed)
{
    float *mu = calloc((size_t)n, sizeof *mu);
    test_random r = {seed};
    for (int64_t i = 0; i < n; i++)
        mu[i] = (float)random_normal(&r);
    return mu;
}

static void check(scene s, const char *more)
{
    gathered *g = s.g;
    char spec[200];
    snprintf(spec, sizeof spec, "select=routing(clusters=%lld, size=%lld%s)%s%s", (long long)s.clusters,
             (long long)s.size, s.last ? ", merge=last" : "", s.causal ? "; where=causal" : "", more);
    const heed_tensor mu =
        heed_tensor_dense((void *)(uintptr_t)s.mu, HEED_F32, 3, (int64_t[]){g->heads, s.clusters, g->dim});
    gathered_forget(g);
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t h = 0; h < g->heads; h++)
            expect_head(&s, b, h);
    for (const heed_isa *isa = test_isas(); *isa; isa++)
        for (int backward = 0; backward < 2; backward++) {
            if (gathered_run(g, spec, *isa, 2, backward, &mu))
                fail_msg("%s: %s", spec, heed_message());
            gathered_match(g, spec, backward);
        }
}

static void clusters_equal_the_definition_forward_and_backward(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{60, 60}, {101, 101}, {17, 90}, {1, 70}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        gathered *g = gathered_make(n == 0 ? 2 : 1, 4, 2, sizes[n][0], sizes[n][1], 12, n + 1);
        float *mu = centroids(4 * 7 * 12, n);
        for (int way = 0; way < 3; way++)
            check((scene){g, mu, 7, way == 1 ? 30 : 13, way > 0, way == 2}, "");
        free(mu);
        gathered_free(g);
    }
}

static void ragged_batches_have_clusters_of_their_own(void **state)
{
    (void)state;
    gathered *g = gathered_make(3, 2, 1, 50, 50, 8, 3);
    float *mu = centroids(2 * 5 * 8, 3);
    g->seq = calloc(3, sizeof *g->seq);
    memcpy(g->seq, (int32_t[]){50, 31, 6}, 3 * sizeof *g->seq);
    check((scene){g, mu, 5, 10, true, false}, "");
    free(mu);
    gathered_free(g);
}

/* x with mean 0 and variance 1, as score=layernorm compares it. */
static void norm(float *x, int64_t rows, int64_t dim)
{
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < dim; c++)
            mean += (double)x[r * dim + c] / (double)dim;
        for (int64_t c = 0; c < dim; c++)
            variance += pow((double)x[r * dim + c] - mean, 2) / (double)dim;
        for (int64_t c = 0; c < dim; c++)
            x[r * dim + c] = (float)(((double)x[r * dim + c] - mean) / sqrt(variance + 1e-5));
    }
}

/* One cluster of everything is causal attention over q = k with layer norm. */
static void one_cluster_is_full_attention(void **state)
{
    (void)state;
    enum { N = 70, DIM = 16 };
    gathered *g = gathered_make(1, 1, 1, N, N, DIM, 8);
    double *mass = calloc(N * N, sizeof *mass);
    memcpy(g->q, g->k, N * DIM * sizeof *g->q);
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++)
            mass[i * N + j] = 1;
    assert_int_equal(gathered_run(g, "select=routing(clusters=1); where=causal; score=layernorm",
                                  HEED_ISA_AUTO, 1, false, NULL),
                     HEED_OK);
    norm(g->q, N, DIM);
    norm(g->k, N, DIM);
    gathered_add(g, 0, 0, mass, NULL);
    gathered_match(g, "one cluster", false);
    free(mass);
    gathered_free(g);
}

/* With as many queries as keys and q = k, the queries of a cluster are its keys, and no query sees a later
 * token: changing the future where it stays in its clusters changes nothing. */
static void the_future_changes_nothing_but_who_is_in(void **state)
{
    (void)state;
    enum { N = 40, DIM = 8, HALF = 20 };
    gathered *g = gathered_make(1, 1, 1, N, N, DIM, 5);
    float before[HALF * DIM];
    memcpy(g->q, g->k, N * DIM * sizeof *g->q);
    const char *spec = "select=routing(clusters=3, size=12); where=causal";
    assert_int_equal(gathered_run(g, spec, HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    memcpy(before, g->got_out, sizeof before);
    for (int i = HALF * DIM; i < N * DIM; i++)
        g->v[i] += 3; /* values have no say in who is in */
    assert_int_equal(gathered_run(g, spec, HEED_ISA_AUTO, 1, false, NULL), HEED_OK);
    assert_memory_equal(before, g->got_out, sizeof before);
    gathered_free(g);
}

/* The centroid nearest to a row. */
static int nearest(const double *mu, const float *row, int clusters, int dim)
{
    int best = 0;
    double most = -INFINITY;
    for (int c = 0; c < clusters; c++) {
        double value = 0;
        for (int x = 0; x < dim; x++)
            value += mu[c * dim + x] * (double)row[x];
        best = value > most ? c : best;
        most = value > most ? value : most;
    }
    return best;
}

/* mu <- decay mu + (1 - decay) / 2 (mean of its queries + mean of its keys), twice. */
static void centroids_follow_the_tokens_nearest_to_them(void **state)
{
    (void)state;
    enum { N = 60, DIM = 6, C = 4 };
    const heed_form *form = heed_registry_find(HEED_ISA_PORTABLE, HEED_SELECT, "routing");
    const float scale = 0.25f;
    heed_form_state f = {.form = form, .sizes = {.heads = 1, .kv_heads = 1, .dim = DIM, .score_scale = 0.25}};
    f.arg[0].number = C;
    f.arg[3].number = 0.6;
    float *k = centroids(2 * N * DIM, 3), *q = centroids(2 * N * DIM, 4), shown_q[N * DIM], got[C * DIM];
    double *sums = calloc((size_t)form->calibration->sums(&f), sizeof *sums), mu[C * DIM];
    float *work = calloc((size_t)form->calibration->work(&f, N), sizeof *work);
    for (int c = 0; c < C * DIM; c++)
        mu[c] = (double)k[c / DIM * N / C * DIM + c % DIM];
    for (int window = 0; window < 2; window++) {
        const float *keys = k + window * N * DIM, *queries = q + window * N * DIM;
        double sum[2][C][DIM] = {{{0}}}, count[2][C] = {{0}};
        for (int i = 0; i < N; i++) {
            const float *row[] = {queries + i * DIM, keys + i * DIM};
            for (int side = 0; side < 2; side++) {
                const int c = nearest(mu, row[side], C, DIM);
                count[side][c]++;
                for (int x = 0; x < DIM; x++)
                    sum[side][c][x] += (double)row[side][x];
            }
        }
        for (int c = 0; c < C; c++)
            for (int x = 0; x < DIM && count[0][c] > 0 && count[1][c] > 0; x++)
                mu[c * DIM + x] =
                    0.6 * mu[c * DIM + x] + 0.2 * (sum[0][c][x] / count[0][c] + sum[1][c][x] / count[1][c]);
        for (int i = 0; i < N * DIM; i++)
            shown_q[i] = queries[i] * scale; /* as queries are compared */
        form->calibration->gather(&f,
                                  &(heed_shown){.group = 1,
                                                .tokens = N,
                                                .span = N,
                                                .dim = DIM,
                                                .value_dim = DIM,
                                                .query = shown_q,
                                                .key = keys},
                                  sums, work);
    }
    float *param[] = {got};
    assert_int_equal(form->calibration->settle(&f, sums, param), HEED_OK);
    for (int i = 0; i < C * DIM; i++)
        assert_float_equal(got[i], mu[i], 1e-5);
    free(k);
    free(q);
    free(sums);
    free(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clusters_equal_the_definition_forward_and_backward),
        cmocka_unit_test(ragged_batches_have_clusters_of_their_own),
        cmocka_unit_test(one_cluster_is_full_attention),
        cmocka_unit_test(the_future_changes_nothing_but_who_is_in),
        cmocka_unit_test(centroids_follow_the_tokens_nearest_to_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
