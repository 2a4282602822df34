#include "eval/divergence.h"

#include <heed/sampling.h>
#include <math.h>
#include <stdlib.h>

/* log of the sum of exp, and the two largest. */
typedef struct norm {
    double lse;
    int32_t top;
    float most, second;
} norm;

static norm norm_of(const float *logits, int64_t n)
{
    norm x = {.most = -INFINITY, .second = -INFINITY};
    for (int64_t i = 0; i < n; i++) {
        if (logits[i] > x.most) {
            x.second = x.most;
            x.most = logits[i];
            x.top = (int32_t)i;
        } else if (logits[i] > x.second) {
            x.second = logits[i];
        }
    }
    x.lse = heed_log_sum_exp(logits, n);
    return x;
}

double heed_surprise(const float *logits, int64_t vocabulary, int32_t next)
{
    return heed_log_sum_exp(logits, vocabulary) - (double)logits[next];
}

heed_difference heed_differ(const float *reference, const float *other, int64_t vocabulary, int32_t next)
{
    const norm p = norm_of(reference, vocabulary), q = norm_of(other, vocabulary);
    double kl = 0.0;
    for (int64_t i = 0; i < vocabulary; i++) {
        const double log_p = (double)reference[i] - p.lse;
        if (!(log_p < -40.0)) /* the others together weigh less than 1e-11 */
            kl += exp(log_p) * (log_p - ((double)other[i] - q.lse));
    }
    return (heed_difference){.kl = kl > 0.0 || isnan(kl) ? kl : 0.0,
                             .nll = {next < 0 ? NAN : p.lse - (double)reference[next],
                                     next < 0 ? NAN : q.lse - (double)other[next]},
                             .top = {p.top, q.top},
                             .margin = (double)p.most - (double)p.second};
}

void heed_differ_rows(const float *reference, const float *other, int64_t rows, int64_t vocabulary,
                      const int32_t *next, int threads, heed_difference *each)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < rows; i++)
        each[i] = heed_differ(reference + i * vocabulary, other + i * vocabulary, vocabulary, next[i]);
}

heed_status heed_divergence_add(heed_divergence *all, int64_t position, const heed_difference *one)
{
    if (all->positions == all->capacity) {
        const int64_t capacity = all->capacity ? 2 * all->capacity : 1024;
        double *kl = realloc(all->kl, (size_t)capacity * sizeof *kl);
        if (!kl)
            return heed_fail(HEED_NO_MEMORY, "no memory for the divergences of %lld positions",
                             (long long)capacity);
        all->kl = kl;
        all->capacity = capacity;
    }
    if (all->positions == 0 || one->kl > all->kl_most || isnan(one->kl)) {
        all->kl_most = one->kl;
        all->worst = position;
    }
    all->kl[all->positions++] = one->kl;
    all->kl_sum += one->kl;
    all->same_top += one->top[0] == one->top[1];
    if (isnan(one->nll[0]))
        return HEED_OK;
    all->scored++;
    for (int i = 0; i < 2; i++) {
        all->nll[i] += one->nll[i];
        all->nll_squares[i] += one->nll[i] * one->nll[i];
    }
    return HEED_OK;
}

void heed_divergence_free(heed_divergence *all)
{
    free(all->kl);
    *all = (heed_divergence){0};
}

double heed_divergence_mean(const heed_divergence *all)
{
    return all->positions ? all->kl_sum / (double)all->positions : 0.0;
}

int heed_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double heed_divergence_quantile(heed_divergence *all, double q)
{
    if (!all->positions)
        return 0.0;
    qsort(all->kl, (size_t)all->positions, sizeof *all->kl, heed_by_size);
    const int64_t at = (int64_t)ceil(q * (double)all->positions) - 1;
    return all->kl[at < 0 ? 0 : at < all->positions ? at : all->positions - 1];
}

double heed_divergence_perplexity(const heed_divergence *all, int which)
{
    return all->scored ? exp(all->nll[which] / (double)all->scored) : NAN;
}

double heed_divergence_error(const heed_divergence *all, int which)
{
    const double n = (double)all->scored, mean = all->nll[which] / n;
    const double variance = all->nll_squares[which] / n - mean * mean;
    return all->scored > 1 ? exp(mean) * sqrt(fmax(variance, 0.0) / (n - 1.0)) : NAN;
}
