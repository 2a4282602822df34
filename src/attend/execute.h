/* What planning and executing share. */
#ifndef HEED_ATTEND_EXECUTE_H
#define HEED_ATTEND_EXECUTE_H

#include "attend/plan.h"
#include "base/arena.h"
#include <stdio.h>

/* Bytes at the start of scratch for the run itself, its pipelines, positions and derived values. */
size_t heed_run_tables(const heed_plan *plan);

/* Whether two states are the same use of a form: same form, same arguments; they share parameters then. */
bool heed_same_form(const heed_form_state *a, const heed_form_state *b);

#endif
