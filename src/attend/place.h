/* The run of an execution, laid into scratch, and where its queries and keys stand. */
#ifndef HEED_ATTEND_PLACE_H
#define HEED_ATTEND_PLACE_H

#include "attend/plan.h"
#include "base/arena.h"

/* What a run points at, while it is filled. */
typedef struct heed_setup {
    heed_arena arena;
    heed_run *run;
    int32_t *query_pos, *key_pos, *query_count, *key_count, *key_end;
    int32_t *sub_min, *sub_max, *block_min, *block_max;
} heed_setup;

/* Two passes over the same code: with base NULL it measures, with memory it fills. */
heed_setup heed_take_setup(const heed_plan *plan, void *base);

/* Counts and positions of queries and keys. */
heed_status heed_place(heed_setup *setup, const heed_extra *extra);

/* Entry i of list b of an i32 tensor [n], [batch, n] or [batch, kv heads, n] (b = batch entry, g = kv head).
 */
int32_t heed_list_entry(const heed_tensor *tensor, int64_t b, int64_t g, int64_t i);

/* An i32 tensor [n], or with the batch (or 1) in front. */
heed_status heed_check_list(const char *name, const heed_tensor *tensor, int64_t batch, int64_t n,
                            bool by_batch);

#endif
