/* What selectors of whole blocks of keys share: which blocks of a row are open, and closing those that were
 * not chosen. */
#ifndef HEED_ATTEND_SELECT_BLOCK_H
#define HEED_ATTEND_SELECT_BLOCK_H

#include "attend/select/cut.h"
#include <float.h>

/* Block b holds the keys b size .. end-1 of a row of `cols` keys. */
static inline int64_t heed_block_end(int64_t b, int64_t size, int64_t cols)
{
    return (b + 1) * size < cols ? (b + 1) * size : cols;
}

static inline bool heed_block_is_open(const heed_row *row, int64_t b, int64_t size)
{
    const int64_t end = heed_block_end(b, size, row->cols);
    float max = -INFINITY;
#pragma omp simd reduction(heed_largest : max)
    for (int64_t j = b * size; j < end; j++)
        max = row->score[j] > max ? row->score[j] : max;
    return max > -INFINITY;
}

/* The block of the row's last open key; -1 when nothing is open. */
static inline int64_t heed_block_current(const heed_row *row, int64_t size)
{
    int64_t j = row->cols - 1;
    while (j >= 0 && row->score[j] == -INFINITY)
        j--;
    return j < 0 ? -1 : j / size;
}

/* A block's value as heed_keep_blocks reads it. NaN comes from keys that the row does not see, or that are
 * infinite: nothing is known of the block then, so it comes first. */
static inline float heed_block_value(float value)
{
    const float known = value == value ? value : INFINITY;
    return known > -FLT_MAX ? known : -FLT_MAX;
}

/* Keeps the keys of the current block and of the `others` blocks of highest value, ties to the lower block.
 * `value` has one number a block in row->work, -inf for blocks without an open key; the numbers are used up.
 */
static inline void heed_keep_blocks(heed_row *row, int64_t size, int64_t current, int64_t others)
{
    const int blocks = (int)current + 1; /* those behind it are closed */
    float *value = row->work;
    value[current] = -INFINITY; /* chosen already */
    heed_keep_highest(value, blocks, others, row->work + row->cols);
    for (int64_t b = 0; b < blocks; b++) {
        if (b == current || value[b] > -INFINITY)
            continue;
        const int64_t end = heed_block_end(b, size, row->cols);
        for (int64_t j = b * size; j < end; j++)
            row->score[j] = -INFINITY;
    }
}

#endif
