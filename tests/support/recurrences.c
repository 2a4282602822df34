#include "support/recurrences.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double scan_dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void unit(const double *x, int n, double *to)
{
    const double length = sqrt(scan_dot(x, x, n) + 1e-6);
    for (int i = 0; i < n; i++)
        to[i] = x[i] / length;
}

static double elu(double x)
{
    return x > 0 ? x + 1 : exp(x);
}

double scan_linear_weight(const scan_sizes *s, const double *q, const double *k)
{
    double sum = 0;
    for (int i = 0; i < s->dim; i++)
        sum += elu(q[i]) * elu(k[i]);
    return sum;
}

static double exp_weight(const scan_sizes *s, const double *q, const double *k)
{
    double sum = 0;
    for (int i = 0; i < s->dim; i++)
        sum += exp(q[i] + k[i]);
    return sum;
}

static double based_weight(const scan_sizes *s, const double *q, const double *k)
{
    const double x = scan_dot(q, k, s->dim) / sqrt(s->dim);
    return 1 + x + x * x / 2;
}

/* The row's standard deviations, 1 and 1, and its constants. */
static double lln_weight(const scan_sizes *s, const double *q, const double *k)
{
    const double spread = sqrt((1 + 0.3549) / (2 * 0.1486));
    double sum = 0;
    for (int i = 0; i < s->dim; i++)
        sum += exp(spread * q[i]) * exp(spread * k[i]);
    return sum;
}

void scan_standard(const double *x, int n, double *to)
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
double scan_taylor_weight(const scan_sizes *s, const double *q, const double *k, int p)
{
    double a[MOST_DIM], b[MOST_DIM], term = 1, sum = 1;
    scan_standard(q, s->dim, a);
    scan_standard(k, s->dim, b);
    for (int l = 1; l <= p; l++)
        sum += term *= scan_dot(a, b, s->dim) / l;
    return sum;
}

static double fast_weight(const scan_sizes *s, const double *q, const double *k)
{
    return scan_taylor_weight(s, q, k, 2);
}

static void fade(const scan_sizes *s, scan_matrix S, double all, const double *log_each)
{
    for (int r = 0; r < s->dim; r++)
        for (int c = 0; c < s->value_dim; c++)
            S[r][c] *= log_each ? exp(log_each[r]) : all;
}

static void add(const scan_sizes *s, scan_matrix S, double factor, const double *k, const double *v)
{
    for (int r = 0; r < s->dim; r++)
        for (int c = 0; c < s->value_dim; c++)
            S[r][c] += factor * k[r] * v[c];
}

/* S = (I - factor a b^T) S */
static void take_out(const scan_sizes *s, scan_matrix S, const double *a, const double *b, double factor)
{
    scan_matrix was;
    memcpy(was, S, sizeof was);
    for (int r = 0; r < s->dim; r++)
        for (int c = 0; c < s->value_dim; c++)
            for (int i = 0; i < s->dim; i++)
                S[r][c] -= factor * a[r] * b[i] * was[i][c];
}

static void retention(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    fade(s, S, 1 - pow(2, -5 - s->head), NULL);
    add(s, S, 1, at->k, at->v);
}

static double swish(double x)
{
    return x / (1 + exp(-x));
}

static void lightning(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    double k[MOST_DIM];
    for (int i = 0; i < s->dim; i++)
        k[i] = swish(at->k[i]);
    fade(s, S, exp(-8.0 * s->head / s->heads * (1 - 1.0 / 3)), NULL);
    add(s, S, 1, k, at->v);
}

static void bare_lightning(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    fade(s, S, exp(-8.0 * s->head / s->heads * (1 - 1.0 / 3)), NULL);
    add(s, S, 1, at->k, at->v);
}

static void sums(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    add(s, S, 1, at->k, at->v);
}

static void swish_query(const scan_sizes *s, const double *q, double *to)
{
    for (int i = 0; i < s->dim; i++)
        to[i] = swish(q[i]);
}

static void plain_query(const scan_sizes *s, const double *q, double *to)
{
    memcpy(to, q, (size_t)s->dim * sizeof *to);
}

static void unit_query(const scan_sizes *s, const double *q, double *to)
{
    unit(q, s->dim, to);
    for (int i = 0; i < s->dim; i++)
        to[i] /= sqrt(s->dim);
}

static void simple_gla(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    fade(s, S, exp(at->decay), NULL);
    add(s, S, 1, at->k, at->v);
}

static void mamba2(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    fade(s, S, exp(at->decay), NULL);
    add(s, S, at->beta, at->k, at->v);
}

static void gla(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    fade(s, S, 0, at->gate);
    add(s, S, 1, at->k, at->v);
}

static void hgrn2(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    double k[MOST_DIM];
    for (int i = 0; i < s->dim; i++)
        k[i] = 1 - exp(at->gate[i]);
    fade(s, S, 0, at->gate);
    add(s, S, 1, k, at->v);
}

static void delta_rule(const scan_sizes *s, const scan_token *at, scan_matrix S, bool normed)
{
    double k[MOST_DIM];
    memcpy(k, at->k, (size_t)s->dim * sizeof *k);
    if (normed)
        unit(at->k, s->dim, k);
    take_out(s, S, k, k, at->beta);
    add(s, S, at->beta, k, at->v);
}

static void delta(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    delta_rule(s, at, S, true);
}

static void bare_delta(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    delta_rule(s, at, S, false);
}

static void gated_delta(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    fade(s, S, exp(at->decay), NULL);
    delta_rule(s, at, S, true);
}

static void kda(const scan_sizes *s, const scan_token *at, scan_matrix S)
{
    fade(s, S, 0, at->gate);
    delta_rule(s, at, S, true);
}

static void rwkv7(const scan_sizes *s, const scan_token *at, scan_matrix S)
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
void scan_gsa(const scan_sizes *s, const scan_token *at, const double *q, scan_matrix S, double *out)
{
    double weight[SLOTS], sum = 0;
    for (int r = 0; r < SLOTS; r++) {
        const double keep = exp(at->gate[r]);
        for (int i = 0; i < s->dim + s->value_dim; i++)
            S[r][i] = keep * S[r][i] + (1 - keep) * (i < s->dim ? at->k[i] : at->v[i - s->dim]);
        sum += weight[r] = exp(scan_dot(S[r], q, s->dim));
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
static void read_matrix(const scan_sizes *s, scan_matrix S, const double *x, double *y)
{
    memset(y, 0, (size_t)s->value_dim * sizeof *y);
    for (int r = 0; r < s->dim; r++)
        for (int c = 0; c < s->value_dim; c++)
            y[c] += x[r] * S[r][c];
}

/* The memory learns by the gradient at its start of the chunk. */
static void learn(const scan_sizes *s, int tokens, const scan_token *at, int chunk, bool normed, double *out)
{
    static scan_matrix M, momentum, start;
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

static void titans(const scan_sizes *s, int tokens, const scan_token *at, double *out)
{
    learn(s, tokens, at, 1, true, out);
}

static void titans_by_chunks(const scan_sizes *s, int tokens, const scan_token *at, double *out)
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
static void segments(const scan_sizes *s, int tokens, const scan_token *at, int n, bool delta, double base,
                     double *out)
{
    static scan_matrix M, before;
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
            const double w = exp(scan_dot(q, k, s->dim) / sqrt(s->dim));
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

static void infini(const scan_sizes *s, int tokens, const scan_token *at, double *out)
{
    segments(s, tokens, at, 16, false, 10000, out);
}

static void infini_delta(const scan_sizes *s, int tokens, const scan_token *at, double *out)
{
    segments(s, tokens, at, 3, true, 0, out);
}

/* clip(u - tau, 0, 1) of the scores up to t, tau by halving; the window and the k highest are read. */
static void kept(const scan_sizes *s, int tokens, const scan_token *at, int k, int window, double base,
                 double slope, double *out)
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
            const double w = exp(scan_dot(q, key, s->dim) / sqrt(s->dim));
            all += w;
            for (int c = 0; c < s->value_dim; c++)
                out[c] += w * p * at[j].v[c];
        }
        for (int c = 0; c < s->value_dim; c++)
            out[c] /= all;
    }
}

static void sparsek(const scan_sizes *s, int tokens, const scan_token *at, double *out)
{
    kept(s, tokens, at, 5, 4, 10000, 0, out);
}

/* One key, whose p is sparsemax. */
static void sparsek_of_one(const scan_sizes *s, int tokens, const scan_token *at, double *out)
{
    kept(s, tokens, at, 1, 1, 0, 0.01, out);
}

/* Room for all: causal attention. */
static void sparsek_of_all(const scan_sizes *s, int tokens, const scan_token *at, double *out)
{
    kept(s, tokens, at, MOST_TOKENS, MOST_TOKENS, 100, 0, out);
}

const scan_definition scan_definitions[] = {
    {"scan=gsa(slots=3)", false, NULL, NULL, NULL, NULL},
    {"scan=linear", true, scan_linear_weight, NULL, NULL, NULL},
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
const int scan_definition_count = sizeof scan_definitions / sizeof *scan_definitions;
