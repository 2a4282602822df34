/* The score that the best of a list reach. */
#ifndef HEED_ATTEND_CACHE_BEST_H
#define HEED_ATTEND_CACHE_BEST_H

#include "attend/select/cut.h"

typedef struct heed_score_cut {
    float score;
    int64_t ties; /* of those equal to it, how many are among the best */
} heed_score_cut;

/* The `wanted` highest of `count` scores, work [count]. -inf is never among them. */
static inline heed_score_cut heed_cut_of(const float *score, int64_t count, int64_t wanted, float *work)
{
    heed_contest contest = heed_contest_open(score, (int)count, work);
    if (wanted <= 0 || contest.count == 0)
        return (heed_score_cut){INFINITY, 0};
    if (wanted >= contest.count)
        return (heed_score_cut){contest.least, contest.count};
    while (contest.least < contest.most) {
        const float middle = heed_contest_middle(&contest);
        int64_t above = 0;
        for (int j = 0; j < contest.count; j++)
            above += contest.score[j] >= middle;
        const bool in_upper = above >= wanted;
        heed_contest_drop(&contest, middle, in_upper);
        wanted -= in_upper ? 0 : above;
    }
    return (heed_score_cut){contest.least, wanted};
}

#endif
