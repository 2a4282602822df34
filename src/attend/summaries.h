/* Summaries of keys that come with the keys. */
#ifndef HEED_ATTEND_SUMMARIES_H
#define HEED_ATTEND_SUMMARIES_H

#include "attend/plan.h"

/* HEED_UNSUPPORTED where selectors look at keys in another state than the cache holds them. */
heed_status heed_check_summaries(const heed_plan *plan);

/* Checks what came, and how it lies. */
heed_status heed_bind_summaries(heed_run *run, const heed_extra *extra);

#endif
