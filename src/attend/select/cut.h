/* Cutting a row of scores at a value, so that what lies above it is kept.
 *
 * The value is found by halving: of the scores that are still in question (a copy in `work`), those at or
 * above the middle of their range are measured, and the half that cannot hold the cut is dropped. Each step
 * drops at least one score and, on ordinary rows, a good part of them, so that the whole costs a few passes
 * over the row, and its result depends on nothing but the scores.
 */
#ifndef HEED_ATTEND_SELECT_CUT_H
#define HEED_ATTEND_SELECT_CUT_H

#include "attend/form.h"

/* Scores in question, in the order of their indices. */
typedef struct heed_contest {
    float *score; /* [count] */
    int count;
    float least, most;
} heed_contest;

static inline void heed_contest_range(heed_contest *contest)
{
    const float *restrict score = contest->score;
    float least = INFINITY, most = -INFINITY;
#pragma omp simd reduction(heed_least : least) reduction(heed_largest : most)
    for (int j = 0; j < contest->count; j++) {
        least = score[j] < least ? score[j] : least;
        most = score[j] > most ? score[j] : most;
    }
    contest->least = least;
    contest->most = most;
}

/* The open scores of a row of n, copied to work [n]. */
static inline heed_contest heed_contest_open(const float *score, int n, float *work)
{
    heed_contest contest = {.score = work};
    for (int j = 0; j < n; j++) {
        work[contest.count] = score[j];
        contest.count += score[j] > -INFINITY;
    }
    heed_contest_range(&contest);
    return contest;
}

/* A value above the least and at most the largest score: the middle of their range, if there is a float
 * between them. */
static inline float heed_contest_middle(const heed_contest *contest)
{
    const float middle = 0.5f * contest->least + 0.5f * contest->most;
    return middle > contest->least && middle < contest->most ? middle : contest->most;
}

/* Drops the scores below `value`, or those not below it. */
static inline void heed_contest_drop(heed_contest *contest, float value, bool below)
{
    float *score = contest->score;
    int count = 0;
    for (int j = 0; j < contest->count; j++) {
        const float x = score[j];
        score[count] = x;
        count += (x < value) != below;
    }
    contest->count = count;
    heed_contest_range(contest);
}

/* Closes the scores below `value`, and of those equal to it all but the first `ties`. */
static inline void heed_cut_row(float *score, int n, float value, int ties)
{
    int equal = 0;
#pragma omp simd reduction(+ : equal)
    for (int j = 0; j < n; j++) {
        const float x = score[j];
        equal += x == value;
        score[j] = x < value ? -INFINITY : x;
    }
    for (int j = n - 1; equal > ties; j--)
        if (score[j] == value) {
            score[j] = -INFINITY;
            equal--;
        }
}

/* Keeps the k highest of a row of n scores, of equal ones those of lower index; work [n]. */
static inline void heed_keep_highest(float *score, int n, int64_t k, float *work)
{
    heed_contest contest = heed_contest_open(score, n, work);
    if (k >= contest.count)
        return;
    if (k <= 0) {
        heed_cut_row(score, n, INFINITY, 0);
        return;
    }
    int wanted = (int)k; /* of those in question */
    while (contest.least < contest.most) {
        const float middle = heed_contest_middle(&contest), *restrict in_question = contest.score;
        int above = 0;
#pragma omp simd reduction(+ : above)
        for (int j = 0; j < contest.count; j++)
            above += in_question[j] >= middle;
        if (above == wanted) {
            heed_cut_row(score, n, middle, above);
            return;
        }
        const bool in_upper = above > wanted;
        heed_contest_drop(&contest, middle, in_upper);
        wanted -= in_upper ? 0 : above;
    }
    heed_cut_row(score, n, contest.least, wanted);
}

#endif
