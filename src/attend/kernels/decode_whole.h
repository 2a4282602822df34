/* Blocks of quantised keys as whole numbers, 16 keys side by side, for decode_whole.c and
 * decode_channel.c. */
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

/* 16 rows at even distances: four places and two distances, which stay in registers where 16 places would
 * not.
 */
typedef struct heed_even_rows {
    const char *quarter[4]; /* rows 0, 4, 8, 12 */
    int64_t step;           /* bytes from row to row */
} heed_even_rows;

HEED_INLINE heed_even_rows heed_even_from(const char *first, int64_t step)
{
    return (heed_even_rows){{first, first + 4 * step, first + 8 * step, first + 12 * step}, step};
}

HEED_INLINE const char *heed_even_row(const heed_even_rows *rows, int j)
{
    return rows->quarter[j / 4] + j % 4 * rows->step;
}

/* Whether 16 rows lie at even distances. */
HEED_INLINE bool heed_rows_are_even(const char *const *row)
{
    const __m512i low = _mm512_loadu_si512(row), high = _mm512_loadu_si512(row + 8);
    const __m512i step = _mm512_set1_epi64(row[1] - row[0]);
    const __m512i later = _mm512_alignr_epi64(high, low, 1), last = _mm512_alignr_epi64(high, high, 1);
    return (_mm512_cmpneq_epi64_mask(_mm512_sub_epi64(later, low), step) |
            _mm512_mask_cmpneq_epi64_mask(0x7f, _mm512_sub_epi64(last, high), step)) == 0;
}

/* What of 16 rows will be read next is asked for, one part of as many as a row has blocks. */
HEED_INLINE void heed_fetch_blocks(const heed_type type, const char *const *row, int64_t row_bytes, int block)
{
    const int64_t bytes = heed_step_bytes(type);
    if (row[15] - row[0] == 15 * row_bytes) {
        const char *at = row[0] + HEED_WHOLE_KEYS * bytes * block;
#pragma GCC unroll 16
        for (int64_t b = 0; b < HEED_WHOLE_KEYS * bytes; b += 64)
            heed_fetch_far(at + b);
        return;
    }
    for (int i = 0; i < HEED_WHOLE_KEYS; i++)
        heed_fetch_far(row[i] + bytes * block);
}

/* word[i]: entries 4i..4i+3 of a block, as unsigned bytes, of 16 keys. */
HEED_INLINE void heed_load_q8_words(const heed_even_rows *rows, int64_t at, __m512i word[8])
{
    __m512i x[8], half[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const int key = i < 4 ? i : i + 4; /* beside it the key 4 further on, each
                                              with both its halves */
        const __m256i a = _mm256_loadu_si256((const __m256i *)(heed_even_row(rows, key) + at));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(heed_even_row(rows, key + 4) + at));
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

HEED_INLINE void heed_load_q4_words(const heed_even_rows *rows, int64_t at, __m512i word[8])
{
    __m512i x[4], pairs[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(heed_even_row(rows, i) + at)));
        x[i] =
            _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(heed_even_row(rows, i + 4) + at)), 1);
        x[i] =
            _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(heed_even_row(rows, i + 8) + at)), 2);
        x[i] =
            _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(heed_even_row(rows, i + 12) + at)), 3);
    }
    heed_words_of(x, pairs);
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        word[i] = _mm512_and_si512(pairs[i], low);
        word[i + 4] = _mm512_and_si512(_mm512_srli_epi16(pairs[i], 4), low);
    }
}

#endif
#endif
