/* Weighted sums of quantised values in whole numbers, two keys an instruction where the processor has it
 * (AVX-512 VNNI).
 *
 * A tile of up to HEED_KEYS keys, a block of 32 columns at a time, with v = scale n the stored values:
 *
 *     sum_j w_j v_je = step sum_j m_j n_je,     m_j = w_j scale_j / step rounded, |m_j| <= MOST
 *
 * step comes from the largest weight and the largest scale of the tile, and m has 16 bits: a term is off by
 * no more than 2^-16 of that product, far below what the 256 or 16 levels of the values leave.
 */
#include "attend/kernels/decode_whole.h"

#if HEED_WIDTH == 16

#define MOST 32767.0f /* 128 keys times 32767 times 128 stay below 2^31 */

/* The 32 whole numbers of a block as words. */
HEED_INLINE __m512i words_of(const heed_type type, const char *block)
{
    if (type == HEED_Q8)
        return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(block + 2)));
    const __m256i pairs = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(block + 2)));
    const __m256i low = _mm256_and_si256(pairs, _mm256_set1_epi16(15)), high = _mm256_srli_epi16(pairs, 4);
    return _mm512_sub_epi16(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), _mm512_set1_epi16(8));
}

/* m [count] of one query from weight [count] (times MOST / the largest) and scale [count] (over the largest).
 */
static void make_whole(const float *weight, const float *scale, int count, int16_t *m)
{
    const __m512i in_order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    for (int j = 0; j < count; j += 32) {
        const __m512 first = _mm512_mul_ps(_mm512_loadu_ps(weight + j), _mm512_loadu_ps(scale + j));
        const __m512 last = _mm512_mul_ps(_mm512_loadu_ps(weight + j + 16), _mm512_loadu_ps(scale + j + 16));
        const __m512i both = _mm512_packs_epi32(_mm512_cvtps_epi32(first), _mm512_cvtps_epi32(last));
        _mm512_storeu_si512(m + j, _mm512_permutexvar_epi64(in_order, both));
    }
}

/* Columns of one block of a tile's rows, and what is done on the way. */
typedef struct columns {
    const heed_decode_rows *values;
    int block;
    bool fetch;
    uint16_t *next_half; /* [count] for the scales of the next block; NULL: none */
} columns;

/* sum [rows][stride] += step[r] times the products of all keys with m [rows][HEED_KEYS]. */
HEED_INLINE void add_products(const heed_type type, const int rows, const columns *from, const int16_t *m,
                              const float *step, float *sum, int64_t stride)
{
    const heed_decode_rows *values = from->values;
    const int64_t bytes = heed_step_bytes(type), row_blocks = heed_row_blocks(values),
                  row_bytes = row_blocks * bytes;
    char spare[HEED_WHOLE_KEYS * 2 * HEED_Q8_BYTES];
    __m512i total[4][2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        total[r][0] = total[r][1] = _mm512_setzero_si512();
    for (int j0 = 0; j0 < values->count; j0 += HEED_WHOLE_KEYS) {
        const int place = from->block * values->count + j0; /* of all steps, in the order of time */
        if (from->fetch)
            heed_fetch_blocks(type, values->row + values->far + place / row_blocks / 16 * 16, row_bytes,
                              place / 16 % row_blocks);
        const char *const *row = values->row + j0;
        heed_even_rows here = heed_even_from(row[0] + from->block * bytes, row[1] - row[0]);
        if (!heed_rows_are_even(row)) {
            for (int i = 0; i < HEED_WHOLE_KEYS; i++)
                memcpy(spare + i * 2 * bytes, row[i] + from->block * bytes,
                       (size_t)(bytes + (from->next_half ? 2 : 0)));
            here = heed_even_from(spare, 2 * bytes);
        }
#pragma GCC unroll 8
        for (int j = 0; j < HEED_WHOLE_KEYS; j += 2) {
            const char *a = heed_even_row(&here, j), *b = heed_even_row(&here, j + 1);
            if (from->next_half) {
                memcpy(&from->next_half[j0 + j], a + bytes, sizeof(uint16_t));
                memcpy(&from->next_half[j0 + j + 1], b + bytes, sizeof(uint16_t));
            }
            const __m512i x = words_of(type, a), y = words_of(type, b);
            const __m512i low = _mm512_unpacklo_epi16(x, y), high = _mm512_unpackhi_epi16(x, y);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const int32_t *pair = (const int32_t *)(const void *)(m + r * HEED_KEYS + j0 + j);
                __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(total[r][0]) : "v"(low), "m"(*pair));
                __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(total[r][1]) : "v"(high), "m"(*pair));
            }
        }
    }
    /* low holds columns 0-3, 8-11, 16-19, 24-27, high those between */
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(8));
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const __m512 by = _mm512_set1_ps(step[r]);
        const __m512i x = _mm512_permutex2var_epi32(total[r][0], first, total[r][1]);
        const __m512i y = _mm512_permutex2var_epi32(total[r][0], last, total[r][1]);
        float *to = sum + r * stride;
        _mm512_storeu_ps(to, _mm512_fmadd_ps(by, _mm512_cvtepi32_ps(x), _mm512_loadu_ps(to)));
        _mm512_storeu_ps(to + 16, _mm512_fmadd_ps(by, _mm512_cvtepi32_ps(y), _mm512_loadu_ps(to + 16)));
    }
}

/* The largest magnitude of x [count]; NaN or infinite where one of them is. */
static float largest(const float *x, int count)
{
    const __m512 sign = _mm512_set1_ps(-0.0f);
    __m512 most = _mm512_setzero_ps(), odd = most;
    for (int j = 0; j < count; j += 16) {
        const __m512 here = _mm512_andnot_ps(sign, _mm512_loadu_ps(x + j));
        most = _mm512_max_ps(most, here);
        odd = _mm512_fmadd_ps(here, _mm512_setzero_ps(), odd);
    }
    return _mm512_reduce_max_ps(most) + _mm512_reduce_add_ps(odd);
}

static void multiply(const float *x, float by, int count, float *to)
{
    for (int j = 0; j < count; j++)
        to[j] = x[j] * by;
}

/* The weights of a tile over their largest, [rows][HEED_KEYS], and that largest. */
static bool level_weights(const float *weight, int rows, int count, float *level, float *most)
{
    for (int r = 0; r < rows; r++) {
        most[r] = largest(weight + r * HEED_KEYS, count);
        if (!(most[r] < 1e30f) || (most[r] != 0.0f && most[r] < 1e-30f))
            return false;
        multiply(weight + r * HEED_KEYS, most[r] == 0.0f ? 0.0f : MOST / most[r], count,
                 level + r * HEED_KEYS);
    }
    return true;
}

/* A tile, and what is known of its weights. */
typedef struct tile {
    const heed_decode_rows *values;
    int rows, blocks;
    float *level, *most_weight; /* [rows][HEED_KEYS] over the largest, times MOST; [rows] the largest */
    const float *weight;        /* [rows][HEED_KEYS] */
    float *spare;               /* [rows][HEED_SUB] */
} tile;

HEED_INLINE void add_block(const heed_type type, const tile *t, int b, const float *scale, float most,
                           uint16_t *next_half, float *sum, int64_t stride)
{
    const int count = t->values->count;
    columns from = {t->values, b, t->values->far > 0, b + 1 < t->blocks ? next_half : NULL};
    int16_t m[4 * HEED_KEYS];
    float step[4];
    for (int r0 = 0; r0 < t->rows; r0 += 4) {
        const int here = t->rows - r0 < 4 ? t->rows - r0 : 4;
        for (int r = 0; r < here; r++) {
            make_whole(t->level + (r0 + r) * HEED_KEYS, scale, count, m + r * HEED_KEYS);
            step[r] = t->most_weight[r0 + r] * most / MOST;
        }
        float *to = sum + r0 * stride;
        if (here == 4)
            add_products(type, 4, &from, m, step, to, stride);
        else if (here == 3)
            add_products(type, 3, &from, m, step, to, stride);
        else if (here == 2)
            add_products(type, 2, &from, m, step, to, stride);
        else
            add_products(type, 1, &from, m, step, to, stride);
        from.fetch = false;
        from.next_half = NULL;
    }
}

static void gather_scales(const heed_decode_rows *values, int64_t at, uint16_t *half)
{
    for (int j = 0; j < values->count; j++)
        memcpy(&half[j], values->row[j] + at, sizeof *half);
}

HEED_INLINE void add_tile(const heed_type type, const tile *t, float *sum, int64_t stride)
{
    const int count = t->values->count;
    uint16_t half[2][HEED_KEYS];
    float scale[HEED_KEYS];
    gather_scales(t->values, 0, half[0]);
    for (int b = 0; b < t->blocks; b++) {
        uint16_t *next = half[(b + 1) % 2];
        heed_load_f16(half[b % 2], scale, count);
        const float most = largest(scale, count);
        if (most < INFINITY) {
            multiply(scale, most == 0.0f ? 0.0f : 1.0f / most, count, scale);
            add_block(type, t, b, scale, most, next, sum + b * HEED_BLOCK, stride);
            continue;
        }
        heed_decode_block(t->values, t->rows, b, t->weight, t->spare, sum + b * HEED_BLOCK, stride);
        if (b + 1 < t->blocks)
            gather_scales(t->values, (b + 1) * heed_step_bytes(type), next);
    }
}

static void add_q8(const tile *t, float *sum, int64_t stride)
{
    add_tile(HEED_Q8, t, sum, stride);
}

static void add_q4(const tile *t, float *sum, int64_t stride)
{
    add_tile(HEED_Q4, t, sum, stride);
}

bool heed_whole_values(const heed_decode_rows *values, int rows, const float *weight, float *work, float *sum,
                       int64_t stride)
{
    tile t = {.values = values,
              .rows = rows,
              .blocks = heed_row_blocks(values),
              .level = work,
              .most_weight = work + rows * HEED_KEYS,
              .weight = weight};
    t.spare = t.most_weight + rows;
    if (!level_weights(weight, rows, values->count, t.level, t.most_weight))
        return false;
    if (values->type == HEED_Q8)
        add_q8(&t, sum, stride);
    else
        add_q4(&t, sum, stride);
    return true;
}

int64_t heed_whole_values_floats(int rows)
{
    return (int64_t)rows * (HEED_KEYS + 1 + HEED_SUB);
}

#endif
