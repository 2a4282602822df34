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
#include "attend/kernels/decode_whole.h"
#include "attend/kernels/decode.h"
#include "attend/kernels/decode_load.h"
#include "base/cpu.h"

#if HEED_WIDTH == 16

bool heed_whole_products(heed_type type)
{
    return heed_is_blocks(type) && heed_cpu_has_avx512_vnni();
}

bool heed_whole_queries(const float *query, int64_t blocks, heed_whole_query *to)
{
    const __m512 sign = _mm512_set1_ps(-0.0f);
    for (int64_t b = 0; b < blocks; b++) {
        const __m512 first = _mm512_loadu_ps(query + b * HEED_BLOCK),
                     last = _mm512_loadu_ps(query + b * HEED_BLOCK + 16);
        const float most =
            _mm512_reduce_max_ps(_mm512_max_ps(_mm512_andnot_ps(sign, first), _mm512_andnot_ps(sign, last)));
        if (_mm512_cmp_ps_mask(first, last, _CMP_UNORD_Q) != 0 || most > 1e30f ||
            (most != 0.0f && most < 1e-30f)) /* not finite, or beyond a safe step */
            return false;
        const __m512 inverse = _mm512_set1_ps(most == 0.0f ? 0.0f : HEED_MOST_WHOLE / most);
        const __m512i x = _mm512_cvtps_epi32(_mm512_mul_ps(first, inverse)),
                      y = _mm512_cvtps_epi32(_mm512_mul_ps(last, inverse));
        int8_t byte[HEED_PLANES][HEED_BLOCK];
        heed_put_digits(x, byte[0], byte[1]);
        heed_put_digits(y, byte[0] + 16, byte[1] + 16);
        memcpy(to[b].plane, byte, sizeof byte);
        to[b].sum = _mm512_reduce_add_epi32(_mm512_add_epi32(x, y));
        to[b].step = most / HEED_MOST_WHOLE;
    }
    return true;
}

/* A block of HEED_WHOLE_KEYS rows. */
typedef struct step {
    int first, block;
} step;

static step after(step at, int blocks)
{
    return at.block + 1 < blocks ? (step){at.first, at.block + 1} : (step){at.first + HEED_WHOLE_KEYS, 0};
}

HEED_INLINE void gather(const heed_type type, const heed_decode_rows *keys, step at,
                        uint16_t half[HEED_WHOLE_KEYS])
{
    const char *const *row = keys->row + at.first;
    const int64_t bytes = at.block * heed_step_bytes(type);
    if (at.first >= keys->count)
        return;
#pragma GCC unroll 16
    for (int i = 0; i < HEED_WHOLE_KEYS; i++)
        memcpy(&half[i], row[i] + bytes, sizeof *half);
}

/* Scales lie one by one between the numbers, so they are picked up two steps
 * before their turn. */
HEED_INLINE bool score_tile(const heed_type type, const heed_decode_rows *keys, int rows,
                            const heed_whole_query *query, float *score)
{
    const int blocks = heed_row_blocks(keys), fetch_share = HEED_WHOLE_KEYS / blocks,
              zero = type == HEED_Q8 ? 128 : 8;
    uint16_t half[3][HEED_WHOLE_KEYS];
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
        const int upto = at.first + (at.block + 1 < blocks ? fetch_share * (at.block + 1) : HEED_WHOLE_KEYS);
        for (; fetched < upto; fetched++)
            heed_fetch_rows(keys, fetched);
        __m512i word[8];
        if (type == HEED_Q8)
            heed_load_q8_words(row, at.block * heed_step_bytes(type) + 2, word);
        else
            heed_load_q4_words(row, at.block * heed_step_bytes(type) + 2, word);
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
            heed_meet_block(4, word, zero, scale, q + r * blocks, blocks, at.block == 0, to + r * HEED_KEYS);
        if (rows - r == 3)
            heed_meet_block(3, word, zero, scale, q + r * blocks, blocks, at.block == 0, to + r * HEED_KEYS);
        else if (rows - r == 2)
            heed_meet_block(2, word, zero, scale, q + r * blocks, blocks, at.block == 0, to + r * HEED_KEYS);
        else if (rows - r == 1)
            heed_meet_block(1, word, zero, scale, q + r * blocks, blocks, at.block == 0, to + r * HEED_KEYS);
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
