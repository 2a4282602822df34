/* What the backward kernels share.
 *
 * heed_backward (backward.c) frames the work of each pipeline:
 *   1. forward again where `out` or the row state was not given; the read stage's gradient; delta = dout .
 * out
 *   2. the kernel's main pass (flash or rows): gradients of prepared rows, values, aux rows and of the
 * parameters that tiles see
 *   3. copies added in order; prepare hooks backward; gradients stored, added over pipelines
 *
 * With flash and many heads each kv head goes through all steps at once, in buffers of its thread, which stay
 * in the cache; else a step runs over all heads before the next begins.
 *
 * Determinism: whatever several pieces of work add to lies in copies that belong to fixed pieces of work,
 * never to threads. Parameter gradients gather in `lanes`: piece n of a pass works in lane n % lanes, the
 * pieces of a lane one after the other.
 */
#ifndef HEED_KERNELS_BACKWARD_H
#define HEED_KERNELS_BACKWARD_H

#include "attend/kernels/flash.h"

/* Copies into which the main pass adds. */
typedef struct heed_copies {
    int query; /* of dquery and daux: pieces of work that meet the same query */
    int key;   /* of dkey and dvalue: pieces of work that meet the same key */
    int lanes; /* of parameter gradients */
} heed_copies;

typedef struct heed_backward_work {
    const heed_run *run;
    const heed_pipeline *pipeline;
    heed_copies copies;
    int64_t row_stride, value_stride;
    int64_t padded_queries; /* N rounded up to whole blocks of HEED_BACK_BLOCK */
    int key_heads;          /* H where keys are prepared by query head, else G */
    /* Where a thread has buffers of its own, for one kv head of a batch entry at a time, these are counted
     * from its first: heads and kv heads of all batch entries before it. Else 0. */
    int64_t head0, group0;
    /* made before the main pass */
    float *dout;     /* [batch][H][padded_queries][value_stride] gradient of the output before the read stage;
                        padding 0 */
    float *base;     /* [batch][H][N] of the row state: largest logit; only where the main pass is flash */
    float *norm;     /* [batch][H][N] of the row state: what the norm is beyond it; likewise */
    float *delta;    /* [batch][H][N] sum of weight times its gradient; likewise */
    float *query;    /* [batch][H][padded_queries][row_stride] prepared, padding 0; likewise */
    float *aux;      /* as daux, without copies; likewise */
    uint8_t *finite; /* [batch][H][padded_queries / HEED_BACK_BLOCK]: query and dout are there; likewise */
    /* filled by the main pass; zero before it */
    float *dquery; /* [copies.query][batch][H][padded_queries][row_stride] gradient of prepared rows as the
                      product meets them, so scaled where pipeline->pair < 0 */
    float
        *daux; /* [copies.query][batch][H][aux_floats][padded_queries], by blocks of queries: see heed_daux */
    float *dkey;   /* [copies.key][batch][key_heads][M][row_stride] gradient of prepared keys */
    float *dvalue; /* [copies.key][batch][G][M][value_stride] */
    float *lane;   /* [copies.lanes][parameter floats] */
    /* with votes [batch][steps][M]: what earlier steps voted, and the gradient of votes from later ones */
    int64_t steps;
    float *votes, *blame;
} heed_backward_work;

#define heed_set_lane HEED_LOCAL(heed_set_lane)
#define heed_flash_backward HEED_LOCAL(heed_flash_backward)
#define heed_flash_copies HEED_LOCAL(heed_flash_copies)
#define heed_flash_backward_per_thread HEED_LOCAL(heed_flash_backward_per_thread)
#define heed_take_flash_back HEED_LOCAL(heed_take_flash_back)
#define heed_flash_back_piece HEED_LOCAL(heed_flash_back_piece)
#define heed_take_back_rows HEED_LOCAL(heed_take_back_rows)
#define heed_back_output HEED_LOCAL(heed_back_output)
#define heed_back_queries HEED_LOCAL(heed_back_queries)
#define heed_back_finish_queries HEED_LOCAL(heed_back_finish_queries)
#define heed_back_finish_keys HEED_LOCAL(heed_back_finish_keys)
#define heed_rows_backward HEED_LOCAL(heed_rows_backward)
#define heed_rows_copies HEED_LOCAL(heed_rows_copies)
#define heed_rows_steps HEED_LOCAL(heed_rows_steps)
#define heed_rows_backward_per_thread HEED_LOCAL(heed_rows_backward_per_thread)

/* Points the parameter gradients of a thread's own copy of the pipeline at a lane. */
void heed_set_lane(const heed_backward_work *work, heed_pipeline *own, int lane);

/* Gradient rows of aux of form `form` for a block of queries that starts at query0 with `rows` rows: the
 * block's daux as heed_aux_of expects it lies at the block's first query, so every pass must cut queries at
 * the same places: multiples of HEED_BACK_BLOCK. */
#define HEED_BACK_BLOCK (64 / HEED_STRIP * HEED_STRIP)

/* Rows of queries with padding, as dout and query have them, and without, as base, norm and delta. */
static inline int64_t heed_padded_row(const heed_backward_work *work, int64_t batch, int64_t head,
                                      int64_t query)
{
    const int64_t at = batch * work->run->plan->problem.heads + head - work->head0;
    return at * work->padded_queries + query;
}

static inline int64_t heed_state_row(const heed_backward_work *work, int64_t batch, int64_t head,
                                     int64_t query)
{
    const heed_problem *p = &work->run->plan->problem;
    return (batch * p->heads + head - work->head0) * p->queries + query;
}

/* The same in a copy; copies belong to all heads at once. */
static inline int64_t heed_copy_row(const heed_backward_work *work, int copy, int64_t batch, int64_t head,
                                    int64_t query)
{
    const heed_problem *p = &work->run->plan->problem;
    return copy * p->batch * p->heads * work->padded_queries + heed_padded_row(work, batch, head, query);
}

static inline float *heed_daux(const heed_backward_work *work, int copy, int64_t batch, int64_t head,
                               int64_t query0)
{
    return work->daux + heed_copy_row(work, copy, batch, head, query0) * work->pipeline->aux_floats;
}

static inline float *heed_dquery(const heed_backward_work *work, int copy, int64_t batch, int64_t head,
                                 int64_t query)
{
    return work->dquery + heed_copy_row(work, copy, batch, head, query) * work->row_stride;
}

static inline float *heed_dkey(const heed_backward_work *work, int copy, int64_t batch, int64_t key_head,
                               int64_t key)
{
    const heed_problem *p = &work->run->plan->problem;
    const int64_t before = work->pipeline->keys_by_head ? work->head0 : work->group0;
    const int64_t head = (copy * p->batch + batch) * work->key_heads + key_head - before;
    return work->dkey + (head * p->keys + key) * work->row_stride;
}

static inline float *heed_dvalue(const heed_backward_work *work, int copy, int64_t batch, int64_t group,
                                 int64_t key)
{
    const heed_problem *p = &work->run->plan->problem;
    const int64_t head = (copy * p->batch + batch) * p->kv_heads + group - work->group0;
    return work->dvalue + (head * p->keys + key) * work->value_stride;
}

static inline float *heed_dout(const heed_backward_work *work, int64_t batch, int64_t head, int64_t query)
{
    return work->dout + heed_padded_row(work, batch, head, query) * work->value_stride;
}

/* A thread's buffers for the hooks that prepare rows, backward. */
typedef struct heed_back_rows {
    heed_pipeline *own; /* the thread's copy */
    heed_row_work rows;
    float *first, *second, *dfirst, *dsecond; /* [HEED_KEYS][row_stride] */
    int32_t *pos;
} heed_back_rows;

heed_back_rows heed_take_back_rows(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline);
/* Step 1b: gradient of the output of a head before the read stage. out: what was read, where a form there
 * needs it. */
void heed_back_output(const heed_backward_work *work, const heed_pipeline *own, int64_t batch, int head,
                      const float *out);
/* Step 1c, for flash: norms, deltas and prepared queries of a block of queries. */
void heed_back_queries(const heed_backward_work *work, heed_back_rows *mine, int64_t batch, int head,
                       int64_t query0, const heed_tensor *out, const float *row_state);
/* Step 3: from gradients of prepared rows to those of q, and to those of k and v of a kv head. */
void heed_back_finish_queries(const heed_backward_work *work, heed_back_rows *mine, int64_t batch, int head);
void heed_back_finish_keys(const heed_backward_work *work, heed_back_rows *mine, int64_t batch,
                           int64_t group);

/* The main passes. Each thread's own buffers lie at run->threads + thread * run->per_thread and begin with a
 * heed_pipeline for its copy. A rows pass computes norms and deltas itself and calls norm_backward for its
 * rows. */
void heed_flash_backward(const heed_backward_work *work);
heed_copies heed_flash_copies(const heed_plan *plan, const heed_pipeline *pipeline);
size_t heed_flash_backward_per_thread(const heed_plan *plan, const heed_pipeline *pipeline);
/* The same for one kv head of a batch entry and every copies.query-th block of its keys. */
typedef struct heed_flash_back heed_flash_back;
heed_flash_back *heed_take_flash_back(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                                      heed_pipeline *own);
void heed_flash_back_piece(const heed_backward_work *work, heed_flash_back *mine, int64_t batch,
                           int64_t group, int copy);
void heed_rows_backward(const heed_backward_work *work);
/* Steps in which the rows of one batch entry go through: the same for all heads. */
int64_t heed_rows_steps(const heed_plan *plan, const heed_pipeline *pipeline);
heed_copies heed_rows_copies(const heed_plan *plan, const heed_pipeline *pipeline);
size_t heed_rows_backward_per_thread(const heed_plan *plan, const heed_pipeline *pipeline);

#endif
