/* Weights that depend on their own score alone, so that a row has nothing to divide by. */
#ifndef HEED_NORMALISE_ALONE_H
#define HEED_NORMALISE_ALONE_H

#include "attend/form.h"
#include <math.h>

/* The norm is 0, or NaN where a NaN or +inf score made the row's sum NaN. */
static inline void heed_finish_alone(const heed_form_state *form, int head, int rows,
                                     const heed_row_sums *sums, heed_row_end *end)
{
    (void)form, (void)head;
    for (int i = 0; i < rows; i++) {
        const bool number = sums->sum[i] == sums->sum[i];
        end[i].scale = number ? 1.0f : NAN;
        end[i].norm = number ? 0.0f : NAN;
    }
}

#endif
