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

/* 16 keys as a run of them is met, and scales of theirs. */
typedef struct sixteen {
    heed_even_rows row;
    int blocks;
    const uint16_t *half;    /* [blocks][16] */
    const char *const *next; /* [16] rows to ask for on the way; NULL: none */
} sixteen;

/* A block of `rows` queries against 16 keys, in whole numbers; query: `apart` blocks from one query to the
 * next. */
HEED_INLINE void meet_block(const int rows, const __m512i word[8], const int zero, __m512 scale,
                            const heed_whole_query *query, int apart, __m512 *total)
{
    __m512i sum[HEED_PLANES][4]; /* chains of their own: one after the other they would be waited for */
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
        const __m512 by = _mm512_mul_ps(scale, _mm512_set1_ps(query[r * apart].step));
        total[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(exact), by, total[r]);
    }
}

/* query [rows][blocks], score [rows][HEED_KEYS] */
HEED_INLINE void meet_sixteen(const heed_type type, const int rows, const sixteen *keys,
                              const heed_whole_query *query, float *score)
{
    const int blocks = keys->blocks;
    heed_even_rows row = keys->row;
    __m512 total[4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        total[r] = _mm512_setzero_ps();
    for (int b = 0; b < blocks; b++) {
        if (keys->next)
            heed_fetch_blocks(type, keys->next, blocks * heed_step_bytes(type), b);
        __m512i word[8];
        if (type == HEED_Q8)
            heed_load_q8_words(&row, 2, word);
        else
            heed_load_q4_words(&row, 2, word);
        const __m256i half =
            _mm256_loadu_si256((const __m256i *)(const void *)(keys->half + b * HEED_WHOLE_KEYS));
        meet_block(rows, word, type == HEED_Q8 ? 128 : 8, _mm512_cvtph_ps(half), query + b, blocks, total);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            row.quarter[i] += heed_step_bytes(type);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        _mm512_storeu_ps(score + r * HEED_KEYS, total[r]);
}

#define MEET(type, rows)                                                                                     \
    static __attribute__((noinline)) void meet_##type##_##rows(const sixteen *keys,                          \
                                                               const heed_whole_query *query, float *score)  \
    {                                                                                                        \
        meet_sixteen(HEED_##type, rows, keys, query, score);                                                 \
    }

MEET(Q8, 1)
MEET(Q8, 2)
MEET(Q8, 3)
MEET(Q8, 4)
MEET(Q4, 1)
MEET(Q4, 2)
MEET(Q4, 3)
MEET(Q4, 4)

typedef void meet(const sixteen *keys, const heed_whole_query *query, float *score);

static meet *const meets[2][4] = {{meet_Q8_1, meet_Q8_2, meet_Q8_3, meet_Q8_4},
                                  {meet_Q4_1, meet_Q4_2, meet_Q4_3, meet_Q4_4}};

/* Scales lie one by one between the numbers: half [blocks][16]. */
HEED_INLINE void gather_scales(const heed_even_rows *row, int blocks, int64_t bytes, uint16_t *half)
{
    heed_even_rows at = *row;
    for (int b = 0; b < blocks; b++, half += HEED_WHOLE_KEYS)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                memcpy(&half[4 * i + j], at.quarter[i] + j * at.step, sizeof *half);
            at.quarter[i] += bytes;
        }
}

/* Whether all are finite. */
static bool are_finite(const uint16_t *half, int count)
{
    const __m512i power = _mm512_set1_epi16(0x7c00);
    __mmask32 odd = 0;
    for (int i = 0; i < count; i += 16) {
        const __m512i here =
            _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)(half + i)));
        odd |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(here, power), power) & 0xffff;
    }
    return odd == 0;
}

/* Keys first... with scales that are picked up a run before their turn: the processor would wait for them. */
HEED_INLINE sixteen next_sixteen(const heed_type type, const heed_decode_rows *keys, int first)
{
    const int blocks = heed_row_blocks(keys), turn = first / HEED_WHOLE_KEYS % 2;
    const int64_t bytes = heed_step_bytes(type), row_bytes = blocks * bytes;
    const char *const *row = keys->row + first;
    uint16_t *half = keys->half + turn * blocks * HEED_WHOLE_KEYS;
    sixteen here = {.blocks = blocks, .half = half};
    if (first >= keys->count)
        return here;
    here.row = heed_even_from(row[0], row[1] - row[0]);
    if (!heed_rows_are_even(row)) {
        char *spare = keys->spare + turn * HEED_WHOLE_KEYS * row_bytes;
        for (int i = 0; i < HEED_WHOLE_KEYS; i++)
            memcpy(spare + i * row_bytes, row[i], (size_t)row_bytes);
        here.row = heed_even_from(spare, row_bytes);
    }
    gather_scales(&here.row, blocks, bytes, half);
    return here;
}

HEED_INLINE bool score_tile(const heed_type type, const heed_decode_rows *keys, int rows,
                            const heed_whole_query *query, float *score)
{
    const int blocks = heed_row_blocks(keys);
    meet *const *by_rows = meets[type != HEED_Q8];
    bool fine = true;
    sixteen here = next_sixteen(type, keys, 0);
    for (int j = 0; j < keys->count; j += HEED_WHOLE_KEYS) {
        const sixteen next = next_sixteen(type, keys, j + HEED_WHOLE_KEYS);
        here.next = keys->row + j + keys->far;
        for (int r = 0; r < rows; r += 4, here.next = NULL)
            by_rows[rows - r < 4 ? rows - r - 1 : 3](&here, query + r * blocks, score + r * HEED_KEYS + j);
        fine &= are_finite(here.half, blocks * HEED_WHOLE_KEYS);
        here = next;
    }
    return fine;
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
