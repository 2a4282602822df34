/* What selectors of whole blocks of keys share: which blocks of a row are open, and closing those that were
 * not chosen. */
#ifndef HEED_ATTEND_SELECT_BLOCK_H
#define HEED_ATTEND_SELECT_BLOCK_H

#include "attend/select/cut.h"
#include "base/vectors.h"
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

/* A block's value as choices read it. NaN comes from keys that the row does not see, or that are
 * infinite: nothing is known of the block then, so it comes first. */
static inline float heed_block_value(float value)
{
    const float known = value == value ? value : INFINITY;
    return known > -FLT_MAX ? known : -FLT_MAX;
}

/* Keeps the current block and the `others` blocks of highest value, ties to the lower block. */
static inline void heed_keep_blocks(heed_block_row *row, int64_t others)
{
    row->value[row->current] = -INFINITY; /* chosen already */
    heed_keep_highest(row->value, row->blocks, others, row->work);
    row->value[row->current] = INFINITY;
}

static inline double heed_weight_above(const heed_contest *contest, float value)
{
    double sum = 0;
    for (int b = 0; b < contest->count; b++)
        sum += contest->score[b] >= value ? (double)contest->score[b] : 0;
    return sum;
}

/* Keeps the fewest weights that sum to a share of all, highest first, of equal ones the lower; the others
 * become -inf. Weights are -inf or at least 0; work [n]. A sum that misses the share by a millionth has
 * reached it. */
static inline void heed_keep_mass(float *weight, int n, double share, float *work)
{
    heed_contest contest = heed_contest_open(weight, n, work);
    if (contest.count == 0)
        return;
    double missing = share * heed_weight_above(&contest, contest.least) * (1 - 1e-6);
    while (contest.least < contest.most) {
        const float middle = heed_contest_middle(&contest);
        const double above = heed_weight_above(&contest, middle);
        const bool in_upper = above >= missing;
        heed_contest_drop(&contest, middle, in_upper);
        missing -= in_upper ? 0 : above;
    }
    const double ties = contest.least > 0 ? ceil(missing / (double)contest.least) : 1;
    heed_cut_row(weight, n, contest.least, ties < 1 ? 1 : ties < contest.count ? (int)ties : contest.count);
}

/* Sums of the keys of each block, [blocks][dim]. */
static inline void heed_sum_blocks(const heed_rows *keys, int64_t key0, int64_t block, float *summary)
{
    for (int i = 0; i < keys->count; i++) {
        const float *restrict key = keys->in + i * keys->in_stride;
        float *restrict sum = summary + (key0 + i) / block * keys->dim;
        const bool first = (key0 + i) % block == 0;
        for (int c = 0; c < keys->dim; c++)
            sum[c] = first ? key[c] : sum[c] + key[c];
    }
}

/* `choose` of a selector that decides by blocks. */
static inline void heed_choose_by_blocks(const heed_form_state *form, heed_row *row)
{
    const int64_t size = form->form->block_rule(form).keys, current = heed_block_current(row, size);
    const int64_t floats = form->form->summary_floats(form, row->dim, size);
    if (current < 0)
        return;
    heed_block_row blocks = {.blocks = (int)current + 1,
                             .current = (int)current,
                             .value = row->work,
                             .work = row->work + row->cols};
    for (int64_t b = 0; b <= current; b++) {
        blocks.value[b] = -INFINITY;
        for (int h = 0; h < row->block_queries && heed_block_is_open(row, b, size); h++) {
            const float value =
                heed_block_value(heed_row_product(row->block_query[h], row->summary + b * floats, floats));
            blocks.value[b] = value > blocks.value[b] ? value : blocks.value[b];
        }
    }
    form->form->choose_blocks(form, &blocks);
    for (int64_t b = 0; b <= current; b++) {
        const int64_t end = heed_block_end(b, size, row->cols);
        for (int64_t j = b * size; j < end && blocks.value[b] == -INFINITY; j++)
            row->score[j] = -INFINITY;
    }
}

/* The argument `share`: whose choice a block is. */
static const heed_option heed_share_options[] = {{"head", NULL}, {"group", NULL}, {NULL, NULL}};

#define HEED_SHARE_ARG                                                                                       \
    {                                                                                                        \
        .name = "share", .kind = HEED_ARG_CHOICE, .options = heed_share_options,                             \
        .summary = "each query head chooses for itself, or all that share a kv head by their largest value"  \
    }

#endif
