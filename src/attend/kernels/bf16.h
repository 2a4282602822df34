/* Products of bf16 pairs with fp32 sums, for q, k and v that are all bf16, on processors that have them.
 *
 * Scores are exact products. Weights are fp32, and enter the product with the values as the sum of two bf16
 * numbers, so that they keep 16 bits: relative error 2^-16 each, not the 2^-8 of one bf16 number.
 */
#ifndef HEED_KERNELS_BF16_H
#define HEED_KERNELS_BF16_H

#include "attend/kernels/work.h"

#define heed_bf16_serves HEED_LOCAL(heed_bf16_serves)
#define heed_take_bf16_work HEED_LOCAL(heed_take_bf16_work)
#define heed_bf16_queries HEED_LOCAL(heed_bf16_queries)
#define heed_bf16_keys HEED_LOCAL(heed_bf16_keys)
#define heed_bf16_values HEED_LOCAL(heed_bf16_values)
#define heed_bf16_scores HEED_LOCAL(heed_bf16_scores)
#define heed_bf16_accumulate HEED_LOCAL(heed_bf16_accumulate)

/* A number stands for two bf16 values, neighbours along the dimension that is summed over, the first in the
 * low half. */
typedef struct heed_bf16_work {
    uint32_t *key;        /* [D / 2][HEED_KEY_STRIDE] */
    uint32_t *value;      /* [HEED_KEYS / 2][value_stride] */
    uint32_t *high, *low; /* [HEED_STRIP][HEED_KEYS / 2] weights */
    uint16_t *raw;        /* [HEED_KEYS][row_stride] rows that could not be read where they lie */
} heed_bf16_work;

/* Whether this build, this processor and the pipeline allow it: bf16 throughout, dot products of rows as
 * given, even dim. */
bool heed_bf16_serves(const heed_plan *plan, const heed_pipeline *pipeline);

heed_bf16_work heed_take_bf16_work(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline);

/* Raw pairs of a block's queries, [padded rows][row_stride], into block->prepared. */
void heed_bf16_queries(const heed_run *run, const heed_pipeline *pipeline, heed_query_block *block);

void heed_bf16_keys(const heed_run *run, const heed_key_block *block, heed_bf16_work *work);
/* Sets block->value_finite; packs only if it is. */
void heed_bf16_values(const heed_run *run, heed_key_block *block, heed_bf16_work *work);

/* tile->score = scale q k for tile->cols keys from column `first` of the packed block. */
void heed_bf16_scores(const heed_pipeline *pipeline, const heed_bf16_work *work, heed_tile *tile, int first);

/* sum [rows][value_stride] += weights of the tile times values. */
void heed_bf16_accumulate(const heed_plan *plan, heed_bf16_work *work, const heed_tile *tile, int first,
                          float *sum);

#endif
