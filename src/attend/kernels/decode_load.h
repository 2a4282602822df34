/* Stored numbers to vectors of floats, a vector at a time, without leaving the
 * registers. The layouts are those of heed/tensor.h. */
#ifndef HEED_KERNELS_DECODE_LOAD_H
#define HEED_KERNELS_DECODE_LOAD_H

#include "attend/kernels/convert.h"
#include "attend/kernels/panel.h"
#include <heed/tensor.h>
#include <string.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

#define HEED_BLOCK_VECTORS (HEED_BLOCK / HEED_WIDTH)

HEED_INLINE bool heed_is_blocks(heed_type type)
{
    return type == HEED_Q8 || type == HEED_Q4;
}

/* Blocks of whole numbers, with scales of their own or without. */
HEED_INLINE bool heed_is_levels(heed_type type)
{
    return heed_is_blocks(type) || type == HEED_CHANNEL_Q4;
}

/* Bytes of one value, or of one block. */
HEED_INLINE int64_t heed_step_bytes(heed_type type)
{
    return type == HEED_CHANNEL_Q4 ? HEED_BLOCK / 2
           : type == HEED_F32      ? 4
           : type == HEED_Q8       ? HEED_Q8_BYTES
           : type == HEED_Q4       ? HEED_Q4_BYTES
                                   : 2;
}

#if HEED_WIDTH == 4
typedef uint16_t heed_half_vec __attribute__((vector_size(HEED_WIDTH * 2)));
typedef int8_t heed_byte_vec __attribute__((vector_size(HEED_WIDTH)));
typedef uint8_t heed_ubyte_vec __attribute__((vector_size(HEED_WIDTH)));
#endif

HEED_INLINE heed_vec heed_load_half_vec(const char *at)
{
#if HEED_WIDTH == 16
    return (heed_vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
#elif HEED_WIDTH == 8
    return (heed_vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
#elif defined(__aarch64__)
    float16x4_t half;
    memcpy(&half, at, sizeof half);
    return (heed_vec)vcvt_f32_f16(half);
#else
    /* heed_f16, four at a time */
    heed_half_vec half;
    memcpy(&half, at, sizeof half);
    const heed_ivec bits = __builtin_convertvector(half, heed_ivec), rest = bits & 0x7fff;
    const heed_vec scaled = (heed_vec)(rest << 13) * 5.192296858534828e33f; /* 2^112 */
    const heed_ivec special = (rest << 13) + 0x70000000, is_special = rest >= 0x7c00;
    return (heed_vec)((special & is_special) | ((heed_ivec)scaled & ~is_special) | (bits & 0x8000) << 16);
#endif
}

HEED_INLINE heed_vec heed_load_brain_vec(const char *at)
{
#if HEED_WIDTH == 16
    return (heed_vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16);
#elif HEED_WIDTH == 8
    return (heed_vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at)), 16);
#else
    heed_half_vec half;
    memcpy(&half, at, sizeof half);
    return (heed_vec)(__builtin_convertvector(half, heed_ivec) << 16);
#endif
}

/* HEED_WIDTH floating-point values. */
HEED_INLINE heed_vec heed_load_vec(const heed_type type, const char *at)
{
    if (type == HEED_F16)
        return heed_load_half_vec(at);
    if (type == HEED_BF16)
        return heed_load_brain_vec(at);
    return *(const heed_vec_any *)at;
}

/* The first n < HEED_WIDTH of them, without touching what lies behind; the rest
 * is 0. */
HEED_INLINE heed_vec heed_load_part(const heed_type type, const char *at, int n)
{
#if HEED_WIDTH == 16
    const __mmask16 mask = (__mmask16)((1u << n) - 1);
    if (type == HEED_F16)
        return (heed_vec)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at));
    if (type == HEED_BF16)
        return (heed_vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, at)), 16);
    return (heed_vec)_mm512_maskz_loadu_ps(mask, at);
#else
    char part[HEED_WIDTH * sizeof(float)] = {0};
    memcpy(part, at, (size_t)(n * heed_step_bytes(type)));
    return heed_load_vec(type, part);
#endif
}

/* The scale of a block; `odd` becomes true where it is not finite. */
HEED_INLINE float heed_load_scale(const char *block, bool *odd)
{
    uint16_t half;
    memcpy(&half, block, sizeof half);
    *odd |= (half & 0x7c00) == 0x7c00;
#if defined(__F16C__)
    return _cvtsh_ss(half);
#else
    return heed_f16(half);
#endif
}

/* Vector i of a block: its whole numbers as floats, to be multiplied by the
 * block's scale. */
HEED_INLINE heed_vec heed_load_block_vec(const heed_type type, const char *block, int i)
{
    const int first = i * HEED_WIDTH;
    const char *at =
        block + (heed_is_blocks(type) ? 2 : 0) + (type == HEED_Q8 ? first : first % (HEED_BLOCK / 2));
#if HEED_WIDTH == 16
    const __m128i x = _mm_loadu_si128((const __m128i *)at);
    if (type == HEED_Q8)
        return (heed_vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x));
    /* a table of 16 floats, which looks at no more than the low four bits */
    const __m512 level = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i pair = _mm512_cvtepu8_epi32(x);
    return (heed_vec)_mm512_permutexvar_ps(i ? _mm512_srli_epi32(pair, 4) : pair, level);
#elif HEED_WIDTH == 8
    __m128i x = _mm_loadl_epi64((const __m128i *)at);
    if (type != HEED_Q8) {
        x = first >= HEED_BLOCK / 2 ? _mm_srli_epi16(x, 4) : x;
        x = _mm_sub_epi8(_mm_and_si128(x, _mm_set1_epi8(15)), _mm_set1_epi8(8));
    }
    return (heed_vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x));
#else
    heed_byte_vec x;
    memcpy(&x, at, sizeof x);
    if (type != HEED_Q8)
        x = (heed_byte_vec)(first >= HEED_BLOCK / 2 ? (heed_ubyte_vec)x >> 4 : (heed_ubyte_vec)x & 15) - 8;
    return __builtin_convertvector(__builtin_convertvector(x, heed_ivec), heed_vec);
#endif
}

#endif
