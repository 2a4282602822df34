/* The micro-kernel that all products of this library run through:
 *
 *     c[r][x] (+)= sum_k a[r][k] b[k][x],     r < HEED_STRIP, x < vectors * HEED_WIDTH
 *
 * Entries of a are broadcast, rows of b are read as vectors, the sums stay in registers. Both strides of a
 * are free, so the one function serves q kᵀ (b: transposed keys), w v (b: values), and the transposed
 * products of the backward pass.
 */
#ifndef HEED_KERNELS_PANEL_H
#define HEED_KERNELS_PANEL_H

#include "attend/kernels/vector.h"
#include <stdbool.h>
#include <stddef.h>

#define HEED_INLINE static inline __attribute__((always_inline))

/* Makes the compiler forget what it knows of a number, so that it does not keep addresses made of it. */
#define HEED_HIDE(number) __asm__("" : "+r"(number))

HEED_INLINE void heed_panel_of(const int rows, const int vectors, int64_t depth, const float *restrict a,
                               ptrdiff_t a_row, ptrdiff_t a_depth, const float *restrict b, ptrdiff_t b_depth,
                               float *restrict c, ptrdiff_t c_row, bool add)
{
    heed_vec sum[HEED_STRIP][2];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int x = 0; x < vectors; x++)
            sum[r][x] = add ? heed_vec_load(c + r * c_row + x * HEED_WIDTH) : (heed_vec){0};
    for (int64_t k = 0; k < depth; k++) {
        heed_vec right[2];
        for (int x = 0; x < vectors; x++)
            right[x] = heed_vec_load(b + x * HEED_WIDTH);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            const float left = a[r * a_row];
#pragma GCC unroll 2
            for (int x = 0; x < vectors; x++)
                sum[r][x] += left * right[x];
        }
        a += a_depth;
        b += b_depth;
    }
    HEED_HIDE(c_row);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++, c += c_row)
#pragma GCC unroll 2
        for (int x = 0; x < vectors; x++)
            heed_vec_store(c + x * HEED_WIDTH, sum[r][x]);
}

#endif
