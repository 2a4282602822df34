#include "attend/kernels/capture.h"
#include <float.h>
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

/* The `top`-th largest of the largest weights of LISTS lists, which share the row out: a weight below it is
 * not among the `top` largest. At least the smallest weight above 0. */
static float least_of_strongest(const float *weight, int64_t count, int top)
{
    enum { LISTS = 2 * HEED_MOST_STRONGEST };
    float most[LISTS] = {0.0f}, least = FLT_TRUE_MIN;
    int reach[LISTS] = {0}; /* how many lists reach as high */
    int64_t j = 0;
    for (; j + LISTS <= count; j += LISTS)
#pragma omp simd
        for (int l = 0; l < LISTS; l++)
            most[l] = weight[j + l] > most[l] ? weight[j + l] : most[l];
    for (int l = 0; l < count - j; l++)
        most[l] = weight[j + l] > most[l] ? weight[j + l] : most[l];
    for (int m = 0; m < LISTS; m++)
#pragma omp simd
        for (int l = 0; l < LISTS; l++)
            reach[l] += most[m] >= most[l];
    for (int l = 0; l < LISTS; l++)
        least = reach[l] >= top && most[l] > least ? most[l] : least;
    return least;
}

/* The keys of weights from `least` on, rising; -1 where there are more than `room`. */
static int collect(const float *weight, int64_t count, float least, int room, int32_t *key, float *found)
{
    int n = 0;
    for (int64_t j0 = 0; j0 < count; j0 += CHUNK) {
        const int cols = (int)(count - j0 < CHUNK ? count - j0 : CHUNK);
        uint32_t reaches = 0;
#pragma omp simd reduction(| : reaches)
        for (int j = 0; j < cols; j++)
            reaches |= (uint32_t)(weight[j0 + j] >= least) << j;
        if (n + CHUNK > room)
            return -1;
        for (; reaches; reaches &= reaches - 1) {
            const int64_t j = j0 + __builtin_ctz(reaches);
            key[n] = (int32_t)j;
            found[n++] = weight[j];
        }
    }
    return n;
}

void heed_capture_strongest(const float *weight, int64_t count, int top, float *top_weight, int32_t *top_key)
{
    enum { ROOM = 8 * HEED_MOST_STRONGEST };
    int32_t key[ROOM];
    float found[ROOM];
    for (int t = 0; t < top; t++) {
        top_weight[t] = 0.0f;
        top_key[t] = -1;
    }
    const float least = top > HEED_MOST_STRONGEST ? 0.0f : least_of_strongest(weight, count, top);
    const int n = top > HEED_MOST_STRONGEST ? -1 : collect(weight, count, least, ROOM, key, found);
    for (int64_t j = 0; n < 0 && j < count; j += HEED_KEYS)
        keep_strongest(top_weight, top_key, top, weight + j,
                       (int)(count - j < HEED_KEYS ? count - j : HEED_KEYS), j);
    int rank[ROOM] = {0};
    for (int i = 0; i < n; i++) {
#pragma omp simd
        for (int j = 0; j < i; j++)
            rank[j] += found[i] > found[j];
#pragma omp simd
        for (int j = i + 1; j < n; j++)
            rank[j] += found[i] >= found[j];
    }
    for (int i = 0; i < n; i++)
        if (rank[i] < top) {
            top_weight[rank[i]] = found[i];
            top_key[rank[i]] = key[i];
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
