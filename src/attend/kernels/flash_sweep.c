#include "attend/kernels/capture.h"
#include "attend/kernels/flash_work.h"
#include <string.h>

static bool wants_entropy_sweep(const heed_run *run, const heed_pipeline *pipeline)
{
    const heed_form *normalise = pipeline->form[pipeline->normalise].form;
    return run->extra->capture.entropy && !(normalise->flags & HEED_KEEPS_MOMENT);
}

bool heed_flash_keeps(const heed_run *run, const heed_pipeline *pipeline)
{
    const heed_capture *capture = &run->extra->capture;
    return capture->key_sums || capture->top_weight || capture->top_key || capture->sink ||
           wants_entropy_sweep(run, pipeline);
}

void heed_flash_finish(const heed_run *run, const heed_pipeline *pipeline, heed_flash_work *work,
                       const heed_query_block *query, int64_t row0)
{
    const heed_plan *plan = run->plan;
    const int64_t H = plan->problem.heads, N = plan->problem.queries, stride = heed_value_stride(plan);
    const heed_form_state *normalise = &pipeline->form[pipeline->normalise];
    const heed_row_sums sums = {
        .max = work->max + row0, .sum = work->norm_sum + row0, .count = work->count + row0};
    heed_row_end *end = work->end + row0;
    normalise->form->finish(normalise, query->head, query->rows, &sums, end);
    float *sum = work->sum + row0 * stride;
    for (int i = 0; i < query->rows; i++) {
        const float total = sums.sum[i];
        const float lse = total == 0.0f ? -INFINITY : (float)((double)sums.max[i] + log((double)total));
        if (isnan(lse))
            end[i].scale = end[i].norm = end[i].rest = NAN;
        for (int64_t e = 0; e < stride; e++)
            sum[i * stride + e] *= end[i].scale;
        const int64_t at = (query->batch * H + query->head) * N + query->query0 + i;
        heed_put_row_state(run, pipeline, at, sums.max[i], &end[i]);
        heed_write_lse(run, query->batch, query->head, query->query0 + i, lse);
        float *entropy = run->extra->capture.entropy;
        if (entropy)
            entropy[at] = normalise->form->flags & HEED_KEEPS_MOMENT
                              ? heed_entropy_of(total, work->moment[row0 + i], end[i].scale)
                              : 0.0f;
    }
    heed_write_output(run, pipeline, query->batch, query->head, query->query0, query->rows, sum, stride);
}

/* Turns what rescaled a row after each block into the factor that its kept weights lack: the product of all
 * later rescalings, and the final scale. */
static void gather_factors(heed_flash_work *work, const uint8_t *state, int rows, int64_t row0,
                           int64_t blocks)
{
    for (int i = 0; i < rows; i++) {
        float factor = work->end[row0 + i].scale;
        for (int64_t b = blocks - 1; b >= 0; b--) {
            if (!heed_seen(state + b * HEED_SUBS))
                continue;
            float *at = &work->kept_rescale[b * work->all_rows + row0 + i];
            const float rescale = *at;
            *at = factor;
            factor *= rescale;
        }
    }
}

/* Rows of NaN have no other final weights than NaN, and 0 where closed. */
static void settle_lost(float *weight, int64_t stride, float *factor, int rows)
{
    for (int i = 0; i < rows; i++) {
        if (!isnan(factor[i]))
            continue;
        for (int j = 0; j < HEED_KEYS; j++)
            weight[i * stride + j] = heed_final_weight(weight[i * stride + j], factor[i]);
        factor[i] = 1.0f;
    }
}

/* sums[j] += sum_i factor[i] weight[i][j] over one block of keys. */
static void add_key_sums(const float *weight, int64_t stride, const float *factor, int rows, int cols,
                         float *sums)
{
    float sum[HEED_KEYS] = {0};
    for (int i = 0; i < rows; i++) {
        const float *row = weight + i * stride;
        const float by = factor[i];
        for (int j = 0; j < HEED_KEYS; j++)
            sum[j] += by * row[j];
    }
    for (int j = 0; j < cols; j++)
        sums[j] += sum[j];
}

void heed_flash_sweep(const heed_run *run, const heed_pipeline *pipeline, heed_flash_work *work,
                      const heed_query_block *query, int64_t row0, float *key_sums)
{
    const heed_plan *plan = run->plan;
    const heed_capture *capture = &run->extra->capture;
    const int64_t H = plan->problem.heads, N = plan->problem.queries;
    const int64_t keys = heed_key_count(run, query->batch, heed_kv_head_of(plan, query->head));
    const int64_t blocks = (keys + HEED_KEYS - 1) / HEED_KEYS;
    const int64_t at = (query->batch * H + query->head) * N + query->query0;
    const int top = plan->problem.top;
    const uint8_t *state = work->state + (query - work->query) * work->subs;
    heed_capture_target to = {.top = top,
                              .top_weight = capture->top_weight ? capture->top_weight + at * top : NULL,
                              .top_key = capture->top_weight ? capture->top_key + at * top : NULL,
                              .entropy = wants_entropy_sweep(run, pipeline) ? capture->entropy + at : NULL,
                              .sink_context = capture->sink_context};
    if (capture->sink && (!capture->sink_heads || capture->sink_heads[query->head]))
        to.sink = capture->sink;
    gather_factors(work, state, query->rows, row0, blocks);
    for (int64_t b = 0; b < blocks; b++) {
        if (!heed_seen(state + b * HEED_SUBS))
            continue;
        const int64_t key0 = b * HEED_KEYS;
        const int cols = keys - key0 < HEED_KEYS ? (int)(keys - key0) : HEED_KEYS;
        float *weight = work->kept + row0 * work->kept_stride + key0;
        float *factor = work->kept_rescale + b * work->all_rows + row0;
        settle_lost(weight, work->kept_stride, factor, query->rows);
        if (key_sums)
            add_key_sums(weight, work->kept_stride, factor, query->rows, cols, key_sums + key0);
        if (!to.top_weight && !to.entropy && !to.sink)
            continue;
        for (int i = 0; i < query->rows; i++)
            for (int j = 0; j < HEED_KEYS; j++)
                weight[i * work->kept_stride + j] =
                    weight[i * work->kept_stride + j] * factor[i] + 0.0f; /* -0 */
        heed_capture_rows(&to, query->batch, query->head, query->query0, key0, query->rows, cols, weight,
                          work->kept_stride);
    }
}
