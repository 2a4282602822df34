/* Rows of activations into tiles.
 *
 * Whole numbers by blocks of 32: scale = max|x| / 127, n = x / scale rounded to nearest, ties to even; so
 * that |x - scale n| <= scale (1/2 + 2^-16). A block below 1e-30 throughout counts as zeros. A block that
 * holds a NaN or an infinity gets the scale NaN, and spoils its row's results as it should.
 */
#include "tensor/kernels/parts.h"

#if defined(__AVX2__)
/* Bits of the largest magnitude; those of NaN are above all numbers'. */
INLINE int32_t largest(const float x[HEED_WHOLE])
{
    const __m256i size = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = 0; i < HEED_WHOLE; i += 8)
        most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), size));
    __m128i four_most = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    four_most = _mm_max_epi32(four_most, _mm_shuffle_epi32(four_most, 0x4e));
    four_most = _mm_max_epi32(four_most, _mm_shuffle_epi32(four_most, 0xb1));
    return _mm_cvtsi128_si32(four_most);
}

INLINE void round_all(const float x[HEED_WHOLE], float inverse, int8_t n[HEED_WHOLE], int32_t sum[2])
{
    const __m256 by = _mm256_set1_ps(inverse);
    __m256i part[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        part[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), by));
    /* packing works within halves of a vector: 32-bit pieces come out as 0 2 4 6 1 3 5 7 */
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(part[0], part[1]), _mm256_packs_epi32(part[2], part[3]));
    const __m256i bytes32 = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)n, bytes32);
    const __m256i fours =
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes32), _mm256_set1_epi16(1));
    __m256i pairs = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4e));
    pairs = _mm256_add_epi32(pairs, _mm256_shuffle_epi32(pairs, 0xb1));
    sum[0] = _mm256_extract_epi32(pairs, 0);
    sum[1] = _mm256_extract_epi32(pairs, 4);
}
#else
INLINE int32_t largest(const float x[HEED_WHOLE])
{
    int32_t most = 0;
    for (int i = 0; i < HEED_WHOLE; i++) {
        const int32_t size = (int32_t)(heed_bits_of_float(x[i]) & 0x7fffffffu);
        most = size > most ? size : most;
    }
    return most;
}

INLINE void round_all(const float x[HEED_WHOLE], float inverse, int8_t n[HEED_WHOLE], int32_t sum[2])
{
    const float shift = 12582912.0f; /* 1.5 2^23: adding it rounds to a whole number */
    sum[0] = sum[1] = 0;
    for (int i = 0; i < HEED_WHOLE; i++) {
        volatile float product = x[i] * inverse; /* not fused with the sum, which would round once */
        n[i] = (int8_t)(int32_t)(heed_bits_of_float(product + shift) - 0x4b400000u);
        sum[i / 16] += n[i];
    }
}
#endif

static void block_to_whole(const float x[HEED_WHOLE], int64_t b, int row, const heed_whole_tile *to)
{
    const int rows = to->rows;
    const int32_t most = largest(x);
    const float far = heed_float_from_bits((uint32_t)most);
    const bool finite = most < 0x7f800000, some = finite && far >= 1e-30f;
    int8_t n[HEED_WHOLE] = {0};
    int32_t sum[2] = {0, 0};
    if (some)
        round_all(x, 127.0f / far, n, sum);
    const float scale = some ? far / 127.0f : finite ? 0.0f : NAN;
    to->scale[b * rows + row] = scale;
    to->by32.sum[b * rows + row] = sum[0] + sum[1];
    to->by32.shift[b * rows + row] = scale * (float)(sum[0] + sum[1]);
    for (int half = 0; half < 2 && to->by16.sum; half++) {
        to->by16.sum[(2 * b + half) * rows + row] = sum[half];
        to->by16.shift[(2 * b + half) * rows + row] = scale * (float)sum[half];
    }
    int8_t *whole = to->whole + (b * HEED_WHOLE * rows + row * HEED_STEP);
#pragma GCC unroll 8
    for (int s = 0; s < HEED_WHOLE / HEED_STEP; s++)
        memcpy(whole + s * rows * HEED_STEP, n + s * HEED_STEP, HEED_STEP);
}

void heed_to_whole(const float *x, int64_t stride, int64_t cols, int64_t depth, const heed_whole_tile *to)
{
    for (int r = 0; r < to->rows; r++)
        for (int64_t b = 0; b < depth / HEED_WHOLE; b++) {
            const float *from = x + r * stride + b * HEED_WHOLE;
            float last[HEED_WHOLE] = {0};
            if ((b + 1) * HEED_WHOLE > cols) {
                if (b * HEED_WHOLE < cols)
                    memcpy(last, from, (size_t)(cols - b * HEED_WHOLE) * sizeof *last);
                from = last;
            }
            block_to_whole(from, b, r, to);
        }
}

void heed_to_floats(const float *x, int64_t stride, int64_t cols, int rows, float *to)
{
    int64_t c = 0;
    for (; c + HEED_STEP <= cols; c += HEED_STEP)
        for (int r = 0; r < rows; r++, to += HEED_STEP)
            memcpy(to, x + r * stride + c, HEED_STEP * sizeof *to);
    for (int r = 0; r < rows && c < cols; r++, to += HEED_STEP)
        for (int i = 0; i < HEED_STEP; i++)
            to[i] = c + i < cols ? x[r * stride + c + i] : 0.0f;
}
