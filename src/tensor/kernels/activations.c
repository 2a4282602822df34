/* Rows of activations into tiles.
 *
 * Whole numbers by blocks of 32: scale = max|x| / 127, n = x / scale rounded to nearest, ties to even; so
 * that |x - scale n| <= scale (1/2 + 2^-16). With a second byte 127 becomes 127 * 128, and n = 128 whole +
 * low. A block below 1e-30 throughout counts as zeros. A block that holds a NaN or an infinity gets the scale
 * NaN, and spoils its row's results as it should.
 */
#include "tensor/kernels/parts.h"
#include <float.h>

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

/* 32 numbers of 16 bits, in order, to bytes. */
INLINE void put_bytes(__m256i first, __m256i last, int8_t *to)
{
    /* packing works within halves of a vector */
    const __m256i packed = _mm256_packs_epi16(first, last);
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute4x64_epi64(packed, 0xd8));
}

INLINE int32_t sum_of(__m256i x)
{
    const __m256i pairs = _mm256_madd_epi16(x, _mm256_set1_epi16(1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum);
}

INLINE void round_all(const float x[HEED_WHOLE], float inverse, int8_t *whole, int8_t *low, int32_t sum[2])
{
    const __m256 by = _mm256_set1_ps(inverse);
    __m256i n[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * i), by));
        const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * i + 8), by));
        n[i] = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
        sum[i] = sum_of(n[i]);
    }
    if (low) {
        const __m256i half = _mm256_set1_epi16(64), mask = _mm256_set1_epi16(127);
        __m256i rest[2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            rest[i] = _mm256_sub_epi16(_mm256_and_si256(_mm256_add_epi16(n[i], half), mask), half);
            n[i] = _mm256_srai_epi16(_mm256_sub_epi16(n[i], rest[i]), 7);
        }
        put_bytes(rest[0], rest[1], low);
    }
    put_bytes(n[0], n[1], whole);
}
#else
/* Ties to even. */
INLINE int32_t nearest_whole(float x)
{
#if defined(__aarch64__)
    return (int32_t)rintf(x);
#else
    /* adding 1.5 2^23 rounds to a whole number; products are not fused with sums where this is compiled */
    return (int32_t)(heed_bits_of_float(x + 12582912.0f) - 0x4b400000u);
#endif
}

INLINE int32_t largest(const float x[HEED_WHOLE])
{
    int32_t most = 0;
    for (int i = 0; i < HEED_WHOLE; i++) {
        const int32_t size = (int32_t)(heed_bits_of_float(x[i]) & 0x7fffffffu);
        most = size > most ? size : most;
    }
    return most;
}

INLINE void round_all(const float x[HEED_WHOLE], float inverse, int8_t *whole, int8_t *low, int32_t sum[2])
{
    sum[0] = sum[1] = 0;
    for (int i = 0; i < HEED_WHOLE; i++) {
        const int32_t n = nearest_whole(x[i] * inverse);
        const int32_t rest = low ? ((n + 64) & 127) - 64 : 0;
        whole[i] = (int8_t)(low ? (n - rest) >> 7 : n);
        if (low)
            low[i] = (int8_t)rest;
        sum[i / 16] += n;
    }
}
#endif

static void put_row(const int8_t n[HEED_WHOLE], int rows, int8_t *to)
{
#pragma GCC unroll 8
    for (int s = 0; s < HEED_WHOLE / HEED_STEP; s++)
        memcpy(to + s * rows * HEED_STEP, n + s * HEED_STEP, HEED_STEP);
}

/* Notes the second bytes of a block; makes the sums those of the first. */
static void add_deep(const int8_t low[HEED_WHOLE], float scale, int64_t b, int row, int32_t sum[2],
                     heed_whole_tile *to)
{
    heed_deep_block *deep = &to->deep[to->deeps++];
    *deep = (heed_deep_block){.row = row, .block = (int32_t)b, .scale = scale};
    memcpy(deep->low, low, HEED_WHOLE);
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < HEED_WHOLE / 2; i++)
            deep->sum[half] += low[half * HEED_WHOLE / 2 + i];
        sum[half] = (sum[half] - deep->sum[half]) / 128;
    }
}

/* Block b of a row; `far` is its largest magnitude. */
static void block_to_whole(const float x[HEED_WHOLE], float far, float limit, int64_t b, int row,
                           heed_whole_tile *to)
{
    const int rows = to->rows;
    const bool finite = far <= FLT_MAX, some = finite && far >= 1e-30f,
               deep = some && to->deep && far > limit;
    int8_t whole[HEED_WHOLE] = {0}, low[HEED_WHOLE];
    int32_t sum[2] = {0, 0};
    if (some)
        round_all(x, (deep ? 127 * 128 : 127) / far, whole, deep ? low : NULL, sum);
    const float scale = some ? far / 127.0f : finite ? 0.0f : NAN;
    if (deep)
        add_deep(low, far / (127 * 128), b, row, sum, to);
    to->scale[b * rows + row] = scale;
    to->by32.sum[b * rows + row] = sum[0] + sum[1];
    to->by32.shift[b * rows + row] = scale * (float)(sum[0] + sum[1]);
    for (int half = 0; half < 2 && to->by16.sum; half++) {
        to->by16.sum[(2 * b + half) * rows + row] = sum[half];
        to->by16.shift[(2 * b + half) * rows + row] = scale * (float)sum[half];
    }
    put_row(whole, rows, to->whole + b * HEED_WHOLE * rows + row * HEED_STEP);
}

/* Where block b of a row begins; the last one is made whole in `last`. */
static const float *block_of(const float *x, int64_t cols, int64_t b, float last[HEED_WHOLE])
{
    const int64_t first = b * HEED_WHOLE, left = cols - first;
    if (left >= HEED_WHOLE)
        return x + first;
    memset(last, 0, HEED_WHOLE * sizeof *last);
    if (left > 0)
        memcpy(last, x + first, (size_t)left * sizeof *last);
    return last;
}

/* The largest magnitude above which a block gets two bytes. */
static float deep_limit(const float *far, int stride, int64_t blocks)
{
    double sum = 0.0;
    for (int64_t b = 0; b < blocks; b++)
        sum += (double)far[b * stride] * (double)far[b * stride];
    return HEED_FINE_FROM * (float)sqrt(sum / (double)blocks);
}

void heed_to_whole(const float *x, int64_t stride, int64_t cols, int64_t depth, heed_whole_tile *to)
{
    const int64_t blocks = depth / HEED_WHOLE, real = (cols + HEED_WHOLE - 1) / HEED_WHOLE;
    float last[HEED_WHOLE];
    to->deeps = 0;
    for (int r = 0; r < to->rows; r++, x += stride) {
        float *far = to->scale + r; /* where the scales go once these are read */
        for (int64_t b = 0; b < blocks; b++)
            far[b * to->rows] = heed_float_from_bits((uint32_t)largest(block_of(x, cols, b, last)));
        const float limit = to->deep ? deep_limit(far, to->rows, real) : 0.0f;
        for (int64_t b = 0; b < blocks; b++)
            block_to_whole(block_of(x, cols, b, last), far[b * to->rows], limit, b, r, to);
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
