/* How far back a layer's `where` can look: keys behind that need not be kept. */
#ifndef HEED_MODEL_REACH_H
#define HEED_MODEL_REACH_H

#include "attend/spec.h"

/* A query at position p sees, at most, keys at positions below `first` and those above p - span. */
typedef struct heed_reach {
    int64_t first, span;
} heed_reach;

#define HEED_FAR (INT64_C(1) << 40) /* a span without end */

static inline bool heed_reach_ends(heed_reach reach)
{
    return reach.span < HEED_FAR;
}

/* Of the clauses that heed_spec_clauses found for a head. */
heed_reach heed_reach_of(const heed_spec *spec, const int root[HEED_STAGES]);
/* What either of two sees. */
heed_reach heed_reach_join(heed_reach a, heed_reach b);

#endif
