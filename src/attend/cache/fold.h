/* Folding dropped keys into kept ones. */
#ifndef HEED_ATTEND_CACHE_FOLD_H
#define HEED_ATTEND_CACHE_FOLD_H

#include "attend/cache/judge.h"

/* Key and value of a row times `part`. */
static inline void heed_scale_row(const heed_folding *f, int64_t row, float part)
{
    float *key = f->key + row * f->held->dim, *value = f->value + row * f->held->value_dim;
    for (int64_t d = 0; d < f->held->dim; d++)
        key[d] *= part;
    for (int64_t d = 0; d < f->held->value_dim; d++)
        value[d] *= part;
}

/* Row `to` += part times row `from`, keys and values. */
static inline void heed_add_row(const heed_folding *f, int64_t to, int64_t from, float part)
{
    const int64_t dim = f->held->dim, value_dim = f->held->value_dim;
    for (int64_t d = 0; d < dim; d++)
        f->key[to * dim + d] += part * f->key[from * dim + d];
    for (int64_t d = 0; d < value_dim; d++)
        f->value[to * value_dim + d] += part * f->value[from * value_dim + d];
}

/* Kept row `to` becomes the mean of itself and `from`, weighted by the keys that each stands for. */
static inline void heed_fold_row(const heed_folding *f, int64_t to, int64_t from)
{
    const float sum = f->mass[to] + f->mass[from], part = f->mass[from] / sum;
    heed_scale_row(f, to, f->mass[to] / sum);
    heed_add_row(f, to, from, part);
    f->mass[to] = sum;
}

/* All dropped keys go into the one kept behind the last of them, or before it. */
static inline void heed_fold_all(const heed_folding *f)
{
    int64_t last = f->held->count - 1, to;
    while (last >= 0 && f->keep[last])
        last--;
    to = last + 1;
    if (to == f->held->count)
        for (to = last; to >= 0 && !f->keep[to]; to--)
            ;
    for (int64_t j = 0; to >= 0 && j <= last; j++)
        if (!f->keep[j])
            heed_fold_row(f, to, j);
}

#endif
