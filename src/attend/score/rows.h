/* Rows and matrices as the preparing hooks of scores meet them. */
#ifndef HEED_SCORE_ROWS_H
#define HEED_SCORE_ROWS_H

#include "attend/form.h"

/* A row that no open pair read has gradient 0, and may hold NaN: nothing must be multiplied by it. */
static inline bool row_is_zero(const float *x, int64_t n)
{
    int nonzero = 0;
#pragma omp simd reduction(| : nonzero)
    for (int64_t i = 0; i < n; i++)
        nonzero |= x[i] != 0.0f;
    return !nonzero;
}

/* sigma of a kernel as the factor on its sum; held finite, so that equal rows score 0 whatever sigma is. */
static inline float held_factor(double factor)
{
    return factor < -3e38 ? -3e38f : (float)factor;
}

#endif
