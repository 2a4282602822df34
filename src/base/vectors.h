/* Rows of floats, for each instruction set that the file including this is compiled for. */
#ifndef HEED_BASE_VECTORS_H
#define HEED_BASE_VECTORS_H

#include <stdint.h>

static inline float heed_row_product(const float *restrict x, const float *restrict y, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* to += by from */
static inline void heed_row_add(float *restrict to, float by, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += by * from[i];
}

#endif
