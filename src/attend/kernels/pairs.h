/* Counting pairs: those that `where` opens, and those whose values are read. */
#ifndef HEED_KERNELS_PAIRS_H
#define HEED_KERNELS_PAIRS_H

#include "attend/kernels/work.h"

#define heed_open_pairs HEED_LOCAL(heed_open_pairs)
#define heed_count_pairs HEED_LOCAL(heed_count_pairs)
#define heed_pairs_scratch HEED_LOCAL(heed_pairs_scratch)

/* Pairs of one head and batch entry that are open at default positions, counted as open where that depends on
 * data; -1 without memory. */
double heed_open_pairs(const heed_plan *plan, const heed_pipeline *pipeline);

/* Adds the pairs of an execution that are open to capture.pairs; and, where no selector leaves any out, as
 * read. */
void heed_count_pairs(const heed_run *run, const heed_pipeline *pipeline);
size_t heed_pairs_scratch(const heed_plan *plan);

/* Adds to the pairs whose values were read; any thread may. Whole numbers, so that the order is of no matter.
 */
static inline void heed_note_read(const heed_run *run, int64_t pairs)
{
    double *read = run->extra->capture.pairs;
    if (!read || pairs == 0)
        return;
#pragma omp atomic
    *read += (double)pairs;
}

#endif
