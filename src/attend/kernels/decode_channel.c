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
#include <string.h>

/* The queries of a group, and what each adds to all its scores. */
typedef struct folded {
    int rows, blocks;
    int64_t stride;
    float *query;            /* [rows][stride] q scale */
    float *base;             /* [rows] q.minimum */
    float *scale, *minimum;  /* [stride] */
    heed_whole_query *whole; /* [rows][blocks] */
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
static void score_whole(const heed_channel_keys *keys, int64_t key, int count, const folded *f, float *score)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const int64_t bytes = heed_type_bytes(HEED_CHANNEL_Q4, keys->dim);
    const char *levels = heed_channel_levels(HEED_CHANNEL_Q4, keys->page, key, keys->dim);
    for (int j = 0; j < count; j += HEED_WHOLE_KEYS, levels += HEED_WHOLE_KEYS * bytes) {
        const char *row[HEED_WHOLE_KEYS];
        for (int i = 0; i < HEED_WHOLE_KEYS; i++)
            row[i] = levels + i * bytes;
        for (int b = 0; b < f->blocks; b++) {
            const heed_whole_query *q = f->whole + b;
            __m512i word[8];
            heed_load_q4_words(row, b * (HEED_BLOCK / 2), word);
            float *to = score + j;
            int r = 0;
            for (; r + 4 <= f->rows; r += 4)
                heed_meet_block(4, word, 0, one, q + r * f->blocks, f->blocks, b == 0, to + r * HEED_KEYS);
            if (f->rows - r == 3)
                heed_meet_block(3, word, 0, one, q + r * f->blocks, f->blocks, b == 0, to + r * HEED_KEYS);
            else if (f->rows - r == 2)
                heed_meet_block(2, word, 0, one, q + r * f->blocks, f->blocks, b == 0, to + r * HEED_KEYS);
            else if (f->rows - r == 1)
                heed_meet_block(1, word, 0, one, q + r * f->blocks, f->blocks, b == 0, to + r * HEED_KEYS);
        }
    }
    add_bases(f, count, score);
}

static bool make_whole(const heed_channel_keys *keys, const folded *f)
{
    bool whole = keys->whole;
    for (int r = 0; whole && r < f->rows; r++)
        whole = heed_whole_queries(f->query + r * f->stride, f->blocks, f->whole + r * f->blocks);
    return whole;
}
#endif

int64_t heed_channel_floats(int rows, int64_t stride)
{
    const int64_t whole = (int64_t)sizeof(heed_whole_query) / (int64_t)sizeof(float);
    return (rows + 2) * stride + heed_round_up(rows, HEED_WIDTH) + rows * (stride / HEED_BLOCK) * whole;
}

void heed_channel_scores(const heed_channel_keys *keys, int rows, const float *query, int64_t stride,
                         float *work, float *score)
{
    folded f = {.rows = rows, .blocks = (int)(heed_channel_dim(keys->dim) / HEED_BLOCK), .stride = stride};
    f.query = work;
    f.scale = f.query + rows * stride;
    f.minimum = f.scale + stride;
    f.base = f.minimum + stride;
    f.whole = (heed_whole_query *)(void *)(f.base + heed_round_up(rows, HEED_WIDTH));
    for (int done = 0, n; done < keys->count; done += n) {
        const int64_t key = keys->first + done, left = HEED_CHANNEL_GROUP - key % HEED_CHANNEL_GROUP;
        n = keys->count - done < left ? keys->count - done : (int)left;
#if HEED_WIDTH == 16
        fold_queries(keys, key / HEED_CHANNEL_GROUP, query, 0.0f, &f);
        if (make_whole(keys, &f)) {
            score_whole(keys, key, n, &f, score + done);
            continue;
        }
#endif
        fold_queries(keys, key / HEED_CHANNEL_GROUP, query, 8.0f, &f);
        score_floats(keys, key, n, &f, score + done);
    }
}
