#include "attend/kernels/capture.h"
#include <heed/maths.h>

/* Keeps the strongest links in falling order; of equal weights the earlier key stands first. */
static void keep_strongest(float *top_weight, int32_t *top_key, int top, const float *weight, int cols,
                           int64_t key0)
{
    for (int j = 0; j < cols; j++) {
        const float w = weight[j];
        if (!(w > top_weight[top - 1]) || w == 0.0f)
            continue;
        int at = top - 1;
        for (; at > 0 && w > top_weight[at - 1]; at--) {
            top_weight[at] = top_weight[at - 1];
            top_key[at] = top_key[at - 1];
        }
        top_weight[at] = w;
        top_key[at] = (int32_t)(key0 + j);
    }
}

void heed_capture_rows(const heed_capture_target *to, int batch, int head, int64_t query0, int64_t key0,
                       int rows, int cols, const float *weight, int64_t stride)
{
    for (int i = 0; i < rows; i++) {
        const float *row = weight + i * stride;
        if (to->key_sums)
            for (int j = 0; j < cols; j++)
                to->key_sums[key0 + j] += row[j];
        if (to->entropy) {
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int j = 0; j < cols; j++)
                sum -= row[j] > 0.0f ? row[j] * heed_log(row[j]) : row[j] * 0.0f;
            to->entropy[i] += sum;
        }
        if (to->top_weight)
            keep_strongest(to->top_weight + i * to->top, to->top_key + i * to->top, to->top, row, cols, key0);
    }
    if (to->sink) {
        const heed_weights_tile tile = {.batch = batch,
                                        .head = head,
                                        .query0 = query0,
                                        .key0 = key0,
                                        .rows = rows,
                                        .cols = cols,
                                        .weight = weight,
                                        .stride = stride};
        to->sink(to->sink_context, &tile);
    }
}
