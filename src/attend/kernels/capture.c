#include "attend/kernels/capture.h"
#include <heed/maths.h>

#define CHUNK 32 /* weights looked at together: most hold nothing strong enough */

static float largest(const float *weight, int n)
{
    float most = 0.0f;
#pragma omp simd reduction(max : most)
    for (int j = 0; j < n; j++)
        most = weight[j] > most ? weight[j] : most;
    return most;
}

static void insert(float *top_weight, int32_t *top_key, int top, float weight, int64_t key)
{
    int at = top - 1;
    for (; at > 0 && weight > top_weight[at - 1]; at--) {
        top_weight[at] = top_weight[at - 1];
        top_key[at] = top_key[at - 1];
    }
    top_weight[at] = weight;
    top_key[at] = (int32_t)key;
}

/* Keeps the strongest links in falling order; of equal weights the earlier key stands first. */
static void keep_strongest(float *top_weight, int32_t *top_key, int top, const float *weight, int cols,
                           int64_t key0)
{
    for (int j0 = 0; j0 < cols; j0 += CHUNK) {
        const int n = cols - j0 < CHUNK ? cols - j0 : CHUNK;
        if (!(largest(weight + j0, n) > top_weight[top - 1]))
            continue;
        for (int j = j0; j < j0 + n; j++)
            if (weight[j] > top_weight[top - 1])
                insert(top_weight, top_key, top, weight[j], key0 + j);
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
