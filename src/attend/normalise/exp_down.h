/* exp for arguments that cannot be large: what every weight of the softmax family costs. */
#ifndef HEED_NORMALISE_EXP_DOWN_H
#define HEED_NORMALISE_EXP_DOWN_H

#include "attend/kernels/vector.h"
#include <heed/maths.h>

/* exp(x) for x <= 0, or above by rounding; exp(0) = 1, within 3 units in the last place down to -87 and 0
 * below, so that -inf weighs nothing. NaN stays NaN. With x = n ln 2 + r, |r| <= ln 2 / 2: a polynomial in r
 * (minimax, 1.1e-7 relative) times 2^n, made in one step because n is in -126..127. */
static inline float heed_exp_down(float x)
{
    const float shift =
        12582912.0f + 127.0f; /* 1.5 2^23 rounds to a whole number; 127 is the bias of exponents */
    const float scaled = x * 1.44269504f + shift;
    const float n = scaled - shift;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    const float r = x - n * 0.693147181f; /* rounded once */
#else
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
#endif
    float p = 8.3124941e-3f;
    p = p * r + 4.1890398e-2f;
    p = p * r + 1.6667116e-1f;
    p = p * r + 4.9999230e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const float y = p * heed_float_from_bits(heed_bits_of_float(scaled) << 23);
    return x < -87.0f ? 0.0f : y;
}

/* The same on a vector. Below about -87.7 the power of two has no bits left, so no comparison is needed. */
static inline heed_vec heed_vec_exp_down(heed_vec x)
{
    const float shift = 12582912.0f + 127.0f;
    x = heed_vec_max((heed_vec){0} - 88.0f, x);
    const heed_vec scaled = x * 1.44269504f + shift;
    const heed_vec n = scaled - shift;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    const heed_vec r = x - n * 0.693147181f;
#else
    const heed_vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
#endif
    heed_vec p = 8.3124941e-3f * r + 4.1890398e-2f;
    p = p * r + 1.6667116e-1f;
    p = p * r + 4.9999230e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (heed_vec)((heed_ivec)scaled << 23);
}

#endif
