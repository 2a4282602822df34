/* What planning and executing share. */
#ifndef HEED_ATTEND_EXECUTE_H
#define HEED_ATTEND_EXECUTE_H

#include "attend/plan.h"
#include "base/arena.h"
#include <stdio.h>

/* Bytes at the start of scratch for the run itself, its pipelines, positions and derived values. */
size_t heed_run_tables(const heed_plan *plan);

/* Lists the parameters of all forms and makes their initial values. */
heed_status heed_list_params(heed_plan *plan);

#endif
