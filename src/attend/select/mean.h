/* What selectors by the mean key of a block share: blocks of `block` keys, their first argument, of which
 * `k`, their second, are kept, the current one counted. */
#ifndef HEED_ATTEND_SELECT_MEAN_H
#define HEED_ATTEND_SELECT_MEAN_H

#include "attend/select/block.h"

static inline int64_t heed_mean_block(const heed_form_state *form)
{
    return heed_arg_int(form, 0);
}

/* [blocks][dim]: sums of the keys. A block before the current one is full, so that of two such blocks the one
 * with the larger sum along the query has the larger mean. */
static inline int64_t heed_mean_summary_floats(const heed_form_state *form, int dim, int64_t keys)
{
    return (keys + heed_mean_block(form) - 1) / heed_mean_block(form) * dim;
}

static inline void heed_mean_summarise(const heed_form_state *form, const heed_rows *keys, int64_t key0,
                                       float *summary)
{
    heed_sum_blocks(keys, key0, heed_mean_block(form), summary);
}

/* The product with the sum of a full block is that with its mean, times its size. */
static inline void heed_mean_query(const heed_form_state *form, int head, const float *query, int dim,
                                   float *out)
{
    (void)form;
    (void)head;
    memcpy(out, query, (size_t)dim * sizeof *out);
}

static inline void heed_mean_choose(const heed_form_state *form, heed_block_row *row)
{
    heed_keep_blocks(row, heed_arg_int(form, 1) - 1);
}

#endif
