/* Forward, online: key blocks pass by once, weights never leave the cache.
 *
 * A piece of work is a block of queries of the heads that share one kv head. Keys are packed once for all of
 * them; strips of HEED_STRIP queries meet a block of HEED_KEYS keys in a tile of scores that stays in the
 * first cache: product, forms, online normaliser, product with the values. Blocks that `where` closes are
 * never visited, and inside a partly open block a strip computes only the columns between its first and last
 * open run of HEED_SUB keys.
 *
 * Statistics need final weights, which are known when the row is complete. So with capture the unnormalised
 * weights of the block of queries are kept, with each later rescaling, and swept once at the end; no score is
 * computed twice.
 */
#include "attend/kernels/flash.h"
#include "attend/kernels/bf16.h"
#include "attend/kernels/capture.h"
#include <stdlib.h>
#include <string.h>

/* One thread's buffers. R rows: those of all heads of a piece of work, each head padded to whole strips. */
typedef struct flash_work {
    heed_key_block keys;
    heed_query_block *query;                          /* [heads of a group] */
    float *sum;                                       /* [R][value_stride] */
    float *max, *norm_sum, *count, *rescale, *moment; /* [R] */
    float *score;                                     /* [HEED_STRIP][HEED_KEYS] */
    uint8_t *was_open;   /* [HEED_STRIP][HEED_KEYS], for values that are not finite */
    uint8_t *state;      /* [heads of a group][blocks] */
    heed_row_end *end;   /* [R] */
    float *kept;         /* [R][keys rounded up] unnormalised weights, with capture */
    float *kept_rescale; /* [blocks][R] */
    int64_t kept_stride;
    heed_row_work rows;
    heed_sight sight;
    heed_bf16_work bf16; /* where pipeline->fast_products */
} flash_work;

static int padded_block(const heed_pipeline *pipeline)
{
    return (int)heed_round_up(pipeline->query_block, HEED_STRIP);
}

static flash_work take_work(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline)
{
    const int heads = heed_most_heads(plan, pipeline), block = padded_block(pipeline);
    const size_t rows = (size_t)heads * (size_t)block;
    const size_t blocks = (size_t)((plan->problem.keys + HEED_KEYS - 1) / HEED_KEYS);
    const int64_t stride = heed_row_stride(plan, pipeline), aux = pipeline->aux_floats;
    flash_work work = {0};
    work.keys.pos = heed_arena_take(arena, HEED_KEYS, sizeof(int32_t));
    work.keys.transposed = heed_arena_take(arena, (size_t)stride * HEED_KEY_STRIDE, sizeof(float));
    work.keys.value = heed_arena_take(arena, (size_t)heed_value_stride(plan) * HEED_KEYS, sizeof(float));
    work.query = heed_arena_take(arena, (size_t)heads, sizeof *work.query);
    for (int h = 0; h < heads; h++) {
        heed_query_block query = {0};
        query.pos = heed_arena_take(arena, (size_t)block, sizeof(int32_t));
        query.prepared = heed_arena_take(arena, (size_t)block * (size_t)stride, sizeof(float));
        query.aux = heed_arena_take(arena, (size_t)block * (size_t)aux, sizeof(float));
        if (arena->base)
            work.query[h] = query;
    }
    work.sum = heed_arena_take(arena, rows * (size_t)heed_value_stride(plan), sizeof(float));
    float **row[] = {&work.max, &work.norm_sum, &work.count, &work.rescale, &work.moment};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        *row[i] = heed_arena_take(arena, rows, sizeof(float));
    work.score = heed_arena_take(arena, HEED_STRIP * HEED_KEYS, sizeof(float));
    work.was_open = heed_arena_take(arena, HEED_STRIP * HEED_KEYS, 1);
    work.state = heed_arena_take(arena, (size_t)heads * blocks, 1);
    work.end = heed_arena_take(arena, rows, sizeof *work.end);
    if (plan->problem.with & HEED_CAPTURES || plan->problem.with & HEED_WITH_ENTROPY) {
        work.kept_stride = (int64_t)blocks * HEED_KEYS;
        work.kept = heed_arena_take(arena, rows * blocks * HEED_KEYS, sizeof(float));
        work.kept_rescale = heed_arena_take(arena, rows * blocks, sizeof(float));
    }
    work.rows = heed_take_row_work(arena, plan, block);
    work.sight = heed_take_sight(arena, plan);
    if (pipeline->fast_products)
        work.bf16 = heed_take_bf16_work(arena, plan, pipeline);
    return work;
}

size_t heed_flash_per_thread(const heed_plan *plan, const heed_pipeline *pipeline)
{
    heed_arena arena = {0};
    take_work(&arena, plan, pipeline);
    return arena.used;
}

/* Key sums are added up in `segments` private copies, which are then added in order. */
size_t heed_flash_shared(const heed_plan *plan, const heed_pipeline *pipeline)
{
    heed_arena arena = {0};
    if (plan->problem.with & HEED_WITH_KEY_SUMS)
        heed_arena_take(
            &arena,
            (size_t)(pipeline->segments * plan->problem.batch * plan->problem.heads * plan->problem.keys),
            sizeof(float));
    return arena.used;
}

/* The query heads of kv head `group` in this pipeline. */
typedef struct piece {
    int batch, group, first_head, heads, segment;
} piece;

static bool wants_entropy_sweep(const heed_run *run, const heed_pipeline *pipeline)
{
    const heed_form *normalise = pipeline->form[pipeline->normalise].form;
    return run->extra->capture.entropy && !(normalise->flags & HEED_KEEPS_MOMENT);
}

static bool keeps_weights(const heed_run *run, const heed_pipeline *pipeline)
{
    const heed_capture *capture = &run->extra->capture;
    return capture->key_sums || capture->top_weight || capture->top_key || capture->sink ||
           wants_entropy_sweep(run, pipeline);
}

static void add_values_where_open(const heed_run *run, const heed_key_block *keys, const uint8_t *open,
                                  int first, int cols, int rows, const float *weight, float *sum)
{
    const int64_t stride = heed_value_stride(run->plan);
    for (int i = 0; i < rows; i++)
        for (int j = first; j < first + cols; j++) {
            if (!open[i * HEED_KEYS + j])
                continue;
            const float w = weight[i * HEED_KEYS + j];
            const float *value = keys->value + j * stride;
            for (int64_t e = 0; e < run->plan->problem.value_dim; e++)
                sum[i * stride + e] += w * value[e];
        }
}

static void rescale_rows(float *sum, int64_t stride, int64_t cols, int rows, const float *factor)
{
    for (int i = 0; i < rows; i++) {
        if (factor[i] == 1.0f)
            continue;
        for (int64_t e = 0; e < cols; e += HEED_WIDTH)
            heed_vec_store(sum + i * stride + e, heed_vec_load(sum + i * stride + e) * factor[i]);
    }
}

/* One strip of a head against the packed block. row0: the strip's first row among all rows of the piece. */
static void meet(const heed_run *run, const heed_pipeline *pipeline, flash_work *work,
                 const heed_query_block *query, int strip0, int64_t row0, uint8_t state, bool keep)
{
    const heed_plan *plan = run->plan;
    const heed_key_block *keys = &work->keys;
    const int rows = query->rows - strip0 < HEED_STRIP ? query->rows - strip0 : HEED_STRIP;
    const int64_t row_stride = heed_row_stride(plan, pipeline), value_stride = heed_value_stride(plan);
    int first = 0, last = keys->cols;
    bool partly = false;
    if (state == HEED_PARTLY) {
        int32_t least = query->pos[strip0], most = least;
        for (int i = 1; i < rows; i++) {
            least = query->pos[strip0 + i] < least ? query->pos[strip0 + i] : least;
            most = query->pos[strip0 + i] > most ? query->pos[strip0 + i] : most;
        }
        const heed_query_range range = {.batch = query->batch,
                                        .head = query->head,
                                        .first = query->query0 + strip0,
                                        .last = query->query0 + strip0 + rows - 1,
                                        .pos_min = least,
                                        .pos_max = most,
                                        .inputs = &run->inputs};
        const uint8_t *sub = heed_sub_states(run, pipeline, &range, keys->key0, keys->cols, &work->sight);
        const int subs = keys->cols / HEED_SUB;
        int low = 0, high = subs;
        while (low < high && sub[low] == HEED_CLOSED)
            low++;
        while (high > low && sub[high - 1] == HEED_CLOSED)
            high--;
        if (low == high) {
            if (keep)
                for (int i = 0; i < rows; i++) {
                    memset(work->kept + (row0 + i) * work->kept_stride + keys->key0, 0,
                           HEED_KEYS * sizeof(float));
                    work->kept_rescale[(row0 + i) * (work->kept_stride / HEED_KEYS) +
                                       keys->key0 / HEED_KEYS] = 1.0f;
                }
            return;
        }
        for (int s = low; s < high; s++)
            partly |= sub[s] != HEED_OPEN;
        first = low * HEED_SUB;
        last = high * HEED_SUB;
    }
    heed_tile tile = {.rows = rows,
                      .cols = last - first,
                      .batch = query->batch,
                      .head = query->head,
                      .kv_head = keys->group,
                      .query0 = query->query0 + strip0,
                      .key0 = keys->key0 + first,
                      .query_pos = query->pos + strip0,
                      .key_pos = keys->pos + first,
                      .contiguous = query->contiguous && keys->contiguous,
                      .score = work->score + first,
                      .stride = HEED_KEYS,
                      .query = query->prepared + strip0 * row_stride,
                      .query_stride = row_stride,
                      .key = keys->transposed + first,
                      .key_stride = HEED_KEY_STRIDE,
                      .dim = pipeline->row_dim,
                      .inputs = &run->inputs};
    if (pipeline->fast_products)
        heed_bf16_scores(pipeline, &work->bf16, &tile, first);
    else
        heed_scores(pipeline, &tile);
    heed_adjust(pipeline, pipeline->adjust, pipeline->adjusts, &tile, query, strip0, NULL);
    const uint8_t *open = partly ? heed_mask_tile(run, pipeline, &tile, &work->sight) : NULL;
    if (open || last > keys->count)
        heed_close(&tile, open, HEED_KEYS, keys->count - first);
    if (!keys->value_finite)
        for (int i = 0; i < rows; i++)
            for (int j = first; j < last; j++)
                work->was_open[i * HEED_KEYS + j] = work->score[i * HEED_KEYS + j] != -INFINITY;
    heed_adjust(pipeline, pipeline->modify, pipeline->modifies, &tile, query, strip0, NULL);

    const heed_form_state *normalise = &pipeline->form[pipeline->normalise];
    heed_row_sums sums = {.max = work->max + row0,
                          .sum = work->norm_sum + row0,
                          .count = work->count + row0,
                          .rescale = work->rescale + row0,
                          .moment = run->extra->capture.entropy ? work->moment + row0 : NULL};
    if (normalise->form->flags & HEED_COUNTS_OPEN)
        for (int i = 0; i < rows; i++) {
            float count = 0.0f;
            for (int j = 0; j < tile.cols; j++)
                count += tile.score[i * HEED_KEYS + j] != -INFINITY;
            sums.count[i] += count;
        }
    normalise->form->online(normalise, &tile, &sums);

    float *sum = work->sum + row0 * value_stride;
    rescale_rows(sum, value_stride, heed_value_cols(plan), rows, sums.rescale);
    if (keys->value_finite && pipeline->fast_products)
        heed_bf16_accumulate(plan, &work->bf16, &tile, first, sum);
    else if (keys->value_finite)
        heed_accumulate(HEED_STRIP, tile.cols, tile.score, HEED_KEYS, 1, keys->value + first * value_stride,
                        value_stride, sum, value_stride, heed_value_cols(plan));
    else
        add_values_where_open(run, keys, work->was_open, first, tile.cols, rows, work->score, sum);
    if (keep)
        for (int i = 0; i < rows; i++) {
            float *to = work->kept + (row0 + i) * work->kept_stride + keys->key0;
            memset(to, 0, (size_t)first * sizeof(float));
            memcpy(to + first, tile.score + i * HEED_KEYS, (size_t)tile.cols * sizeof(float));
            memset(to + last, 0, (size_t)(HEED_KEYS - last) * sizeof(float));
            work->kept_rescale[(row0 + i) * (work->kept_stride / HEED_KEYS) + keys->key0 / HEED_KEYS] =
                sums.rescale[i];
        }
}

/* Entropy from the sums kept online: log(sum) - moment / sum is that of the softmax part, whose weights the
 * form scales. */
static float entropy_of(float sum, float moment, float scale)
{
    if (sum == 0.0f)
        return 0.0f;
    /* w = scale e, e = exp(logit - max): -sum w log w = -scale (sum e log e) - scale log(scale) sum e */
    return -scale * moment - scale * logf(scale) * sum;
}

static void sweep_kept(const heed_run *run, const heed_pipeline *pipeline, flash_work *work,
                       const heed_query_block *query, int64_t row0, float *key_sums)
{
    const heed_plan *plan = run->plan;
    const heed_capture *capture = &run->extra->capture;
    const int64_t H = plan->problem.heads, N = plan->problem.queries, keys = run->key_count[query->batch];
    const int64_t blocks = (keys + HEED_KEYS - 1) / HEED_KEYS, all_blocks = work->kept_stride / HEED_KEYS;
    const int64_t at = (query->batch * H + query->head) * N + query->query0;
    const int top = plan->problem.top;
    const uint8_t *state = work->state + (query - work->query) * all_blocks;
    heed_capture_target to = {.key_sums = key_sums,
                              .top = top,
                              .top_weight = capture->top_weight ? capture->top_weight + at * top : NULL,
                              .top_key = capture->top_weight ? capture->top_key + at * top : NULL,
                              .entropy = wants_entropy_sweep(run, pipeline) ? capture->entropy + at : NULL,
                              .sink_context = capture->sink_context};
    if (capture->sink && (!capture->sink_heads || capture->sink_heads[query->head]))
        to.sink = capture->sink;
    /* from the last block backward each row's factor is the product of the rescalings that came after it */
    for (int i = 0; i < query->rows; i++) {
        float factor = work->end[row0 + i].scale;
        for (int64_t b = blocks - 1; b >= 0; b--) {
            if (state[b] == HEED_CLOSED)
                continue;
            float *weight = work->kept + (row0 + i) * work->kept_stride + b * HEED_KEYS;
            for (int j = 0; j < HEED_KEYS; j++)
                weight[j] *= factor;
            factor *= work->kept_rescale[(row0 + i) * all_blocks + b];
        }
    }
    for (int64_t b = 0; b < blocks; b++) {
        if (state[b] == HEED_CLOSED)
            continue;
        const int64_t key0 = b * HEED_KEYS;
        const int cols = keys - key0 < HEED_KEYS ? (int)(keys - key0) : HEED_KEYS;
        heed_capture_rows(&to, query->batch, query->head, query->query0, key0, query->rows, cols,
                          work->kept + row0 * work->kept_stride + key0, work->kept_stride);
    }
}

/* Final scale, lse, read stage, and the way out for one head's rows. */
static void finish(const heed_run *run, const heed_pipeline *pipeline, flash_work *work,
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
                              ? entropy_of(total, work->moment[row0 + i], end[i].scale)
                              : 0.0f;
    }
    heed_write_output(run, pipeline, query->batch, query->head, query->query0, query->rows, sum, stride);
}

/* The next block of keys that any head sees. */
static int64_t next_block(const flash_work *work, int heads, int64_t b, int64_t blocks, int64_t all_blocks)
{
    for (; b < blocks; b++)
        for (int h = 0; h < heads; h++)
            if (work->state[h * all_blocks + b] != HEED_CLOSED)
                return b;
    return blocks;
}

/* Keys and values as the products of this pipeline want them. */
static void pack_block(const heed_run *run, const heed_pipeline *pipeline, flash_work *work)
{
    heed_key_block *block = &work->keys;
    if (!pipeline->fast_products) {
        heed_pack_values(run, block);
        if (!pipeline->keys_by_head)
            heed_pack_keys(run, pipeline, 0, block, &work->rows);
        return;
    }
    heed_place_keys(run, block);
    heed_bf16_keys(run, block, &work->bf16);
    heed_bf16_values(run, block, &work->bf16);
    if (!block->value_finite)
        heed_pack_values(run, block); /* values that are not finite are read one by one */
}

static void run_block(const heed_run *run, const heed_pipeline *pipeline, const piece *at, int64_t query0,
                      flash_work *work, float *key_sums)
{
    const heed_plan *plan = run->plan;
    const int64_t here = run->query_count[at->batch] - query0;
    const int rows = (int)(here < pipeline->query_block ? here : pipeline->query_block);
    if (rows <= 0)
        return;
    const int padded = padded_block(pipeline);
    const int64_t value_stride = heed_value_stride(plan);
    const int64_t keys = run->key_count[at->batch], blocks = (keys + HEED_KEYS - 1) / HEED_KEYS;
    const int64_t all_blocks = (plan->problem.keys + HEED_KEYS - 1) / HEED_KEYS;
    const bool keep = keeps_weights(run, pipeline);

    for (int h = 0; h < at->heads; h++) {
        heed_query_block *query = &work->query[h];
        query->batch = at->batch;
        query->head = pipeline->head[at->first_head + h];
        query->query0 = query0;
        query->rows = rows;
        heed_prepare_queries(run, pipeline, query, &work->rows);
        if (pipeline->fast_products)
            heed_bf16_queries(run, pipeline, query);
        int32_t least = query->pos[0], most = least;
        for (int i = 1; i < rows; i++) {
            least = query->pos[i] < least ? query->pos[i] : least;
            most = query->pos[i] > most ? query->pos[i] : most;
        }
        const heed_query_range range = {.batch = at->batch,
                                        .head = query->head,
                                        .first = query0,
                                        .last = query0 + rows - 1,
                                        .pos_min = least,
                                        .pos_max = most,
                                        .inputs = &run->inputs};
        if (blocks > 0)
            memcpy(work->state + h * all_blocks, heed_block_states(run, pipeline, &range, &work->sight),
                   (size_t)blocks);
    }
    for (int64_t r = 0; r < (int64_t)at->heads * padded; r++) {
        work->max[r] = -INFINITY;
        work->norm_sum[r] = work->count[r] = work->moment[r] = 0.0f;
    }
    memset(work->sum, 0, (size_t)(at->heads * padded * value_stride) * sizeof(float));

    for (int64_t b = 0; b < blocks; b++) {
        int seen = 0;
        for (int h = 0; h < at->heads; h++)
            seen |= work->state[h * all_blocks + b];
        if (seen == HEED_CLOSED)
            continue;
        heed_key_block *block = &work->keys;
        block->batch = at->batch;
        block->group = at->group;
        block->key0 = b * HEED_KEYS;
        block->count = (int)(keys - block->key0 < HEED_KEYS ? keys - block->key0 : HEED_KEYS);
        block->cols = (int)heed_round_up(block->count, HEED_SUB);
        pack_block(run, pipeline, work);
        const int64_t next = next_block(work, at->heads, b + 1, blocks, all_blocks);
        for (int h = 0; h < at->heads; h++) {
            const uint8_t state = work->state[h * all_blocks + b];
            if (state == HEED_CLOSED)
                continue;
            if (pipeline->keys_by_head)
                heed_pack_keys(run, pipeline, work->query[h].head, block, &work->rows);
            for (int strip = 0; strip < rows; strip += HEED_STRIP) {
                const int share = (int)((int64_t)HEED_KEYS * strip / rows),
                          until = (int)((int64_t)HEED_KEYS * (strip + HEED_STRIP) / rows);
                if (h == 0 && next < blocks)
                    heed_prefetch_keys(run, at->batch, at->group, next * HEED_KEYS + share, until - share);
                meet(run, pipeline, work, &work->query[h], strip, (int64_t)h * padded + strip, state, keep);
            }
        }
    }
    for (int h = 0; h < at->heads; h++) {
        finish(run, pipeline, work, &work->query[h], (int64_t)h * padded);
        if (keep)
            sweep_kept(run, pipeline, work, &work->query[h], (int64_t)h * padded,
                       key_sums ? key_sums + work->query[h].head * plan->problem.keys : NULL);
    }
}

void heed_flash_forward(const heed_run *run, const heed_pipeline *pipeline)
{
    const heed_plan *plan = run->plan;
    const heed_problem *problem = &plan->problem;
    const int64_t blocks = (problem->queries + pipeline->query_block - 1) / pipeline->query_block;
    const int64_t segments = pipeline->segments ? pipeline->segments : blocks;
    const int64_t pieces = problem->batch * problem->kv_heads * segments;
    float *sums = run->extra->capture.key_sums ? (float *)run->shared : NULL;
    const int64_t heads_keys = problem->heads * problem->keys;
    if (sums)
        memset(sums, 0, (size_t)(segments * problem->batch * heads_keys) * sizeof(float));

#pragma omp parallel num_threads(plan->problem.threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        flash_work work = take_work(&arena, plan, pipeline);
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < pieces; n++) {
            /* the last blocks first: under a causal mask they are the longest */
            const int64_t segment = segments - 1 - n / (problem->batch * problem->kv_heads);
            const int64_t rest = n % (problem->batch * problem->kv_heads);
            const int batch = (int)(rest / problem->kv_heads), group = (int)(rest % problem->kv_heads);
            const int first = pipeline->group_first[group];
            const piece at = {.batch = batch,
                              .group = group,
                              .first_head = first,
                              .heads = pipeline->group_first[group + 1] - first,
                              .segment = (int)segment};
            if (at.heads == 0)
                continue;
            float *key_sums = NULL;
            if (sums)
                key_sums = sums + (segment * problem->batch + batch) * heads_keys;
            for (int64_t b = segment; b < blocks; b += segments)
                run_block(run, pipeline, &at, b * pipeline->query_block, &work, key_sums);
        }
    }
    if (!sums)
        return;
    for (int64_t b = 0; b < problem->batch; b++)
        for (int n = 0; n < pipeline->heads_here; n++) {
            const int64_t at = b * heads_keys + pipeline->head[n] * problem->keys;
            for (int64_t s = 0; s < segments; s++)
                for (int64_t j = 0; j < problem->keys; j++)
                    run->extra->capture.key_sums[at + j] += sums[s * problem->batch * heads_keys + at + j];
        }
}
