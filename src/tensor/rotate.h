/* The normalised Walsh-Hadamard rotation of a row: it spreads what a few large entries hold over all, so that
 * levels of one block serve them better, and changes no product of two rows that both went through it.
 *
 *     x <- x W,     W_ij = (-1)^(bits that i and j have in common) / sqrt(n)
 *
 * over runs of n entries, n the largest power of two up to HEED_ROTATE_MOST that divides the length of the
 * row. Done twice it gives the row back.
 */
#ifndef HEED_TENSOR_ROTATE_H
#define HEED_TENSOR_ROTATE_H

#include <heed/tensor.h>
#include <math.h>

enum { HEED_ROTATE_MOST = 1024 };

/* How rotated rows are stored; other types are their own. */
static inline heed_type heed_type_unrotated(heed_type type)
{
    switch (type) {
    case HEED_ROTATED_Q8:
        return HEED_Q8;
    case HEED_ROTATED_Q4:
        return HEED_Q4;
    case HEED_ROTATED_Q3:
        return HEED_Q3;
    case HEED_ROTATED_Q2:
        return HEED_Q2;
    case HEED_ROTATED_F16:
        return HEED_F16;
    default:
        return type;
    }
}

static inline bool heed_type_rotated(heed_type type)
{
    return heed_type_unrotated(type) != type;
}

/* Entries that are mixed with one another. */
static inline int heed_rotated_run(int64_t dim)
{
    int n = 1;
    while (n < HEED_ROTATE_MOST && dim % (2 * n) == 0)
        n *= 2;
    return n;
}

static inline void heed_rotate_run(float *x, int n)
{
    for (int h = 1; h < n; h *= 2)
        for (int i = 0; i < n; i += 2 * h) {
            float *restrict a = x + i, *restrict b = x + i + h;
            for (int j = 0; j < h; j++) {
                const float sum = a[j] + b[j], difference = a[j] - b[j];
                a[j] = sum;
                b[j] = difference;
            }
        }
    const float by = 1.0f / sqrtf((float)n);
    for (int i = 0; i < n; i++)
        x[i] *= by;
}

static inline void heed_rotate_row(float *x, int64_t dim)
{
    const int n = heed_rotated_run(dim);
    for (int64_t i = 0; i < dim && n > 1; i += n)
        heed_rotate_run(x + i, n);
}

#endif
