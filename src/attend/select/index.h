/* What indexes of keys share: selectors that build one from the keys of a prompt and look keys up in it while
 * text is written. Keys that are newer than the index are always read; after `fresh` of them it
 * is built anew. */
#ifndef HEED_ATTEND_SELECT_INDEX_H
#define HEED_ATTEND_SELECT_INDEX_H

#include "attend/select/cut.h"
#include "base/vectors.h"
#include <heed/recall.h>
#include <string.h>

enum { HEED_INDEX_ROWS = 128 }; /* keys that are loaded at a time */

#define HEED_FRESH_ARG                                                                                       \
    {                                                                                                        \
        .name = "fresh", .kind = HEED_ARG_INT, .value = 512, .least = 2, .most = INFINITY,                   \
        .summary = "newer keys after which the index is built anew"                                          \
    }

static inline int64_t heed_index_unit(const heed_form_state *form)
{
    (void)form;
    return 1;
}

/* The argument `fresh` is over; or number[0] says that some key is no number, which no index finds, so that
 * all are read. */
static inline bool heed_index_renews(const heed_form_state *form, const heed_recalled *now, int fresh)
{
    return now->memory->number[0] || now->keys - now->memory->keys >= heed_arg_int(form, fresh);
}

/* Whether the keys of a kv head are numbers. rows [HEED_INDEX_ROWS][dim] */
static inline bool heed_index_finite(const heed_recalled *now, int g, float *rows)
{
    float odd = 0;
    for (int64_t j = 0; j < now->keys; j += HEED_INDEX_ROWS) {
        const int n = now->keys - j < HEED_INDEX_ROWS ? (int)(now->keys - j) : HEED_INDEX_ROWS;
        now->load(now->context, g, j, n, rows, now->dim);
        for (int64_t c = 0; c < (int64_t)n * now->dim; c++)
            odd += rows[c] - rows[c];
    }
    return odd == 0;
}

/* The nearest of `count` centroids of dim entries, first x of it: largest x·c - |c|² / 2. half [count]: those
 * halves. */
static inline int heed_index_nearest(const float *x, const float *centroid, const float *half, int count,
                                     int64_t dim)
{
    int best = 0;
    float most = -INFINITY;
    for (int c = 0; c < count; c++) {
        const float value = heed_row_product(x, centroid + c * dim, dim) - half[c];
        if (value > most) {
            most = value;
            best = c;
        }
    }
    return best;
}

/* Rows that are clustered: `dim` entries of each key of a kv head from entry `first` on. */
typedef struct heed_clustered {
    const heed_recalled *now;
    int kv_head, clusters;
    int64_t first, dim;
    float *centroid; /* [clusters][dim] */
    float *sum;      /* [clusters][dim] */
    float *half;     /* [clusters] */
    float *count;    /* [clusters] */
    float *rows;     /* [HEED_INDEX_ROWS][key dim] */
} heed_clustered;

/* The cluster of each key, into number[key * step] = or'ed in at `shift`; and the sums for new centroids. */
static inline void heed_cluster_pass(const heed_clustered *c, int32_t *number, int shift)
{
    const heed_recalled *now = c->now;
    for (int k = 0; k < c->clusters; k++)
        c->half[k] = 0.5f * heed_row_product(c->centroid + k * c->dim, c->centroid + k * c->dim, c->dim);
    memset(c->sum, 0, (size_t)(c->clusters * c->dim) * sizeof *c->sum);
    memset(c->count, 0, (size_t)c->clusters * sizeof *c->count);
    for (int64_t j = 0; j < now->keys; j += HEED_INDEX_ROWS) {
        const int n = now->keys - j < HEED_INDEX_ROWS ? (int)(now->keys - j) : HEED_INDEX_ROWS;
        now->load(now->context, c->kv_head, j, n, c->rows, now->dim);
        for (int i = 0; i < n; i++) {
            const float *x = c->rows + (int64_t)i * now->dim + c->first;
            const int k = heed_index_nearest(x, c->centroid, c->half, c->clusters, c->dim);
            float *restrict sum = c->sum + k * c->dim;
            for (int64_t d = 0; d < c->dim; d++)
                sum[d] += x[d];
            c->count[k] += 1;
            if (number)
                number[j + i] |= (int32_t)((uint32_t)k << shift);
        }
    }
}

/* Lloyd's rounds from keys that stand evenly apart; the last pass numbers the keys. A centroid without keys
 * stays. */
static inline void heed_cluster(const heed_clustered *c, int rounds, int32_t *number, int shift)
{
    const heed_recalled *now = c->now;
    for (int k = 0; k < c->clusters; k++) {
        now->load(now->context, c->kv_head, now->keys * k / c->clusters, 1, c->rows, now->dim);
        memcpy(c->centroid + k * c->dim, c->rows + c->first, (size_t)c->dim * sizeof(float));
    }
    for (int round = 0; round < rounds; round++) {
        heed_cluster_pass(c, NULL, 0);
        for (int k = 0; k < c->clusters; k++)
            for (int64_t d = 0; d < c->dim && c->count[k] > 0; d++)
                c->centroid[k * c->dim + d] = c->sum[k * c->dim + d] / c->count[k];
    }
    heed_cluster_pass(c, number, shift);
}

/* Marks the k highest of n scores, which are changed; work [n]. */
static inline void heed_index_mark_best(float *score, int64_t n, int64_t k, uint8_t *keep, float *work)
{
    heed_keep_highest(score, (int)n, k, work);
    for (int64_t j = 0; j < n; j++)
        keep[j] |= score[j] != -INFINITY;
}

#endif
