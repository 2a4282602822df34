/* Queries and keys that a form puts together in lists of its own (heed/gather.h).
 *
 * A piece of work is a query head of a batch entry. Each of its queries has a running sum, as in the flash
 * kernel; a meeting brings blocks of HEED_KEYS keys of its list together, packed, and strips of its queries
 * with their sums, which go back to where they came from. Backward, meetings are met again in the same order.
 */
#ifndef HEED_KERNELS_GATHER_H
#define HEED_KERNELS_GATHER_H

#include "attend/kernels/flash.h"

#include <heed/gather.h>

#define heed_gather_forward HEED_LOCAL(heed_gather_forward)
#define heed_gather_per_thread HEED_LOCAL(heed_gather_per_thread)
#define heed_gather_refuses HEED_LOCAL(heed_gather_refuses)
#define heed_gather_backward HEED_LOCAL(heed_gather_backward)
#define heed_gather_backward_per_thread HEED_LOCAL(heed_gather_backward_per_thread)
#define heed_gather_lanes HEED_LOCAL(heed_gather_lanes)
#define heed_take_gather_work HEED_LOCAL(heed_take_gather_work)
#define heed_gather_begin HEED_LOCAL(heed_gather_begin)
#define heed_gather_ask HEED_LOCAL(heed_gather_ask)
#define heed_gather_clear HEED_LOCAL(heed_gather_clear)
#define heed_gather_sum HEED_LOCAL(heed_gather_sum)
#define heed_gather_place HEED_LOCAL(heed_gather_place)
#define heed_gather_pack HEED_LOCAL(heed_gather_pack)
#define heed_gather_strip_of HEED_LOCAL(heed_gather_strip_of)
#define heed_gather_queries HEED_LOCAL(heed_gather_queries)
#define heed_gather_tile HEED_LOCAL(heed_gather_tile)
#define heed_gather_finish HEED_LOCAL(heed_gather_finish)

/* Queries of a meeting that go through together, and the columns of the packed block that some of them see.
 */
typedef struct heed_gather_strip {
    int64_t first; /* number in the meeting's list */
    int rows;
    int low, high;
    bool partly; /* some pair among them may be closed */
    int32_t pos[HEED_STRIP];
    bool contiguous;
    float *query; /* [HEED_STRIP][row_stride] prepared */
} heed_gather_strip;

/* One thread's buffers. */
typedef struct heed_gather_work {
    const heed_run *run;
    const heed_pipeline *pipeline;
    heed_gathering at;
    float *query;             /* [N and a strip][row_stride] prepared */
    int32_t *pos;             /* [the same] */
    float *sum, *total;       /* [N][value_stride] of softmaxes over everything; of those by themselves */
    float *max, *norm_sum;    /* [N] */
    float *own_max, *own_sum; /* [N] of softmaxes by themselves, for the lse */
    heed_key_block keys;
    float *logs;         /* [HEED_KEYS] of the masses of the packed keys */
    int32_t *low, *high; /* [HEED_KEYS / HEED_SUB] positions of runs of packed keys */
    float *strip_query;  /* [HEED_STRIP][row_stride] */
    float *strip_sum;    /* [HEED_STRIP][value_stride] */
    float *score;        /* [HEED_STRIP][HEED_KEYS] */
    uint8_t *was_open;   /* [HEED_STRIP][HEED_KEYS] */
    heed_row_end *end;   /* [HEED_KEYS] */
    heed_row_work rows;
    heed_sight sight;
    void *back; /* the backward pass's own */
} heed_gather_work;

void heed_gather_forward(const heed_run *run, const heed_pipeline *pipeline);
size_t heed_gather_per_thread(const heed_plan *plan, const heed_pipeline *pipeline);
/* NULL, or why what such a form puts together cannot be computed. */
const char *heed_gather_refuses(const heed_plan *plan, const heed_pipeline *pipeline);

heed_gather_work heed_take_gather_work(heed_arena *arena, const heed_plan *plan,
                                       const heed_pipeline *pipeline);
/* Prepares the queries of a head, and clears their sums. */
void heed_gather_begin(heed_gather_work *work, const heed_run *run, const heed_pipeline *pipeline, int batch,
                       int head);
/* Has the form say what meets; `meet` and `kernel` are set. */
void heed_gather_ask(heed_gather_work *work);
/* Clears the sums of a meeting's queries. */
void heed_gather_clear(heed_gather_work *work, const heed_meeting *meeting);
/* Adds a meeting to the sums of its queries. */
void heed_gather_sum(heed_gather_work *work, const heed_meeting *meeting);
/* Number in the head of query number i of a meeting. */
static inline int64_t heed_gather_query(const heed_meeting *meeting, int64_t i)
{
    return meeting->query ? meeting->query[i] : meeting->first_query + i;
}
/* Places keys number key0.. of a meeting, then packs them; natural and value_transposed where they are not
 * NULL. */
void heed_gather_place(heed_gather_work *work, const heed_meeting *meeting, int64_t key0);
void heed_gather_pack(heed_gather_work *work, const heed_meeting *meeting, int64_t key0);
/* What HEED_STRIP queries of a meeting from number `first` on see of the placed keys; false when nothing. */
bool heed_gather_strip_of(heed_gather_work *work, const heed_meeting *meeting, int64_t first, int64_t key0,
                          heed_gather_strip *strip);
/* Brings their prepared rows to strip->query [HEED_STRIP][row_stride]. */
void heed_gather_queries(heed_gather_work *work, const heed_meeting *meeting, heed_gather_strip *strip);
/* Their tile of logits, -inf where closed. */
heed_tile heed_gather_tile(heed_gather_work *work, const heed_pipeline *pipeline, const heed_meeting *meeting,
                           int64_t key0, const heed_gather_strip *strip, float *score, heed_kept kept);

/* What `rows` queries of the head from query0 on have summed becomes their outputs; ends in work->end. */
void heed_gather_finish(heed_gather_work *work, int64_t query0, int rows);

struct heed_backward_work;
void heed_gather_backward(const struct heed_backward_work *work);
size_t heed_gather_backward_per_thread(const heed_plan *plan, const heed_pipeline *pipeline);
int heed_gather_lanes(const heed_plan *plan);

#endif
