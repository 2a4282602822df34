/* Stored numbers to floats, as loops that vectorise. The layouts are those of heed/tensor.h. */
#ifndef HEED_KERNELS_CONVERT_H
#define HEED_KERNELS_CONVERT_H

#include <heed/maths.h>
#include <heed/tensor.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#define HEED_Q8_BYTES 34
#define HEED_Q4_BYTES 18
#define HEED_Q2_ROW_BYTES 12

/* f16 to float by integers: exponent moved by 112, infinities and NaN by 224, denormals normalised by a
 * multiplication. */
static inline float heed_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = (uint32_t)(half & 0x7fffu);
    const float scaled = heed_float_from_bits(rest << 13) * 5.192296858534828e33f; /* 2^112 */
    const uint32_t special = (rest << 13) + 0x70000000u;
    const uint32_t bits = rest >= 0x7c00u ? special : heed_bits_of_float(scaled);
    return heed_float_from_bits(bits | sign);
}

static inline void heed_load_f16(const uint16_t *from, float *to, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
#endif
    for (; i < n; i++)
        to[i] = heed_f16(from[i]);
}

static inline float heed_block_scale(const char *block)
{
    uint16_t half;
    memcpy(&half, block, sizeof half);
    return heed_f16(half);
}

static inline void heed_load_q8(const char *from, float *to, int64_t n)
{
    for (; n > 0; n -= HEED_BLOCK, to += HEED_BLOCK, from += HEED_Q8_BYTES) {
        const float scale = heed_block_scale(from);
        const int8_t *value = (const int8_t *)(from + 2);
        if (n >= HEED_BLOCK)
            for (int i = 0; i < HEED_BLOCK; i++)
                to[i] = scale * (float)value[i];
        else
            for (int i = 0; i < n; i++)
                to[i] = scale * (float)value[i];
    }
}

static inline void heed_load_q4(const char *from, float *to, int64_t n)
{
    for (; n > 0; n -= HEED_BLOCK, to += HEED_BLOCK, from += HEED_Q4_BYTES) {
        const float scale = heed_block_scale(from);
        const uint8_t *pair = (const uint8_t *)(from + 2);
        float value[HEED_BLOCK];
        for (int i = 0; i < HEED_BLOCK / 2; i++) {
            value[i] = scale * (float)((int)(pair[i] & 15) - 8);
            value[i + HEED_BLOCK / 2] = scale * (float)((int)(pair[i] >> 4) - 8);
        }
        memcpy(to, value, (size_t)(n < HEED_BLOCK ? n : HEED_BLOCK) * sizeof(float));
    }
}

static inline void heed_load_q2_row(const char *from, float *to, int64_t n)
{
    for (; n > 0; n -= HEED_BLOCK, to += HEED_BLOCK, from += HEED_Q2_ROW_BYTES) {
        const float scale = heed_block_scale(from), minimum = heed_block_scale(from + 2);
        const uint8_t *four = (const uint8_t *)(from + 4);
        float value[HEED_BLOCK];
        for (int part = 0; part < 4; part++)
            for (int i = 0; i < 8; i++)
                value[8 * part + i] = minimum + scale * (float)(four[i] >> (2 * part) & 3);
        memcpy(to, value, (size_t)(n < HEED_BLOCK ? n : HEED_BLOCK) * sizeof(float));
    }
}

#endif
