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
#include "attend/kernels/capture.h"
#include "attend/kernels/flash_work.h"
#include "attend/kernels/pairs.h"
#include <string.h>

#define MOST_CACHED ((size_t)16 << 20) /* bytes of packed keys and values that a thread keeps */

static int padded_block(const heed_pipeline *pipeline)
{
    return (int)heed_round_up(pipeline->query_block, HEED_STRIP);
}

static size_t key_floats(const heed_plan *plan, const heed_pipeline *pipeline)
{
    return (size_t)heed_row_stride(plan, pipeline) * HEED_KEY_STRIDE;
}

static size_t value_floats(const heed_plan *plan)
{
    return (size_t)heed_value_stride(plan) * HEED_KEYS;
}

/* Whether packed blocks are kept for the other queries of the head: where open blocks lie scattered, few
 * queries share a block at a time, and packing it again for each would cost as much as using it. */
static bool keeps_blocks(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const size_t blocks = (size_t)((plan->problem.keys + HEED_KEYS - 1) / HEED_KEYS);
    const size_t bytes = blocks * (key_floats(plan, pipeline) + value_floats(plan)) * sizeof(float);
    const bool again = pipeline->kernel == HEED_KERNEL_SPARSE || heed_sweeps(plan, pipeline);
    return again && !pipeline->keys_by_head && !pipeline->fast_products && bytes <= MOST_CACHED;
}

static heed_flash_work take_work(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline)
{
    const int heads = heed_most_heads(plan, pipeline), block = padded_block(pipeline);
    const size_t rows = (size_t)heads * (size_t)block;
    const size_t blocks = (size_t)((plan->problem.keys + HEED_KEYS - 1) / HEED_KEYS);
    const int64_t stride = heed_row_stride(plan, pipeline), aux = pipeline->aux_floats;
    heed_flash_work work = {.all_rows = (int64_t)rows, .subs = (int64_t)blocks * HEED_SUBS};
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
    work.state = heed_arena_take(arena, (size_t)heads * (size_t)work.subs, 1);
    work.end = heed_arena_take(arena, rows, sizeof *work.end);
    if (heed_sweeps(plan, pipeline)) {
        work.kept_stride = (int64_t)blocks * HEED_KEYS + 16;
        work.kept = heed_arena_take(arena, rows * (size_t)work.kept_stride, sizeof(float));
        work.kept_rescale = heed_arena_take(arena, rows * blocks, sizeof(float));
    }
    if (keeps_blocks(plan, pipeline)) {
        work.cached_key = heed_arena_take(arena, blocks * key_floats(plan, pipeline), sizeof(float));
        work.cached_value = heed_arena_take(arena, blocks * value_floats(plan), sizeof(float));
        work.cached = heed_arena_take(arena, blocks, 1);
        work.cached_batch = work.cached_group = -1;
    }
    work.choice = heed_take_flash_choice(arena, plan, pipeline, (int)rows);
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
    heed_take_shared_choice(&arena, plan, pipeline);
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
    const heed_flash_shared_choice *shared;
} piece;

static void add_values_where_open(const heed_run *run, const heed_key_block *keys, const uint8_t *open,
                                  int first, int cols, int rows, const float *weight, int64_t weight_stride,
                                  float *sum)
{
    const int64_t stride = heed_value_stride(run->plan);
    for (int i = 0; i < rows; i++)
        for (int j = first; j < first + cols; j++) {
            if (!open[i * HEED_KEYS + j])
                continue;
            const float w = weight[i * weight_stride + j - first];
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

/* Columns of the packed block with anything open, and whether some pair among them may be closed. */
typedef struct heed_reach {
    int first, last;
    bool partly;
} heed_reach;

static heed_reach reach_of(const uint8_t *sub, int subs)
{
    int low = 0, high = subs;
    heed_reach reach = {0};
    while (low < high && sub[low] == HEED_CLOSED)
        low++;
    while (high > low && sub[high - 1] == HEED_CLOSED)
        high--;
    for (int s = low; s < high; s++)
        reach.partly |= sub[s] != HEED_OPEN;
    reach.first = low * HEED_SUB;
    reach.last = high * HEED_SUB;
    return reach;
}

static void close_kept(float *row, int64_t first, int64_t last)
{
    for (int64_t j = first; j < last; j++)
        row[j] = HEED_CLOSED_WEIGHT;
}

/* Kept weights of a strip in the current block of keys outside the columns first..last are of closed pairs.
 */
static void clear_kept(heed_flash_work *work, int64_t row0, int rows, int64_t first, int64_t last)
{
    const int64_t block = work->keys.key0 / HEED_KEYS * HEED_KEYS;
    for (int i = 0; i < rows; i++) {
        float *row = work->kept + (row0 + i) * work->kept_stride;
        close_kept(row, block, first);
        close_kept(row, last, block + HEED_KEYS);
    }
}

static bool has_closed(const heed_tile *tile)
{
    const heed_vec least = (heed_vec){0} - INFINITY;
    heed_vec most = least; /* of -score, passing over NaN */
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j += HEED_WIDTH)
            most = heed_vec_max(-heed_vec_load(tile->score + i * tile->stride + j), most);
    bool closed = false;
    for (int l = 0; l < HEED_WIDTH; l++)
        closed |= most[l] == INFINITY;
    return closed;
}

static void note_open(const heed_tile *tile, uint8_t *open)
{
    for (int i = 0; i < tile->rows; i++) {
        const float *restrict score = tile->score + i * tile->stride;
        uint8_t *restrict to = open + i * HEED_KEYS;
        for (int j = 0; j < tile->cols; j++)
            to[j] = score[j] != -INFINITY;
    }
}

static void mark_closed(const heed_tile *tile, const uint8_t *open)
{
    for (int i = 0; i < tile->rows; i++) {
        float *restrict weight = tile->score + i * tile->stride;
        const uint8_t *restrict was = open + i * HEED_KEYS;
        for (int j = 0; j < tile->cols; j++)
            weight[j] = was[j] ? weight[j] : HEED_CLOSED_WEIGHT;
    }
}

static void count_open(const heed_tile *tile, float *count)
{
    for (int i = 0; i < tile->rows; i++) {
        const float *score = tile->score + i * tile->stride;
        float open = 0.0f;
        for (int j = 0; j < tile->cols; j++)
            open += score[j] != -INFINITY ? 1.0f : 0.0f;
        count[i] += open;
    }
}

static void note_read(const heed_run *run, const heed_tile *tile)
{
    int64_t open = 0;
    for (int i = 0; run->extra->capture.pairs && i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++)
            open += tile->score[i * tile->stride + j] != -INFINITY;
    heed_note_read(run, open);
}

/* One strip of a head against the packed block. row0: the strip's first row among all rows of the piece; sub:
 * what the whole block of queries sees of each run of keys, which settles it for the strip unless some run is
 * partly open. */
static void meet(const heed_run *run, const heed_pipeline *pipeline, heed_flash_work *work,
                 const heed_query_block *query, int strip0, int64_t row0, const uint8_t *sub, bool keep)
{
    const heed_plan *plan = run->plan;
    const heed_key_block *keys = &work->keys;
    const int rows = query->rows - strip0 < HEED_STRIP ? query->rows - strip0 : HEED_STRIP;
    const int subs = keys->cols / HEED_SUB;
    const int64_t value_stride = heed_value_stride(plan);
    if (memchr(sub, HEED_PARTLY, (size_t)subs)) {
        const heed_query_range range = heed_range_of(run, query, strip0, rows);
        sub = heed_sub_states(run, pipeline, &range, keys->key0, keys->cols, &work->sight);
    }
    uint8_t chosen[HEED_SUBS];
    bool cut = false;
    if (work->choice.of.state) {
        cut = heed_flash_narrow(work, row0, rows, keys->key0, sub, subs, chosen);
        sub = chosen;
    }
    const heed_reach reach = reach_of(sub, subs);
    const int first = reach.first, last = reach.last;
    float *rescale =
        keep ? work->kept_rescale + keys->key0 / HEED_KEYS * work->all_rows + row0 : work->rescale + row0;
    if (keep)
        clear_kept(work, row0, rows, keys->key0 + first, keys->key0 + last);
    if (first == last) {
        for (int i = 0; i < rows; i++)
            rescale[i] = 1.0f;
        return;
    }
    heed_tile tile = heed_tile_of(run, pipeline, query, strip0, rows, keys, first, last - first);
    tile.score = keep ? work->kept + row0 * work->kept_stride + keys->key0 + first : work->score;
    tile.stride = keep ? work->kept_stride : HEED_KEYS;
    if (pipeline->fast_products)
        heed_bf16_scores(pipeline, &work->bf16, &tile, first);
    else
        heed_scores(pipeline, &tile);
    heed_adjust(pipeline, pipeline->adjust, pipeline->adjusts, &tile, query, strip0, (heed_kept){0});
    const uint8_t *open = reach.partly ? heed_mask_tile(run, pipeline, &tile, &work->sight) : NULL;
    if (open || last > keys->count)
        heed_close(&tile, open, HEED_KEYS, keys->count - first);
    if (cut)
        heed_flash_cut(work, row0, keys->key0 + keys->count, &tile);
    if (work->choice.of.state)
        note_read(run, &tile);
    const bool mark = keep && has_closed(&tile);
    if (mark || !keys->value_finite)
        note_open(&tile, work->was_open + first);
    heed_adjust(pipeline, pipeline->modify, pipeline->modifies, &tile, query, strip0, (heed_kept){0});
    heed_add_mass(run, &tile);

    const heed_form_state *normalise = &pipeline->form[pipeline->normalise];
    heed_row_sums sums = {.max = work->max + row0,
                          .sum = work->norm_sum + row0,
                          .count = work->count + row0,
                          .rescale = rescale,
                          .moment = run->extra->capture.entropy ? work->moment + row0 : NULL};
    if (normalise->form->flags & HEED_COUNTS_OPEN)
        count_open(&tile, sums.count);
    normalise->form->online(normalise, &tile, &sums);

    float *sum = work->sum + row0 * value_stride;
    rescale_rows(sum, value_stride, heed_value_cols(plan), rows, sums.rescale);
    if (keys->value_finite && pipeline->fast_products)
        heed_bf16_accumulate(plan, &work->bf16, &tile, first, sum);
    else if (keys->value_finite)
        heed_accumulate(HEED_STRIP, tile.cols, tile.score, tile.stride, 1, keys->value + first * value_stride,
                        value_stride, sum, value_stride, heed_value_cols(plan));
    else
        add_values_where_open(run, keys, work->was_open, first, tile.cols, rows, tile.score, tile.stride,
                              sum);
    if (mark)
        mark_closed(&tile, work->was_open + first);
}

/* What all heads of the piece together see of a block. */
static void seen_by_all(const heed_flash_work *work, int heads, int64_t block, uint8_t seen[HEED_SUBS])
{
    memset(seen, HEED_CLOSED, HEED_SUBS);
    for (int h = 0; h < heads; h++)
        for (int s = 0; s < HEED_SUBS; s++)
            seen[s] |= work->state[h * work->subs + block * HEED_SUBS + s];
}

/* The next block of keys that any head sees. */
static int64_t next_block(const heed_flash_work *work, int heads, int64_t b, int64_t blocks)
{
    for (; b < blocks; b++)
        for (int h = 0; h < heads; h++)
            if (heed_seen(work->state + h * work->subs + b * HEED_SUBS))
                return b;
    return blocks;
}

/* Keys and values as the products of this pipeline want them. */
static void pack_block(const heed_run *run, const heed_pipeline *pipeline, heed_flash_work *work)
{
    heed_key_block *block = &work->keys;
    if (!pipeline->fast_products) {
        heed_pack_values(run, block);
        if (!pipeline->keys_by_head)
            heed_pack_keys(run, pipeline, 0, block, &work->rows);
        return;
    }
    heed_place_keys(run, block);
    heed_will_read(run, block->batch, block->group, block->key0, block->count, HEED_READS_NOW);
    heed_bf16_keys(run, block, &work->bf16);
    heed_bf16_values(run, block, &work->bf16);
    if (!block->value_finite)
        heed_pack_values(run, block); /* values that are not finite are read one by one */
}

/* Prepares the queries of all heads and finds what they see. */
static void begin_block(const heed_run *run, const heed_pipeline *pipeline, const piece *at, int64_t query0,
                        int rows, heed_flash_work *work)
{
    const int padded = padded_block(pipeline);
    for (int h = 0; h < at->heads; h++) {
        heed_query_block *query = &work->query[h];
        query->batch = at->batch;
        query->head = pipeline->head[at->first_head + h];
        query->query0 = query0;
        query->rows = rows;
        heed_prepare_queries(run, pipeline, query, &work->rows);
        if (pipeline->fast_products)
            heed_bf16_queries(run, pipeline, query);
        const heed_query_range range = heed_range_of(run, query, 0, rows);
        uint8_t *state = work->state + h * work->subs;
        memset(state, HEED_CLOSED, (size_t)work->subs);
        const int64_t subs = heed_round_up(heed_key_count(run, at->batch, at->group), HEED_SUB) / HEED_SUB;
        memcpy(state, heed_all_sub_states(run, pipeline, &range, &work->sight), (size_t)subs);
    }
    if (work->choice.of.state)
        heed_flash_choose(run, pipeline, at->shared, at->heads, rows, padded, work);
    for (int64_t r = 0; r < (int64_t)at->heads * padded; r++) {
        work->max[r] = -INFINITY;
        work->norm_sum[r] = work->count[r] = work->moment[r] = 0.0f;
    }
    memset(work->sum, 0, (size_t)(at->heads * padded * heed_value_stride(run->plan)) * sizeof(float));
}

/* The same block, kept from an earlier visit or packed now. */
static int pack_cached(const heed_run *run, const heed_pipeline *pipeline, const piece *at, int64_t b,
                       heed_flash_work *work)
{
    heed_key_block *block = &work->keys;
    const int64_t left = heed_key_count(run, at->batch, at->group) - b * HEED_KEYS;
    if (work->cached_batch != at->batch || work->cached_group != at->group) {
        memset(work->cached, 0, (size_t)(work->subs / HEED_SUBS));
        work->cached_batch = at->batch;
        work->cached_group = at->group;
    }
    *block = (heed_key_block){.batch = at->batch,
                              .group = at->group,
                              .key0 = b * HEED_KEYS,
                              .count = (int)(left < HEED_KEYS ? left : HEED_KEYS),
                              .pos = block->pos,
                              .transposed = work->cached_key + (size_t)b * key_floats(run->plan, pipeline),
                              .value = work->cached_value + (size_t)b * value_floats(run->plan)};
    block->cols = (int)heed_round_up(block->count, HEED_SUB);
    if (work->cached[b]) {
        heed_place_keys(run, block);
        block->value_finite = work->cached[b] == 2;
    } else {
        pack_block(run, pipeline, work);
        work->cached[b] = (uint8_t)(1 + block->value_finite);
    }
    return 0;
}

/* Packs what is seen of block b. Returns the first of its runs that is packed, or -1 when nothing is seen. */
static int pack_seen(const heed_run *run, const heed_pipeline *pipeline, const piece *at, int64_t b,
                     heed_flash_work *work)
{
    uint8_t seen[HEED_SUBS];
    seen_by_all(work, at->heads, b, seen);
    const heed_reach reach = reach_of(seen, HEED_SUBS);
    if (reach.first == reach.last)
        return -1;
    if (work->cached)
        return pack_cached(run, pipeline, at, b, work);
    heed_key_block *block = &work->keys;
    block->batch = at->batch;
    block->group = at->group;
    block->key0 = b * HEED_KEYS + reach.first;
    const int64_t left = heed_key_count(run, at->batch, at->group) - block->key0;
    block->count = (int)(left < reach.last - reach.first ? left : reach.last - reach.first);
    block->cols = (int)heed_round_up(block->count, HEED_SUB);
    pack_block(run, pipeline, work);
    return reach.first / HEED_SUB;
}

static void run_block(const heed_run *run, const heed_pipeline *pipeline, const piece *at, int64_t query0,
                      heed_flash_work *work, float *key_sums)
{
    const int64_t here = run->query_count[at->batch] - query0;
    const int rows = (int)(here < pipeline->query_block ? here : pipeline->query_block);
    if (rows <= 0)
        return;
    const int padded = padded_block(pipeline);
    const int64_t blocks = (heed_key_count(run, at->batch, at->group) + HEED_KEYS - 1) / HEED_KEYS;
    const bool keep = heed_flash_keeps(run, pipeline);
    begin_block(run, pipeline, at, query0, rows, work);
    for (int64_t b = 0; b < blocks; b++) {
        const int packed = pack_seen(run, pipeline, at, b, work);
        if (packed < 0)
            continue;
        const int64_t next = next_block(work, at->heads, b + 1, blocks);
        if (next < blocks)
            heed_will_read(run, at->batch, at->group, next * HEED_KEYS,
                           heed_keys_in_block(run, at->batch, at->group, next), HEED_READS_NEXT);
        for (int h = 0; h < at->heads; h++) {
            const uint8_t *sub = work->state + h * work->subs + b * HEED_SUBS;
            if (!heed_seen(sub))
                continue;
            if (pipeline->keys_by_head)
                heed_pack_keys(run, pipeline, work->query[h].head, &work->keys, &work->rows);
            for (int strip = 0; strip < rows; strip += HEED_STRIP) {
                /* the next block comes into the cache a share at a time */
                const int from = HEED_KEYS * strip / rows, until = HEED_KEYS * (strip + HEED_STRIP) / rows;
                if (h == 0 && next < blocks && !work->cached)
                    heed_prefetch_keys(run, at->batch, at->group, next * HEED_KEYS + from, until - from);
                meet(run, pipeline, work, &work->query[h], strip, (int64_t)h * padded + strip, sub + packed,
                     keep);
            }
        }
    }
    for (int h = 0; h < at->heads; h++) {
        heed_flash_finish(run, pipeline, work, &work->query[h], (int64_t)h * padded);
        if (keep)
            heed_flash_sweep(run, pipeline, work, &work->query[h], (int64_t)h * padded,
                             key_sums ? key_sums + work->query[h].head * run->plan->problem.keys : NULL);
    }
}

void heed_flash_forward(const heed_run *run, const heed_pipeline *pipeline)
{
    const heed_plan *plan = run->plan;
    const heed_problem *problem = &plan->problem;
    const int64_t blocks = (problem->queries + pipeline->query_block - 1) / pipeline->query_block;
    const int64_t segments = pipeline->segments ? pipeline->segments : blocks;
    const int64_t pieces = problem->batch * problem->kv_heads * segments;
    heed_arena shared_arena = {.base = run->shared};
    const heed_flash_shared_choice shared = heed_take_shared_choice(&shared_arena, plan, pipeline);
    float *sums = run->extra->capture.key_sums ? (float *)(void *)(run->shared + shared_arena.used) : NULL;
    const int64_t heads_keys = problem->heads * problem->keys, kv = problem->batch * problem->kv_heads;
    const bool by_head = keeps_blocks(plan, pipeline);
    const int64_t share = (pieces + problem->threads - 1) / problem->threads;
    const int chunk = by_head ? (int)(share < segments ? share : segments) + (pieces == 0) : 1;
    if (sums)
        memset(sums, 0, (size_t)(segments * problem->batch * heads_keys) * sizeof(float));

#pragma omp parallel num_threads(plan->problem.threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        heed_flash_work work = take_work(&arena, plan, pipeline);
        if (pipeline->selects > 0)
            heed_flash_observe(run, pipeline, &shared, &work);
#pragma omp for schedule(dynamic, chunk)
        for (int64_t n = 0; n < pieces; n++) {
            /* The last blocks first: under a causal mask they are the longest. Kept blocks serve one kv head.
             */
            const int64_t segment = segments - 1 - (by_head ? n % segments : n / kv);
            const int64_t rest = by_head ? n / segments : n % kv;
            const int batch = (int)(rest / problem->kv_heads), group = (int)(rest % problem->kv_heads);
            const int first = pipeline->group_first[group];
            const piece at = {.batch = batch,
                              .group = group,
                              .first_head = first,
                              .heads = pipeline->group_first[group + 1] - first,
                              .segment = (int)segment,
                              .shared = &shared};
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
