/* Products of few queries with keys that are quantised by channel (tensor/channel.h).
 *
 *     q.k_j = sum_c q_c (minimum_c + scale_c n_jc) = q.minimum + (q scale).n_j
 *
 * A group's scales and minima go into the queries once, and what is left is a product with the levels alone:
 * in whole numbers where the processor has them, else in floats.
 */
#include "attend/kernels/decode.h"
#include "attend/kernels/decode_load.h"
#include "attend/kernels/decode_whole.h"
#include "tensor/channel.h"
#include <math.h>
#include <string.h>

/* The queries of a group, and what each adds to all its scores. */
typedef struct folded {
    int rows, blocks;
    int64_t stride;
    float *query;           /* [rows][stride] q scale */
    float *base;            /* [rows] q.minimum */
    float *scale, *minimum; /* [stride] */
    float *step;            /* [rows] q scale = step m; */
    int8_t *whole;          /* [rows][HEED_PLANES][blocks of 32] the bytes of m, the low ones first */
} folded;

static float add_lanes(heed_vec x)
{
#if HEED_WIDTH == 16
    return _mm512_reduce_add_ps((__m512)x);
#else
    float sum = 0.0f;
    for (int i = 0; i < HEED_WIDTH; i++)
        sum += x[i];
    return sum;
#endif
}

/* Each minimum plus `shift` scales. */
static void fold_queries(const heed_channel_keys *keys, int64_t group, const float *query, float shift,
                         folded *to)
{
    const int64_t padded = to->blocks * HEED_BLOCK;
    const uint16_t *half =
        (const uint16_t *)(const void *)heed_channel_scales(HEED_CHANNEL_Q4, keys->page, group, keys->dim);
    heed_load_f16(half, to->scale, padded);
    heed_load_f16(half + padded, to->minimum, padded);
    for (int r = 0; r < to->rows; r++) {
        const float *q = query + r * to->stride;
        float *scaled = to->query + r * to->stride;
        heed_vec sum = {0};
        for (int64_t c = 0; c < padded; c += HEED_WIDTH) {
            const heed_vec x = heed_vec_load(q + c), scale = heed_vec_load(to->scale + c);
            heed_vec_store(scaled + c, x * scale);
            sum += x * (heed_vec_load(to->minimum + c) + scale * shift);
        }
        to->base[r] = add_lanes(sum);
    }
}

static void add_bases(const folded *f, int count, float *score)
{
    for (int r = 0; r < f->rows; r++)
        for (int j = 0; j < count; j++)
            score[r * HEED_KEYS + j] += f->base[r];
}

/* Levels as the signed numbers n - 8 of q4 rows. */
static void score_floats(const heed_channel_keys *keys, int64_t key, int count, const folded *f, float *score)
{
    const char *row[HEED_CHANNEL_GROUP];
    for (int j = 0; j < count; j++)
        row[j] = heed_channel_levels(HEED_CHANNEL_Q4, keys->page, key + j, keys->dim);
    const heed_decode_rows rows = {.type = HEED_CHANNEL_Q4, .count = count, .dim = keys->dim, .row = row};
    heed_decode_scores(&rows, f->rows, f->query, f->stride, score);
    add_bases(f, count, score);
}

#if HEED_WIDTH == 16
enum { MOST_BLOCKS = 128 }; /* whose products with 15 HEED_MOST_WHOLE stay below 2^31 */

/* All entries of a query have one step: scores are summed as whole numbers and exact to 2^-16 of the largest
 * product. False where an entry is not finite, or beyond a safe step. */
static bool make_whole(const folded *f)
{
    const __m512 sign = _mm512_set1_ps(-0.0f);
    const int entries = f->blocks * HEED_BLOCK;
    for (int r = 0; r < f->rows; r++) {
        const float *q = f->query + r * f->stride;
        int8_t *low = f->whole + r * HEED_PLANES * entries;
        __m512 largest = _mm512_setzero_ps();
        for (int c = 0; c < entries; c += 16)
            largest = _mm512_max_ps(largest, _mm512_andnot_ps(sign, _mm512_loadu_ps(q + c)));
        const float most = _mm512_reduce_max_ps(largest);
        if (!(fabsf(f->base[r]) < INFINITY) || !(most < 1e30f) || (most != 0.0f && most < 1e-30f))
            return false;
        const __m512 inverse = _mm512_set1_ps(most == 0.0f ? 0.0f : HEED_MOST_WHOLE / most);
        for (int c = 0; c < entries; c += 16)
            heed_put_digits(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(q + c), inverse)), low + c,
                            low + entries + c);
        f->step[r] = most / HEED_MOST_WHOLE;
    }
    return true;
}

/* score [rows][HEED_KEYS] of 16 keys and the queries first... */
HEED_INLINE void meet_keys(const int rows, const heed_even_rows *keys, const folded *f, int first,
                           float *score)
{
    const int entries = f->blocks * HEED_BLOCK;
    const int8_t *whole = f->whole + first * HEED_PLANES * entries;
    __m512i sum[HEED_PLANES][8];
#pragma GCC unroll 2
    for (int p = 0; p < HEED_PLANES; p++)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            sum[p][r] = _mm512_setzero_si512();
    for (int b = 0; b < f->blocks; b++) {
        __m512i word[8];
        heed_load_q4_words(keys, b * (HEED_BLOCK / 2), word);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
#pragma GCC unroll 2
            for (int p = 0; p < HEED_PLANES; p++)
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++) {
                    const int8_t *m = whole + (r * HEED_PLANES + p) * entries + b * HEED_BLOCK + 4 * i;
                    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
                            : "+v"(sum[p][r])
                            : "v"(word[i]), "m"(*(const int32_t *)(const void *)m));
                }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        const __m512i exact = _mm512_add_epi32(_mm512_slli_epi32(sum[1][r], 8), sum[0][r]);
        _mm512_storeu_ps(score + r * HEED_KEYS,
                         _mm512_fmadd_ps(_mm512_cvtepi32_ps(exact), _mm512_set1_ps(f->step[first + r]),
                                         _mm512_set1_ps(f->base[first + r])));
    }
}

static void score_whole(const heed_channel_keys *keys, int64_t key, int count, const folded *f, float *score)
{
    const int64_t bytes = heed_type_bytes(HEED_CHANNEL_Q4, keys->dim);
    const char *levels = heed_channel_levels(HEED_CHANNEL_Q4, keys->page, key, keys->dim);
    for (int j = 0; j < count; j += HEED_WHOLE_KEYS, levels += HEED_WHOLE_KEYS * bytes) {
        const heed_even_rows rows = heed_even_from(levels, bytes);
        int r = 0;
        for (; r + 8 <= f->rows; r += 8)
            meet_keys(8, &rows, f, r, score + r * HEED_KEYS + j);
        for (; r + 4 <= f->rows; r += 4)
            meet_keys(4, &rows, f, r, score + r * HEED_KEYS + j);
        if (f->rows - r == 3)
            meet_keys(3, &rows, f, r, score + r * HEED_KEYS + j);
        else if (f->rows - r == 2)
            meet_keys(2, &rows, f, r, score + r * HEED_KEYS + j);
        else if (f->rows - r == 1)
            meet_keys(1, &rows, f, r, score + r * HEED_KEYS + j);
    }
}
#endif

int64_t heed_channel_floats(int rows, int64_t stride)
{
    const int64_t whole = rows * stride * HEED_PLANES / (int64_t)sizeof(float);
    return (rows + 2) * stride + 2 * heed_round_up(rows, HEED_WIDTH) + whole;
}

void heed_channel_scores(const heed_channel_keys *keys, int rows, const float *query, int64_t stride,
                         float *work, float *score)
{
    folded f = {.rows = rows, .blocks = (int)(heed_channel_dim(keys->dim) / HEED_BLOCK), .stride = stride};
    f.query = work;
    f.scale = f.query + rows * stride;
    f.minimum = f.scale + stride;
    f.base = f.minimum + stride;
    f.step = f.base + heed_round_up(rows, HEED_WIDTH);
    f.whole = (int8_t *)(void *)(f.step + heed_round_up(rows, HEED_WIDTH));
    for (int done = 0, n; done < keys->count; done += n) {
        const int64_t key = keys->first + done, left = HEED_CHANNEL_GROUP - key % HEED_CHANNEL_GROUP;
        n = keys->count - done < left ? keys->count - done : (int)left;
#if HEED_WIDTH == 16
        fold_queries(keys, key / HEED_CHANNEL_GROUP, query, 0.0f, &f);
        if (keys->whole && f.blocks <= MOST_BLOCKS && make_whole(&f)) {
            score_whole(keys, key, n, &f, score + done);
            continue;
        }
#endif
        fold_queries(keys, key / HEED_CHANNEL_GROUP, query, 8.0f, &f);
        score_floats(keys, key, n, &f, score + done);
    }
}
