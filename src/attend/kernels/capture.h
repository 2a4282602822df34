/* Statistics of final weights, taken on the way. */
#ifndef HEED_KERNELS_CAPTURE_H
#define HEED_KERNELS_CAPTURE_H

#include "attend/kernels/work.h"
#include <math.h>

#define heed_capture_rows HEED_LOCAL(heed_capture_rows)
#define heed_capture_strongest HEED_LOCAL(heed_capture_strongest)

enum { HEED_MOST_STRONGEST = 32 }; /* links of a whole row that are found faster than one by one */

/* What stands for the weight of a closed pair where weights are kept for later: even in a row of NaN it is 0,
 * while an open pair whose weight has vanished, +0, is NaN there. */
#define HEED_CLOSED_WEIGHT (-0.0f)

/* The final weight, of what was kept and the factor that it lacks. */
static inline float heed_final_weight(float kept, float factor)
{
    const bool closed = kept == 0.0f && signbit(kept);
    return closed ? 0.0f : kept * factor;
}

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

/* Of one whole row at once, its `top` strongest links: falling, of equal weights the earlier key first; 0,
 * with key -1, behind the last weight above 0. */
void heed_capture_strongest(const float *weight, int64_t count, int top, float *top_weight, int32_t *top_key);

#endif
