/* Whether a pipeline can take the keys that a problem brings. */
#ifndef HEED_ATTEND_PLAN_CHECKS_H
#define HEED_ATTEND_PLAN_CHECKS_H

#include "attend/plan.h"
#include "attend/spec.h"

/* Keys that differ from kv head to kv head, and keys that stand for several. */
heed_status heed_check_votes(const heed_plan *plan, const heed_pipeline *pipeline);
heed_status heed_check_keys(const heed_plan *plan, const heed_pipeline *pipeline);

/* The clause `cache`, whose node is `root`: no policy, and the types of the problem. */
heed_status heed_check_storage(const heed_plan *plan, const heed_spec *spec, int root);

/* No clause that another kind of plan serves. */
heed_status heed_check_stages(const heed_spec *spec, int64_t layer);

#endif
