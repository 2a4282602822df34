/* What forward and backward of the rows kernel share: complete rows, from prepared queries to final weights.
 *
 * A few rows of every head of a piece of work go through the stages together. Each head has planes of
 * [block][stride] numbers, a column for every key; what happens in a plane happens in place, and backward
 * keeps a copy of what a gradient asks for. Only the columns first .. last are touched: keys that none of the
 * rows can see are left out at the end and, where no selector counts keys from the first one on, in front.
 */
#ifndef HEED_KERNELS_ROWS_H
#define HEED_KERNELS_ROWS_H

#include "attend/kernels/flash.h"
#include <string.h>

#define HEED_ROW_TILE 1024 /* columns of a tile for online normalisers */

/* The rows of one query head. */
typedef struct heed_row_head {
    heed_query_block query;
    int group;      /* kv head */
    uint8_t *state; /* [blocks] of the rows at hand */
    float *score;   /* [block][stride] scores, then logits, then weights */
    uint8_t *seen;  /* [block][stride] open under `where`; NULL unless a stage after the tiles asks */
    uint8_t *open;  /* [block][stride] open after `select` */
    float *max, *sum, *count; /* [block] running sums of online normalisers */
    float *norm, *lse;        /* [block] */
    heed_row_end *end;        /* [block] */
    float *aux;               /* [block][4] what a whole-row normaliser hands to its backward */
    uint8_t *broken;          /* [block] an open score was NaN or +inf */
    const float *summary;     /* what the selectors know of the keys, one after the other */
    float *out;               /* [block][value_stride]; forward only */
    /* backward only, [block][stride]; NULL where nothing asks */
    float *dscore; /* gradient of the weights, which becomes that of the scores */
    float *scored; /* scores before heads mixed them */
    float *weight; /* weights before heads mixed them */
    float *kept;   /* [planes] that forms see again */
} heed_row_head;

typedef struct heed_rows_work {
    int most_heads, block; /* heads, and rows of each, that there is room for; whole strips */
    int64_t stride;        /* keys rounded up to whole blocks, and a little more */
    int64_t blocks;        /* of keys */
    heed_row_head *head;   /* [most_heads] */
    heed_key_block keys;   /* the packed one */
    float *natural;        /* room for keys->natural, where a selector or backward reads keys so */
    int64_t packed_key;    /* its block of keys, numbered over key heads; -1: none */
    int64_t packed_value;  /* its block of values, numbered over kv heads; -1: none */
    bool packed_natural;
    int32_t *key_pos;    /* [stride], continued beyond the keys that exist */
    bool contiguous;     /* they go up by one */
    uint8_t *visible;    /* [blocks] states over all heads at hand */
    float *line[3];      /* [stride] scratch for hooks that work on a row; the first two lie together */
    float *rescale;      /* [tiles of a row][HEED_STRIP] */
    float **plane[2];    /* [most_heads] planes of the heads, for hooks that mix them */
    float *mix;          /* their scratch, [most_heads][HEED_STRIP][HEED_KEYS] twice */
    float *summary;      /* [most_heads][summary floats] */
    float **block_query; /* [most_heads] queries of one index as selectors by blocks take them */
    int64_t *summary_of; /* [most_heads] batch entry and key head that each is of; -1: none */
    float *carried;      /* [stride] votes of all queries before the row at hand; with votes */
    float *blame; /* [stride] gradient of the votes of the row at hand, from all later rows; backward */
    heed_row_work rows;
    heed_sight sight;
    /* what is at hand */
    int batch, heads, row0, count; /* rows row0 .. row0 + count of the prepared queries */
    int64_t first, last;           /* columns; multiples of HEED_KEYS and of HEED_SUB */
    int64_t keys_end;              /* as `last`, but without keys that do not exist */
} heed_rows_work;

/* The part of the kept planes that begins at row `row`, column `col`. */
static inline heed_kept heed_rows_kept(const heed_rows_work *work, const heed_row_head *head, int row,
                                       int64_t col)
{
    return (heed_kept){head->kept ? head->kept + row * work->stride + col : NULL, work->block * work->stride};
}

/* How the position forms divide: those that see tiles, those that need whole rows, and again those that see
 * tiles. */
typedef struct heed_adjust_parts {
    int whole, after; /* where in pipeline->adjust the second and third part begin */
    bool keys_after;  /* the third part may read keys */
} heed_adjust_parts;

#define heed_rows_heads HEED_LOCAL(heed_rows_heads)
#define heed_rows_at_once HEED_LOCAL(heed_rows_at_once)
#define heed_take_rows HEED_LOCAL(heed_take_rows)
#define heed_rows_begin HEED_LOCAL(heed_rows_begin)
#define heed_rows_weights HEED_LOCAL(heed_rows_weights)
#define heed_rows_tile HEED_LOCAL(heed_rows_tile)
#define heed_rows_pack_keys HEED_LOCAL(heed_rows_pack_keys)
#define heed_rows_pack_values HEED_LOCAL(heed_rows_pack_values)
#define heed_part_adjusts HEED_LOCAL(heed_part_adjusts)
#define heed_rows_scores HEED_LOCAL(heed_rows_scores)
#define heed_rows_sum_votes HEED_LOCAL(heed_rows_sum_votes)
#define heed_rows_take_votes HEED_LOCAL(heed_rows_take_votes)
#define heed_rows_blame HEED_LOCAL(heed_rows_blame)
#define heed_rows_votes_backward HEED_LOCAL(heed_rows_votes_backward)
#define heed_carry_sums HEED_LOCAL(heed_carry_sums)
#define heed_mark_used HEED_LOCAL(heed_mark_used)

/* Query heads that go through together, and rows of each at once. */
int heed_rows_heads(const heed_plan *plan, const heed_pipeline *pipeline, bool backward);
int heed_rows_at_once(const heed_plan *plan, const heed_pipeline *pipeline, bool backward);

/* One thread's buffers; queries are prepared `query_block` at a time. */
heed_rows_work heed_take_rows(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                              int query_block, bool backward);

/* Prepares `rows` queries from query0 on of the heads pipeline->head[first_head ...]. */
void heed_rows_begin(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, int batch,
                     int first_head, int heads, int64_t query0, int rows);

/* From scores to final weights for `count` of the prepared rows from row0 on, at most work->block of them. */
void heed_rows_weights(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, int row0,
                       int count);

/* A view on rows (counted from work->row0) and columns of a head. It has no keys. */
heed_tile heed_rows_tile(const heed_run *run, const heed_pipeline *pipeline, const heed_rows_work *work,
                         const heed_row_head *head, int row, int rows, int64_t col, int cols);

/* Makes work->keys hold a block of keys, or of values, as a head sees them. */
void heed_rows_pack_keys(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                         const heed_row_head *head, int64_t block, bool natural);
void heed_rows_pack_values(const heed_run *run, heed_rows_work *work, const heed_row_head *head,
                           int64_t block);

heed_adjust_parts heed_part_adjusts(const heed_pipeline *pipeline);

static inline bool heed_rows_mix(const heed_pipeline *pipeline)
{
    return pipeline->form[pipeline->heads].form->flags & HEED_MIXES_HEADS || pipeline->votes >= 0;
}

/* The scores of `count` prepared rows from row0 on, -inf where closed under `where`. */
void heed_rows_scores(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, int row0,
                      int count);

/* Votes of earlier queries (rows_votes.c). The rows that go through together are a step; what earlier steps
 * gave to each key, or later ones, is carried from step to step as [batch][steps][M] sums. */

/* The voting head's place among the heads that go through together. */
static inline int heed_voter_of(const heed_pipeline *pipeline)
{
    const heed_form_state *form = &pipeline->form[pipeline->votes];
    return form->form->voter(form);
}
/* sum [M] = the votes of rows whose scores are made, of one head. */
void heed_rows_sum_votes(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                         float *sum);
/* Takes work->carried off all heads' scores, row by row, while each row's votes join it. */
void heed_rows_take_votes(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work);
/* sum [M] = gradient of what was taken off, over rows and heads. */
void heed_rows_blame(const heed_run *run, heed_rows_work *work, float *sum);
/* Adds the gradient of the votes to the voter's dscore, from work->blame, which rows join from the last to
 * the first. */
void heed_rows_votes_backward(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work);
/* sums [lists][steps][keys] to those of the steps before each, or behind. All threads call it together. */
void heed_carry_sums(float *sums, int64_t lists, int64_t steps, int64_t keys, bool behind);

/* used[i][HEED_KEYS] = weight[i][j] != 0 (NaN counts), or open where `open` is given; returns how many
 * are. */
int heed_mark_used(const float *weight, const uint8_t *open, int64_t stride, int rows, int cols,
                   uint8_t *used);

/* Runs the statement that follows for every used column j of a row. Eight are looked at together. */
#define HEED_FOR_USED(j, used, cols)                                                                         \
    for (int j##_8 = 0; j##_8 < (cols); j##_8 += 8)                                                          \
        if (heed_any_of_8((used) + j##_8))                                                                   \
            for (int j = j##_8; j < j##_8 + 8; j++)                                                          \
                if ((used)[j])

static inline bool heed_any_of_8(const uint8_t *used)
{
    uint64_t eight;
    memcpy(&eight, used, sizeof eight);
    return eight != 0;
}

/* So few pairs are used that going through them one by one is cheaper than a product of the whole tile. */
static inline bool heed_few(int used, int pairs)
{
    return used * 8 < pairs;
}

#endif
