/* The fewest of a row's scores whose weights sum to a share of all.
 *
 * Weights and their sums are in double, and a sum that misses the share by no more than their rounding has
 * reached it: of ten equal keys 0.3 keeps three.
 */
#ifndef HEED_ATTEND_SELECT_SHARE_H
#define HEED_ATTEND_SELECT_SHARE_H

#include "attend/normalise/power.h"
#include "attend/select/cut.h"

#define HEED_SHARE_ROUNDING 1e-12

/* exp(x) for x <= 0; 0 where hardly anything is left. */
static inline double heed_share_weight(double x)
{
    return x < -690.0 ? 0.0 : heed_exp_double(x);
}

/* Sum of exp(score - max) over the scores in question that are at least `value`. */
static inline double heed_share_above(const heed_contest *contest, float value, float max)
{
    const float *restrict score = contest->score;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < contest->count; j++) {
        const double weight = heed_share_weight((double)score[j] - (double)max);
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
    const double each = heed_share_weight((double)contest.least - (double)max);
    const double ties = ceil(missing / each);
    heed_cut_row(score, n, contest.least, ties < 1 ? 1 : ties < contest.count ? (int)ties : contest.count);
}

#endif
