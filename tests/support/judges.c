#include "support/judges.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_DIM = 256, MOST_KEYS = 256 };

static double arg(const layer *l, int i)
{
    return l->chain[0].form[0].arg[2 + i].number; /* behind budget and share */
}

static double squared(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

static double product(const float *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static const float *key_of(const heed_held *held, int64_t j)
{
    return held->key + j * held->dim;
}

static const float *value_of(const heed_held *held, int64_t j)
{
    return held->value + j * held->value_dim;
}

static double weight_of(const heed_held *held, int h, int64_t i, int64_t j)
{
    return held->weight[(h * held->queries + i) * held->count + j];
}

static int64_t last(const heed_held *held, double window)
{
    return (double)held->queries > window ? held->queries - (int64_t)window : 0;
}

/* Mean over heads and the last `window` queries. */
static double mean_weight(const heed_held *held, double window, int64_t j)
{
    const int64_t first = last(held, window);
    double sum = 0;
    for (int h = 0; h < held->group; h++)
        for (int64_t i = first; i < held->queries; i++)
            sum += weight_of(held, h, i, j);
    return held->queries ? sum / (double)(held->group * (held->queries - first)) : 0;
}

static void zero(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    for (int64_t j = 0; j < l->held[g].count; j++)
        score[j] = 0;
}

static void sums(const layer *l, int g, const judge_history *history, double ageing, double *score)
{
    zero(l, g, history, score);
    for (int round = 0; round < history->rounds; round++) {
        heed_seen seen = layer_see(l, g, history->queries, history->seed + (uint64_t)round);
        for (int64_t j = 0; j < seen.count; j++) {
            for (int64_t i = 0; i < seen.queries; i++)
                score[j] *= ageing;
            score[j] += seen.sum[j];
        }
        layer_unsee(&seen);
    }
}

static void h2o(const layer *l, int g, const judge_history *history, double *score)
{
    sums(l, g, history, arg(l, 1), score);
}

static void observed(const layer *l, int g, const judge_history *history, double *score)
{
    const heed_held *held = &l->held[g];
    sums(l, g, history, 1, score);
    for (int64_t j = 0; j < held->count; j++) {
        double queries = 0; /* positions from j to the last token that see j */
        for (int64_t p = held->pos[j]; p < held->read; p++)
            queries += p - held->pos[j] < held->visible;
        score[j] /= (double)held->group * queries;
    }
}

static void tova(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    for (int64_t j = 0; j < l->held[g].count; j++)
        score[j] = mean_weight(&l->held[g], 1, j);
}

static void snapkv(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    const heed_held *held = &l->held[g];
    const int64_t window = (int64_t)arg(l, 0), kernel = (int64_t)arg(l, 1);
    const int64_t before = held->count - window;
    for (int64_t j = 0; j < held->count; j++) {
        double sum = 0, max = 0;
        for (int64_t i = j - kernel / 2; i < j - kernel / 2 + kernel; i++) {
            const double a = i >= 0 && i < before ? mean_weight(held, (double)window, i) : 0;
            sum += a;
            max = a > max ? a : max;
        }
        score[j] = j >= before      ? mean_weight(held, (double)window, j)
                   : arg(l, 2) == 1 ? max
                                    : sum / (double)kernel;
    }
}

static double keys_seen(const heed_held *held, int64_t i)
{
    double n = 0;
    for (int64_t j = 0; j < held->count; j++)
        n += held->pos[j] <= held->query_pos[i];
    return n;
}

static void finch(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    const heed_held *held = &l->held[g];
    for (int64_t j = 0; j < held->count; j++) {
        score[j] = 0;
        for (int64_t i = last(held, arg(l, 0)); i < held->queries; i++)
            for (int h = 0; h < held->group; h++)
                score[j] += keys_seen(held, i) * weight_of(held, h, i, j) / held->group;
    }
}

static void scissorhands(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    const heed_held *held = &l->held[g];
    for (int64_t j = 0; j < held->count; j++) {
        score[j] = 0;
        for (int64_t i = last(held, arg(l, 0)); i < held->queries; i++)
            for (int h = 0; h < held->group; h++)
                score[j] -= held->pos[j] <= held->query_pos[i] &&
                            (float)weight_of(held, h, i, j) < (float)(1 / keys_seen(held, i));
    }
}

/* Query s of head h, moved to the mean of the positions to come. */
static void moved_query(const layer *l, const heed_held *held, int h, int64_t s, double *to)
{
    const double future = arg(l, 0), samples = arg(l, 6) < future ? arg(l, 6) : future;
    float at_one[MOST_DIM];
    memset(to, 0, (size_t)held->dim * sizeof *to);
    for (int k = 0; k < (int)samples; k++) {
        const int32_t pos = (int32_t)((double)held->read + floor((k + 0.5) * future / samples));
        held->place(held->place_context, held->kv_head * held->group + h,
                    held->query + (h * held->queries + s) * held->dim, &pos, 1, at_one);
        for (int64_t d = 0; d < held->dim; d++)
            to[d] += at_one[d] / samples;
    }
}

static void expected(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    const heed_held *held = &l->held[g];
    const int64_t first = last(held, arg(l, 1)), n = held->queries - first;
    zero(l, g, history, score);
    double query[MOST_DIM], e[MOST_KEYS];
    for (int h = 0; n && h < held->group; h++) {
        double sum = 0, max = -INFINITY;
        for (int64_t j = 0; j < held->count; j++) {
            double mean = 0, square = 0;
            for (int64_t s = first; s < held->queries; s++) {
                moved_query(l, held, h, s, query);
                const double x = product(key_of(held, j), query, held->dim);
                mean += x / (double)n;
                square += x * x / (double)n;
            }
            e[j] = mean + (arg(l, 3) == 0 ? (square - mean * mean) / 2 : 0);
            max = e[j] > max ? e[j] : max;
        }
        for (int64_t j = 0; j < held->count; j++)
            sum += exp(e[j] - max);
        for (int64_t j = 0; j < held->count; j++)
            score[j] += exp(e[j] - max) / sum / held->group;
    }
    for (int64_t j = 0; arg(l, 4) == 0 && j < held->count; j++)
        score[j] = (score[j] + arg(l, 5)) * sqrt(squared(value_of(held, j), held->value_dim));
}

static void knorm(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    for (int64_t j = 0; j < l->held[g].count; j++)
        score[j] = -sqrt(squared(key_of(&l->held[g], j), l->held[g].dim));
}

static void keydiff(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    const heed_held *held = &l->held[g];
    double mean[MOST_DIM] = {0}, length = 0;
    for (int64_t j = 0; j < held->count; j++) {
        const double norm = sqrt(squared(key_of(held, j), held->dim));
        for (int64_t d = 0; norm > 0 && d < held->dim; d++)
            mean[d] += key_of(held, j)[d] / norm / (double)held->count;
    }
    for (int64_t d = 0; d < held->dim; d++)
        length += mean[d] * mean[d];
    for (int64_t j = 0; j < held->count; j++) {
        const double norm = sqrt(squared(key_of(held, j), held->dim) * length);
        score[j] = norm > 0 ? -product(key_of(held, j), mean, held->dim) / norm : 0;
    }
}

static double spread_of(const float *rows, int64_t dim, int64_t row, int64_t next, int64_t lag)
{
    double x[MOST_DIM], mean = 0, square = 0;
    for (int64_t d = 0; d < dim; d++) {
        double least = INFINITY, most = -INFINITY;
        for (int64_t i = next; i < next + lag; i++) {
            least = fmin(least, rows[i * dim + d]);
            most = fmax(most, rows[i * dim + d]);
        }
        x[d] = most > least ? (rows[row * dim + d] - least) / (most - least) : 0;
        mean += x[d] / (double)dim;
    }
    for (int64_t d = 0; d < dim; d++)
        square += (x[d] - mean) * (x[d] - mean);
    return sqrt(square / (double)(dim - 1));
}

static void lagkv(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    const heed_held *held = &l->held[g];
    const int64_t lag = (int64_t)arg(l, 0), first = (int64_t)arg(l, 1), parts = (held->count - first) / lag;
    for (int64_t j = 0; j < held->count; j++)
        score[j] = j < first || parts >= 2 ? 1 : (double)(j - first) / (double)(held->count - first);
    for (int64_t p = 0; p + 1 < parts; p++) {
        const int64_t from = first + p * lag;
        double s[MOST_KEYS] = {0};
        for (int kind = 0; kind < 2; kind++) {
            const float *rows = kind ? held->value : held->key;
            const int64_t dim = kind ? held->value_dim : held->dim;
            double sum = 0;
            for (int64_t i = 0; i < lag; i++)
                sum += exp(spread_of(rows, dim, from + i, from + lag, lag));
            for (int64_t i = 0; i < lag; i++)
                s[i] += exp(spread_of(rows, dim, from + i, from + lag, lag)) / sum / 2;
        }
        for (int64_t i = 0; i < lag; i++) {
            double below = 0;
            for (int64_t j = 0; j < lag; j++)
                below += s[j] < s[i] - 1e-7 || (fabs(s[j] - s[i]) <= 1e-7 && j < i);
            score[from + i] = below / (double)lag;
        }
    }
}

static const float *bare_of(const heed_held *held, int64_t j)
{
    return held->bare + j * held->dim;
}

/* Leverage by the inverse of the ridged Gram matrix, by Gauss and Jordan. */
static void leverage_by(const heed_held *held, double ridge, double *score)
{
    static double a[MOST_DIM][2 * MOST_DIM];
    const int64_t dim = held->dim;
    double mean[MOST_DIM] = {0}, trace = 0, x[MOST_DIM];
    memset(a, 0, sizeof a);
    for (int64_t j = 0; j < held->count; j++)
        for (int64_t d = 0; d < dim; d++)
            mean[d] += bare_of(held, j)[d] / (double)held->count;
    for (int64_t j = 0; j < held->count; j++)
        for (int64_t d = 0; d < dim; d++)
            for (int64_t e = 0; e < dim; e++)
                a[d][e] += (bare_of(held, j)[d] - mean[d]) * (bare_of(held, j)[e] - mean[e]);
    for (int64_t d = 0; d < dim; d++)
        trace += a[d][d];
    for (int64_t d = 0; d < dim; d++) {
        a[d][d] += ridge * trace / (double)dim + 1e-30;
        a[d][dim + d] = 1;
    }
    for (int64_t d = 0; d < dim; d++) {
        const double pivot = a[d][d];
        for (int64_t e = 0; e < 2 * dim; e++)
            a[d][e] /= pivot;
        for (int64_t r = 0; r < dim; r++) {
            const double factor = a[r][d];
            for (int64_t e = 0; r != d && e < 2 * dim; e++)
                a[r][e] -= factor * a[d][e];
        }
    }
    for (int64_t j = 0; j < held->count; j++) {
        score[j] = 0;
        for (int64_t d = 0; d < dim; d++)
            x[d] = bare_of(held, j)[d] - mean[d];
        for (int64_t d = 0; d < dim; d++)
            for (int64_t e = 0; e < dim; e++)
                score[j] += x[d] * a[d][dim + e] * x[e];
    }
}

static void leverage(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    leverage_by(&l->held[g], arg(l, 0), score);
}

static void normalise(double *score, int64_t count, double least)
{
    double mean = 0, square = 0;
    for (int64_t j = 0; j < count; j++)
        mean += score[j] / (double)count;
    for (int64_t j = 0; j < count; j++)
        square += (score[j] - mean) * (score[j] - mean);
    const double deviation = count > 1 ? sqrt(square / (double)(count - 1)) : 0;
    for (int64_t j = 0; j < count; j++)
        score[j] = (score[j] - mean) / (deviation > least ? deviation : least);
}

static void noncausal_by(const heed_held *held, double window, double *score)
{
    double received[MOST_KEYS] = {0};
    for (int h = 0; h < held->group; h++)
        for (int64_t i = last(held, window); i < held->queries; i++) {
            const float *query = held->compared + (h * held->queries + i) * held->dim;
            double e[MOST_KEYS], sum = 0;
            for (int64_t j = 0; j < held->count; j++) {
                double s = 0;
                for (int64_t d = 0; d < held->dim; d++)
                    s += (double)query[d] * key_of(held, j)[d];
                sum += e[j] = held->mass[j] * exp(s);
            }
            for (int64_t j = 0; j < held->count; j++)
                received[j] += e[j] / sum / held->group * sqrt(squared(value_of(held, j), held->value_dim));
        }
    for (int64_t j = 0; j < held->count; j++)
        score[j] =
            ((j ? received[j - 1] : 0) + received[j] + (j + 1 < held->count ? received[j + 1] : 0)) / 3;
    normalise(score, held->count, 1e-6);
}

static void noncausal(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    noncausal_by(&l->held[g], arg(l, 0), score);
}

static void compactor(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    double lever[MOST_KEYS];
    noncausal_by(&l->held[g], arg(l, 1), score);
    leverage_by(&l->held[g], 1e-3, lever);
    normalise(lever, l->held[g].count, 1e-4);
    for (int64_t j = 0; j < l->held[g].count; j++)
        score[j] += arg(l, 0) * lever[j];
}

static void cur(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    const heed_held *held = &l->held[g];
    const int64_t local = (int64_t)arg(l, 1);
    double all = 0;
    for (int64_t j = 0; j < held->count; j++) {
        double key = 0, value = 0;
        for (int64_t i = j / local * local; i < j / local * local + local && i < held->count; i++) {
            key += squared(key_of(held, i), held->dim);
            value += squared(value_of(held, i), held->value_dim);
        }
        const double x = key > 0 ? squared(key_of(held, j), held->dim) / key : 0;
        const double y = value > 0 ? squared(value_of(held, j), held->value_dim) / value : 0;
        const double list[] = {x * y, x, y, (x + y) / 2};
        score[j] = list[(int)arg(l, 0)];
        all += score[j];
    }
    for (int64_t j = 0; j < held->count; j++)
        score[j] = all > 0 ? score[j] / all : 0;
}

/* The direction of the queries by many more steps than the policy takes. */
static void qfilters(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    const heed_held *held = &l->held[g];
    double u[MOST_DIM], next[MOST_DIM], mean[MOST_DIM] = {0}, sign = 0;
    for (int64_t d = 0; d < held->dim; d++)
        u[d] = 1 + 0.3 * (double)d;
    for (int step = 0; step < 3000; step++) {
        double length = 0;
        memset(next, 0, sizeof next);
        for (int h = 0; h < held->group; h++)
            for (int64_t i = last(held, arg(l, 0)); i < held->queries; i++) {
                const float *query = held->compared + (h * held->queries + i) * held->dim;
                const double along = product(query, u, held->dim);
                for (int64_t d = 0; d < held->dim; d++) {
                    next[d] += along * query[d];
                    mean[d] += query[d];
                }
            }
        for (int64_t d = 0; d < held->dim; d++)
            length += next[d] * next[d];
        for (int64_t d = 0; d < held->dim; d++)
            u[d] = length > 0 ? next[d] / sqrt(length) : 0;
    }
    for (int64_t d = 0; d < held->dim; d++)
        sign += u[d] * mean[d];
    for (int64_t j = 0; j < held->count; j++)
        score[j] = product(key_of(held, j), u, held->dim) * (sign < 0 ? -1 : 1);
}

static void lra(const layer *l, int g, const judge_history *history, double *score)
{
    const heed_held *held = &l->held[g];
    for (int64_t j = 0; j < held->count; j++)
        score[j] = held->pos[j];
    for (int round = 0; round < history->rounds; round++) {
        heed_seen seen = layer_see(l, g, history->queries, history->seed + (uint64_t)round);
        for (int h = 0; h < seen.group; h++)
            for (int64_t i = 0; i < seen.queries; i++)
                for (int t = 0; t < seen.top; t++) {
                    const int32_t key = seen.top_key[(h * seen.queries + i) * seen.top + t];
                    if (key >= 0)
                        score[key] = fmax(score[key], (double)(seen.first + i));
                }
        layer_unsee(&seen);
    }
}

static void lfa(const layer *l, int g, const judge_history *history, double *score)
{
    zero(l, g, history, score);
    for (int round = 0; round < history->rounds; round++) {
        heed_seen seen = layer_see(l, g, history->queries, history->seed + (uint64_t)round);
        for (int64_t i = 0; i < seen.group * seen.queries * seen.top; i++)
            if (seen.top_key[i] >= 0)
                score[seen.top_key[i]]++;
        layer_unsee(&seen);
    }
}

static void uniform(const layer *l, int g, const judge_history *history, double *score)
{
    (void)history;
    for (int64_t j = 0; j < l->held[g].count; j++) {
        double fraction = 0;
        for (int bit = 0; bit < 24; bit++)
            fraction += (l->held[g].pos[j] >> bit & 1) * pow(2, -1 - bit);
        score[j] = -fraction * 16777216;
    }
}

const judge_case judge_cases[] = {
    {"streaming", "", zero, 4, -2, 0, true, 0},
    {"streaming", "first=0", zero, 0, -2, 0, true, 0},
    {"fifo", "", zero, 0, 0, 0, true, 0},
    {"h2o", "", h2o, 0, -1, 0, true, 0},
    {"h2o", "ageing=0.9, recent=0", h2o, 0, 0, 1e-5, false, 0},
    {"observed", "", observed, 0, 0, 1e-6, false, 0},
    {"tova", "", tova, 0, 1, 1e-6, false, 0},
    {"snapkv", "window=3, kernel=5", snapkv, 0, 3, 1e-6, false, 0},
    {"snapkv", "window=2, kernel=4, pool=max", snapkv, 0, 2, 1e-6, false, 0},
    {"finch", "window=4", finch, 0, 4, 1e-6, false, 0},
    {"scissorhands", "window=6, recent=2", scissorhands, 0, 2, 0, true, 0},
    {"expected", "future=9, window=5, first=1", expected, 1, 0, 2e-5, false, 0},
    {"expected", "future=40, samples=8, covariance=no, values=no", expected, 4, 0, 2e-5, false, 0},
    {"expected", "future=20, eps=0.01, first=0", expected, 0, 0, 2e-5, false, 0},
    {"qfilters", "window=7", qfilters, 0, 0, 2e-2, false, 0},
    {"noncausal", "window=5", noncausal, 0, 0, 2e-5, false, 1},
    {"knorm", "", knorm, 0, 0, 1e-6, false, 0},
    {"keydiff", "", keydiff, 0, 0, 1e-5, false, 0},
    {"lagkv", "lag=6, first=2", lagkv, 0, 0, 1e-6, true, 0},
    {"leverage", "", leverage, 0, 0, 1e-4, false, 0},
    {"compactor", "window=5, first=2, recent=1", compactor, 2, 1, 1e-3, false, 1},
    {"cur", "local=5, first=1", cur, 1, 0, 1e-5, false, 0},
    {"cur", "of=mean, first=0", cur, 0, 0, 1e-5, false, 0},
    {"cur", "of=value", cur, 4, 0, 1e-5, false, 0},
    {"lra", "top=3", lra, 0, 0, 0, true, 0},
    {"lfa", "top=3", lfa, 0, 0, 0, true, 0},
    {"uniform", "", uniform, 0, 0, 0, true, 0},
    {0},
};
