/* Keys that come prepared, as a cache keeps them. */
#ifndef HEED_ATTEND_PREPARED_H
#define HEED_ATTEND_PREPARED_H

#include "attend/plan.h"

/* Marks the keys of a pipeline as ready. HEED_UNSUPPORTED when they cannot be, with the form that forbids it.
 */
heed_status heed_take_prepared_keys(const heed_plan *plan, heed_pipeline *pipeline);

/* HEED_UNSUPPORTED unless all heads that read a kv head want its keys prepared in the same way. */
heed_status heed_check_prepared_keys(const heed_plan *plan);

#endif
