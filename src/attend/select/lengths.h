/* What thresholds by the length of a row share: classes of lengths, and the k-th largest score. */
#ifndef HEED_ATTEND_SELECT_LENGTHS_H
#define HEED_ATTEND_SELECT_LENGTHS_H

#include "attend/select/cut.h"
#include <string.h>

#define HEED_LENGTHS 24 /* powers of two; longer rows go with the last */

/* floor(log2 n), at most HEED_LENGTHS - 1; n >= 1 */
static inline int heed_length_of(int64_t n)
{
    int length = 0;
    while (n > 1 && length < HEED_LENGTHS - 1) {
        n /= 2;
        length++;
    }
    return length;
}

/* The k-th largest of n > k scores; work [n]. */
static inline float heed_kth_largest(const float *score, int n, int64_t k, float *work)
{
    heed_contest contest = heed_contest_open(score, n, work);
    int wanted = k < contest.count ? (int)k : contest.count;
    while (contest.least < contest.most) {
        const float middle = heed_contest_middle(&contest);
        int above = 0;
#pragma omp simd reduction(+ : above)
        for (int j = 0; j < contest.count; j++)
            above += contest.score[j] >= middle;
        const bool in_upper = above >= wanted;
        heed_contest_drop(&contest, middle, in_upper);
        wanted -= in_upper ? 0 : above;
    }
    return contest.least;
}

#endif
