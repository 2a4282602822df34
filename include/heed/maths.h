/**
 * @file maths.h
 * Elementary functions for tile loops: no branches, no calls, so that a loop over them vectorises. NaN stays
 * NaN. In units in the last place: heed_exp and heed_log are within 1.5, heed_log1p and heed_tanh within 2,
 * heed_sigmoid within 3. heed_exp is 0 where the result would be no normal number, so that a closed pair
 * (score -inf) weighs nothing.
 */
#ifndef HEED_MATHS_H
#define HEED_MATHS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float heed_float_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t heed_bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/** exp(x): argument reduced by multiples of ln 2 to |r| <= ln 2 / 2, then a polynomial of degree 6. */
static inline float heed_exp(float x)
{
    const float shift = 12582912.0f; /* 1.5 2^23: adding it rounds to a whole number */
    const float clamped = x > 88.72283f ? 88.72283f : x;
    const float scaled = clamped * 1.44269504f + shift;
    const float n = scaled - shift;
    const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.38141739e-3f; /* minimax for the relative error, 3.2e-9 */
    p = p * r + 8.36892147e-3f;
    p = p * r + 4.16684076e-2f;
    p = p * r + 1.66665196e-1f;
    p = p * r + 4.9999994e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* 2^n in two steps, because 2^128 is no float */
    const uint32_t k = heed_bits_of_float(scaled) - 0x4b400000u; /* n as an integer */
    const uint32_t low = (uint32_t)((int32_t)k >> 1), high = k - low;
    const float y = p * heed_float_from_bits((low + 127u) << 23) * heed_float_from_bits((high + 127u) << 23);
    const float under = x < -87.33654f ? 0.0f : y;
    return x > 88.72283f ? INFINITY : under;
}

/** log(x): mantissa in [sqrt(1/2), sqrt(2)), then a polynomial in (m - 1). log(0) = -inf, below 0 NaN. */
static inline float heed_log(float x)
{
    const int tiny = x < 1.17549435e-38f; /* subnormal: brought into range by 2^23 */
    const uint32_t bits = heed_bits_of_float(tiny ? x * 8388608.0f : x);
    const uint32_t k = (bits - 0x3f3504f3u) & 0xff800000u;
    const float n = (float)(int32_t)k * 1.1920929e-7f - (tiny ? 23.0f : 0.0f);
    const float f = heed_float_from_bits(bits - k) - 1.0f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    const float square = f * f;
    const float y = n * 0.693359375f + (f + (p * f * square + n * -2.12194440e-4f - 0.5f * square));
    const float finite = x == 0.0f ? -INFINITY : y;
    const float positive = x < 0.0f ? NAN : finite;
    return x < INFINITY ? positive : x; /* inf and NaN as they came */
}

/** log(1 + x) for x >= 0, accurate for small x too: what rounding 1 + x loses is put back. */
static inline float heed_log1p(float x)
{
    const float u = 1.0f + x;
    const float lost = x < 1.0f ? x - (u - 1.0f) : 0.0f;
    return heed_log(u) + lost / u;
}

/** 1 / (1 + exp(-x)); 0 below -88.7, where exp(-x) overflows. */
static inline float heed_sigmoid(float x)
{
    return 1.0f / (1.0f + heed_exp(-x));
}

/** tanh(x): odd polynomial near 0, by exp elsewhere. */
static inline float heed_tanh(float x)
{
    const float square = x * x;
    const float e = heed_exp(-2.0f * fabsf(x));
    const float far = copysignf((1.0f - e) / (1.0f + e), x);
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const float near = x + x * square * p;
    return fabsf(x) < 0.625f ? near : far;
}

#endif
