/* What the parts of the decode kernel share; decode.c tells how they go
 * together. */
#ifndef HEED_KERNELS_DECODE_H
#define HEED_KERNELS_DECODE_H

#include "attend/kernels/choose.h"
#include "attend/kernels/flash.h"
#include <heed/recall.h>

/* Keys of a piece of work: the same cuts whatever the batch, the threads and M. */
#define HEED_PIECE 1024

#define HEED_PLANES 2 /* bytes of a whole-number query */

/* A query's 32 entries that meet one block of quantised keys, as whole numbers
 * of two signed bytes: q = step sum_p 256^p plane[p], four entries to a word.
 */
typedef struct heed_whole_query {
    int32_t plane[HEED_PLANES][HEED_BLOCK / 4];
    int32_t sum; /* of the whole numbers: keys' bytes are taken as unsigned, and so much too much comes out */
    float step;
} heed_whole_query;

/* Rows of keys or values of one tile, where they lie. */
typedef struct heed_decode_rows {
    heed_type type;         /* of what the pointers point at */
    int count;              /* rows, a multiple of HEED_SUB; the last may stand several times
                             */
    int dim;                /* entries of a row */
    const char *const *row; /* [count], and behind them HEED_AHEAD rows that will be read next */
    int far, near;          /* rows ahead that are fetched into the second cache, and into the first; near:
                               quantised rows only, far may be 0 for them */
    int lines;              /* cache lines of such a row */
    uint16_t *half;         /* [blocks][HEED_SUB] room for scales of quantised rows */
    char *spare;            /* [HEED_SUB rows] room for those that lie at uneven distances */
    bool whole;             /* products of whole numbers serve them */
} heed_decode_rows;

/* Keys of one page that is quantised by channel, 4 bits. */
typedef struct heed_channel_keys {
    const char *page;
    int first, count; /* multiples of HEED_SUB, all of one page */
    int dim;
    bool whole; /* products of whole numbers serve */
} heed_channel_keys;

/* Keys that follow one another. */
typedef struct heed_key_run {
    int64_t first;
    int count;
} heed_key_run;

/* The keys that a group reads where selectors leave some out: blocks, in rising order. */
typedef struct heed_decode_list {
    heed_choice choice; /* what each row sees of each block */
    int64_t entries;
    int32_t *entry; /* [units] blocks of which some row sees something */
} heed_decode_list;

/* What a selector with a memory does to one batch entry. */
typedef struct heed_decode_recalled {
    heed_recalled now;
    bool reads_all, remembers;
    uint8_t *flags; /* [kv_heads][units] of now.keep */
    int64_t units;
} heed_decode_recalled;

/* The queries that meet one kv head of one batch entry; rows of one query head
 * lie together. */
typedef struct heed_decode_group {
    int batch, group;         /* kv head */
    int heads, queries, rows; /* rows = heads * queries */
    int64_t query0, keys;     /* keys that exist */
    heed_query_block *query;  /* [heads] */
    float *compared;          /* the same rows as stored keys are compared with: turned where those are; else
                                 `prepared` */
    float *prepared;          /* [rows][stride of heed_decode_stride] times the scale, 0
                                 beyond dim */
    heed_whole_query *whole;  /* [rows][blocks of dim]; used if is_whole */
    bool is_whole;
    bool alike;     /* `where` does not look at the head */
    uint8_t *state; /* [heads, or 1 if alike][key blocks]; where all that `where` opens may be read */
    bool *begun;    /* [pieces] whether a piece has seen anything */
    float *sums;    /* [pieces][HEED_SUMS][most rows] */
    float *out;     /* [pieces][most rows][value stride] not normalised */
    float *kept;    /* [most rows][key blocks][HEED_KEYS] weights as `online` left
                       them, with capture; else NULL; of a list by places of its keys */
    float *later; /* [most rows][tiles] the product of the rescalings after that key block, or tile of a list,
                     in its piece */
    /* with selectors: blocks of keys, and behind selectors that need scores single keys */
    heed_decode_list list[2];
    const heed_decode_list *reads; /* NULL: all that `where` opens */
    float *block_query;            /* [most rows][heed_block_stride] queries as they meet summaries */
    float *summary;                /* of the keys, made in this execution; NULL if it came with them */
    float *score; /* [most rows][score_stride] of the keys of list[0], where a selector asks */
    heed_decode_recalled *recalled; /* of the batch entry, where a selector has a memory */
} heed_decode_group;

/* The lists of heed_row_sums that a piece leaves. */
enum { HEED_SUM_MAX, HEED_SUM_SUM, HEED_SUM_COUNT, HEED_SUM_MOMENT, HEED_SUMS };

/* Sizes that all parts agree on. */
typedef struct heed_decode_sizes {
    int heads;                        /* most query heads of a kv head */
    int queries;                      /* most queries of one head at a time */
    int rows;                         /* heads * queries */
    int64_t groups, pieces, blocks;   /* kv heads of all batch entries; pieces and
                                         key blocks of a group */
    int64_t stride, value_stride;     /* of prepared rows and of sums: whole blocks */
    int64_t key_blocks, value_blocks; /* of a quantised row; else 0 */
    bool rotated;                     /* keys were turned before they were stored */
    bool keeps;                       /* weights are kept for statistics */
    int64_t tiles;                    /* of a group, for whose kept weights a factor is noted */
    int piece_tiles;                  /* of a piece of a list */
    bool selects;                     /* groups read by lists */
    int64_t unit;                     /* keys of a block of list[0] */
    bool by_scores;                   /* some selector needs scores: there is a list[1] of single keys */
    bool recalls, weighs;             /* a selector has a memory, and makes it of weights */
    int64_t score_stride, summary;    /* floats of a row of scores; of a group's summary */
} heed_decode_sizes;

/* One thread's buffers. */
typedef struct heed_decode_work {
    float *score;          /* [rows][HEED_KEYS] */
    float *scaled;         /* [value blocks][rows][HEED_SUB] weights times scales */
    uint16_t *half;        /* [most blocks][HEED_SUB] scales */
    char *spare;           /* [HEED_SUB] quantised rows */
    uint8_t *was_open;     /* [rows][HEED_KEYS] */
    float *rescale;        /* [rows] */
    float *before;         /* [rows][value_stride] sums before a tile, and the merged sums */
    float *all[HEED_SUMS]; /* [rows] sums of whole rows */
    heed_row_end *end;     /* [rows] */
    float *key, *value;    /* [HEED_KEYS][stride], [HEED_KEYS][value_stride] where
                              rows cannot be read in place */
    float *channel;        /* heed_channel_floats, where some keys are quantised by channel */
    const char **row;      /* [2 HEED_KEYS + HEED_AHEAD] keys, values, keys of the next tile */
    heed_key_run *runs[2]; /* [HEED_KEYS] of this tile and of the next */
    float *line;           /* [2 M] scratch of selectors */
    int32_t *line_pos;     /* [M] */
    heed_value_work value_work;
    int32_t *pos;       /* [HEED_KEYS] */
    uint8_t *partly[2]; /* [heads] of this tile and of the next */
    float *prepared;    /* [queries rounded up to strips][heed_row_stride] */
    heed_row_work rows;
    heed_sight sight;
} heed_decode_work;

#define heed_channel_scores HEED_LOCAL(heed_channel_scores)
#define heed_channel_floats HEED_LOCAL(heed_channel_floats)
#define heed_decode_scores HEED_LOCAL(heed_decode_scores)
#define heed_decode_block HEED_LOCAL(heed_decode_block)
#define heed_decode_values HEED_LOCAL(heed_decode_values)
#define heed_decode_float_values HEED_LOCAL(heed_decode_float_values)
#define heed_whole_products HEED_LOCAL(heed_whole_products)
#define heed_whole_queries HEED_LOCAL(heed_whole_queries)
#define heed_whole_values HEED_LOCAL(heed_whole_values)
#define heed_whole_values_floats HEED_LOCAL(heed_whole_values_floats)
#define heed_whole_scores HEED_LOCAL(heed_whole_scores)
#define heed_decode_sizes_of HEED_LOCAL(heed_decode_sizes_of)
#define heed_decode_piece HEED_LOCAL(heed_decode_piece)
#define heed_decode_finish HEED_LOCAL(heed_decode_finish)
#define heed_decode_scored HEED_LOCAL(heed_decode_scored)
#define heed_decode_select HEED_LOCAL(heed_decode_select)
#define heed_decode_see HEED_LOCAL(heed_decode_see)
#define heed_decode_list_blocks HEED_LOCAL(heed_decode_list_blocks)
#define heed_take_recalled HEED_LOCAL(heed_take_recalled)
#define heed_decode_recall HEED_LOCAL(heed_decode_recall)
#define heed_take_lists HEED_LOCAL(heed_take_lists)

/* score [rows][HEED_KEYS] = query [rows][stride] times keys; query is 0 from
 * dim up to a multiple of HEED_BLOCK. False, with the scores left undone, where
 * a scale of quantised keys is not finite. */
bool heed_decode_scores(const heed_decode_rows *keys, int rows, const float *query, int64_t stride,
                        float *score);

/* The same for keys by channel; work: heed_channel_floats, aligned to vectors. */
void heed_channel_scores(const heed_channel_keys *keys, int rows, const float *query, int64_t stride,
                         float *work, float *score);
int64_t heed_channel_floats(int rows, int64_t stride);

/* sum [rows][stride] += weight [rows][HEED_KEYS] times values; work: [blocks of
 * a quantised row][rows][HEED_SUB]. */
void heed_decode_values(const heed_decode_rows *values, int rows, const float *weight, float *work,
                        float *sum, int64_t stride);

/* Those that are stored as floats of some kind. */
void heed_decode_float_values(const heed_decode_rows *values, int rows, const float *weight, float *sum,
                              int64_t stride);

/* The same for one block of columns of quantised rows; work: [rows][HEED_SUB]. */
void heed_decode_block(const heed_decode_rows *values, int rows, int block, const float *weight, float *work,
                       float *sum, int64_t stride);

#if HEED_WIDTH == 16
/* Whether products of whole numbers serve keys of this type on this processor.
 */
bool heed_whole_products(heed_type type);
/* One query as whole numbers, a heed_whole_query a block, exact to 2^-16 of the block's largest entry; false
 * where that cannot be. */
bool heed_whole_queries(const float *query, int64_t blocks, heed_whole_query *to);
/* As heed_decode_scores, query [rows][blocks]. */
bool heed_whole_scores(const heed_decode_rows *keys, int rows, const heed_whole_query *query, float *score);
/* As heed_decode_values; false, with the sums left alone, where a weight is not finite. work:
 * heed_whole_values_floats. */
bool heed_whole_values(const heed_decode_rows *values, int rows, const float *weight, float *work, float *sum,
                       int64_t stride);
int64_t heed_whole_values_floats(int rows);
#endif

heed_decode_sizes heed_decode_sizes_of(const heed_plan *plan, const heed_pipeline *pipeline);

/* The keys of one piece pass by the queries of a group. */
void heed_decode_piece(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                       heed_decode_group *group, int64_t piece, heed_decode_work *work);

/* Only the scores of a piece of list[0], into group->score; -inf where a row sees nothing. Where nothing is
 * listed, those of what `where` opens, each at its key. */
void heed_decode_scored(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                        heed_decode_group *group, int64_t piece, heed_decode_work *work);

/* The lists of what groups read. All threads call it together, after the groups have begun. */
void heed_decode_select(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                        heed_decode_group *group, heed_decode_work *work);
/* Memory of the lists of all groups; arena->base NULL: group may be NULL. */
void heed_take_lists(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                     const heed_decode_sizes *sizes, heed_decode_group *group);

/* The same for a selector with a memory (decode_recall.c); and the memory for it. */
void heed_decode_recall(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                        heed_decode_group *group, heed_decode_work *work);
void heed_take_recalled(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                        const heed_decode_sizes *sizes, heed_decode_group *group);

/* What the rows of a group see of the blocks of list[0], as `where` has it. */
void heed_decode_see(const heed_run *run, const heed_pipeline *pipeline, heed_decode_group *group,
                     heed_decode_work *work);
/* The blocks of which some row sees something. */
void heed_decode_list_blocks(const heed_decode_group *group, heed_decode_list *list);
/* Where a piece of a list ends, in entries. */
static inline int64_t heed_list_piece(const heed_decode_list *list, int64_t piece)
{
    const int64_t unit = list->choice.unit, each = unit < HEED_PIECE ? HEED_PIECE / unit : 1;
    return piece * each < list->entries ? piece * each : list->entries;
}

/* The keys from a place of a list on that follow one another, at most up to place `end`; none behind the last
 * key. */
static inline heed_key_run heed_list_run(const heed_decode_list *list, int64_t place, int64_t end,
                                         int64_t keys)
{
    const int64_t unit = list->choice.unit, within = place % unit;
    if (place >= end)
        return (heed_key_run){0, 0};
    const int64_t first = list->entry[place / unit] * unit + within;
    int64_t count = unit - within < end - place ? unit - within : end - place;
    count = count < keys - first ? count : keys - first;
    return (heed_key_run){first, count > 0 ? (int)(count < HEED_KEYS ? count : HEED_KEYS) : 0};
}

/* Puts the pieces of a group together and stores what comes out. */
void heed_decode_finish(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                        const heed_decode_group *group, heed_decode_work *work);

static inline float *heed_decode_sums(const heed_decode_sizes *sizes, const heed_decode_group *group,
                                      int64_t piece, int which)
{
    return group->sums + (piece * HEED_SUMS + which) * sizes->rows;
}

static inline float *heed_decode_out(const heed_decode_sizes *sizes, const heed_decode_group *group,
                                     int64_t piece)
{
    return group->out + piece * sizes->rows * sizes->value_stride;
}

/* Whether any query of the group sees anything of key block b. */
static inline bool heed_decode_seen(const heed_decode_sizes *sizes, const heed_decode_group *group, int64_t b)
{
    int seen = 0;
    for (int h = 0; h < (group->alike ? 1 : group->heads); h++)
        seen |= group->state[h * sizes->blocks + b];
    return seen != HEED_CLOSED;
}

/* Blocks in a quantised row. */
static inline int heed_row_blocks(const heed_decode_rows *rows)
{
    return (rows->dim + HEED_BLOCK - 1) / HEED_BLOCK;
}

/* A line into the second cache; always in line, for a compiler drops calls of functions that do nothing but
 * fetch. The first has too few requests open at a time to fill the bandwidth with them; what it lacks comes
 * from the second while the processor works ahead. */
HEED_INLINE void heed_fetch_far(const char *at)
{
    __builtin_prefetch(at, 0, 2);
}

/* What will be needed when row j + near, and j + far, is read. */
HEED_INLINE void heed_fetch_rows(const heed_decode_rows *rows, int j)
{
    const char *near = rows->row[j + rows->near], *far = rows->row[j + rows->far];
    for (int l = 0; l < rows->lines; l++) {
        __builtin_prefetch(near + l * 64);
        if (rows->far > 0)
            heed_fetch_far(far + l * 64);
    }
}

#endif
