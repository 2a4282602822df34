#include "support/scan_case.h"
#include "support/attend.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

static int64_t heads_of(const scan_data *d, int which)
{
    return which == Q || which == OUT ? d->problem.heads : d->problem.kv_heads;
}

static int64_t row_of(const scan_data *d, int which)
{
    return which == DECAY || which == BETA ? 1
           : which == GATE && d->slots     ? SLOTS
           : which == V || which == OUT    ? d->problem.value_dim
                                           : d->problem.dim;
}

static double value_of(int which, test_random *random)
{
    const double x = random_normal(random);
    if (which == DECAY || which == GATE)
        return -0.2 * fabs(x);
    return which == BETA || which == RATE ? 1 / (1 + exp(-x)) : x;
}

scan_data scan_make(const char *spec, int64_t heads, int64_t kv_heads, int64_t tokens, int64_t dim,
                    int64_t value_dim, uint64_t seed)
{
    scan_data d = {.slots = strstr(spec, "gsa") || strstr(spec, "titans"),
                   .problem = {.batch = BATCH,
                               .heads = heads,
                               .kv_heads = kv_heads,
                               .tokens = tokens,
                               .dim = dim,
                               .value_dim = value_dim,
                               .layer = 1,
                               .layers = 3,
                               .threads = 2}};
    test_random random = {seed};
    for (int w = 0; w < TENSORS; w++) {
        d.floats[w] = BATCH * heads_of(&d, w) * tokens * row_of(&d, w);
        d.x[w] = malloc((size_t)d.floats[w] * sizeof(float));
        d.exact[w] = malloc((size_t)d.floats[w] * sizeof(double));
        for (int64_t i = 0; i < d.floats[w]; i++)
            d.exact[w][i] = d.x[w][i] = (float)value_of(w, &random);
    }
    return d;
}

void scan_drop(scan_data *d)
{
    for (int w = 0; w < TENSORS; w++) {
        free(d->x[w]);
        free(d->exact[w]);
    }
}

int64_t scan_kv_heads_of(const char *spec, int64_t heads, int64_t kv_heads)
{
    return strstr(spec, "aaren") ? heads : kv_heads;
}

bool scan_reads(const heed_scan_plan *plan, int which)
{
    const unsigned flags = heed_scan_flags(plan);
    const unsigned reads[TENSORS] = {[DECAY] = HEED_SCAN_READS_DECAY,
                                     [GATE] = HEED_SCAN_READS_GATE,
                                     [BETA] = HEED_SCAN_READS_BETA,
                                     [ERASE] = HEED_SCAN_READS_ERASE,
                                     [RATE] = HEED_SCAN_READS_RATE};
    if (which == K || which == Q)
        return !(flags & (which == K ? HEED_SCAN_NO_KEYS : HEED_SCAN_NO_QUERIES));
    return !reads[which] || flags & reads[which];
}

heed_scan_tensors scan_tensors_of(const heed_scan_plan *plan, const scan_data *d, float *const *x,
                                  int64_t first, int64_t count)
{
    heed_tensor t[TENSORS] = {{.data = NULL}};
    for (int w = 0; w < TENSORS; w++) {
        const int64_t row = row_of(d, w), shape[] = {BATCH, heads_of(d, w), d->problem.tokens, row};
        if (!scan_reads(plan, w) || !x[w])
            continue;
        t[w] = heed_tensor_dense(x[w] + first * row, HEED_F32, w == DECAY || w == BETA ? 3 : 4, shape);
        t[w].shape[2] = count;
    }
    return (heed_scan_tensors){.q = t[Q],
                               .k = t[K],
                               .v = t[V],
                               .decay = t[DECAY],
                               .gate = t[GATE],
                               .beta = t[BETA],
                               .erase = t[ERASE],
                               .rate = t[RATE],
                               .out = t[OUT]};
}

const double *scan_row_at(const scan_data *d, int which, int64_t b, int64_t h, int64_t t)
{
    return d->exact[which] + ((b * heads_of(d, which) + h) * d->problem.tokens + t) * row_of(d, which);
}

static void weighted_mean(const scan_definition *f, const scan_sizes *s, const scan_data *d, int64_t b,
                          int64_t h, int64_t g, int64_t t, double *out)
{
    double all = 0;
    for (int64_t j = 0; j <= t; j++) {
        const double w = f->weight ? f->weight(s, scan_row_at(d, Q, b, h, t), scan_row_at(d, K, b, g, j))
                                   : exp(*scan_row_at(d, BETA, b, g, j));
        all += w;
        for (int c = 0; c < s->value_dim; c++)
            out[c] += w * scan_row_at(d, V, b, g, j)[c];
    }
    for (int c = 0; c < s->value_dim; c++)
        out[c] /= all;
}

void scan_define(const scan_definition *f, const scan_data *d, double *out)
{
    const heed_scan_problem *p = &d->problem;
    memset(out, 0, (size_t)d->floats[OUT] * sizeof *out);
    for (int64_t i = 0; i < BATCH * p->heads; i++) {
        const int64_t b = i / p->heads, h = i % p->heads, g = h / (p->heads / p->kv_heads);
        const scan_sizes s = {(int)p->dim, (int)p->value_dim, (int)g, (int)p->kv_heads};
        static scan_matrix S;
        memset(S, 0, sizeof S);
        if (f->text) {
            scan_token all[MOST_TOKENS];
            for (int64_t t = 0; t < p->tokens; t++)
                all[t] = (scan_token){.q = scan_row_at(d, Q, b, h, t),
                                      .k = scan_row_at(d, K, b, g, t),
                                      .v = scan_row_at(d, V, b, g, t),
                                      .gate = scan_row_at(d, GATE, b, g, t),
                                      .beta = *scan_row_at(d, BETA, b, g, t)};
            f->text(&s, (int)p->tokens, all, out);
            out += p->tokens * p->value_dim;
            continue;
        }
        for (int64_t t = 0; t < p->tokens; t++, out += p->value_dim) {
            double q[MOST_DIM];
            const scan_token at = {scan_row_at(d, Q, b, h, t),      scan_row_at(d, K, b, g, t),
                                   scan_row_at(d, V, b, g, t),      scan_row_at(d, GATE, b, g, t),
                                   scan_row_at(d, ERASE, b, g, t),  scan_row_at(d, RATE, b, g, t),
                                   *scan_row_at(d, DECAY, b, g, t), *scan_row_at(d, BETA, b, g, t)};
            if (f->sums) {
                weighted_mean(f, &s, d, b, h, g, t, out);
                continue;
            }
            if (!f->update) {
                scan_gsa(&s, &at, at.q, S, out);
                continue;
            }
            f->update(&s, &at, S);
            if (f->query)
                f->query(&s, at.q, q);
            for (int r = 0; r < s.dim; r++)
                for (int c = 0; c < s.value_dim; c++)
                    out[c] += (f->query ? q[r] : at.q[r] / sqrt(s.dim)) * S[r][c];
        }
    }
}

heed_scan_plan *scan_plan_of(const char *spec, const scan_data *d, heed_isa isa, int threads, bool backward)
{
    heed_scan_problem problem = d->problem;
    problem.isa = isa;
    problem.threads = threads;
    problem.backward = backward;
    heed_scan_plan *plan;
    if (heed_scan_create(&plan, spec, &problem))
        fail_msg("%s: %s", spec, heed_message());
    return plan;
}
