/* Small matrices of one head, row-major, for recurrences with loops of their own: M is [rows][cols]. */
#ifndef HEED_SCAN_FORMS_MATRIX_H
#define HEED_SCAN_FORMS_MATRIX_H

#include "base/vectors.h"
#include <stdint.h>

/* y = x M, or y += factor x M */
static inline void heed_matrix_read(const float *M, const float *x, int rows, int cols, float *y)
{
    for (int c = 0; c < cols; c++)
        y[c] = 0;
    for (int r = 0; r < rows; r++)
#pragma omp simd
        for (int c = 0; c < cols; c++)
            y[c] += x[r] * M[(int64_t)r * cols + c];
}

/* y += factor M x */
static inline void heed_matrix_meet(const float *M, float factor, const float *x, int rows, int cols,
                                    float *y)
{
    for (int r = 0; r < rows; r++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int c = 0; c < cols; c++)
            sum += M[(int64_t)r * cols + c] * x[c];
        y[r] += factor * sum;
    }
}

/* M += factor x y^T */
static inline void heed_matrix_add(float *M, float factor, const float *x, const float *y, int rows, int cols)
{
    for (int r = 0; r < rows; r++)
#pragma omp simd
        for (int c = 0; c < cols; c++)
            M[(int64_t)r * cols + c] += factor * x[r] * y[c];
}

#endif
