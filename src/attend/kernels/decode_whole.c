/* Products with quantised keys in whole numbers, four entries an instruction
 * where the processor has it (AVX-512 VNNI).
 *
 * Block by block of 32 entries, with k = scale n the stored keys and q = step m
 * the query made a whole number:
 *
 *     q.k = step scale sum_d m_d n_d
 *
 * m has two signed bytes, so it is exact to the block's largest entry / 2^16; sums are taken modulo 2^32 and
 * cannot leave 32 bits in the end. The instruction wants one side unsigned: the keys' bytes are u =
 * n + 128 (q8) or the nibbles themselves, u = n + 8 (q4), and what this adds to
 * the sum is known beforehand.
 */
#include "attend/kernels/decode.h"
#include "attend/kernels/decode_load.h"
#include "base/cpu.h"

#if HEED_WIDTH == 16

#define KEYS 16 /* keys side by side in a vector */

bool heed_whole_products(heed_type type)
{
    return heed_is_blocks(type) && heed_cpu_has_avx512_vnni();
}

#define MOST 32639.0f /* largest |m|: 127 256 + 127 */

bool heed_whole_queries(heed_type type, const float *query, int64_t blocks, heed_whole_query *to)
{
    for (int64_t b = 0; b < blocks; b++) {
        const float *q = query + b * HEED_BLOCK;
        float most = 0.0f, odd = 0.0f;
        for (int d = 0; d < HEED_BLOCK; d++) {
            most = fabsf(q[d]) > most ? fabsf(q[d]) : most;
            odd += q[d] * 0.0f;
        }
        if (odd != 0.0f || most > 1e30f ||
            (most != 0.0f && most < 1e-30f)) /* not finite, or beyond a safe step */
            return false;
        const float inverse = most == 0.0f ? 0.0f : MOST / most;
        int8_t byte[HEED_PLANES][HEED_BLOCK];
        int32_t sum = 0;
        for (int d = 0; d < HEED_BLOCK; d++) {
            const float scaled = q[d] * inverse;
            const int32_t m = (int32_t)(scaled < 0.0f ? scaled - 0.5f : scaled + 0.5f);
            const uint32_t digits = ((uint32_t)m + 0x8080u) ^ 0x8080u; /* bytes of m, each -128..127 */
            sum += m;
            for (int p = 0; p < HEED_PLANES; p++)
                byte[p][d] = (int8_t)(digits >> (8 * p));
        }
        memcpy(to[b].plane, byte, sizeof byte);
        to[b].offset = -sum * (type == HEED_Q8 ? 128 : 8);
        to[b].step = most / MOST;
    }
    return true;
}

/* word[i] lane j: entries 4i..4i+3 of the 128-bit pieces x[0..3], whose lanes
 * are keys 4 apart. */
HEED_INLINE void words_of(const __m512i x[4], __m512i word[4])
{
    const __m512i low01 = _mm512_unpacklo_epi32(x[0], x[1]), high01 = _mm512_unpackhi_epi32(x[0], x[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(x[2], x[3]), high23 = _mm512_unpackhi_epi32(x[2], x[3]);
    word[0] = _mm512_unpacklo_epi64(low01, low23);
    word[1] = _mm512_unpackhi_epi64(low01, low23);
    word[2] = _mm512_unpacklo_epi64(high01, high23);
    word[3] = _mm512_unpackhi_epi64(high01, high23);
}

/* word[i]: entries 4i..4i+3 of a block, as unsigned bytes, of 16 keys. */
HEED_INLINE void load_q8_words(const char *const *row, int64_t at, __m512i word[8])
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
    words_of(x, half);
    words_of(x + 4, half + 4);
    const __m512i sign = _mm512_set1_epi8((char)0x80);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        word[i] = _mm512_xor_si512(_mm512_shuffle_i32x4(half[i], half[i + 4], 0x88), sign);
        word[i + 4] = _mm512_xor_si512(_mm512_shuffle_i32x4(half[i], half[i + 4], 0xdd), sign);
    }
}

HEED_INLINE void load_q4_words(const char *const *row, int64_t at, __m512i word[8])
{
    __m512i x[4], pairs[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(row[i] + at)));
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(row[i + 4] + at)), 1);
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(row[i + 8] + at)), 2);
        x[i] = _mm512_inserti32x4(x[i], _mm_loadu_si128((const __m128i *)(row[i + 12] + at)), 3);
    }
    words_of(x, pairs);
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        word[i] = _mm512_and_si512(pairs[i], low);
        word[i + 4] = _mm512_and_si512(_mm512_srli_epi16(pairs[i], 4), low);
    }
}

/* One block of `rows` queries against 16 keys; query: `apart` blocks from one
 * query to the next. */
HEED_INLINE void meet_block(const int rows, const __m512i word[8], __m512 scale,
                            const heed_whole_query *query, int apart, bool first, float *score)
{
    __m512i sum[HEED_PLANES][4]; /* chains of their own: one after the other they
                                    would be waited for */
#pragma GCC unroll 2
    for (int p = 0; p < HEED_PLANES; p++)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            sum[p][r] = p == 0 ? _mm512_set1_epi32(query[r * apart].offset) : _mm512_setzero_si512();
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

/* A block of KEYS rows. */
typedef struct step {
    int first, block;
} step;

static step after(step at, int blocks)
{
    return at.block + 1 < blocks ? (step){at.first, at.block + 1} : (step){at.first + KEYS, 0};
}

HEED_INLINE void gather(const heed_type type, const heed_decode_rows *keys, step at, uint16_t half[KEYS])
{
    const char *const *row = keys->row + at.first;
    const int64_t bytes = at.block * heed_step_bytes(type);
    if (at.first >= keys->count)
        return;
#pragma GCC unroll 16
    for (int i = 0; i < KEYS; i++)
        memcpy(&half[i], row[i] + bytes, sizeof *half);
}

/* Scales lie one by one between the numbers, so they are picked up two steps
 * before their turn. */
HEED_INLINE bool score_tile(const heed_type type, const heed_decode_rows *keys, int rows,
                            const heed_whole_query *query, float *score)
{
    const int blocks = heed_row_blocks(keys), fetch_share = KEYS / blocks;
    uint16_t half[3][KEYS];
    uint16_t *now = half[0], *next = half[1], *free = half[2];
    __m512 odd = _mm512_setzero_ps(); /* NaN in some lane if a scale is not finite */
    step later = {0, 0};
    gather(type, keys, later, now);
    later = after(later, blocks);
    gather(type, keys, later, next);
    later = after(later, blocks);
    int fetched = 0;
    for (step at = {0, 0}; at.first < keys->count; at = after(at, blocks), later = after(later, blocks)) {
        const char *const *row = keys->row + at.first;
        const int upto = at.first + (at.block + 1 < blocks ? fetch_share * (at.block + 1) : KEYS);
        for (; fetched < upto; fetched++)
            heed_fetch_rows(keys, fetched);
        __m512i word[8];
        if (type == HEED_Q8)
            load_q8_words(row, at.block * heed_step_bytes(type) + 2, word);
        else
            load_q4_words(row, at.block * heed_step_bytes(type) + 2, word);
        const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)now));
        odd = _mm512_fmadd_ps(scale, _mm512_setzero_ps(), odd);
        gather(type, keys, later, free);
        uint16_t *const used = now;
        now = next;
        next = free;
        free = used;
        const heed_whole_query *q = query + at.block;
        float *to = score + at.first;
        int r = 0;
        for (; r + 4 <= rows; r += 4)
            meet_block(4, word, scale, q + r * blocks, blocks, at.block == 0, to + r * HEED_KEYS);
        if (rows - r == 3)
            meet_block(3, word, scale, q + r * blocks, blocks, at.block == 0, to + r * HEED_KEYS);
        else if (rows - r == 2)
            meet_block(2, word, scale, q + r * blocks, blocks, at.block == 0, to + r * HEED_KEYS);
        else if (rows - r == 1)
            meet_block(1, word, scale, q + r * blocks, blocks, at.block == 0, to + r * HEED_KEYS);
    }
    return _mm512_cmp_ps_mask(odd, odd, _CMP_UNORD_Q) == 0;
}

static bool score_q8(const heed_decode_rows *keys, int rows, const heed_whole_query *query, float *score)
{
    return score_tile(HEED_Q8, keys, rows, query, score);
}

static bool score_q4(const heed_decode_rows *keys, int rows, const heed_whole_query *query, float *score)
{
    return score_tile(HEED_Q4, keys, rows, query, score);
}

bool heed_whole_scores(const heed_decode_rows *keys, int rows, const heed_whole_query *query, float *score)
{
    return keys->type == HEED_Q8 ? score_q8(keys, rows, query, score) : score_q4(keys, rows, query, score);
}

#endif
