/* What the kernels of one build share: packing rows, scores of a strip, visibility. */
#ifndef HEED_KERNELS_WORK_H
#define HEED_KERNELS_WORK_H

#include "attend/kernels/isa.h"
#include "attend/kernels/panel.h"
#include "attend/plan.h"
#include "base/arena.h"
#include <math.h>

/* The logarithm of a row's sum of exponentials that were taken from its largest score. */
static inline float heed_log_of_sum(float max, float sum)
{
    return sum == 0.0f ? -INFINITY : (float)((double)max + log((double)sum));
}

static inline int64_t heed_round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* A block of keys and values, packed. */
typedef struct heed_key_block {
    int batch, group; /* kv head */
    int64_t key0;     /* index of the first key */
    int count, cols;  /* keys that exist; the same rounded up to HEED_SUB */
    int32_t *pos;     /* [HEED_KEYS], continued beyond count */
    bool contiguous;
    float *transposed;       /* [row_dim][HEED_KEY_STRIDE] prepared */
    float *natural;          /* [HEED_KEYS][row_stride] prepared */
    float *value;            /* [HEED_KEYS][value_stride] */
    float *value_transposed; /* [E][HEED_KEY_STRIDE]; backward only, else NULL */
    bool value_finite;
} heed_key_block;

/* A block of queries of one head, prepared. Rows are padded to whole strips. */
typedef struct heed_query_block {
    int batch, head;
    int64_t query0;
    int rows;     /* that exist */
    int32_t *pos; /* [padded rows] */
    bool contiguous;
    float *prepared; /* [padded rows][row_stride]; times the scale where scores are products */
    float *aux;      /* for each form with aux: [padded rows][its floats] */
    float *daux;     /* backward only: its gradient */
} heed_query_block;

/* Buffers for preparing rows, one set a thread. */
typedef struct heed_row_work {
    float *raw, *step[2]; /* [rows][row_stride] */
    int rows;
} heed_row_work;

/* Buffers for visibility, one set a thread. */
typedef struct heed_sight {
    uint8_t *state; /* [depth][blocks or subs] */
    uint8_t *open;  /* [depth][HEED_STRIP][HEED_KEYS] */
    int64_t stride; /* of state */
} heed_sight;

#define heed_row_stride HEED_LOCAL(heed_row_stride)
#define heed_most_heads HEED_LOCAL(heed_most_heads)
#define heed_aux_of HEED_LOCAL(heed_aux_of)
#define heed_value_stride HEED_LOCAL(heed_value_stride)
#define heed_value_cols HEED_LOCAL(heed_value_cols)
#define heed_row_of HEED_LOCAL(heed_row_of)
#define heed_take_row_work HEED_LOCAL(heed_take_row_work)
#define heed_take_sight HEED_LOCAL(heed_take_sight)
#define heed_load_rows HEED_LOCAL(heed_load_rows)
#define heed_transpose HEED_LOCAL(heed_transpose)
#define heed_prepare_queries HEED_LOCAL(heed_prepare_queries)
#define heed_pack_keys HEED_LOCAL(heed_pack_keys)
#define heed_prepared_keys HEED_LOCAL(heed_prepared_keys)
#define heed_pack_values HEED_LOCAL(heed_pack_values)
#define heed_place_keys HEED_LOCAL(heed_place_keys)
#define heed_product HEED_LOCAL(heed_product)
#define heed_accumulate HEED_LOCAL(heed_accumulate)
#define heed_range_of HEED_LOCAL(heed_range_of)
#define heed_block_states HEED_LOCAL(heed_block_states)
#define heed_sub_states HEED_LOCAL(heed_sub_states)
#define heed_all_sub_states HEED_LOCAL(heed_all_sub_states)
#define heed_mask_tile HEED_LOCAL(heed_mask_tile)
#define heed_list_states HEED_LOCAL(heed_list_states)
#define heed_prepare_list HEED_LOCAL(heed_prepare_list)
#define heed_close HEED_LOCAL(heed_close)
#define heed_tile_of HEED_LOCAL(heed_tile_of)
#define heed_scores HEED_LOCAL(heed_scores)
#define heed_adjust HEED_LOCAL(heed_adjust)
#define heed_rows_finite HEED_LOCAL(heed_rows_finite)
#define heed_prefetch_keys HEED_LOCAL(heed_prefetch_keys)
#define heed_add_mass HEED_LOCAL(heed_add_mass)
#define heed_adjust_back HEED_LOCAL(heed_adjust_back)
#define heed_built_in HEED_LOCAL(heed_built_in)
#define heed_outside_sees_tiles HEED_LOCAL(heed_outside_sees_tiles)

/* Most query heads that share a kv head in this pipeline. */
int heed_most_heads(const heed_plan *plan, const heed_pipeline *pipeline);

/* Floats from one prepared row (or value row) to the next: the dim rounded up to whole vectors. */
int64_t heed_row_stride(const heed_plan *plan, const heed_pipeline *pipeline);
int64_t heed_value_stride(const heed_plan *plan);
/* Those of them that hold values, in whole vectors. */
int64_t heed_value_cols(const heed_plan *plan);

heed_row_work heed_take_row_work(heed_arena *arena, const heed_plan *plan, int rows);
heed_sight heed_take_sight(heed_arena *arena, const heed_plan *plan);

/* Where a row of a [batch, head, rows, dim] tensor lies; keys may come from pages. */
const char *heed_row_of(const heed_run *run, const heed_tensor *tensor, bool paged, int64_t batch,
                        int64_t head, int64_t row);

/* Rows first.. of a [batch, head, rows, dim] tensor as floats, [count][stride]; keys may come from pages. */
void heed_load_rows(const heed_run *run, const heed_tensor *tensor, bool paged, int64_t batch, int64_t head,
                    int64_t first, int count, float *to, int64_t stride);

/* to[c][r] = from[r][c] for rows x cols entries; r beyond rows up to padded_rows are 0. */
void heed_transpose(const float *from, int64_t from_stride, int rows, int cols, float *to, int64_t to_stride,
                    int padded_rows);

/* Fills block->prepared, aux and pos for the queries query0... (rows of them). */
void heed_prepare_queries(const heed_run *run, const heed_pipeline *pipeline, heed_query_block *block,
                          heed_row_work *work);

/* Where the aux rows of form `form` begin in a block's `aux` or `daux`. */
float *heed_aux_of(const heed_pipeline *pipeline, int form, const heed_query_block *block, float *aux,
                   int row);

/* Packs keys key0... of block->batch, group as query head `head` sees them: transposed, and natural if it is
 * not NULL. */
void heed_pack_keys(const heed_run *run, const heed_pipeline *pipeline, int head, heed_key_block *block,
                    heed_row_work *work);
void heed_pack_values(const heed_run *run, heed_key_block *block);
/* Rows of a list of at most HEED_KEYS keys (or queries, with their scale), prepared as they stand at `pos`.
 * index NULL: first, first + 1, ... */
void heed_prepare_list(const heed_run *run, const heed_pipeline *pipeline, bool keys, int batch, int head,
                       const int32_t *index, int64_t first, int count, const int32_t *pos, float *to,
                       int64_t stride, heed_row_work *work);
/* At most HEED_KEYS keys as rows, prepared as the query heads of a kv head see them, in the memory of `work`.
 */
heed_rows heed_prepared_keys(const heed_run *run, const heed_pipeline *pipeline, int batch, int group,
                             int64_t key0, int count, heed_row_work *work);
/* Asks the cache for rows first... of k and v, as many as exist. */
void heed_prefetch_keys(const heed_run *run, int64_t batch, int64_t group, int64_t first, int count);
/* Says that keys and values first... will be read, to whoever asked. */
static inline void heed_will_read(const heed_run *run, int64_t batch, int64_t group, int64_t first,
                                  int64_t count, int when)
{
    if (run->extra->reads && count > 0)
        run->extra->reads(run->extra->reads_context, &(heed_keys_read){batch, group, first, count, when});
}
/* Keys that exist of key block b. */
static inline int heed_keys_in_block(const heed_run *run, int64_t batch, int64_t group, int64_t b)
{
    const int64_t left = heed_key_count(run, batch, group) - b * HEED_KEYS;
    return left < HEED_KEYS ? (int)left : HEED_KEYS;
}
/* Only the positions of a block. */
void heed_place_keys(const heed_run *run, heed_key_block *block);

/* c [HEED_STRIP][c_row] = a [HEED_STRIP][a_row] times b [depth][b_row], cols a multiple of the vector width.
 */
void heed_product(int64_t depth, const float *a, int64_t a_row, int64_t a_depth, const float *b,
                  int64_t b_row, float *c, int64_t c_row, int64_t cols);
/* The same, added to c; only the first `rows` rows are touched. */
void heed_accumulate(int rows, int64_t depth, const float *a, int64_t a_row, int64_t a_depth, const float *b,
                     int64_t b_row, float *c, int64_t c_row, int64_t cols);

/* The queries first... (rows of them) of a block, with the extent of their positions. */
heed_query_range heed_range_of(const heed_run *run, const heed_query_block *query, int first, int rows);

/* States of all key blocks of batch entry range->batch for a run of queries; returns [blocks] bytes. */
const uint8_t *heed_block_states(const heed_run *run, const heed_pipeline *pipeline,
                                 const heed_query_range *range, heed_sight *sight);
/* States of all runs of HEED_SUB keys. */
const uint8_t *heed_all_sub_states(const heed_run *run, const heed_pipeline *pipeline,
                                   const heed_query_range *range, heed_sight *sight);
/* States of the HEED_SUB runs inside one key block. */
const uint8_t *heed_sub_states(const heed_run *run, const heed_pipeline *pipeline,
                               const heed_query_range *range, int64_t key0, int cols, heed_sight *sight);
/* States of runs of keys that are given by their positions alone, for queries that are; returns
 * [blocks->count] bytes. */
const uint8_t *heed_list_states(const heed_pipeline *pipeline, const heed_query_range *range,
                                const heed_key_blocks *blocks, heed_sight *sight);
/* Which pairs of a tile (at most HEED_STRIP x HEED_KEYS) are open: [rows][HEED_KEYS], from tile->key0 on. */
const uint8_t *heed_mask_tile(const heed_run *run, const heed_pipeline *pipeline, const heed_tile *tile,
                              heed_sight *sight);
/* The tile of `rows` queries from row0 of a block against `cols` packed keys from column `first` on, without
 * buffers. */
heed_tile heed_tile_of(const heed_run *run, const heed_pipeline *pipeline, const heed_query_block *query,
                       int row0, int rows, const heed_key_block *keys, int first, int cols);

/* Scores of closed pairs become -inf. open NULL: only the columns from `keys` on are closed. */
void heed_close(heed_tile *tile, const uint8_t *open, int64_t open_stride, int keys);

/* Scores of a tile, by product or pair hook, before any position form adds to them. */
void heed_scores(const heed_pipeline *pipeline, heed_tile *tile);
/* Planes of scores that forms ask to see again backward: see heed_pipeline.kept_before. */
typedef struct heed_kept {
    float *plane;  /* the first, where the tile begins in it, with the tile's stride; NULL: nothing is kept */
    int64_t apart; /* floats from one to the next */
} heed_kept;

/* Runs the hooks listed in `which` over a tile whose rows start at row0 of `query`; `kept` receives what they
 * ask for. */
void heed_adjust(const heed_pipeline *pipeline, const int *which, int count, heed_tile *tile,
                 const heed_query_block *query, int row0, heed_kept kept);
void heed_adjust_back(const heed_pipeline *pipeline, const int *which, int count, heed_tile *tile,
                      const heed_query_block *query, int row0, heed_kept kept);

/* Adds the logarithms of the masses of keys to logits, where keys have any. */
void heed_add_mass(const heed_run *run, heed_tile *tile);

bool heed_built_in(const heed_form *form);
/* Whether a form from outside works on tiles, where it may ask for the rows of queries and keys. */
bool heed_outside_sees_tiles(const heed_pipeline *pipeline);

/* Whether rows [count][stride] hold neither NaN nor infinity in their first `dim` entries. */
bool heed_rows_finite(const float *rows, int64_t stride, int count, int64_t dim);

/* Whether this pipeline's distance-only biases and masks see consecutive positions. */
static inline bool heed_runs_by_one(const int32_t *pos, int n)
{
    int32_t odd = 0;
    for (int i = 1; i < n; i++)
        odd |= pos[i] - pos[i - 1] - 1;
    return odd == 0;
}

#endif
