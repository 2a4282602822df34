/* Dense products of numbers rounded to bf16, with sums in fp32.
 *
 * Two neighbours along the sum stand in 32 bits, as the instruction wants them: it multiplies both and adds
 * both products to a sum. A block of A is packed for a stretch of the sum, then B a panel of columns after
 * the other.
 */
#include "attend/kernels/work.h"
#include "nn/gemm.h"
#include "nn/kernels/parts.h"

#if !defined(__AVX512F__)
const heed_nn_product16 heed_nn_product16_loop = NULL;
#else
#include <immintrin.h>

#define BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
/* PAIRS: of a stretch of the sum. ROWS of A stay beside a panel of WIDE columns, TILE of them in registers.
 */
enum { PAIRS = 128, ROWS = 256, WIDE = 64, TILE = 6, VECTORS = WIDE / 16, DOWN = ROWS + 16 };

/* Rows of pairs: [rows][PAIRS] or [PAIRS][rows]. */
typedef struct packed {
    const uint32_t *at;
    ptrdiff_t row, pair;
} packed;

/* A row of floats to pairs; an odd one's second is 0. */
BF16 static void pack_row(const float *from, int64_t count, uint32_t *to)
{
    for (int64_t i = 0; i < count; i += 16) {
        const int left = count - i < 16 ? (int)(count - i) : 16;
        const __m512 x = _mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1), from + i);
        const __m256i pairs = (__m256i)_mm512_cvtneps_pbh(x);
        _mm256_mask_storeu_epi32(to + i / 2, (__mmask8)((1u << (left + 1) / 2) - 1), pairs);
    }
}

/* Two rows to pairs, one number of each; second NULL: 0. */
BF16 static void pack_two(const float *first, const float *second, int64_t count, uint32_t *to)
{
    for (int64_t i = 0; i < count; i += 16) {
        const int left = count - i < 16 ? (int)(count - i) : 16;
        const __mmask16 mask = (__mmask16)((1u << left) - 1);
        const __m512i low =
            _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, first + i)));
        __m512i high = _mm512_setzero_si512();
        if (second)
            high =
                _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, second + i)));
        _mm512_mask_storeu_epi32(to + i, mask, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

/* `depth` rows of `count` numbers, `stride` apart, to [pairs][to_stride]. */
static void pack_down(const float *from, int64_t stride, int64_t depth, int64_t count, uint32_t *to,
                      int64_t to_stride)
{
    for (int64_t l = 0; l < depth; l += 2, to += to_stride)
        pack_two(from + l * stride, l + 1 < depth ? from + (l + 1) * stride : NULL, count, to);
}

static packed pack_a(const heed_gemm *g, int64_t i0, int64_t rows, int64_t l0, int64_t depth, uint32_t *to)
{
    if (g->transposed_a) {
        pack_down(g->a + l0 * g->lda + i0, g->lda, depth, rows, to, DOWN);
        return (packed){to, 1, DOWN};
    }
    for (int64_t i = 0; i < rows; i++)
        pack_row(g->a + (i0 + i) * g->lda + l0, depth, to + i * PAIRS);
    return (packed){to, PAIRS, 1};
}

/* panel [pairs][WIDE], whatever stands behind the last column */
static void pack_b(const heed_gemm *g, int64_t j0, int64_t cols, int64_t l0, int64_t depth, uint32_t *panel)
{
    float rows[WIDE][PAIRS]; /* pairs, moved as if they were floats, which shuffles do not touch */
    if (!g->transposed_b) {
        pack_down(g->b + l0 * g->ldb + j0, g->ldb, depth, cols, panel, WIDE);
        return;
    }
    for (int64_t j = 0; j < cols; j++)
        pack_row(g->b + (j0 + j) * g->ldb + l0, depth, (uint32_t *)(void *)rows[j]);
    heed_transpose(rows[0], PAIRS, (int)cols, (int)((depth + 1) / 2), (float *)(void *)panel, WIDE, WIDE);
}

/* c [rows][ldc] (+)= a panel, of as many columns as the masks say. */
BF16 static inline __attribute__((always_inline)) void tile(const int rows, int64_t pairs, packed a,
                                                            const uint32_t *panel, float *c, int64_t ldc,
                                                            const __mmask16 mask[VECTORS], bool add)
{
    __m512 sum[TILE][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = add ? _mm512_maskz_loadu_ps(mask[v], c + r * ldc + 16 * v) : _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++, panel += WIDE) {
        __m512bh right[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            right[v] = (__m512bh)_mm512_loadu_si512(panel + 16 * v);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const __m512bh left = (__m512bh)_mm512_set1_epi32((int)a.at[r * a.row + p * a.pair]);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++)
                sum[r][v] = _mm512_dpbf16_ps(sum[r][v], left, right[v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            _mm512_mask_storeu_ps(c + r * ldc + 16 * v, mask[v], sum[r][v]);
}

BF16 static void strip(int64_t rows, int64_t pairs, packed a, const uint32_t *panel, float *c, int64_t ldc,
                       int64_t cols, bool add)
{
    __mmask16 mask[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        const int64_t left = cols - 16 * v;
        mask[v] = left >= 16 ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
    }
    for (; rows >= TILE; rows -= TILE, c += TILE * ldc, a.at += TILE * a.row)
        tile(TILE, pairs, a, panel, c, ldc, mask, add);
    for (; rows > 0; rows--, c += ldc, a.at += a.row)
        tile(1, pairs, a, panel, c, ldc, mask, add);
}

static void product16(const heed_gemm *g)
{
    uint32_t left[PAIRS * DOWN], panel[PAIRS * WIDE];
    for (int64_t i = 0; i < g->m; i += ROWS)
        for (int64_t l = 0; l < g->k; l += 2 * PAIRS) {
            const int64_t rows = g->m - i < ROWS ? g->m - i : ROWS;
            const int64_t depth = g->k - l < 2 * PAIRS ? g->k - l : 2 * PAIRS;
            const packed a = pack_a(g, i, rows, l, depth, left);
            for (int64_t j = 0; j < g->n; j += WIDE) {
                const int64_t cols = g->n - j < WIDE ? g->n - j : WIDE;
                pack_b(g, j, cols, l, depth, panel);
                strip(rows, (depth + 1) / 2, a, panel, g->c + i * g->ldc + j, g->ldc, cols, g->add || l > 0);
            }
        }
}

const heed_nn_product16 heed_nn_product16_loop = product16;
#endif
