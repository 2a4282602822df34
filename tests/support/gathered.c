#include "support/gathered.h"
#include "support/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *draw(int64_t n, test_random *r)
{
    float *x = calloc((size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)random_normal(r);
    return x;
}

gathered *gathered_make(int64_t batch, int64_t heads, int64_t kv_heads, int64_t queries, int64_t keys,
                        int64_t dim, uint64_t seed)
{
    gathered *g = calloc(1, sizeof *g);
    test_random r = {seed};
    const int64_t Q = batch * heads * queries * dim, K = batch * kv_heads * keys * dim;
    *g = (gathered){
        .batch = batch, .heads = heads, .kv_heads = kv_heads, .queries = queries, .keys = keys, .dim = dim};
    g->q = draw(Q, &r);
    g->k = draw(K, &r);
    g->v = draw(K, &r);
    g->dout = draw(Q, &r);
    g->out = calloc((size_t)Q, sizeof *g->out);
    g->dq = calloc((size_t)Q, sizeof *g->dq);
    g->dk = calloc((size_t)K, sizeof *g->dk);
    g->dv = calloc((size_t)K, sizeof *g->dv);
    g->got_out = calloc((size_t)Q, sizeof(float));
    g->got_dq = calloc((size_t)Q, sizeof(float));
    g->got_dk = calloc((size_t)K, sizeof(float));
    g->got_dv = calloc((size_t)K, sizeof(float));
    return g;
}

void gathered_free(gathered *g)
{
    void *all[] = {g->q,  g->k,       g->v,      g->dout,   g->out,    g->dq, g->dk,
                   g->dv, g->got_out, g->got_dq, g->got_dk, g->got_dv, g->seq};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(g);
}

void gathered_forget(gathered *g)
{
    const size_t Q = (size_t)(g->batch * g->heads * g->queries * g->dim);
    const size_t K = (size_t)(g->batch * g->kv_heads * g->keys * g->dim);
    memset(g->out, 0, Q * sizeof *g->out);
    memset(g->dq, 0, Q * sizeof *g->dq);
    memset(g->dk, 0, K * sizeof *g->dk);
    memset(g->dv, 0, K * sizeof *g->dv);
}

static double product(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += (double)x[c] * (double)y[c];
    return sum;
}

void gathered_add(gathered *g, int64_t b, int64_t h, const double *mass, const double *share)
{
    const double scale = 1 / sqrt((double)g->dim);
    const int64_t key0 = gathered_key(g, g->k, b, h, 0) - g->k,
                  query0 = gathered_query(g, g->q, b, h, 0) - g->q;
    double *weight = calloc((size_t)g->keys, sizeof *weight);
    for (int64_t i = 0; i < gathered_queries(g, b); i++) {
        const float *q = g->q + query0 + i * g->dim, *dout = g->dout + query0 + i * g->dim;
        double *out = g->out + query0 + i * g->dim, *dq = g->dq + query0 + i * g->dim;
        double sum = 0, delta = 0;
        for (int64_t j = 0; j < g->keys; j++) {
            const double m = mass[i * g->keys + j];
            weight[j] = m > 0 ? m * exp(scale * product(q, g->k + key0 + j * g->dim, g->dim)) : 0;
            sum += weight[j];
        }
        const double part = share ? share[i] : 1;
        for (int64_t j = 0; j < g->keys && sum > 0; j++) {
            weight[j] /= sum;
            delta += weight[j] * product(dout, g->v + key0 + j * g->dim, g->dim);
        }
        for (int64_t j = 0; j < g->keys && sum > 0; j++) {
            const float *k = g->k + key0 + j * g->dim, *v = g->v + key0 + j * g->dim;
            const double d = part * weight[j] * (product(dout, v, g->dim) - delta) * scale;
            for (int64_t c = 0; c < g->dim; c++) {
                out[c] += part * weight[j] * (double)v[c];
                g->dv[key0 + j * g->dim + c] += part * weight[j] * (double)dout[c];
                dq[c] += d * (double)k[c];
                g->dk[key0 + j * g->dim + c] += d * (double)q[c];
            }
        }
    }
    free(weight);
}

heed_status gathered_run(gathered *g, const char *spec, heed_isa isa, int threads, bool backward,
                         const heed_tensor *params)
{
    const int64_t q[] = {g->batch, g->heads, g->queries, g->dim},
                  k[] = {g->batch, g->kv_heads, g->keys, g->dim};
    const heed_problem problem = {.batch = g->batch,
                                  .heads = g->heads,
                                  .kv_heads = g->kv_heads,
                                  .queries = g->queries,
                                  .keys = g->keys,
                                  .dim = g->dim,
                                  .isa = isa,
                                  .threads = threads,
                                  .with =
                                      (backward ? HEED_WITH_BACKWARD : 0u) | (g->seq ? HEED_WITH_SEQ : 0u)};
    heed_plan *plan;
    heed_status status = heed_plan_create(&plan, spec, &problem);
    if (status)
        return status;
    heed_extra extra = {.params = params};
    if (g->seq)
        extra.seq = heed_tensor_dense(g->seq, HEED_I32, 1, &g->batch);
    const heed_tensor Q = heed_tensor_dense(g->q, HEED_F32, 4, q),
                      K = heed_tensor_dense(g->k, HEED_F32, 4, k);
    const heed_tensor V = heed_tensor_dense(g->v, HEED_F32, 4, k);
    const heed_tensor out = heed_tensor_dense(g->got_out, HEED_F32, 4, q);
    status = heed_attend(plan, &Q, &K, &V, &out, &extra);
    if (!status && backward)
        status =
            heed_attend_backward(plan, &(heed_gradients){.q = Q,
                                                         .k = K,
                                                         .v = V,
                                                         .dout = heed_tensor_dense(g->dout, HEED_F32, 4, q),
                                                         .dq = heed_tensor_dense(g->got_dq, HEED_F32, 4, q),
                                                         .dk = heed_tensor_dense(g->got_dk, HEED_F32, 4, k),
                                                         .dv = heed_tensor_dense(g->got_dv, HEED_F32, 4, k),
                                                         .extra = &extra});
    heed_plan_free(plan);
    return status;
}

static void match(const char *what, const char *name, const float *got, const double *expected, int64_t n)
{
    double size = 0;
    for (int64_t i = 0; i < n; i++)
        size = fabs(expected[i]) > size ? fabs(expected[i]) : size;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - expected[i]) <= 2e-5 * (1 + size)))
            fail_msg("%s: %s[%lld] is %.7g, expected %.7g", what, name, (long long)i, (double)got[i],
                     expected[i]);
}

void gathered_match(const gathered *g, const char *what, bool backward)
{
    const int64_t Q = g->batch * g->heads * g->queries * g->dim,
                  K = g->batch * g->kv_heads * g->keys * g->dim;
    match(what, "out", g->got_out, g->out, Q);
    if (!backward)
        return;
    match(what, "dq", g->got_dq, g->dq, Q);
    match(what, "dk", g->got_dk, g->dk, K);
    match(what, "dv", g->got_dv, g->dv, K);
}

void gathered_expect_got(gathered *g)
{
    for (int64_t n = 0; n < g->batch * g->heads * g->queries * g->dim; n++)
        g->out[n] = (double)g->got_out[n];
}

void gathered_refuse(gathered *g, const char *spec, heed_status status, const char *says)
{
    const heed_status got = gathered_run(g, spec, HEED_ISA_AUTO, 1, false, NULL);
    if (got == HEED_OK || (status != HEED_OK && got != status) || !strstr(heed_message(), says))
        fail_msg("%s: status %d, %s", spec, got, got ? heed_message() : "not refused");
}
