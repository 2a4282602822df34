/* Selectors that decide by blocks of keys: what each row sees of a block, what the selector makes of it, and
 * which blocks are read. Decoding and prefill share this; neither reads a key of another block.
 *
 * Rows of the query heads of one kv head are numbered together: row i of head h is row h * rows + i.
 */
#ifndef HEED_KERNELS_CHOOSE_H
#define HEED_KERNELS_CHOOSE_H

#include "attend/kernels/work.h"

#define HEED_AHEAD 128 /* most rows that are fetched before they are needed */

/* What a row sees of a block: both where only a part is open. Nothing is seen of a block not chosen. */
enum { HEED_SEEN = 1, HEED_UNSEEN = 2, HEED_SEEN_PARTLY = 3 };

typedef struct heed_choice {
    int64_t unit, units; /* keys of a block; blocks of all keys */
    int64_t stride;      /* of state and value, from row to row */
    uint8_t *state;      /* [rows][stride] */
    float *value;        /* [rows][stride] of blocks; NULL where no selector asks */
    int64_t *last;       /* [rows] the last open key; -1 where none is */
} heed_choice;

/* One thread's room for products of queries with summaries. */
typedef struct heed_value_work {
    const char **row; /* [HEED_KEYS + HEED_AHEAD] summaries */
    float *product;   /* [rows][HEED_KEYS] */
} heed_value_work;

#define heed_block_floats HEED_LOCAL(heed_block_floats)
#define heed_take_value_work HEED_LOCAL(heed_take_value_work)
#define heed_take_choice HEED_LOCAL(heed_take_choice)
#define heed_choice_see HEED_LOCAL(heed_choice_see)
#define heed_choice_copy HEED_LOCAL(heed_choice_copy)
#define heed_choice_decide HEED_LOCAL(heed_choice_decide)
#define heed_choice_decide_from HEED_LOCAL(heed_choice_decide_from)
#define heed_choice_values HEED_LOCAL(heed_choice_values)
#define heed_choice_search HEED_LOCAL(heed_choice_search)
#define heed_sees_alike HEED_LOCAL(heed_sees_alike)
#define heed_summaries_floats HEED_LOCAL(heed_summaries_floats)
#define heed_summaries_chunks HEED_LOCAL(heed_summaries_chunks)
#define heed_summaries_make HEED_LOCAL(heed_summaries_make)

/* Floats of a summary of one block, and of a query that it is multiplied with; the largest of a pipeline's.
 */
int64_t heed_block_floats(const heed_pipeline *pipeline);

/* Floats from one transformed query to the next. */
static inline int64_t heed_block_stride(const heed_pipeline *pipeline)
{
    return heed_round_up(heed_block_floats(pipeline), 32);
}

/* The selector of the pipeline that decides by blocks; NULL when there is none. */
static inline const heed_form_state *heed_block_selector(const heed_pipeline *pipeline)
{
    return pipeline->by_blocks < 0 ? NULL : &pipeline->form[pipeline->by_blocks];
}

heed_value_work heed_take_value_work(heed_arena *arena, int rows);
heed_choice heed_take_choice(heed_arena *arena, int64_t unit, int64_t keys, int rows, bool values);

/* State and last key of `rows` queries of a block from `first` on, as `where` has them, put at row0... */
void heed_choice_see(const heed_run *run, const heed_pipeline *pipeline, const heed_query_block *query,
                     int first, int rows, int64_t row0, const heed_choice *choice, heed_sight *sight);
/* The same for rows that see alike. */
void heed_choice_copy(const heed_choice *choice, int64_t from, int64_t to, int rows);

/* Values of the blocks first.. for rows [rows][heed_block_stride] of transformed queries. made: summaries of
 * this kv head made in this execution, or NULL where they come with the keys. */
void heed_choice_values(const heed_run *run, const heed_pipeline *pipeline, const float *made, int batch,
                        int group, int64_t first, int64_t count, int rows, const float *query, float *value,
                        int64_t value_stride, heed_value_work *work);

/* From values and states of heads * rows rows, `apart` rows from head to head, to the choice: blocks that are
 * not chosen become unseen. work [2 units]. */
void heed_choice_decide(const heed_pipeline *pipeline, const heed_choice *choice, int heads, int rows,
                        int64_t apart, float *work);

/* The same for rows of one head, whose choice hangs on an estimate. */
void heed_choice_decide_from(const heed_pipeline *pipeline, const heed_choice *choice, int64_t row0, int rows,
                             const float *estimate, float *work);

/* Where the form searches: what it is shown of summaries, for rows of transformed queries as above. */
typedef struct heed_looker {
    const heed_run *run;
    const heed_pipeline *pipeline;
    const float *made;
    int batch, group;
    const float *query; /* of the first head */
    int heads, rows;    /* that choose together; set by heed_choice_search */
    int64_t apart;      /* rows from head to head */
    heed_value_work *work;
} heed_looker;

/* As heed_choice_decide, for rules that search: one choice for all rows of a head, or of all heads. work [4
 * units]. */
void heed_choice_search(const heed_choice *choice, heed_looker *looker, int heads, int rows, int64_t apart,
                        float *work);

/* Whether `where` is the same for all query heads. */
bool heed_sees_alike(const heed_run *run, const heed_pipeline *pipeline);

/* Floats of the summary of one kv head's keys for the block selector; 0 where they come with the keys. */
int64_t heed_summaries_floats(const heed_plan *plan, const heed_pipeline *pipeline);
/* Pieces of one kv head's keys for each of which heed_summaries_make is called. */
int64_t heed_summaries_chunks(const heed_plan *plan, const heed_pipeline *pipeline);
void heed_summaries_make(const heed_run *run, const heed_pipeline *pipeline, int batch, int group,
                         int64_t chunk, heed_row_work *work, float *made);

#endif
