/* What judges say of keys, in double, as their formulas are written. */
#ifndef HEED_TEST_JUDGES_H
#define HEED_TEST_JUDGES_H

#include "support/layer.h"

/* The observations that layer_observe gave: `rounds` of them, of `queries` queries each, from `seed` on. */
typedef struct judge_history {
    int rounds;
    int64_t queries;
    uint64_t seed;
} judge_history;

/* score [count] of head g, by the chain's first form and its arguments. */
typedef void judge_definition(const layer *l, int g, const judge_history *history, double *score);

typedef struct judge_case {
    const char *name, *args; /* without the budget */
    judge_definition *define;
    int64_t first, recent; /* ends; recent -1: half of the budget, -2: the budget less the first */
    double slack;          /* of scores, relative to the largest */
    bool exact;            /* the scores are whole numbers or the like */
    double unit;           /* what scores are at least measured by */
} judge_case;

extern const judge_case judge_cases[]; /* ends with name == NULL */

#endif
