/* One thread's buffers of the flash kernel, and what is done when its rows are complete. */
#ifndef HEED_KERNELS_FLASH_WORK_H
#define HEED_KERNELS_FLASH_WORK_H

#include "attend/kernels/bf16.h"
#include "attend/kernels/choose.h"
#include "attend/kernels/flash.h"

#define HEED_SUBS (HEED_KEYS / HEED_SUB)

#define heed_flash_finish HEED_LOCAL(heed_flash_finish)
#define heed_flash_sweep HEED_LOCAL(heed_flash_sweep)
#define heed_flash_keeps HEED_LOCAL(heed_flash_keeps)

/* Which blocks of keys each of R rows chose; state NULL without a selector. */
typedef struct heed_flash_choice {
    heed_choice of;
    float *block_query; /* [R][heed_block_stride] */
    float *mean;        /* [heed_row_stride] */
    float *line;        /* [4 units] */
    uint8_t *any, *all; /* [units] over some rows */
    heed_value_work value_work;
    /* to observe queries */
    float *prepared; /* [2 strips + a strip][heed_row_stride] */
    int32_t *pos;    /* the same rows */
    float *weight;   /* [2 strips][weight_stride] */
    int64_t weight_stride;
} heed_flash_choice;

/* What all threads share: [batch][kv heads] summaries and [batch][heads] estimates. */
typedef struct heed_flash_shared_choice {
    float *summary, *estimate;
    int64_t summary_floats, estimate_floats;
} heed_flash_shared_choice;

/* R rows: those of all heads of a piece of work, each head padded to whole strips. */
typedef struct heed_flash_work {
    heed_key_block keys;
    heed_query_block *query;                          /* [heads of a group] */
    float *sum;                                       /* [R][value_stride] */
    float *max, *norm_sum, *count, *rescale, *moment; /* [R] */
    float *score;                                     /* [HEED_STRIP][HEED_KEYS] */
    uint8_t *was_open; /* [HEED_STRIP][HEED_KEYS], for values that are not finite */
    uint8_t *state;    /* [heads of a group][subs]: what a head's queries see of each run of HEED_SUB keys */
    heed_row_end *end; /* [R] */
    float *kept;       /* [R][keys rounded up] unnormalised weights, with capture */
    float *kept_rescale; /* [blocks][R] */
    int64_t kept_stride; /* an odd number of cache lines */
    int64_t all_rows;    /* R */
    int64_t subs;        /* of all keys, in whole blocks */
    float *cached_key,
        *cached_value; /* [blocks][..] packed blocks of one kv head, where they come back in no order */
    uint8_t *cached;   /* [blocks] 0 not yet; else 1 + whether the values are finite */
    int cached_batch, cached_group;
    heed_row_work rows;
    heed_sight sight;
    heed_bf16_work bf16;      /* where pipeline->fast_products */
    heed_flash_choice choice; /* with a selector that decides by blocks */
} heed_flash_work;

/* Whether any of the HEED_SUBS runs of a block is open at all. */
static inline bool heed_seen(const uint8_t *sub)
{
    int seen = HEED_CLOSED;
    for (int s = 0; s < HEED_SUBS; s++)
        seen |= sub[s];
    return seen != HEED_CLOSED;
}

/* Whether statistics of this run need the weights of complete rows. */
bool heed_flash_keeps(const heed_run *run, const heed_pipeline *pipeline);

#define heed_take_flash_choice HEED_LOCAL(heed_take_flash_choice)
#define heed_take_shared_choice HEED_LOCAL(heed_take_shared_choice)
#define heed_flash_observe HEED_LOCAL(heed_flash_observe)
#define heed_flash_choose HEED_LOCAL(heed_flash_choose)
#define heed_flash_narrow HEED_LOCAL(heed_flash_narrow)
#define heed_flash_cut HEED_LOCAL(heed_flash_cut)

heed_flash_choice heed_take_flash_choice(heed_arena *arena, const heed_plan *plan,
                                         const heed_pipeline *pipeline, int rows);
heed_flash_shared_choice heed_take_shared_choice(heed_arena *arena, const heed_plan *plan,
                                                 const heed_pipeline *pipeline);
/* Fills what is shared. All threads call it together. */
void heed_flash_observe(const heed_run *run, const heed_pipeline *pipeline,
                        const heed_flash_shared_choice *shared, heed_flash_work *work);
/* The choice of all rows of `heads` heads, whose queries are prepared, `padded` rows apart; what none of a
 * head's rows chose becomes closed in work->state. */
void heed_flash_choose(const heed_run *run, const heed_pipeline *pipeline,
                       const heed_flash_shared_choice *shared, int heads, int rows, int padded,
                       heed_flash_work *work);
/* What a strip sees of runs of keys after the choice, from what `where` leaves: to[subs]. True where single
 * pairs must be closed. */
bool heed_flash_narrow(heed_flash_work *work, int64_t row0, int rows, int64_t key0, const uint8_t *sub,
                       int subs, uint8_t *to);
/* Closes the pairs of a tile that were not chosen. */
void heed_flash_cut(const heed_flash_work *work, int64_t row0, int64_t keys, heed_tile *tile);

/* Final scale, lse, read stage, and the way out for one head's rows; row0 is its first row among all. */
void heed_flash_finish(const heed_run *run, const heed_pipeline *pipeline, heed_flash_work *work,
                       const heed_query_block *query, int64_t row0);

/* Statistics from the weights that were kept; key_sums [M] of this head, or NULL. */
void heed_flash_sweep(const heed_run *run, const heed_pipeline *pipeline, heed_flash_work *work,
                      const heed_query_block *query, int64_t row0, float *key_sums);

#endif
