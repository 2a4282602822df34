/* Statistics of final weights, taken on the way. */
#ifndef HEED_KERNELS_CAPTURE_H
#define HEED_KERNELS_CAPTURE_H

#include "attend/kernels/work.h"

#define heed_capture_rows HEED_LOCAL(heed_capture_rows)

/* Where one row's statistics go; NULL members are not wanted. */
typedef struct heed_capture_target {
    float *entropy;    /* [rows] added to */
    float *key_sums;   /* [M] added to */
    float *top_weight; /* [rows][top] falling; 0, with key -1, where empty */
    int32_t *top_key;
    int top;
    heed_weights_sink sink;
    void *sink_context;
} heed_capture_target;

/* Takes weights [rows][stride] of queries query0... against keys key0... (cols of them real). */
void heed_capture_rows(const heed_capture_target *to, int batch, int head, int64_t query0, int64_t key0,
                       int rows, int cols, const float *weight, int64_t stride);

#endif
