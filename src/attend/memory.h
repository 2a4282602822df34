/* What selectors carry from one execution to the next: whether a plan can serve them, and what comes with an
 * execution. */
#ifndef HEED_ATTEND_MEMORY_H
#define HEED_ATTEND_MEMORY_H

#include "attend/plan.h"
#include <heed/recall.h>

/* The pipeline's selector whose choice outlives executions; NULL when there is none. */
static inline const heed_form_state *heed_recaller(const heed_pipeline *pipeline)
{
    return pipeline->recalls < 0 ? NULL : &pipeline->form[pipeline->recalls];
}

/* HEED_UNSUPPORTED where the plan, whose kernels are chosen, cannot serve such a selector. */
heed_status heed_check_memory(const heed_plan *plan);

/* Checks what came. */
heed_status heed_bind_memory(const heed_run *run, const heed_extra *extra);

#endif
