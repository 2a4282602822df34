/* The exact alpha-entmax projection of a row, alpha > 1:
 *
 *     w = [(alpha - 1) z - tau]_+^m,     m = 1 / (alpha - 1),     tau so that sum w = 1
 *
 * We solve for the largest weight p instead of tau. With g = (alpha - 1) (max z - z) >= 0 the weights are
 *
 *     w(p) = p [1 - g p^(1 - alpha)]_+^m,     F(p) = sum w(p) = 1,     p in [1/n, 1]
 *
 * F rises, is linear in p where scores are equal, and is convex for alpha <= 2, so that Newton's steps from p = 1 fall
 * towards the solution without passing it, in a handful of steps; for alpha = 2 it ends at the exact support. Steps that
 * would leave the bracket, and every other one after the first 16, are bisections, which bounds the cost by O(n).
 * Peters, Niculae, Martins: Sparse Sequence-to-Sequence Models, 2019; for alpha = 2 Martins, Astudillo 2016.
 */
#ifndef HEED_NORMALISE_PROJECTION_H
#define HEED_NORMALISE_PROJECTION_H

#include "attend/form.h"
#include "attend/normalise/power.h"

#define HEED_INLINE static inline __attribute__((always_inline))

/* r^m for r in [0, 1]; the loops for alpha = 2 and 1.5 see constants. */
HEED_INLINE double heed_projection_power(double r, double m)
{
    return m == 1.0 ? r : m == 2.0 ? r * r : heed_power(r, m);
}

/* F(p) / p and its slope F'(p) = sum r^(m-1) over the candidates. */
HEED_INLINE void heed_projection_sum(const float *z, int n, float max, double alpha, double m, double p, double *sum,
                                     double *slope)
{
    const double shrink = m == 1.0 ? 1.0 / p : m == 2.0 ? 1.0 / sqrt(p) : fmin(pow(p, 1.0 - alpha), 1e300);
    const double factor = (alpha - 1.0) * shrink;
    double s = 0.0, t = 0.0;
#pragma omp simd reduction(+ : s, t)
    for (int j = 0; j < n; j++) {
        const double r = 1.0 - factor * ((double)max - (double)z[j]);
        const double held = r > 0.0 ? r : 1.0;
        const double w = heed_projection_power(held, m);
        s += r > 0.0 ? w : 0.0;
        t += r > 0.0 ? w / held : 0.0;
    }
    *sum = s;
    *slope = t;
}

/* The largest weight. `z` holds the n candidates. */
HEED_INLINE double heed_projection_largest(const float *z, int n, float max, double alpha, double m)
{
    double low = 1.0 / n, high = 1.0, p = 1.0;
    for (int step = 0; step < 200; step++) {
        double sum, slope;
        heed_projection_sum(z, n, max, alpha, m, p, &sum, &slope);
        const double excess = p * sum - 1.0;
        if (excess > 0.0)
            high = p;
        else
            low = p;
        double next = p - excess / slope;
        if (fabs(next - p) <= 4e-16 * p)
            break;
        if (!(next > low && next < high) || (step > 16 && step % 2))
            next = 0.5 * (low + high);
        if (next == p || high - low <= 4e-16 * high)
            break;
        p = next;
    }
    return p;
}

/* Makes weights of a row's logits in place. A row with nothing open weighs 0, one with NaN or +inf is NaN where open. */
HEED_INLINE void heed_project(const heed_row *row, double alpha)
{
    const double m = alpha == 2.0 ? 1.0 : alpha == 1.5 ? 2.0 : 1.0 / (alpha - 1.0);
    float *z = row->score;
    float max = -INFINITY;
    int nan = 0;
#pragma omp simd reduction(max : max) reduction(| : nan)
    for (int j = 0; j < row->cols; j++) {
        max = z[j] > max ? z[j] : max;
        nan |= z[j] != z[j];
    }
    if (nan || max == INFINITY || max == -INFINITY) {
        const float weight = nan || max == INFINITY ? NAN : 0.0f;
        for (int j = 0; j < row->cols; j++)
            z[j] = z[j] == -INFINITY ? 0.0f : weight;
        return;
    }

    /* no weight passes 1, so a key is out of reach when (alpha - 1) (max - z) >= 1 */
    const double reach = (double)max - m;
    float *candidate = row->work;
    int n = 0;
    for (int j = 0; j < row->cols; j++) {
        candidate[n] = z[j];
        n += (double)z[j] > reach;
    }

    const double p = heed_projection_largest(candidate, n, max, alpha, m);
    double sum, slope;
    heed_projection_sum(candidate, n, max, alpha, m, p, &sum, &slope);
    const double shrink = m == 1.0 ? 1.0 / p : m == 2.0 ? 1.0 / sqrt(p) : fmin(pow(p, 1.0 - alpha), 1e300);
    const double factor = (alpha - 1.0) * shrink;
    for (int j = 0; j < row->cols; j++) {
        const double r = 1.0 - factor * ((double)max - (double)z[j]);
        const double w = heed_projection_power(r > 0.0 ? r : 1.0, m) / sum;
        z[j] = r > 0.0 ? (float)w : 0.0f;
    }
}

/* On the support ds = c (dw - sum c dw / sum c), c = w^(2 - alpha). */
HEED_INLINE void heed_project_backward(const heed_row *row, double alpha)
{
    const float *w = row->score, *dw = row->dweight;
    double weighed = 0.0, total = 0.0;
#pragma omp simd reduction(+ : weighed, total)
    for (int j = 0; j < row->cols; j++) {
        const double power = alpha == 2.0 ? 1.0 : alpha == 1.5 ? sqrt((double)w[j]) : heed_power(w[j], 2.0 - alpha);
        const double c = w[j] == 0.0f ? 0.0 : power;
        weighed += w[j] == 0.0f ? 0.0 : c * dw[j];
        total += c;
    }
    const double mean = weighed / total;
    for (int j = 0; j < row->cols; j++) {
        const double power = alpha == 2.0 ? 1.0 : alpha == 1.5 ? sqrt((double)w[j]) : heed_power(w[j], 2.0 - alpha);
        const double d = power * (dw[j] - mean);
        row->dscore[j] = w[j] == 0.0f ? 0.0f : (float)d;
    }
}

#endif
