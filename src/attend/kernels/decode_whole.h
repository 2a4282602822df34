/* Blocks of quantised keys as whole numbers, 16 keys side by side, against queries made whole
 * (decode_whole.c). */
#ifndef HEED_KERNELS_DECODE_WHOLE_H
#define HEED_KERNELS_DECODE_WHOLE_H

#include "attend/kernels/decode.h"
#include "attend/kernels/decode_load.h"

#if HEED_WIDTH == 16

#define HEED_WHOLE_KEYS 16 /* keys side by side in a vector */

#define HEED_MOST_WHOLE 32639.0f /* largest |m|: 127 256 + 127 */

/* The bytes of m, each -128..127, of 16 entries: low ones to `low`, high ones to `high`. */
HEED_INLINE void heed_put_digits(__m512i m, int8_t *low, int8_t *high)
{
    const __m512i half = _mm512_set1_epi32(0x8080);
    const __m512i digits = _mm512_xor_si512(_mm512_add_epi32(m, half), half);
    _mm_storeu_si128((__m128i *)(void *)low, _mm512_cvtepi32_epi8(digits));
    _mm_storeu_si128((__m128i *)(void *)high, _mm512_cvtepi32_epi8(_mm512_srli_epi32(digits, 8)));
}

/* word[i] lane j: entries 4i..4i+3 of the 128-bit pieces x[0..3], whose lanes
 * are keys 4 apart. */
HEED_INLINE void heed_words_of(const __m512i x[4], __m512i word[4])
{
    const __m512i low01 = _mm512_unpacklo_epi32(x[0], x[1]), high01 = _mm512_unpackhi_epi32(x[0], x[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(x[2], x[3]), high23 = _mm512_unpackhi_epi32(x[2], x[3]);
    word[0] = _mm512_unpacklo_epi64(low01, low23);
    word[1] = _mm512_unpackhi_epi64(low01, low23);
    word[2] = _mm512_unpacklo_epi64(high01, high23);
    word[3] = _mm512_unpackhi_epi64(high01, high23);
}

/* word[i]: entries 4i..4i+3 of a block, as unsigned bytes, of 16 keys. */
HEED_INLINE void heed_load_q8_words(const char *const *row, int64_t at, __m512i word[8])
{
    __m512i x[8], half[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const int key = i < 4 ? i : i + 4; /* beside it the key 4 further on, each
                                              with both its halves */
        const __m256i a = _mm256_loadu_si256((const __m256i *)(row[key] + at));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(row[key + 4] + at));
        x[i] = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
    }
    heed_words_of(x, half);
    heed_words_of(x + 4, half + 4);
    const __m512i sign = _mm512_set1_epi8((char)0x80);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        word[i] = _mm512_xor_si512(_mm512_shuffle_i32x4(half[i], half[i + 4], 0x88), sign);
        word[i + 4] = _mm512_xor_si512(_mm512_shuffle_i32x4(half[i], half[i + 4], 0xdd), sign);
    }
}

HEED_INLINE void heed_load_q4_words(const char *const *row, int64_t at, __m512i word[8])
{
    __m512i x[4], pairs[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(row[i] + at)));
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(row[i + 4] + at)), 1);
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(row[i + 8] + at)), 2);
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(row[i + 12] + at)), 3);
    }
    heed_words_of(x, pairs);
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        word[i] = _mm512_and_si512(pairs[i], low);
        word[i + 4] = _mm512_and_si512(_mm512_srli_epi16(pairs[i], 4), low);
    }
}

/* One block of `rows` queries against 16 keys; query: `apart` blocks from one
 * query to the next. */
HEED_INLINE void heed_meet_block(const int rows, const __m512i word[8], const int zero, __m512 scale,
                                 const heed_whole_query *query, int apart, bool first, float *score)
{
    __m512i sum[HEED_PLANES][4]; /* chains of their own: one after the other they
                                    would be waited for */
#pragma GCC unroll 2
    for (int p = 0; p < HEED_PLANES; p++)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            sum[p][r] = p == 0 ? _mm512_set1_epi32(-zero * query[r * apart].sum) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
#pragma GCC unroll 2
        for (int p = 0; p < HEED_PLANES; p++)
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                __asm__("vpdpbusd %2%{1to16%}, %1, %0"
                        : "+v"(sum[p][r])
                        : "v"(word[i]), "m"(query[r * apart].plane[p][i]));
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const __m512i exact = _mm512_add_epi32(_mm512_slli_epi32(sum[1][r], 8), sum[0][r]);
        const __m512 here = _mm512_mul_ps(_mm512_cvtepi32_ps(exact), _mm512_set1_ps(query[r * apart].step));
        float *to = score + r * HEED_KEYS;
        const __m512 before = first ? _mm512_setzero_ps() : _mm512_loadu_ps(to);
        _mm512_storeu_ps(to, _mm512_fmadd_ps(here, scale, before));
    }
}

#endif
#endif
