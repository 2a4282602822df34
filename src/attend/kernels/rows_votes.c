/* Votes of earlier queries on keys, which selectors take off the scores of all heads. */
#include "attend/kernels/rows.h"

static heed_row row_of(const heed_run *run, const heed_pipeline *pipeline, const heed_rows_work *work,
                       const heed_row_head *head, int row, float *score)
{
    const int64_t query = work->row0 + row, stride = heed_row_stride(run->plan, pipeline);
    return (heed_row){.cols = (int)work->keys_end,
                      .batch = work->batch,
                      .head = head->query.head,
                      .query = head->query.query0 + query,
                      .pos = head->query.pos[query],
                      .key_pos = work->key_pos,
                      .score = score,
                      .work = work->line[0],
                      .query_row = head->query.prepared + query * stride,
                      .dim = pipeline->row_dim};
}

void heed_rows_sum_votes(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, float *sum)
{
    const heed_form_state *form = &pipeline->form[pipeline->votes];
    memset(sum, 0, (size_t)run->plan->problem.keys * sizeof *sum);
    for (int i = 0; i < work->count; i++) {
        float *restrict vote = work->line[2];
        const heed_row row =
            row_of(run, pipeline, work, &work->head[0], i, work->head[0].score + i * work->stride);
        form->form->vote(form, &row, vote);
        for (int64_t j = 0; j < work->keys_end; j++)
            sum[j] += vote[j];
    }
}

void heed_rows_take_votes(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work)
{
    const heed_form_state *form = &pipeline->form[pipeline->votes];
    heed_row_head *voter = &work->head[heed_voter_of(pipeline)];
    float *restrict carried = work->carried, *restrict vote = work->line[2];
    for (int i = 0; i < work->count; i++) {
        const heed_row row = row_of(run, pipeline, work, voter, i, voter->score + i * work->stride);
        form->form->vote(form, &row, vote);
        for (int h = 0; h < work->heads; h++) {
            float *restrict score = work->head[h].score + i * work->stride;
            for (int64_t j = 0; j < work->keys_end; j++)
                score[j] -= carried[j];
        }
        for (int64_t j = 0; j < work->keys_end; j++)
            carried[j] += vote[j];
    }
}

/* line[2] = what a row gives to the gradient of what was taken off it. Rows of NaN give none. */
static void blame_of_row(heed_rows_work *work, int row)
{
    float *restrict blame = work->line[2];
    memset(blame, 0, (size_t)work->stride * sizeof *blame);
    for (int h = 0; h < work->heads; h++) {
        const heed_row_head *head = &work->head[h];
        const float *restrict dscore = head->dscore + row * work->stride;
        for (int64_t j = 0; j < work->keys_end && !head->broken[row]; j++)
            blame[j] -= dscore[j];
    }
}

void heed_rows_blame(const heed_run *run, heed_rows_work *work, float *sum)
{
    memset(sum, 0, (size_t)run->plan->problem.keys * sizeof *sum);
    for (int i = work->count - 1; i >= 0; i--) {
        blame_of_row(work, i);
        for (int64_t j = 0; j < work->keys_end; j++)
            sum[j] += work->line[2][j];
    }
}

void heed_rows_votes_backward(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work)
{
    const heed_form_state *form = &pipeline->form[pipeline->votes];
    heed_row_head *voter = &work->head[heed_voter_of(pipeline)];
    float *restrict score = work->line[0];
    for (int i = work->count - 1; i >= 0; i--) {
        const float *scored = voter->scored + i * work->stride;
        const uint8_t *seen = voter->seen + i * work->stride;
        for (int64_t j = 0; j < work->keys_end; j++)
            score[j] = seen[j] ? scored[j] : -INFINITY;
        blame_of_row(work, i);
        const heed_row row = row_of(run, pipeline, work, voter, i, score);
        if (!voter->broken[i])
            form->form->vote_backward(form, &row, work->blame, voter->dscore + i * work->stride);
        for (int64_t j = 0; j < work->keys_end; j++)
            work->blame[j] += work->line[2][j];
    }
}

void heed_carry_sums(float *sums, int64_t lists, int64_t steps, int64_t keys, bool behind)
{
    const int64_t pieces = (keys + HEED_KEYS - 1) / HEED_KEYS;
#pragma omp for schedule(static)
    for (int64_t n = 0; n < lists * pieces; n++) {
        const int64_t first = n % pieces * HEED_KEYS;
        const int64_t cols = keys - first < HEED_KEYS ? keys - first : HEED_KEYS;
        float total[HEED_KEYS] = {0};
        for (int64_t s = 0; s < steps; s++) {
            const int64_t step = behind ? steps - 1 - s : s;
            float *own = sums + (n / pieces * steps + step) * keys + first;
            for (int64_t j = 0; j < cols; j++) {
                const float here = own[j];
                own[j] = total[j];
                total[j] += here;
            }
        }
    }
}
