/* Tensors in memory of their own, in any type and layout. */
#ifndef HEED_TEST_ATTEND_TENSORS_H
#define HEED_TEST_ATTEND_TENSORS_H

#include "support/attend.h"

/* A new tensor filled with bytes that read as NaN in every type. */
heed_tensor attend_blank(heed_type type, const int64_t shape[4], attend_layout layout);
/* Dense values stored in a new tensor. */
heed_tensor attend_stored(heed_type type, const float *x, const int64_t shape[4], attend_layout layout);
/* A pool of pages in which the keys of a batch lie scattered; unused places hold NaN. */
heed_tensor attend_pooled(heed_type type, const float *x, const int64_t shape[4], int64_t page,
                          const int32_t *table, int64_t pages);
/* A dense copy of an f32 tensor; frees the tensor's memory. */
float *attend_taken(heed_tensor t);

#endif
