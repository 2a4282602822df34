/* How much of everything an evaluation asks. */
#ifndef HEED_EVAL_SUITE_H
#define HEED_EVAL_SUITE_H

#include <heed/base.h>

enum { HEED_SUITE_LENGTHS = 8 };

typedef struct heed_suite {
    const char *name;
    int64_t window, windows;            /* tokens of a short text; how many there are */
    int64_t text;                       /* tokens of the long one */
    int64_t length[HEED_SUITE_LENGTHS]; /* tokens of quizzes, ascending */
    int lengths;
    int depths;      /* 0, 1 and what lies evenly between them, for tasks that look for one thing */
    int trials;      /* quizzes at each length and depth */
    int quizzes;     /* at each length of the other tasks */
    int64_t written; /* tokens written one by one to measure decoding */
} heed_suite;

const char *heed_suite_word(int i); /* NULL from the end of the list on */

/* A suite as far as the model's context goes; `most`: no quiz or text longer than this, and one as long as
 * it; 0: as the suite has it. HEED_INVALID when the context is too short for any. */
heed_status heed_suite_make(heed_suite *suite, const char *name, int64_t context, int64_t most);

double heed_suite_depth(const heed_suite *suite, int i);

#endif
