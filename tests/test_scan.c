/* Recurrences equal their formulas, wherever they are cut, forward and backward. */
#include "support/attend.h"
#include "support/isas.h"
#include "support/random.h"

#include <heed/scan.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, MOST_DIM = 24, MOST_VALUES = 60, SLOTS = 3 };

/* The tensors of one head at one token, in double. */
typedef struct token {
    const double *q, *k, *v, *gate, *erase, *rate;
    double decay, beta;
} token;

typedef struct sizes {
    int dim, value_dim, head, heads;
} sizes;

/* S [D][E] of the definition; what a token does to it, as the formulas are written. */
typedef double matrix[MOST_DIM][MOST_VALUES];

typedef struct definition {
    const char *spec;
    bool sums; /* the output is a weighted mean over all tokens so far */
    double (*weight)(const sizes *s, const double *q, const double *k); /* of a pair, where `sums` */
    void (*update)(const sizes *s, const token *at, matrix S);
    void (*query)(const sizes *s, const double *q, double *to); /* NULL: q / sqrt(D) */
} definition;

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void unit(const double *x, int n, double *to)
{
    const double length = sqrt(dot(x, x, n) + 1e-6);
    for (int i = 0; i < n; i++)
        to[i] = x[i] / length;
}

static double elu(double x)
{
    return x > 0 ? x + 1 : exp(x);
}

static double linear_weight(const sizes *s, const double *q, const double *k)
{
    double sum = 0;
    for (int i = 0; i < s->dim; i++)
        sum += elu(q[i]) * elu(k[i]);
    return sum;
}

static double exp_weight(const sizes *s, const double *q, const double *k)
{
    double sum = 0;
    for (int i = 0; i < s->dim; i++)
        sum += exp(q[i] + k[i]);
    return sum;
}

static double based_weight(const sizes *s, const double *q, const double *k)
{
    const double x = dot(q, k, s->dim) / sqrt(s->dim);
    return 1 + x + x * x / 2;
}

static void fade(const sizes *s, matrix S, double all, const double *log_each)
{
    for (int r = 0; r < s->dim; r++)
        for (int c = 0; c < s->value_dim; c++)
            S[r][c] *= log_each ? exp(log_each[r]) : all;
}

static void add(const sizes *s, matrix S, double factor, const double *k, const double *v)
{
    for (int r = 0; r < s->dim; r++)
        for (int c = 0; c < s->value_dim; c++)
            S[r][c] += factor * k[r] * v[c];
}

/* S = (I - factor a b^T) S */
static void take_out(const sizes *s, matrix S, const double *a, const double *b, double factor)
{
    matrix was;
    memcpy(was, S, sizeof was);
    for (int r = 0; r < s->dim; r++)
        for (int c = 0; c < s->value_dim; c++)
            for (int i = 0; i < s->dim; i++)
                S[r][c] -= factor * a[r] * b[i] * was[i][c];
}

static void retention(const sizes *s, const token *at, matrix S)
{
    fade(s, S, 1 - pow(2, -5 - s->head), NULL);
    add(s, S, 1, at->k, at->v);
}

static double swish(double x)
{
    return x / (1 + exp(-x));
}

static void lightning(const sizes *s, const token *at, matrix S)
{
    double k[MOST_DIM];
    for (int i = 0; i < s->dim; i++)
        k[i] = swish(at->k[i]);
    fade(s, S, exp(-8.0 * s->head / s->heads * (1 - 1.0 / 3)), NULL);
    add(s, S, 1, k, at->v);
}

static void swish_query(const sizes *s, const double *q, double *to)
{
    for (int i = 0; i < s->dim; i++)
        to[i] = swish(q[i]);
}

static void plain_query(const sizes *s, const double *q, double *to)
{
    memcpy(to, q, (size_t)s->dim * sizeof *to);
}

static void unit_query(const sizes *s, const double *q, double *to)
{
    unit(q, s->dim, to);
    for (int i = 0; i < s->dim; i++)
        to[i] /= sqrt(s->dim);
}

static void simple_gla(const sizes *s, const token *at, matrix S)
{
    fade(s, S, exp(at->decay), NULL);
    add(s, S, 1, at->k, at->v);
}

static void mamba2(const sizes *s, const token *at, matrix S)
{
    fade(s, S, exp(at->decay), NULL);
    add(s, S, at->beta, at->k, at->v);
}

static void gla(const sizes *s, const token *at, matrix S)
{
    fade(s, S, 0, at->gate);
    add(s, S, 1, at->k, at->v);
}

static void hgrn2(const sizes *s, const token *at, matrix S)
{
    double k[MOST_DIM];
    for (int i = 0; i < s->dim; i++)
        k[i] = 1 - exp(at->gate[i]);
    fade(s, S, 0, at->gate);
    add(s, S, 1, k, at->v);
}

static void delta_rule(const sizes *s, const token *at, matrix S, bool normed)
{
    double k[MOST_DIM];
    memcpy(k, at->k, (size_t)s->dim * sizeof *k);
    if (normed)
        unit(at->k, s->dim, k);
    take_out(s, S, k, k, at->beta);
    add(s, S, at->beta, k, at->v);
}

static void delta(const sizes *s, const token *at, matrix S)
{
    delta_rule(s, at, S, true);
}

static void bare_delta(const sizes *s, const token *at, matrix S)
{
    delta_rule(s, at, S, false);
}

static void gated_delta(const sizes *s, const token *at, matrix S)
{
    fade(s, S, exp(at->decay), NULL);
    delta_rule(s, at, S, true);
}

static void kda(const sizes *s, const token *at, matrix S)
{
    fade(s, S, 0, at->gate);
    delta_rule(s, at, S, true);
}

static void rwkv7(const sizes *s, const token *at, matrix S)
{
    double u[MOST_DIM], out[MOST_DIM], seen[MOST_VALUES] = {0};
    unit(at->erase, s->dim, u);
    for (int i = 0; i < s->dim; i++) {
        out[i] = at->rate[i] * u[i];
        for (int c = 0; c < s->value_dim; c++)
            seen[c] += u[i] * S[i][c];
    }
    fade(s, S, 0, at->gate);
    add(s, S, -1, out, seen);
    add(s, S, 1, at->k, at->v);
}

/* Slots hold a key and a value each, side by side in S: [slots][D + E]. */
static void gsa(const sizes *s, const token *at, const double *q, matrix S, double *out)
{
    double weight[SLOTS], sum = 0;
    for (int r = 0; r < SLOTS; r++) {
        const double keep = exp(at->gate[r]);
        for (int i = 0; i < s->dim + s->value_dim; i++)
            S[r][i] = keep * S[r][i] + (1 - keep) * (i < s->dim ? at->k[i] : at->v[i - s->dim]);
        sum += weight[r] = exp(dot(S[r], q, s->dim));
    }
    for (int r = 0; r < SLOTS; r++)
        for (int c = 0; c < s->value_dim; c++)
            out[c] += weight[r] / sum * S[r][s->dim + c];
}

static const definition definitions[] = {
    {"scan=gsa(slots=3)", false, NULL, NULL, NULL},
    {"scan=linear", true, linear_weight, NULL, NULL},
    {"scan=linear(map=exp)", true, exp_weight, NULL, NULL},
    {"scan=based", true, based_weight, NULL, NULL},
    {"scan=retention", false, NULL, retention, NULL},
    {"scan=lightning", false, NULL, lightning, swish_query},
    {"scan=simple_gla", false, NULL, simple_gla, NULL},
    {"scan=mamba2", false, NULL, mamba2, plain_query},
    {"scan=gla", false, NULL, gla, NULL},
    {"scan=hgrn2", false, NULL, hgrn2, plain_query},
    {"scan=delta", false, NULL, delta, unit_query},
    {"scan=delta(norm=none)", false, NULL, bare_delta, NULL},
    {"scan=gated_delta", false, NULL, gated_delta, unit_query},
    {"scan=kda", false, NULL, kda, unit_query},
    {"scan=rwkv7", false, NULL, rwkv7, plain_query},
};
enum { DEFINITIONS = sizeof definitions / sizeof *definitions };

/* Tensors of a case, in float and double; the order of the fields of heed_scan_tensors. */
enum { Q, K, V, DECAY, GATE, BETA, ERASE, RATE, OUT, TENSORS };

typedef struct data {
    heed_scan_problem problem;
    bool slots; /* a row of the gate has SLOTS entries */
    float *x[TENSORS];
    double *exact[TENSORS];
    int64_t floats[TENSORS];
} data;

static int64_t heads_of(const data *d, int which)
{
    return which == Q || which == OUT ? d->problem.heads : d->problem.kv_heads;
}

static int64_t row_of(const data *d, int which)
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

static data make(const char *spec, int64_t heads, int64_t kv_heads, int64_t tokens, int64_t dim,
                 int64_t value_dim, uint64_t seed)
{
    data d = {.slots = strstr(spec, "gsa"),
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

static void drop(data *d)
{
    for (int w = 0; w < TENSORS; w++) {
        free(d->x[w]);
        free(d->exact[w]);
    }
}

static bool is_read(const heed_scan_plan *plan, int which)
{
    const unsigned flags = heed_scan_flags(plan);
    const unsigned reads[TENSORS] = {[DECAY] = HEED_SCAN_READS_DECAY,
                                     [GATE] = HEED_SCAN_READS_GATE,
                                     [BETA] = HEED_SCAN_READS_BETA,
                                     [ERASE] = HEED_SCAN_READS_ERASE,
                                     [RATE] = HEED_SCAN_READS_RATE};
    if (which == K)
        return !(flags & HEED_SCAN_NO_KEYS);
    return !reads[which] || flags & reads[which];
}

/* Tokens first.. of what the plan reads. */
static heed_scan_tensors tensors_of(const heed_scan_plan *plan, const data *d, float *const *x, int64_t first,
                                    int64_t count)
{
    heed_tensor t[TENSORS] = {{.data = NULL}};
    for (int w = 0; w < TENSORS; w++) {
        const int64_t row = row_of(d, w), shape[] = {BATCH, heads_of(d, w), d->problem.tokens, row};
        if (!is_read(plan, w) || !x[w])
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

static const double *row_at(const data *d, int which, int64_t b, int64_t h, int64_t t)
{
    return d->exact[which] + ((b * heads_of(d, which) + h) * d->problem.tokens + t) * row_of(d, which);
}

static void weighted_mean(const definition *f, const sizes *s, const data *d, int64_t b, int64_t h, int64_t g,
                          int64_t t, double *out)
{
    double all = 0;
    for (int64_t j = 0; j <= t; j++) {
        const double w = f->weight(s, row_at(d, Q, b, h, t), row_at(d, K, b, g, j));
        all += w;
        for (int c = 0; c < s->value_dim; c++)
            out[c] += w * row_at(d, V, b, g, j)[c];
    }
    for (int c = 0; c < s->value_dim; c++)
        out[c] /= all;
}

/* out [BATCH][H][N][E] by the definition. */
static void define(const definition *f, const data *d, double *out)
{
    const heed_scan_problem *p = &d->problem;
    memset(out, 0, (size_t)d->floats[OUT] * sizeof *out);
    for (int64_t i = 0; i < BATCH * p->heads; i++) {
        const int64_t b = i / p->heads, h = i % p->heads, g = h / (p->heads / p->kv_heads);
        const sizes s = {(int)p->dim, (int)p->value_dim, (int)g, (int)p->kv_heads};
        static matrix S;
        memset(S, 0, sizeof S);
        for (int64_t t = 0; t < p->tokens; t++, out += p->value_dim) {
            double q[MOST_DIM];
            const token at = {row_at(d, Q, b, h, t),      row_at(d, K, b, g, t),     row_at(d, V, b, g, t),
                              row_at(d, GATE, b, g, t),   row_at(d, ERASE, b, g, t), row_at(d, RATE, b, g, t),
                              *row_at(d, DECAY, b, g, t), *row_at(d, BETA, b, g, t)};
            if (f->sums) {
                weighted_mean(f, &s, d, b, h, g, t, out);
                continue;
            }
            if (!f->update) {
                gsa(&s, &at, at.q, S, out);
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

static heed_scan_plan *plan_of(const char *spec, const data *d, heed_isa isa, int threads, bool backward)
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

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

static void match(const char *what, const float *got, const double *want, int64_t n, double relative)
{
    const double most = relative * (largest(want, n) + 1e-3);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= most))
            fail_msg("%s: entry %lld is %.9g, expected %.9g", what, (long long)i, got[i], want[i]);
}

static void each_form_is_its_formula(void **state)
{
    (void)state;
    for (const heed_isa *isa = test_isas(); *isa; isa++)
        for (int f = 0; f < DEFINITIONS; f++) {
            data d = make(definitions[f].spec, 4, f % 2 ? 2 : 4, f % 3 ? 130 : 9, f % 2 ? 8 : 13,
                          f == 2  ? 32
                          : f % 3 ? 40
                                  : 5,
                          (uint64_t)f + 1);
            double *want = malloc((size_t)d.floats[OUT] * sizeof *want);
            define(&definitions[f], &d, want);
            heed_scan_plan *plan = plan_of(definitions[f].spec, &d, *isa, 2, false);
            const heed_scan_tensors t = tensors_of(plan, &d, d.x, 0, d.problem.tokens);
            assert_int_equal(heed_scan(plan, &t), HEED_OK);
            match(definitions[f].spec, d.x[OUT], want, d.floats[OUT], 2e-5);
            heed_scan_free(plan);
            free(want);
            drop(&d);
        }
}

/* All at once, in runs of random lengths, and token by token; by one thread and by two. */
static void cut_anywhere_it_gives_the_same_bits(void **state)
{
    (void)state;
    for (int f = 0; f < DEFINITIONS; f++) {
        data d = make(definitions[f].spec, 2, 1, 150, 8, f == 2 ? 32 : 36, (uint64_t)f + 50);
        test_random random = {7};
        float *whole = malloc((size_t)d.floats[OUT] * sizeof *whole), *x[TENSORS];
        memcpy(x, d.x, sizeof x);
        x[OUT] = whole;
        heed_scan_plan *plan = plan_of(definitions[f].spec, &d, HEED_ISA_AUTO, 2, false);
        heed_scan_plan *alone = plan_of(definitions[f].spec, &d, HEED_ISA_AUTO, 1, false);
        const int64_t floats = BATCH * heed_scan_state_floats(plan);
        float *end = calloc((size_t)floats, sizeof *end), *carried = calloc((size_t)floats, sizeof *end);
        heed_scan_tensors t = tensors_of(plan, &d, x, 0, 150);
        t.state = end;
        assert_int_equal(heed_scan(plan, &t), HEED_OK);
        for (int64_t n = 0, count; n < 150; n += count) {
            count = n < 100 ? random_whole(&random, 1, 100 - n) : 1;
            t = tensors_of(plan, &d, d.x, n, count);
            t.state = carried;
            assert_int_equal(heed_scan(n % 2 ? plan : alone, &t), HEED_OK);
        }
        assert_memory_equal(d.x[OUT], whole, (size_t)d.floats[OUT] * sizeof *whole);
        assert_memory_equal(carried, end, (size_t)floats * sizeof *end);
        heed_scan_free(plan);
        heed_scan_free(alone);
        free(whole);
        free(end);
        free(carried);
        drop(&d);
    }
}

/* Of sum(dout * out) by the definition in double, by central differences. */
static double slope(const definition *f, data *d, const double *dout, double *x, double *out)
{
    const double was = *x, step = 1e-5;
    double sum[2] = {0, 0};
    for (int side = 0; side < 2; side++) {
        *x = side ? was - step : was + step;
        define(f, d, out);
        for (int64_t i = 0; i < d->floats[OUT]; i++)
            sum[side] += dout[i] * out[i];
    }
    *x = was;
    return (sum[0] - sum[1]) / (2 * step);
}

static void gradients_are_finite_differences(void **state)
{
    (void)state;
    for (const heed_isa *isa = test_isas(); *isa; isa++)
        for (int f = 0; f < DEFINITIONS; f++) {
            data d = make(definitions[f].spec, 2, f % 2 ? 1 : 2, f % 4 ? 7 : 70, 4,
                          f == 2  ? 32
                          : f % 2 ? 3
                                  : 34,
                          (uint64_t)f + 90);
            heed_scan_plan *plan = plan_of(definitions[f].spec, &d, *isa, 2, true);
            double *want = malloc((size_t)d.floats[OUT] * sizeof *want),
                   *dout = malloc((size_t)d.floats[OUT] * sizeof *dout);
            float *g[TENSORS] = {0}, *dout32 = malloc((size_t)d.floats[OUT] * sizeof *dout32);
            test_random random = {5};
            for (int64_t i = 0; i < d.floats[OUT]; i++)
                dout[i] = dout32[i] = (float)random_normal(&random);
            for (int w = 0; w < OUT; w++)
                g[w] = malloc((size_t)d.floats[w] * sizeof(float));
            const heed_scan_tensors t = tensors_of(plan, &d, d.x, 0, d.problem.tokens);
            const heed_scan_tensors gradients = tensors_of(plan, &d, g, 0, d.problem.tokens);
            heed_tensor along = t.out;
            along.data = dout32;
            assert_int_equal(heed_scan(plan, &t), HEED_OK);
            if (heed_scan_backward(plan, &t, &along, &gradients))
                fail_msg("%s: %s", definitions[f].spec, heed_message());
            for (int w = 0; w < OUT; w++) {
                const double size = is_read(plan, w) ? 0 : 1;
                double most = size;
                for (int64_t i = 0; size == 0 && i < d.floats[w]; i++)
                    most = fabs((double)g[w][i]) > most ? fabs((double)g[w][i]) : most;
                for (int n = 0; is_read(plan, w) && n < 6; n++) {
                    const int64_t i = random_whole(&random, 0, d.floats[w] - 1);
                    const double s = slope(&definitions[f], &d, dout, &d.exact[w][i], want);
                    if (!(fabs(s - g[w][i]) <= 1e-4 * most + 1e-6))
                        fail_msg("%s: gradient %lld of tensor %d is %.9g, expected %.9g", definitions[f].spec,
                                 (long long)i, w, g[w][i], s);
                }
                free(g[w]);
            }
            heed_scan_free(plan);
            free(want);
            free(dout);
            free(dout32);
            drop(&d);
        }
}

/* With keys at right angles and beta = 1 the delta rule gives back what was written last under a key; sums
 * without a rule would give all that was ever written. */
static void the_delta_rule_replaces_what_stood_there(void **state)
{
    (void)state;
    data d = make("", 1, 1, 6, 4, 3, 11);
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t < 6; t++) {
            d.x[BETA][b * 6 + t] = 1;
            for (int i = 0; i < 4; i++)
                d.x[K][(b * 6 + t) * 4 + i] = d.x[Q][(b * 6 + t) * 4 + i] = i == t % 3;
        }
    heed_scan_plan *plan = plan_of("scan=delta(scale=1, norm=none)", &d, HEED_ISA_AUTO, 1, false);
    const heed_scan_tensors t = tensors_of(plan, &d, d.x, 0, 6);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    for (int64_t i = 0; i < d.floats[OUT]; i++)
        assert_float_equal(d.x[OUT][i], d.x[V][i], 1e-6);
    heed_scan_free(plan);
    drop(&d);
}

/* A gate that does not depend on the channel is a decay; a decay of 0 is none; values that are all the same
 * stay what they are under weights that sum to 1. */
static void end_points_meet(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"scan=gla", "scan=simple_gla"}, {"scan=kda", "scan=gated_delta"}};
    data d = make("", 2, 2, 80, 8, 20, 12);
    float *first = malloc((size_t)d.floats[OUT] * sizeof *first);
    for (int64_t i = 0; i < d.floats[GATE]; i++)
        d.x[GATE][i] = d.x[DECAY][i / 8];
    for (int n = 0; n < 3; n++) {
        if (n == 2)
            memset(d.x[DECAY], 0, (size_t)d.floats[DECAY] * sizeof(float));
        for (int side = 0; side < 2; side++) {
            const char *spec = n < 2 ? pairs[n][side] : side ? "scan=gated_delta" : "scan=delta";
            heed_scan_plan *plan = plan_of(spec, &d, HEED_ISA_AUTO, 2, false);
            const heed_scan_tensors t = tensors_of(plan, &d, d.x, 0, 80);
            assert_int_equal(heed_scan(plan, &t), HEED_OK);
            if (side)
                assert_memory_equal(d.x[OUT], first, (size_t)d.floats[OUT] * sizeof *first);
            memcpy(first, d.x[OUT], (size_t)d.floats[OUT] * sizeof *first);
            heed_scan_free(plan);
        }
    }
    for (int64_t i = 0; i < d.floats[V]; i++)
        d.x[V][i] = 3;
    heed_scan_plan *plan = plan_of("scan=linear", &d, HEED_ISA_AUTO, 2, false);
    const heed_scan_tensors t = tensors_of(plan, &d, d.x, 0, 80);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    for (int64_t i = 0; i < d.floats[OUT]; i++)
        assert_float_equal(d.x[OUT][i], 3, 1e-5);
    heed_scan_free(plan);
    free(first);
    drop(&d);
}

/* Slot t takes in token t alone and keeps it: then slots are keys, and the read is attention. */
static void slots_that_keep_a_token_each_are_attention(void **state)
{
    (void)state;
    data d = make("gsa", 1, 1, SLOTS, 6, 5, 21);
    for (int64_t i = 0; i < d.floats[GATE]; i++)
        d.x[GATE][i] = i % SLOTS == i / SLOTS % SLOTS ? -INFINITY : 0;
    heed_scan_plan *plan = plan_of("scan=gsa(slots=3)", &d, HEED_ISA_AUTO, 1, false);
    const heed_scan_tensors t = tensors_of(plan, &d, d.x, 0, SLOTS);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    for (int64_t b = 0; b < BATCH; b++) {
        double weight[SLOTS], sum = 0;
        for (int j = 0; j < SLOTS; j++)
            sum += weight[j] = exp(dot(row_at(&d, Q, b, 0, SLOTS - 1), row_at(&d, K, b, 0, j), 6));
        for (int c = 0; c < 5; c++) {
            double want = 0;
            for (int j = 0; j < SLOTS; j++)
                want += weight[j] / sum * row_at(&d, V, b, 0, j)[c];
            assert_float_equal(d.x[OUT][(b * SLOTS + SLOTS - 1) * 5 + c], want, 1e-5);
        }
    }
    heed_scan_free(plan);
    drop(&d);
}

static void no_overflow_in_long_runs(void **state)
{
    (void)state;
    data d = make("", 1, 1, 65536, 4, 4, 13);
    for (int64_t i = 0; i < d.floats[DECAY]; i++)
        d.x[DECAY][i] = -30;
    heed_scan_plan *plan = plan_of("scan=simple_gla(scale=1)", &d, HEED_ISA_AUTO, 2, false);
    const heed_scan_tensors t = tensors_of(plan, &d, d.x, 0, 65536);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    for (int64_t i = 0; i < d.floats[OUT]; i++) {
        const int64_t row = i / 4 * 4;
        double want = 0;
        for (int c = 0; c < 4; c++)
            want += (double)d.x[Q][row + c] * d.x[K][row + c] * d.x[V][i];
        assert_float_equal(d.x[OUT][i], want, 1e-4 * (1 + fabs(want)));
    }
    heed_scan_free(plan);
    drop(&d);
}

static void refused(const char *spec, const char *why)
{
    const heed_scan_problem problem = {.batch = 1, .heads = 2, .tokens = 4, .dim = 4};
    heed_scan_plan *plan = (heed_scan_plan *)&plan;
    assert_int_not_equal(heed_scan_create(&plan, spec, &problem), HEED_OK);
    assert_null(plan);
    if (!strstr(heed_message(), why))
        fail_msg("%s: %s", spec, heed_message());
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    refused("scan=linaer", "linear");
    refused("where=causal", "no clause scan=");
    refused("scan=gla; where=causal", "where= stands beside scan=");
    refused("scan=retention(first=0)", "first");
    data d = make("", 2, 2, 10, 8, 8, 14);
    heed_scan_plan *plan = plan_of("scan=gated_delta", &d, HEED_ISA_AUTO, 1, false);
    heed_scan_tensors t = tensors_of(plan, &d, d.x, 0, 10);
    t.beta.data = NULL;
    assert_int_equal(heed_scan(plan, &t), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "reads beta, which is missing"));
    t = tensors_of(plan, &d, d.x, 0, 10);
    t.gate = t.q;
    assert_int_equal(heed_scan(plan, &t), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "gate is not read by scan=gated_delta"));
    t = tensors_of(plan, &d, d.x, 0, 10);
    t.v.shape[3] = 7;
    assert_int_equal(heed_scan(plan, &t), HEED_INVALID);
    assert_non_null(strstr(heed_message(), "v must be f32 [2, 2, 10, 8]"));
    t = tensors_of(plan, &d, d.x, 0, 10);
    assert_int_equal(heed_scan_backward(plan, &t, &t.out, &t), HEED_INVALID);
    heed_scan_free(plan);
    drop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_form_is_its_formula),
        cmocka_unit_test(cut_anywhere_it_gives_the_same_bits),
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(the_delta_rule_replaces_what_stood_there),
        cmocka_unit_test(end_points_meet),
        cmocka_unit_test(slots_that_keep_a_token_each_are_attention),
        cmocka_unit_test(no_overflow_in_long_runs),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
