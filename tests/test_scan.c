/* Recurrences equal their formulas, wherever they are cut, forward and backward. */
#include "support/attend.h"
#include "support/isas.h"
#include "support/random.h"

#include <heed/scan.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, MOST_DIM = 24, MOST_VALUES = 60, MOST_TOKENS = 150, SLOTS = 3 };

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
    double (*weight)(const sizes *s, const double *q,
                     const double *k); /* of a pair, where `sums`; NULL: exp(beta) */
    void (*update)(const sizes *s, const token *at, matrix S);
    void (*query)(const sizes *s, const double *q, double *to); /* NULL: q / sqrt(D) */
    /* of whole texts, where it is no update of S: rows of one head */
    void (*text)(const sizes *s, int tokens, const token *at, double *out);
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

/* The row's standard deviations, 1 and 1, and its constants. */
static double lln_weight(const sizes *s, const double *q, const double *k)
{
    const double spread = sqrt((1 + 0.3549) / (2 * 0.1486));
    double sum = 0;
    for (int i = 0; i < s->dim; i++)
        sum += exp(spread * q[i]) * exp(spread * k[i]);
    return sum;
}

static void standard(const double *x, int n, double *to)
{
    double mean = 0, squares = 0;
    for (int i = 0; i < n; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        to[i] = (x[i] - mean) / (sqrt(squares) + 1e-6);
}

/* sum of s^l / l! up to p */
static double taylor_weight(const sizes *s, const double *q, const double *k, int p)
{
    double a[MOST_DIM], b[MOST_DIM], term = 1, sum = 1;
    standard(q, s->dim, a);
    standard(k, s->dim, b);
    for (int l = 1; l <= p; l++)
        sum += term *= dot(a, b, s->dim) / l;
    return sum;
}

static double fast_weight(const sizes *s, const double *q, const double *k)
{
    return taylor_weight(s, q, k, 2);
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

static void bare_lightning(const sizes *s, const token *at, matrix S)
{
    fade(s, S, exp(-8.0 * s->head / s->heads * (1 - 1.0 / 3)), NULL);
    add(s, S, 1, at->k, at->v);
}

static void sums(const sizes *s, const token *at, matrix S)
{
    add(s, S, 1, at->k, at->v);
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

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* y = x S */
static void read_matrix(const sizes *s, matrix S, const double *x, double *y)
{
    memset(y, 0, (size_t)s->value_dim * sizeof *y);
    for (int r = 0; r < s->dim; r++)
        for (int c = 0; c < s->value_dim; c++)
            y[c] += x[r] * S[r][c];
}

/* The memory learns by the gradient at its start of the chunk. */
static void learn(const sizes *s, int tokens, const token *at, int chunk, bool normed, double *out)
{
    static matrix M, momentum, start;
    memset(M, 0, sizeof M);
    memset(momentum, 0, sizeof momentum);
    for (int t = 0; t < tokens; t++, out += s->value_dim) {
        const double eta = sigmoid(at[t].gate[0]), theta = sigmoid(at[t].gate[1]),
                     alpha = sigmoid(at[t].gate[2]);
        double k[MOST_DIM], q[MOST_DIM], wrong[MOST_VALUES];
        memcpy(k, at[t].k, (size_t)s->dim * sizeof *k);
        memcpy(q, at[t].q, (size_t)s->dim * sizeof *q);
        if (normed) {
            unit(at[t].k, s->dim, k);
            unit(at[t].q, s->dim, q);
        }
        if (t % chunk == 0)
            memcpy(start, M, sizeof M);
        read_matrix(s, start, k, wrong);
        for (int c = 0; c < s->value_dim; c++)
            wrong[c] -= at[t].v[c];
        fade(s, momentum, eta, NULL);
        add(s, momentum, -2 * theta, k, wrong);
        fade(s, M, 1 - alpha, NULL);
        for (int r = 0; r < s->dim; r++)
            for (int c = 0; c < s->value_dim; c++)
                M[r][c] += momentum[r][c];
        read_matrix(s, M, q, out);
    }
}

static void titans(const sizes *s, int tokens, const token *at, double *out)
{
    learn(s, tokens, at, 1, true, out);
}

static void titans_by_chunks(const sizes *s, int tokens, const token *at, double *out)
{
    learn(s, tokens, at, 5, false, out);
}

static void turn(const double *x, int place, double base, int n, double *y)
{
    memcpy(y, x, (size_t)n * sizeof *y);
    for (int i = 0; base > 0 && i < n / 2; i++) {
        const double a = place * pow(base, -2.0 * i / n);
        y[i] = x[i] * cos(a) - x[i + n / 2] * sin(a);
        y[i + n / 2] = x[i] * sin(a) + x[i + n / 2] * cos(a);
    }
}

/* Segment by segment; the memory before a segment is made of all keys and values before it anew. */
static void segments(const sizes *s, int tokens, const token *at, int n, bool delta, double base, double *out)
{
    static matrix M, before;
    double z[MOST_DIM] = {0}, was[MOST_DIM], x[MOST_DIM], y[MOST_VALUES];
    memset(M, 0, sizeof M);
    for (int t = 0; t < tokens; t++, out += s->value_dim) {
        const int first = t / n * n;
        double q[MOST_DIM], k[MOST_DIM], sum = 0, norm = 0, local[MOST_VALUES] = {0};
        if (t == first && t > 0) {
            memcpy(before, M, sizeof M);
            memcpy(was, z, sizeof z);
            for (int j = first - n; j < first; j++) {
                double old = 0;
                for (int i = 0; i < s->dim; i++) {
                    x[i] = elu(at[j].k[i]);
                    old += x[i] * was[i];
                    z[i] += x[i];
                }
                read_matrix(s, before, x, y);
                for (int c = 0; c < s->value_dim; c++)
                    y[c] = at[j].v[c] - (delta && first > n ? y[c] / old : 0);
                add(s, M, 1, x, y);
            }
        }
        turn(at[t].q, t - first, base, s->dim, q);
        for (int j = first; j <= t; j++) {
            turn(at[j].k, j - first, base, s->dim, k);
            const double w = exp(dot(q, k, s->dim) / sqrt(s->dim));
            sum += w;
            for (int c = 0; c < s->value_dim; c++)
                local[c] += w * at[j].v[c];
        }
        for (int i = 0; i < s->dim; i++) {
            x[i] = elu(at[t].q[i]);
            norm += x[i] * z[i];
        }
        read_matrix(s, M, x, y);
        for (int c = 0; c < s->value_dim; c++)
            out[c] =
                sigmoid(at[t].beta) * (first ? y[c] / norm : 0) + (1 - sigmoid(at[t].beta)) * local[c] / sum;
    }
}

static void infini(const sizes *s, int tokens, const token *at, double *out)
{
    segments(s, tokens, at, 16, false, 10000, out);
}

static void infini_delta(const sizes *s, int tokens, const token *at, double *out)
{
    segments(s, tokens, at, 3, true, 0, out);
}

/* clip(u - tau, 0, 1) of the scores up to t, tau by halving; the window and the k highest are read. */
static void kept(const sizes *s, int tokens, const token *at, int k, int window, double base, double slope,
                 double *out)
{
    for (int t = 0; t < tokens; t++, out += s->value_dim) {
        double u[MOST_TOKENS], low = -1000, high = 1000, q[MOST_DIM], key[MOST_DIM], all = 0;
        for (int j = 0; j <= t; j++)
            u[j] = at[j].beta + slope * j;
        for (int step = 0; step < 200; step++) {
            const double tau = (low + high) / 2;
            double sum = 0;
            for (int j = 0; j <= t; j++)
                sum += fmin(1, fmax(0, u[j] - tau));
            *(sum > k ? &low : &high) = tau;
        }
        memset(out, 0, (size_t)s->value_dim * sizeof *out);
        turn(at[t].q, t, base, s->dim, q);
        for (int j = 0; j <= t; j++) {
            int above = 0;
            for (int i = 0; i <= t; i++)
                above += u[i] > u[j];
            double p = t < k ? 1 : above < k ? fmin(1, fmax(0, u[j] - high)) : 0;
            if (t - j < window)
                p = 1;
            if (p <= 1e-12)
                continue;
            turn(at[j].k, j, base, s->dim, key);
            const double w = exp(dot(q, key, s->dim) / sqrt(s->dim));
            all += w;
            for (int c = 0; c < s->value_dim; c++)
                out[c] += w * p * at[j].v[c];
        }
        for (int c = 0; c < s->value_dim; c++)
            out[c] /= all;
    }
}

static void sparsek(const sizes *s, int tokens, const token *at, double *out)
{
    kept(s, tokens, at, 5, 4, 10000, 0, out);
}

/* One key, whose p is sparsemax. */
static void sparsek_of_one(const sizes *s, int tokens, const token *at, double *out)
{
    kept(s, tokens, at, 1, 1, 0, 0.01, out);
}

/* Room for all: causal attention. */
static void sparsek_of_all(const sizes *s, int tokens, const token *at, double *out)
{
    kept(s, tokens, at, MOST_TOKENS, MOST_TOKENS, 100, 0, out);
}

static const definition definitions[] = {
    {"scan=gsa(slots=3)", false, NULL, NULL, NULL, NULL},
    {"scan=linear", true, linear_weight, NULL, NULL, NULL},
    {"scan=linear(map=exp)", true, exp_weight, NULL, NULL, NULL},
    {"scan=based", true, based_weight, NULL, NULL, NULL},
    {"scan=fast", true, fast_weight, NULL, NULL, NULL},
    {"scan=lln", true, lln_weight, NULL, NULL, NULL},
    {"scan=aaren", true, NULL, NULL, NULL, NULL},
    {"scan=lightning(map=none)", false, NULL, bare_lightning, plain_query, NULL},
    {"scan=lightning(decay=none, map=none)", false, NULL, sums, plain_query, NULL},
    {"scan=retention", false, NULL, retention, NULL, NULL},
    {"scan=lightning", false, NULL, lightning, swish_query, NULL},
    {"scan=simple_gla", false, NULL, simple_gla, NULL, NULL},
    {"scan=mamba2", false, NULL, mamba2, plain_query, NULL},
    {"scan=gla", false, NULL, gla, NULL, NULL},
    {"scan=hgrn2", false, NULL, hgrn2, plain_query, NULL},
    {"scan=delta", false, NULL, delta, unit_query, NULL},
    {"scan=delta(norm=none)", false, NULL, bare_delta, NULL, NULL},
    {"scan=gated_delta", false, NULL, gated_delta, unit_query, NULL},
    {"scan=kda", false, NULL, kda, unit_query, NULL},
    {"scan=rwkv7", false, NULL, rwkv7, plain_query, NULL},
    {.spec = "scan=titans", .text = titans},
    {.spec = "scan=titans(chunk=5, norm=none)", .text = titans_by_chunks},
    {.spec = "scan=infini(segment=16)", .text = infini},
    {.spec = "scan=infini(segment=3, update=delta, base=0)", .text = infini_delta},
    {.spec = "scan=sparsek(k=5, window=4)", .text = sparsek},
    {.spec = "scan=sparsek(k=1, window=1, base=0, slope=0.01)", .text = sparsek_of_one},
    {.spec = "scan=sparsek(k=200, window=3, base=100)", .text = sparsek_of_all},
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
    data d = {.slots = strstr(spec, "gsa") || strstr(spec, "titans"),
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

/* As many as query heads where they have to be. */
static int64_t kv_heads_of(const char *spec, int64_t heads, int64_t kv_heads)
{
    return strstr(spec, "aaren") ? heads : kv_heads;
}

static bool is_read(const heed_scan_plan *plan, int which)
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
        const double w = f->weight ? f->weight(s, row_at(d, Q, b, h, t), row_at(d, K, b, g, j))
                                   : exp(*row_at(d, BETA, b, g, j));
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
        if (f->text) {
            token all[MOST_TOKENS];
            for (int64_t t = 0; t < p->tokens; t++)
                all[t] = (token){.q = row_at(d, Q, b, h, t),
                                 .k = row_at(d, K, b, g, t),
                                 .v = row_at(d, V, b, g, t),
                                 .gate = row_at(d, GATE, b, g, t),
                                 .beta = *row_at(d, BETA, b, g, t)};
            f->text(&s, (int)p->tokens, all, out);
            out += p->tokens * p->value_dim;
            continue;
        }
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
            data d = make(definitions[f].spec, 4, kv_heads_of(definitions[f].spec, 4, f % 2 ? 2 : 4),
                          f % 3 ? 130 : 9, f % 2 ? 8 : 13,
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
        data d = make(definitions[f].spec, 2, kv_heads_of(definitions[f].spec, 2, 1), 150, 8,
                      f == 2 ? 32 : 36, (uint64_t)f + 50);
        test_random random = {7};
        float *whole = malloc((size_t)d.floats[OUT] * sizeof *whole), *x[TENSORS];
        memcpy(x, d.x, sizeof x);
        x[OUT] = whole;
        heed_scan_plan *plan = plan_of(definitions[f].spec, &d, HEED_ISA_AUTO, 2, false);
        heed_scan_plan *alone = plan_of(definitions[f].spec, &d, HEED_ISA_AUTO, 1, false);
        const int64_t floats = BATCH * d.problem.kv_heads * heed_scan_state_floats(plan);
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
            data d = make(definitions[f].spec, 2, kv_heads_of(definitions[f].spec, 2, f % 2 ? 1 : 2),
                          f % 4 ? 7 : 70, 4,
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

static void run_of(const char *spec, data *d)
{
    heed_scan_plan *plan = plan_of(spec, d, HEED_ISA_AUTO, 1, false);
    const heed_scan_tensors t = tensors_of(plan, d, d->x, 0, d->problem.tokens);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    heed_scan_free(plan);
}

/* eta = alpha = 0: the delta rule with beta = 2 theta. */
static void a_memory_without_momentum_is_the_delta_rule(void **state)
{
    (void)state;
    data d = make("titans", 2, 2, 90, 8, 20, 15);
    float *first = malloc((size_t)d.floats[OUT] * sizeof *first);
    for (int64_t i = 0; i < d.floats[BETA]; i++) {
        d.x[GATE][3 * i] = d.x[GATE][3 * i + 2] = -INFINITY;
        d.x[GATE][3 * i + 1] = -1 - d.x[BETA][i];
        d.x[BETA][i] = 2 / (1 + expf(1 + d.x[BETA][i]));
    }
    run_of("scan=titans", &d);
    memcpy(first, d.x[OUT], (size_t)d.floats[OUT] * sizeof *first);
    run_of("scan=delta(scale=1)", &d);
    for (int64_t i = 0; i < d.floats[OUT]; i++)
        assert_float_equal(d.x[OUT][i], first[i], 2e-5);
    free(first);
    drop(&d);
}

/* Only local: a segment that holds all is softmax attention, others are attention of blocks. A lone pair
 * that comes twice counts once by the delta rule. */
static void a_compressive_memory_at_its_ends(void **state)
{
    (void)state;
    data d = make("", 1, 1, 12, 4, 3, 16);
    for (int64_t i = 0; i < d.floats[BETA]; i++)
        d.x[BETA][i] = -INFINITY;
    run_of("scan=infini(segment=6, base=0)", &d);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t t = 0; t < 12; t++)
            for (int c = 0; c < 3; c++) {
                double sum = 0, want = 0;
                for (int64_t j = t / 6 * 6; j <= t; j++) {
                    const double w = exp(dot(row_at(&d, Q, b, 0, t), row_at(&d, K, b, 0, j), 4) / 2);
                    sum += w;
                    want += w * row_at(&d, V, b, 0, j)[c];
                }
                assert_float_equal(d.x[OUT][(b * 12 + t) * 3 + c], want / sum, 1e-5);
            }
    for (int64_t i = 0; i < d.floats[BETA]; i++) {
        d.x[BETA][i] = INFINITY;
        memcpy(d.x[K] + 4 * i, d.x[K], 4 * sizeof(float));
        memcpy(d.x[V] + 3 * i, d.x[V], 3 * sizeof(float));
    }
    run_of("scan=infini(segment=1, update=delta)", &d);
    for (int64_t i = 3; i < 9; i++) /* z counts every key, M the pair once */
        assert_float_equal(d.x[OUT][i] * (i / 3), d.x[V][i % 3], 1e-4);
    drop(&d);
}

/* Scores as large as 1e4 of either sign: softmax over the prefix. */
static void a_prefix_scan_is_softmax_whatever_the_scores(void **state)
{
    (void)state;
    data d = make("aaren", 1, 1, 300, 1, 5, 31);
    for (int64_t i = 0; i < d.floats[BETA]; i++)
        d.x[BETA][i] =
            (float)(i % 3 ? 1e4 * sin((double)i) : 1e4 * sin((double)(i / 7)) + 0.3 * (double)(i % 5));
    heed_scan_plan *plan = plan_of("scan=aaren", &d, HEED_ISA_AUTO, 1, false);
    const heed_scan_tensors t = tensors_of(plan, &d, d.x, 0, 300);
    assert_int_equal(heed_scan(plan, &t), HEED_OK);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t n = 0; n < 300; n++) {
            const float *s = d.x[BETA] + b * 300;
            double most = -1e30, sum = 0, want[5] = {0};
            for (int64_t j = 0; j <= n; j++)
                most = fmax(most, s[j]);
            for (int64_t j = 0; j <= n; j++) {
                const double w = exp(s[j] - most);
                sum += w;
                for (int c = 0; c < 5; c++)
                    want[c] += w * row_at(&d, V, b, 0, j)[c];
            }
            for (int c = 0; c < 5; c++)
                assert_float_equal(d.x[OUT][(b * 300 + n) * 5 + c], want[c] / sum, 1e-5);
        }
    heed_scan_free(plan);
    drop(&d);
}

/* Variance of ln A over pairs of rows of standard deviation `size`, D 64: of softmax it is that of q·k /
 * sqrt(D). */
static double spread_of_logs(double (*weight)(const sizes *s, const double *q, const double *k), double size)
{
    enum { D = 64, PAIRS = 4000 };
    const sizes s = {D, 1, 0, 1};
    test_random random = {3};
    double mean = 0, squares = 0;
    for (int i = 0; i < PAIRS; i++) {
        double q[D], k[D];
        for (int c = 0; c < D; c++) {
            q[c] = size * random_normal(&random);
            k[c] = size * random_normal(&random);
        }
        const double x = weight ? log(weight(&s, q, k)) : dot(q, k, D) / sqrt(D);
        mean += x / PAIRS;
        squares += x * x / PAIRS;
    }
    return squares - mean * mean;
}

static double lln_size;

static double matched(const sizes *s, const double *q, const double *k)
{
    const double st = sqrt((pow(lln_size, 4) + 0.3549) / (2 * 0.1486)) / lln_size;
    double sum = 0;
    for (int i = 0; i < s->dim; i++)
        sum += exp(st * (q[i] + k[i]));
    return sum;
}

/* Over the row's range of sq^2 sk^2 the spread stays near softmax's; of elu features it does not. */
static void log_normal_features_spread_as_softmax(void **state)
{
    (void)state;
    const double products[] = {0.5, 1, 2};
    for (int i = 0; i < 3; i++) {
        lln_size = pow(products[i], 0.25);
        const double softmax = spread_of_logs(NULL, lln_size),
                     ratio = spread_of_logs(matched, lln_size) / softmax;
        const double elu_ratio = spread_of_logs(linear_weight, lln_size) / softmax;
        if (!(ratio > 1 / 1.5 && ratio < 1.5) || !(elu_ratio < 0.05))
            fail_msg("%g: log-normal %g, elu %g of softmax's", products[i], ratio, elu_ratio);
    }
}

/* To a high power the weights of standardised rows are softmax's. */
static void taylor_weights_of_a_high_power_are_exponentials(void **state)
{
    (void)state;
    const sizes s = {4, 1, 0, 1};
    test_random random = {4};
    for (int i = 0; i < 100; i++) {
        double q[4], k[4], a[4], b[4];
        for (int c = 0; c < 4; c++) {
            q[c] = random_normal(&random);
            k[c] = random_normal(&random);
        }
        standard(q, 4, a);
        standard(k, 4, b);
        const double want = exp(dot(a, b, 4));
        assert_true(fabs(taylor_weight(&s, q, k, 20) - want) < 1e-6 * want + 1e-6);
        assert_true(taylor_weight(&s, q, k, 2) >= 0.5);
    }
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
        cmocka_unit_test(a_memory_without_momentum_is_the_delta_rule),
        cmocka_unit_test(a_compressive_memory_at_its_ends),
        cmocka_unit_test(a_prefix_scan_is_softmax_whatever_the_scores),
        cmocka_unit_test(log_normal_features_spread_as_softmax),
        cmocka_unit_test(taylor_weights_of_a_high_power_are_exponentials),
        cmocka_unit_test(no_overflow_in_long_runs),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
