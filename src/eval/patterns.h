/* Which sparse pattern of prefill serves each head best at the same cost, found on a text (as MInference's
 * search by head). */
#ifndef HEED_EVAL_PATTERNS_H
#define HEED_EVAL_PATTERNS_H

#include <heed/model.h>

enum { HEED_PATTERNS = 5 }; /* a_shape, lines of three numbers, block_top */

/* Zero it first. */
typedef struct heed_pattern_search {
    const heed_model *model;
    int64_t block;  /* keys in a block */
    int64_t blocks; /* of keys that a query may see, the current one counted */
    int64_t window; /* tokens that are read at a time */
    int threads;
    void (*progress)(void *context, double done);
    void *context;
} heed_pattern_search;

/* share: of the weight of full attention that a head's queries give to what a pattern keeps, in the mean;
 * read: of the pairs that full attention reads. */
typedef struct heed_pattern_score {
    double share, read;
} heed_pattern_score;

typedef struct heed_pattern_result {
    int64_t layers, heads;
    char pattern[HEED_PATTERNS][96]; /* "a_shape(sinks=64, window=896, block=64)" */
    heed_pattern_score *score;       /* [layers, heads, HEED_PATTERNS] */
    uint8_t *best; /* [layers, heads] of those that read no more than a_shape (to 2 %) the one of the
                       largest share, of equal ones the first */
    char *spec;    /* one line that gives every head its best */
} heed_pattern_result;

heed_status heed_find_patterns(const heed_pattern_search *search, const int32_t *tokens, int64_t count,
                               heed_pattern_result *result);
void heed_pattern_result_free(heed_pattern_result *result);

#endif
