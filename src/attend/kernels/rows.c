/* Forward by complete rows, for forms that need them: selectors, projections, positions that count over the
 * row, heads that mix. Memory is O(rows of a block x keys); the products run through the same panels as
 * elsewhere.
 *
 * A piece of work is a block of queries of the heads that share one kv head, or of all heads where these mix.
 * Weights are made for all its rows (rows_weights.c), statistics taken, and the values summed by blocks of
 * keys: as a product, or pair by pair in tiles where few weights are left.
 */
#include "attend/kernels/rows.h"
#include "attend/kernels/capture.h"
#include "attend/kernels/pairs.h"
#include <string.h>

#define SEGMENTS 8 /* of query blocks whose key sums are kept apart */

typedef struct forward_work {
    heed_rows_work rows;
    uint8_t *used; /* [HEED_STRIP][HEED_KEYS] */
} forward_work;

static forward_work take_work(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline)
{
    forward_work work = {.used = heed_arena_take(arena, HEED_STRIP * HEED_KEYS, 1)};
    work.rows = heed_take_rows(arena, plan, pipeline, pipeline->query_block, false);
    return work;
}

void heed_rows_layout(const heed_plan *plan, heed_pipeline *pipeline, size_t *shared, size_t *per_thread)
{
    const heed_problem *p = &plan->problem;
    pipeline->query_block = heed_rows_at_once(plan, pipeline, false);
    const int64_t blocks = (p->queries + pipeline->query_block - 1) / pipeline->query_block;
    pipeline->segments = 0;
    if (p->with & HEED_WITH_KEY_SUMS)
        pipeline->segments = (int)(blocks < 1 ? 1 : blocks < SEGMENTS ? blocks : SEGMENTS);
    heed_arena arena = {0};
    take_work(&arena, plan, pipeline);
    *per_thread = arena.used;
    heed_arena sums = {0};
    heed_arena_take(&sums, (size_t)(pipeline->segments * p->batch * p->heads * p->keys), sizeof(float));
    if (pipeline->votes >= 0)
        heed_arena_take(&sums, (size_t)(p->batch * blocks * p->keys), sizeof(float));
    *shared = sums.used;
}

/* Values one by one, none through a closed pair. */
static void add_used(const heed_plan *plan, const forward_work *work, const heed_row_head *head, int row,
                     int rows)
{
    const heed_key_block *keys = &work->rows.keys;
    const int64_t value_stride = heed_value_stride(plan), value_cols = heed_value_cols(plan);
    for (int i = 0; i < rows; i++) {
        const uint8_t *used = work->used + i * HEED_KEYS;
        const float *weight = head->score + (row + i) * work->rows.stride + keys->key0;
        float *restrict out = head->out + (row + i) * value_stride;
        HEED_FOR_USED(j, used, keys->cols)
        {
            const float w = weight[j], *restrict value = keys->value + j * value_stride;
            for (int64_t e = 0; e < value_cols; e++)
                out[e] += w * value[e];
        }
    }
}

static void add_values_of_block(const heed_run *run, forward_work *work, heed_row_head *head, int64_t block)
{
    heed_rows_work *w = &work->rows;
    const int64_t value_stride = heed_value_stride(run->plan), col = block * HEED_KEYS;
    bool packed = false;
    for (int row = 0; row < w->count; row += HEED_STRIP) {
        const int rows = w->count - row < HEED_STRIP ? w->count - row : HEED_STRIP;
        const int64_t at = row * w->stride + col, left = w->last - col;
        const int cols = left < HEED_KEYS ? (int)left : HEED_KEYS;
        const float *weight = head->score + at;
        const int any = heed_mark_used(weight, head->open + at, w->stride, rows, cols, work->used);
        if (any == 0)
            continue;
        if (!packed)
            heed_rows_pack_values(run, w, head, block);
        packed = true;
        const bool finite = w->keys.value_finite;
        const int used = finite ? heed_mark_used(weight, NULL, w->stride, rows, cols, work->used) : any;
        if (!finite || heed_few(used, rows * cols))
            add_used(run->plan, work, head, row, rows);
        else
            heed_accumulate(rows, w->keys.count, weight, w->stride, 1, w->keys.value, value_stride,
                            head->out + row * value_stride, value_stride, heed_value_cols(run->plan));
    }
}

static void add_values(const heed_run *run, forward_work *work)
{
    heed_rows_work *w = &work->rows;
    const int64_t value_stride = heed_value_stride(run->plan);
    for (int h = 0; h < w->heads; h++)
        memset(w->head[h].out, 0, (size_t)(w->count * value_stride) * sizeof(float));
    for (int64_t b = w->first / HEED_KEYS; b * HEED_KEYS < w->last; b++)
        for (int h = 0; h < w->heads && w->visible[b] != HEED_CLOSED; h++)
            add_values_of_block(run, work, &w->head[h], b);
}

static void capture(const heed_run *run, const heed_rows_work *w, const heed_row_head *head, float *key_sums)
{
    const heed_problem *p = &run->plan->problem;
    const heed_capture *capture = &run->extra->capture;
    const int64_t at = (w->batch * p->heads + head->query.head) * p->queries + head->query.query0;
    heed_capture_target to = {.entropy = capture->entropy ? capture->entropy + at : NULL,
                              .key_sums = key_sums ? key_sums + head->query.head * p->keys : NULL,
                              .top = p->top,
                              .top_weight = capture->top_weight ? capture->top_weight + at * p->top : NULL,
                              .top_key = capture->top_weight ? capture->top_key + at * p->top : NULL,
                              .sink_context = capture->sink_context};
    if (capture->sink && (!capture->sink_heads || capture->sink_heads[head->query.head]))
        to.sink = capture->sink;
    if (w->first < w->keys_end && (to.entropy || to.key_sums || to.top_weight || to.sink))
        heed_capture_rows(&to, w->batch, head->query.head, head->query.query0, w->first, w->count,
                          (int)(w->keys_end - w->first), head->score + w->first, w->stride);
}

static void finish(const heed_run *run, const heed_pipeline *pipeline, const heed_rows_work *w,
                   heed_row_head *head)
{
    const heed_problem *p = &run->plan->problem;
    const int64_t value_stride = heed_value_stride(run->plan), query0 = head->query.query0;
    for (int i = 0; i < w->count; i++) {
        const int64_t at = (w->batch * p->heads + head->query.head) * p->queries + query0 + i;
        for (int64_t e = 0; e < value_stride && head->broken[i]; e++)
            head->out[i * value_stride + e] = NAN;
        if (run->row_state) {
            run->row_state[2 * at] = head->norm[i];
            run->row_state[2 * at + 1] = head->lse[i];
        }
        heed_write_lse(run, w->batch, head->query.head, query0 + i, head->lse[i]);
    }
    heed_write_output(run, pipeline, w->batch, head->query.head, query0, w->count, head->out, value_stride);
}

static int64_t count_open(const heed_rows_work *w, const heed_row_head *head)
{
    int64_t open = 0;
    for (int i = 0; i < w->count; i++)
        for (int64_t j = w->first; j < w->keys_end; j++)
            open += head->open[i * w->stride + j];
    return open;
}

static void run_block(const heed_run *run, const heed_pipeline *pipeline, forward_work *work, int batch,
                      int first_head, int heads, int64_t query0, const float *votes, float *key_sums)
{
    heed_rows_work *w = &work->rows;
    const int64_t left = run->query_count[batch] - query0;
    const int rows = (int)(left < pipeline->query_block ? left : pipeline->query_block);
    for (int n = 0; n < heads && rows > 0; n += w->most_heads) {
        const int here = heads - n < w->most_heads ? heads - n : w->most_heads;
        heed_rows_begin(run, pipeline, w, batch, first_head + n, here, query0, rows);
        if (votes)
            memcpy(w->carried, votes, (size_t)run->plan->problem.keys * sizeof *votes);
        heed_rows_weights(run, pipeline, w, 0, rows);
        for (int h = 0; h < here; h++) {
            capture(run, w, &w->head[h], key_sums);
            if (run->extra->capture.pairs && pipeline->selects > 0)
                heed_note_read(run, count_open(w, &w->head[h]));
        }
        add_values(run, work);
        for (int h = 0; h < here; h++)
            finish(run, pipeline, w, &w->head[h]);
    }
}

/* Adds the segments' sums in order. */
static void add_key_sums(const heed_run *run, const heed_pipeline *pipeline, const float *sums)
{
    const heed_problem *p = &run->plan->problem;
    const int64_t all = p->batch * p->heads * p->keys;
    for (int64_t b = 0; b < p->batch; b++)
        for (int n = 0; n < pipeline->heads_here; n++) {
            const int64_t at = (b * p->heads + pipeline->head[n]) * p->keys;
            for (int s = 0; s < pipeline->segments; s++)
                for (int64_t j = at; j < at + p->keys; j++)
                    run->extra->capture.key_sums[j] += sums[s * all + j];
        }
}

/* What the queries before each block voted. All threads call it together. */
static void count_votes(const heed_run *run, const heed_pipeline *pipeline, forward_work *work,
                        int64_t blocks, float *votes)
{
    const heed_problem *p = &run->plan->problem;
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < p->batch * blocks; n++) {
        const int batch = (int)(n / blocks);
        const int64_t query0 = n % blocks * pipeline->query_block, left = run->query_count[batch] - query0;
        const int rows = (int)(left < 0 ? 0 : left < pipeline->query_block ? left : pipeline->query_block);
        memset(votes + n * p->keys, 0, (size_t)p->keys * sizeof *votes);
        if (rows == 0)
            continue;
        heed_rows_begin(run, pipeline, &work->rows, batch, heed_voter_of(pipeline), 1, query0, rows);
        heed_rows_scores(run, pipeline, &work->rows, 0, rows);
        heed_rows_sum_votes(run, pipeline, &work->rows, votes + n * p->keys);
    }
    heed_carry_sums(votes, p->batch, blocks, p->keys, false);
}

void heed_rows_forward(const heed_run *run, const heed_pipeline *pipeline)
{
    const heed_problem *p = &run->plan->problem;
    const int64_t blocks = (p->queries + pipeline->query_block - 1) / pipeline->query_block;
    const int64_t segments = pipeline->segments ? pipeline->segments : blocks;
    const int64_t units = heed_rows_mix(pipeline) ? 1 : p->kv_heads, pieces = p->batch * units * segments;
    const int64_t heads_keys = p->heads * p->keys;
    float *sums = run->extra->capture.key_sums ? (float *)run->shared : NULL;
    heed_arena shared = {.base = run->shared};
    heed_arena_take(&shared, (size_t)(pipeline->segments * p->batch * heads_keys), sizeof(float));
    float *votes = NULL;
    if (pipeline->votes >= 0)
        votes = heed_arena_take(&shared, (size_t)(p->batch * blocks * p->keys), sizeof(float));
    if (sums)
        memset(sums, 0, (size_t)(segments * p->batch * heads_keys) * sizeof(float));
#pragma omp parallel num_threads(p->threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        forward_work work = take_work(&arena, run->plan, pipeline);
        if (votes)
            count_votes(run, pipeline, &work, blocks, votes);
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < pieces; n++) {
            /* the last blocks first: under a causal mask they are the longest. A thread stays with a kv head
             * as long as it can, so that selectors need not look at the keys again. */
            const int64_t unit = n / segments, segment = segments - 1 - n % segments;
            const int batch = (int)(unit / units), group = (int)(unit % units);
            const int first = units == 1 ? 0 : pipeline->group_first[group];
            const int last = units == 1 ? pipeline->heads_here : pipeline->group_first[group + 1];
            float *key_sums = sums ? sums + (segment * p->batch + batch) * heads_keys : NULL;
            for (int64_t b = segment; b < blocks && first < last; b += segments)
                run_block(run, pipeline, &work, batch, first, last - first, b * pipeline->query_block,
                          votes ? votes + (batch * blocks + b) * p->keys : NULL, key_sums);
        }
    }
    if (sums)
        add_key_sums(run, pipeline, sums);
}
