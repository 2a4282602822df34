/* The fewest of a row's scores whose weights sum to a share of all.
 *
 * Weights and their sums are in double, and a sum that misses the share by no more than their rounding has
 * reached it: of ten equal keys 0.3 keeps three.
 */
#ifndef HEED_ATTEND_SELECT_SHARE_H
#define HEED_ATTEND_SELECT_SHARE_H

#include "attend/select/cut.h"
#include <string.h>

#define HEED_SHARE_ROUNDING 1e-12

/* exp(x) for x <= 0, to about 1e-14; 0 below -708. As heed_exp: x = n ln 2 + r, then 2^n exp(r) by a
 * polynomial. */
static inline double heed_exp_double(double x)
{
    const double shift = 6755399441055744.0; /* 1.5 2^52: adding it rounds to a whole number */
    const double clamped = x < -708.0 ? -708.0 : x;
    const double scaled = clamped * 1.4426950408889634 + shift;
    const double n = scaled - shift;
    const double r = (clamped - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &scaled, sizeof bits);
    bits = (bits + 1023) << 52; /* the low bits of `scaled` are n; the rest is shifted out */
    double power;
    memcpy(&power, &bits, sizeof power);
    return x < -708.0 ? 0.0 : p * power;
}

/* Sum of exp(score - max) over the scores in question that are at least `value`. */
static inline double heed_share_above(const heed_contest *contest, float value, float max)
{
    const float *restrict score = contest->score;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < contest->count; j++) {
        const double weight = heed_exp_double((double)score[j] - (double)max);
        sum += score[j] >= value ? weight : 0.0;
    }
    return sum;
}

/* Keeps the fewest of n scores whose weights sum to p of all, highest first, of equal ones the lower; at
 * least one; the others become -inf. work [n]. */
static inline void heed_keep_share(float *score, int n, double p, float *work)
{
    heed_contest contest = heed_contest_open(score, n, work);
    if (contest.count == 0 || p >= 1)
        return;
    const float max = contest.most;
    double missing = p * heed_share_above(&contest, contest.least, max) * (1 - HEED_SHARE_ROUNDING);
    while (contest.least < contest.most) {
        const float middle = heed_contest_middle(&contest);
        const double above = heed_share_above(&contest, middle, max);
        const bool in_upper = above >= missing;
        heed_contest_drop(&contest, middle, in_upper);
        missing -= in_upper ? 0 : above;
    }
    const double each = heed_exp_double((double)contest.least - (double)max);
    const double ties = ceil(missing / each);
    heed_cut_row(score, n, contest.least, ties < 1 ? 1 : ties < contest.count ? (int)ties : contest.count);
}

#endif
