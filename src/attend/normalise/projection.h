/* The exact alpha-entmax projection of a row, alpha > 1:
 *
 *     w = [(alpha - 1) z - tau]_+^m,     m = 1 / (alpha - 1),     tau so that sum w = 1
 *
 * We solve for the largest weight p instead of tau. With g = (alpha - 1) (max z - z) >= 0 the weights are
 *
 *     w(p) = p [1 - g p^(1 - alpha)]_+^m,     F(p) = sum w(p) = 1,     p in [1/n, 1]
 *
 * F rises, is linear in p where scores are equal, and is convex for alpha <= 2. Newton's steps from p = 1
 * then fall towards the solution without passing it, and a handful is enough; for alpha = 2 they end at the
 * exact support. Steps that would leave the bracket, and every other one after the first few, are bisections:
 * the cost of a row of n keys is always O(n).
 *
 * Peters, Niculae, Martins: Sparse Sequence-to-Sequence Models, 2019. alpha = 2: Martins, Astudillo 2016.
 */
#ifndef HEED_NORMALISE_PROJECTION_H
#define HEED_NORMALISE_PROJECTION_H

#include "attend/form.h"
#include "attend/normalise/power.h"

#define HEED_INLINE static inline __attribute__((always_inline))

/* alpha, m, and which loops serve them: those for 2 and 1.5 need no powers. */
enum { HEED_ALPHA_2, HEED_ALPHA_1_5, HEED_ALPHA_ANY };

typedef struct heed_alpha {
    double alpha, m;
    int loops;
} heed_alpha;

/* (alpha - 1) p^(1 - alpha), held finite, so that it leaves g = 0 at 0. */
HEED_INLINE double heed_projection_factor(heed_alpha a, double p)
{
    if (a.loops == HEED_ALPHA_2)
        return 1.0 / p;
    if (a.loops == HEED_ALPHA_1_5)
        return 0.5 / sqrt(p);
    return (a.alpha - 1.0) * fmin(pow(p, 1.0 - a.alpha), 1e300);
}

/* r^m for r > 0 */
HEED_INLINE double heed_projection_power(double r, heed_alpha a)
{
    return a.loops == HEED_ALPHA_2 ? r : a.loops == HEED_ALPHA_1_5 ? r * r : heed_power(r, a.m);
}

/* F(p) / p = sum r^m and F'(p) = sum r^(m-1), over the candidates. */
HEED_INLINE void heed_projection_sum(const float *z, int n, float max, heed_alpha a, double factor,
                                     double *sum, double *slope)
{
    double s = 0.0, t = 0.0;
#pragma omp simd reduction(+ : s, t)
    for (int j = 0; j < n; j++) {
        const double r = 1.0 - factor * ((double)max - (double)z[j]);
        const double held = r > 0.0 ? r : 1.0;
        const double w = heed_projection_power(held, a);
        const double lower = a.loops == HEED_ALPHA_2 ? 1.0 : a.loops == HEED_ALPHA_1_5 ? held : w / held;
        s += r > 0.0 ? w : 0.0;
        t += r > 0.0 ? lower : 0.0;
    }
    *sum = s;
    *slope = t;
}

/* Where the largest weight lies; one number, or two neighbours in double precision. */
typedef struct heed_projection {
    double low, high;
} heed_projection;

/* `z` holds the n candidates. For alpha > 2, F may pass 1 more steeply than double precision resolves, where
 * a key enters the support, so that the bracket is closed from both sides. */
HEED_INLINE heed_projection heed_projection_solve(const float *z, int n, float max, heed_alpha a)
{
    const bool steep = a.loops == HEED_ALPHA_ANY && a.alpha > 2.0;
    double low = 1.0 / n, high = 1.0, p = 1.0;
    for (int step = 0; step < 200 && high - low > 4e-16 * high; step++) {
        double sum, slope;
        heed_projection_sum(z, n, max, a, heed_projection_factor(a, p), &sum, &slope);
        const double excess = p * sum - 1.0;
        if (excess > 0.0)
            high = p;
        else
            low = p;
        double next = p - excess / slope;
        if (fabs(next - p) <= 1e-14 * p) {
            if (!steep)
                return (heed_projection){p, p};
            next = excess > 0.0 ? p * (1.0 - 4e-15) : p * (1.0 + 4e-15);
        }
        if (!(next > low && next < high) || (step > (steep ? 4 : 16) && step % 2))
            next = 0.5 * (low + high);
        p = next;
    }
    return (heed_projection){low, high};
}

/* The largest logit of a row that has weights. Otherwise puts what the row has instead and returns false: 0
 * where nothing is open, NaN in every open place where a logit is NaN or +inf. */
HEED_INLINE bool heed_row_max(const heed_row *row, float *largest)
{
    float *z = row->score;
    float max = -INFINITY;
    int nan = 0;
#pragma omp simd reduction(heed_largest : max) reduction(| : nan)
    for (int j = 0; j < row->cols; j++) {
        max = z[j] > max ? z[j] : max;
        nan |= z[j] != z[j];
    }
    *largest = max;
    if (!nan && fabsf(max) != INFINITY)
        return true;
    for (int j = 0; j < row->cols; j++)
        z[j] = z[j] == -INFINITY ? 0.0f : NAN;
    return false;
}

/* Makes weights of a row's logits in place. */
HEED_INLINE void heed_project(const heed_row *row, heed_alpha a)
{
    float *z = row->score;
    float max;
    if (!heed_row_max(row, &max))
        return;

    /* no weight passes 1, so a key is out of reach when (alpha - 1) (max - z) >= 1 */
    const double reach = (double)max - a.m;
    float *candidate = row->work;
    int n = 0;
    for (int j = 0; j < row->cols; j++) {
        candidate[n] = z[j];
        n += (double)z[j] > reach;
    }

    const heed_projection at = heed_projection_solve(candidate, n, max, a);
    const double low = heed_projection_factor(a, at.low), high = heed_projection_factor(a, at.high);
    double below, above, slope;
    heed_projection_sum(candidate, n, max, a, low, &below, &slope);
    heed_projection_sum(candidate, n, max, a, high, &above, &slope);
    below *= at.low, above *= at.high;
    /* between the neighbours weights are in proportion, and they sum to 1 */
    const double share = above - below > 1e-13 ? fmin(fmax((1.0 - below) / (above - below), 0.0), 1.0) : 1.0;
    const double total = share * above + (1.0 - share) * below;
    const double from_high = share * at.high / total, from_low = (1.0 - share) * at.low / total;
    const bool both = at.low < at.high;
    for (int j = 0; j < row->cols; j++) {
        const double g = (double)max - (double)z[j];
        const double r = 1.0 - high * g, under = 1.0 - low * g;
        double w = from_high * heed_projection_power(r > 0.0 ? r : 1.0, a);
        w = r > 0.0 ? w : 0.0;
        if (both) {
            const double more = from_low * heed_projection_power(under > 0.0 ? under : 1.0, a);
            w += under > 0.0 ? more : 0.0;
        }
        z[j] = (float)w;
    }
}

/* w^(2 - alpha) on the support */
HEED_INLINE double heed_projection_curvature(float w, heed_alpha a)
{
    double c = 1.0;
    if (a.loops == HEED_ALPHA_1_5)
        c = sqrt((double)w);
    else if (a.loops == HEED_ALPHA_ANY)
        c = heed_power(w, 2.0 - a.alpha);
    return w == 0.0f ? 0.0 : w != w ? (double)w : c;
}

/* On the support ds = c (dw - sum c dw / sum c), c = w^(2 - alpha). */
HEED_INLINE void heed_project_backward(const heed_row *row, heed_alpha a)
{
    const float *w = row->score, *dw = row->dweight;
    double weighed = 0.0, total = 0.0;
#pragma omp simd reduction(+ : weighed, total)
    for (int j = 0; j < row->cols; j++) {
        const double c = heed_projection_curvature(w[j], a);
        weighed += w[j] == 0.0f ? 0.0 : c * dw[j];
        total += c;
    }
    const double mean = weighed / total;
    float *d = row->dscore;
#pragma omp simd
    for (int j = 0; j < row->cols; j++) {
        const float g = (float)(heed_projection_curvature(w[j], a) * (dw[j] - mean));
        d[j] = w[j] == 0.0f ? 0.0f : g;
    }
}

#endif
