/* Scores of what a form is shown while it is calibrated, as heed_shown_scores makes them, in vectors. */
#ifndef HEED_ATTEND_SHOWN_H
#define HEED_ATTEND_SHOWN_H

#include "attend/form.h"

static inline int64_t heed_fast_scores(const heed_shown *shown, int h, int64_t i, float *out)
{
    const int64_t first = i + 1 > shown->span ? i + 1 - shown->span : 0;
    const float *restrict query = shown->query + (h * shown->tokens + i) * shown->dim;
    for (int64_t j = first; j <= i; j++) {
        const float *restrict key = shown->key + j * shown->dim;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int c = 0; c < shown->dim; c++)
            sum += query[c] * key[c];
        out[j - first] = sum;
    }
    return first;
}

#endif
