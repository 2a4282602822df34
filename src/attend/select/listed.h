/* Lists of blocks in a memory: how many, then their numbers, rising. */
#ifndef HEED_ATTEND_SELECT_LISTED_H
#define HEED_ATTEND_SELECT_LISTED_H

#include "attend/select/cut.h"
#include <heed/recall.h>

/* Numbers of a list of blocks of `unit` keys of up to `keys`. */
static inline int64_t heed_list_numbers(int64_t unit, int64_t keys)
{
    return 1 + (keys + unit - 1) / unit;
}

/* The blocks whose score is not -inf. */
static inline void heed_list_write(const float *score, int64_t blocks, int32_t *list)
{
    list[0] = 0;
    for (int64_t b = 0; b < blocks; b++)
        if (score[b] != -INFINITY)
            list[++list[0]] = (int32_t)b;
}

/* Marks those of the first `blocks` blocks that are listed, in a list of up to `most`. */
static inline void heed_list_mark(const int32_t *list, int64_t most, int64_t blocks, uint8_t *keep)
{
    for (int64_t i = 1; i <= list[0] && i <= most; i++)
        if (list[i] >= 0 && list[i] < blocks)
            keep[list[i]] = 1;
}

#endif
