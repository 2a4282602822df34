/* Between floats and 16-bit floats, rounding to nearest, ties to even, as the processor's own conversions do.
 * No branches, so that loops over them vectorise. */
#ifndef HEED_TENSOR_HALF_H
#define HEED_TENSOR_HALF_H

#include <heed/maths.h>

static inline uint16_t heed_f16_from_float(float x)
{
    const uint32_t bits = heed_bits_of_float(x);
    const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    /* Adding 1/2 leaves multiples of 2^-24, the step of f16 below 2^-14, in the lowest bits of the sum. */
    const uint32_t small = heed_bits_of_float(heed_float_from_bits(size) + 0.5f) - heed_bits_of_float(0.5f);
    const uint32_t normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    const uint32_t finite = size < 0x38800000u ? small : normal;
    const uint32_t bounded = size < 0x47800000u ? finite : 0x7c00u;
    const uint32_t nan = 0x7e00u | (size >> 13 & 0x3ffu);
    return (uint16_t)(sign | (size > 0x7f800000u ? nan : bounded));
}

static inline float heed_float_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h & 0x7c00u, fraction = h & 0x3ffu;
    const uint32_t small = heed_bits_of_float((float)(int32_t)fraction * 0x1p-24f);
    const uint32_t normal = ((exponent | fraction) << 13) + 0x38000000u;
    const uint32_t special = 0x7f800000u | fraction << 13;
    const uint32_t finite = exponent ? normal : small;
    return heed_float_from_bits(sign | (exponent == 0x7c00u ? special : finite));
}

static inline uint16_t heed_bf16_from_float(float x)
{
    const uint32_t bits = heed_bits_of_float(x);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const uint32_t nan = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float heed_float_from_bf16(uint16_t b)
{
    return heed_float_from_bits((uint32_t)b << 16);
}

#endif
