/* SparseK: the nearest point with entries from 0 to 1 that sum to k, p = clip(u - tau, 0, 1). */
#ifndef HEED_SCAN_FORMS_CLIP_H
#define HEED_SCAN_FORMS_CLIP_H

#include <math.h>
#include <stdint.h>

/* tau of u [n], falling. Going down, an entry enters the sum at tau = u and is whole at tau = u - 1; between
 * two such places the sum is a straight line. With k entries or fewer all are whole. */
static inline double heed_clip_threshold(const float *u, int64_t n, int64_t k)
{
    int64_t whole = 0, in = 0;
    double sum = 0; /* of u[whole .. in - 1] */
    if (n <= k)
        return -INFINITY;
    while (whole < n) {
        const double enters = in < n ? (double)u[in] : -INFINITY,
                     fills = in > whole ? (double)u[whole] - 1 : -INFINITY;
        const double next = enters > fills ? enters : fills;
        if (in > whole) {
            const double tau = (sum + (double)(whole - k)) / (double)(in - whole);
            if (tau >= next)
                return tau;
        }
        if (enters >= fills)
            sum += (double)u[in++];
        else
            sum -= (double)u[whole++];
    }
    return (double)u[n - 1] - 1;
}

static inline float heed_clip(float u, double tau)
{
    const double p = (double)u - tau;
    return p <= 0 ? 0 : p >= 1 ? 1 : (float)p;
}

#endif
