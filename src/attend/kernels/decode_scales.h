/* Scales of quantised rows, gathered for a run of rows at a time.
 *
 * They lie one by one between the numbers, so they are picked up a run ahead of their use: as halves first,
 * which become floats when the run's turn comes.
 */
#ifndef HEED_KERNELS_DECODE_SCALES_H
#define HEED_KERNELS_DECODE_SCALES_H

#include "attend/kernels/decode.h"
#include "attend/kernels/decode_load.h"

static inline int heed_row_blocks(const heed_decode_rows *rows)
{
    return heed_is_blocks(rows->type) ? (rows->dim + HEED_BLOCK - 1) / HEED_BLOCK : 0;
}

#if HEED_WIDTH == 16

/* Scales of two neighbouring blocks, as one word. */
HEED_INLINE uint32_t heed_two_scales(heed_type type, const char *block)
{
    const int next = (int)heed_step_bytes(type) / 2;
    if (type == HEED_Q8) {
        const __m512i pick = _mm512_castsi128_si512(_mm_cvtsi32_si128(next << 16));
        const __m512i both = _mm512_permutexvar_epi16(pick, _mm512_loadu_si512(block));
        return (uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(both));
    }
    const __m256i pick = _mm256_castsi128_si256(_mm_cvtsi32_si128(next << 16));
    const __m256i both = _mm256_permutexvar_epi16(pick, _mm256_loadu_si256((const __m256i *)block));
    return (uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(both));
}

HEED_INLINE __m512 heed_floats_of_low(__m512i words)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}

#endif

/* Scales of rows first.. (HEED_SUB of them) to rows->half: [pairs of blocks][HEED_SUB][2], and a last block
 * by itself. */
HEED_INLINE void heed_gather_of(heed_type type, const heed_decode_rows *rows, int first)
{
    const int blocks = heed_row_blocks(rows);
    const char *const *row = rows->row + first;
    uint16_t *half = rows->half;
    int b = 0;
#if HEED_WIDTH == 16
    for (; b + 2 <= blocks; b += 2)
        for (int j = 0; j < HEED_SUB; j++) {
            const uint32_t both = heed_two_scales(type, row[j] + b * heed_step_bytes(type));
            memcpy(half + b * HEED_SUB + 2 * j, &both, sizeof both);
        }
#endif
    for (; b < blocks; b++)
        for (int j = 0; j < HEED_SUB; j++)
            memcpy(half + b * HEED_SUB + j, row[j] + b * heed_step_bytes(type), sizeof *half);
}

static inline void heed_gather_scales(const heed_decode_rows *rows, int first)
{
    if (first >= rows->count)
        return;
    if (rows->type == HEED_Q8)
        heed_gather_of(HEED_Q8, rows, first);
    else if (rows->type == HEED_Q4)
        heed_gather_of(HEED_Q4, rows, first);
}

/* What was gathered as floats: rows->scale [blocks][HEED_SUB]; false if one is not finite. */
static inline bool heed_turn_scales(const heed_decode_rows *rows)
{
    const int blocks = heed_row_blocks(rows);
    const uint16_t *half = rows->half;
    float *to = rows->scale, odd = 0.0f;
    int b = 0;
#if HEED_WIDTH == 16
    for (; b + 2 <= blocks; b += 2)
        for (int j = 0; j < HEED_SUB; j += 16) {
            const __m512i pairs = _mm512_loadu_si512(half + b * HEED_SUB + 2 * j);
            _mm512_storeu_ps(to + b * HEED_SUB + j, heed_floats_of_low(pairs));
            _mm512_storeu_ps(to + (b + 1) * HEED_SUB + j, heed_floats_of_low(_mm512_srli_epi32(pairs, 16)));
        }
#endif
    for (; b < blocks; b++)
        heed_load_f16(half + b * HEED_SUB, to + b * HEED_SUB, HEED_SUB);
#pragma omp simd reduction(+ : odd)
    for (int i = 0; i < blocks * HEED_SUB; i++)
        odd += to[i] * 0.0f;
    return odd == 0.0f;
}

#endif
