/* Powers in double precision that vectorise. */
#ifndef HEED_NORMALISE_POWER_H
#define HEED_NORMALISE_POWER_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t heed_bits_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double heed_double_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* log(x) for normal x > 0: x = 2^n m, m in [sqrt(1/2), sqrt(2)), and log m = 2 atanh((m - 1) / (m + 1)) by
 * its series, whose first dropped term is 1e-15. */
static inline double heed_log_double(double x)
{
    const uint64_t half = 0x3fe6a09e667f3bcdull; /* sqrt(1/2) */
    const uint64_t above = heed_bits_of_double(x) - half + (1023ull << 52);
    const double n =
        heed_double_from_bits(0x4330000000000000ull | above >> 52) - (4503599627370496.0 + 1023.0);
    const double m = heed_double_from_bits((above & 0xfffffffffffffull) + half);
    const double f = (m - 1.0) / (m + 1.0), square = f * f;
    double p = 2.0 / 19.0;
    p = p * square + 2.0 / 17.0;
    p = p * square + 2.0 / 15.0;
    p = p * square + 2.0 / 13.0;
    p = p * square + 2.0 / 11.0;
    p = p * square + 2.0 / 9.0;
    p = p * square + 2.0 / 7.0;
    p = p * square + 2.0 / 5.0;
    p = p * square + 2.0 / 3.0;
    p = p * square + 2.0;
    return n * 0.69314718055994531 + p * f;
}

/* exp(x), held to 2^-1000 .. 2^1000. */
static inline double heed_exp_double(double x)
{
    const double shift = 6755399441055744.0 + 1023.0; /* 1.5 2^52, and the bias of exponents */
    const double low = x < -693.0 ? -693.0 : x;
    const double held = low > 693.0 ? 693.0 : low;
    const double scaled = held * 1.4426950408889634 + shift;
    const double n = scaled - shift;
    const double r = (held - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return p * heed_double_from_bits(heed_bits_of_double(scaled) << 52);
}

/* x^e for x >= 0; 0 below the least normal number. NaN stays NaN. */
static inline double heed_power(double x, double e)
{
    const double y = heed_exp_double(e * heed_log_double(x));
    const double normal = x < 2.3e-308 ? 0.0 : y;
    return x != x ? x : normal;
}

#endif
