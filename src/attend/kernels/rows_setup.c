/* Memory of the rows kernel, and what it makes of queries and keys before they meet. */
#include "attend/kernels/choose.h"
#include "attend/kernels/rows.h"
#include <string.h>

/* Planes of a thread stay below this, which is about what caches hold. */
#define PLANE_BYTES (4096 * 1024)
#define MOST_ROWS 64
#define FEWEST_ROWS 16 /* below this, heads that share keys go one after the other */

/* ---- memory ---- */

typedef struct planes {
    bool seen, scored, weight;
    int kept;
} planes;

static bool any_has(const heed_pipeline *pipeline, const int *which, int count, unsigned flag)
{
    for (int n = 0; n < count; n++)
        if (pipeline->form[which[n]].form->flags & flag)
            return true;
    return false;
}

static planes planes_of(const heed_pipeline *pipeline, bool backward)
{
    const bool mix = heed_rows_mix(pipeline);
    return (planes){.seen = mix || any_has(pipeline, pipeline->adjust, pipeline->adjusts, HEED_WHOLE_ROW),
                    .scored = backward && mix,
                    .weight = backward && mix,
                    .kept = backward ? pipeline->kept_planes : 0};
}

static int64_t blocks_of(const heed_plan *plan)
{
    return (plan->problem.keys + HEED_KEYS - 1) / HEED_KEYS;
}

/* A cache line more than whole blocks, so that the rows of a column do not all fall into one set of a cache.
 */
static int64_t stride_of(const heed_plan *plan)
{
    return blocks_of(plan) * HEED_KEYS + 16;
}

/* Rows of score planes that fit, all heads together. */
static int64_t rows_that_fit(const heed_plan *plan, const heed_pipeline *pipeline, bool backward)
{
    const planes p = planes_of(pipeline, backward);
    const int floats = 1 + backward + p.scored + p.weight + p.kept;
    return PLANE_BYTES / (stride_of(plan) * (4 * floats + 1 + p.seen));
}

int heed_rows_heads(const heed_plan *plan, const heed_pipeline *pipeline, bool backward)
{
    if (heed_rows_mix(pipeline))
        return pipeline->heads_here;
    const int most = heed_most_heads(plan, pipeline);
    if (pipeline->by_group) /* they choose together */
        return most;
    const int64_t fit = rows_that_fit(plan, pipeline, backward) / FEWEST_ROWS;
    return fit < 1 ? 1 : fit < most ? (int)fit : most;
}

int heed_rows_at_once(const heed_plan *plan, const heed_pipeline *pipeline, bool backward)
{
    const int64_t queries = heed_round_up(plan->problem.queries, HEED_STRIP);
    int64_t rows = rows_that_fit(plan, pipeline, backward) / heed_rows_heads(plan, pipeline, backward);
    rows = rows < MOST_ROWS ? rows : MOST_ROWS;
    rows = rows < queries ? rows : queries;
    return (int)(rows < HEED_STRIP ? HEED_STRIP : rows / HEED_STRIP * HEED_STRIP);
}

static int64_t summary_floats(const heed_pipeline *pipeline)
{
    int64_t floats = 0;
    for (int n = 0; n < pipeline->selects; n++) {
        const heed_form_state *form = &pipeline->form[pipeline->select[n]];
        if (form->form->summary_floats)
            floats += form->form->summary_floats(form, pipeline->row_dim, form->sizes.keys);
    }
    return floats;
}

static heed_row_head take_head(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                               const heed_rows_work *work, int query_block, bool backward)
{
    const size_t queries = (size_t)heed_round_up(query_block, HEED_STRIP), rows = (size_t)work->block;
    const size_t plane = rows * (size_t)work->stride;
    const planes p = planes_of(pipeline, backward);
    heed_row_head head = {0};
    head.query.pos = heed_arena_take(arena, queries, sizeof(int32_t));
    head.query.prepared =
        heed_arena_take(arena, queries * (size_t)heed_row_stride(plan, pipeline), sizeof(float));
    head.query.aux = heed_arena_take(arena, queries * (size_t)pipeline->aux_floats, sizeof(float));
    head.state = heed_arena_take(arena, (size_t)work->blocks, 1);
    head.open = heed_arena_take(arena, plane, 1);
    head.seen = p.seen ? heed_arena_take(arena, plane, 1) : NULL;
    head.score = heed_arena_take(arena, plane, sizeof(float));
    const struct {
        float **plane;
        int wanted;
    } more[] = {
        {&head.dscore, backward}, {&head.scored, p.scored}, {&head.weight, p.weight}, {&head.kept, p.kept}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        *more[i].plane =
            more[i].wanted ? heed_arena_take(arena, (size_t)more[i].wanted * plane, sizeof(float)) : NULL;
    float **row[] = {&head.max, &head.sum, &head.count, &head.norm, &head.lse};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        *row[i] = heed_arena_take(arena, rows, sizeof(float));
    head.end = heed_arena_take(arena, rows, sizeof *head.end);
    head.aux = heed_arena_take(arena, rows * 4, sizeof(float));
    head.broken = heed_arena_take(arena, rows, 1);
    if (!backward)
        head.out = heed_arena_take(arena, rows * (size_t)heed_value_stride(plan), sizeof(float));
    return head;
}

heed_rows_work heed_take_rows(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                              int query_block, bool backward)
{
    heed_rows_work work = {.most_heads = heed_rows_heads(plan, pipeline, backward),
                           .block = heed_rows_at_once(plan, pipeline, backward),
                           .stride = stride_of(plan),
                           .blocks = blocks_of(plan)};
    const size_t heads = (size_t)work.most_heads, cols = (size_t)work.stride;
    const size_t row = (size_t)heed_row_stride(plan, pipeline) * HEED_KEY_STRIDE;
    const size_t value = (size_t)heed_value_stride(plan) * HEED_KEY_STRIDE;
    const int64_t summary = summary_floats(pipeline);
    work.keys.pos = heed_arena_take(arena, HEED_KEYS, sizeof(int32_t));
    work.keys.transposed = heed_arena_take(arena, row, sizeof(float));
    work.keys.value = heed_arena_take(arena, value, sizeof(float));
    if (backward)
        work.keys.value_transposed = heed_arena_take(arena, value, sizeof(float));
    if (backward || summary > 0)
        work.natural = heed_arena_take(arena, row, sizeof(float));
    work.key_pos = heed_arena_take(arena, cols, sizeof(int32_t));
    work.visible = heed_arena_take(arena, (size_t)work.blocks, 1);
    float *lines = heed_arena_take(arena, 3 * cols, sizeof(float));
    for (int i = 0; i < 3 && lines; i++)
        work.line[i] = lines + i * work.stride;
    if (pipeline->votes >= 0) {
        work.carried = heed_arena_take(arena, cols, sizeof(float));
        work.blame = heed_arena_take(arena, cols, sizeof(float));
    }
    work.rescale = heed_arena_take(arena, (cols / HEED_ROW_TILE + 1) * HEED_STRIP, sizeof(float));
    for (int i = 0; i < 2; i++)
        work.plane[i] = heed_arena_take(arena, heads, sizeof(float *));
    if (heed_rows_mix(pipeline))
        work.mix = heed_arena_take(arena, 2 * heads * HEED_STRIP * HEED_KEYS, sizeof(float));
    work.summary = heed_arena_take(arena, heads * (size_t)summary, sizeof(float));
    work.summary_of = heed_arena_take(arena, heads, sizeof(int64_t));
    work.block_query = heed_arena_take(arena, heads, sizeof *work.block_query);
    for (int h = 0; h < work.most_heads; h++) {
        float *query = heed_arena_take(arena, (size_t)heed_block_floats(pipeline), sizeof *query);
        if (arena->base)
            work.block_query[h] = query;
    }
    work.head = heed_arena_take(arena, heads, sizeof *work.head);
    for (int h = 0; h < work.most_heads; h++) {
        const heed_row_head head = take_head(arena, plan, pipeline, &work, query_block, backward);
        if (arena->base) {
            work.head[h] = head;
            work.summary_of[h] = -1;
        }
    }
    work.rows = heed_take_row_work(arena, plan, query_block);
    work.sight = heed_take_sight(arena, plan);
    return work;
}

/* ---- keys ---- */

/* What heads share keys by: the query head where keys are prepared by query head, else the kv head. */
static int64_t key_head_of(const heed_pipeline *pipeline, const heed_row_head *head)
{
    return pipeline->keys_by_head ? head->query.head : head->group;
}

static void point_at_block(const heed_run *run, heed_rows_work *work, int group, int64_t block)
{
    heed_key_block *keys = &work->keys;
    const int64_t left = heed_key_count(run, work->batch, group) - block * HEED_KEYS;
    keys->batch = work->batch;
    keys->group = group;
    keys->key0 = block * HEED_KEYS;
    keys->count = (int)(left < HEED_KEYS ? left : HEED_KEYS);
    keys->cols = (int)heed_round_up(keys->count, HEED_SUB);
}

void heed_rows_pack_keys(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                         const heed_row_head *head, int64_t block, bool natural)
{
    const int64_t wanted = key_head_of(pipeline, head) * work->blocks + block;
    point_at_block(run, work, head->group, block);
    if (work->packed_key == wanted && (work->packed_natural || !natural))
        return;
    work->packed_key = wanted;
    work->packed_natural = natural;
    work->keys.natural = natural ? work->natural : NULL;
    heed_pack_keys(run, pipeline, head->query.head, &work->keys, &work->rows);
}

void heed_rows_pack_values(const heed_run *run, heed_rows_work *work, const heed_row_head *head,
                           int64_t block)
{
    const int64_t wanted = head->group * work->blocks + block;
    point_at_block(run, work, head->group, block);
    if (work->packed_value == wanted)
        return;
    work->packed_value = wanted;
    heed_pack_values(run, &work->keys);
}

/* Positions of all keys that exist, and on beyond them. The heads at hand share them: they read one kv head,
 * or kv heads do not differ. */
static void place_keys(const heed_run *run, heed_rows_work *work)
{
    const int group = work->head[0].group;
    const int64_t count = heed_key_count(run, work->batch, group);
    const int32_t *pos = heed_key_positions(run, work->batch, group);
    memcpy(work->key_pos, pos, (size_t)count * sizeof *pos);
    for (int64_t j = count; j < work->stride; j++) {
        const int32_t before = j > 0 ? work->key_pos[j - 1] : -1;
        work->key_pos[j] = before < HEED_POSITION_LIMIT ? before + 1 : before;
    }
    work->contiguous = run->default_positions || heed_runs_by_one(work->key_pos, (int)work->stride);
}

/* Shows the selectors all keys that a head meets. Kept until another head's keys take the place. */
static void summarise_keys(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, int h)
{
    const heed_plan *plan = run->plan;
    const int64_t floats = summary_floats(pipeline), key_heads = plan->problem.heads; /* at most */
    if (floats == 0)
        return;
    heed_row_head *head = &work->head[h];
    const int64_t key_head = key_head_of(pipeline, head);
    const int64_t wanted = work->batch * key_heads + key_head;
    head->summary = work->summary + h * floats;
    if (h > 0 && key_head_of(pipeline, head - 1) == key_head) {
        head->summary = head[-1].summary;
        return;
    }
    if (work->summary_of[h] == wanted)
        return;
    work->summary_of[h] = wanted;
    for (int64_t b = 0; b * HEED_KEYS < heed_key_count(run, work->batch, head->group); b++) {
        heed_rows_pack_keys(run, pipeline, work, head, b, true);
        const heed_rows keys = {.count = work->keys.count,
                                .dim = pipeline->row_dim,
                                .batch = work->batch,
                                .head = (int)key_head,
                                .pos = work->keys.pos,
                                .contiguous = work->keys.contiguous,
                                .in = work->keys.natural,
                                .in_stride = heed_row_stride(plan, pipeline)};
        float *summary = work->summary + h * floats;
        for (int n = 0; n < pipeline->selects; n++) {
            const heed_form_state *form = &pipeline->form[pipeline->select[n]];
            if (!form->form->summary_floats)
                continue;
            form->form->summarise(form, &keys, work->keys.key0, summary);
            summary += form->form->summary_floats(form, pipeline->row_dim, form->sizes.keys);
        }
    }
}

void heed_rows_begin(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, int batch,
                     int first_head, int heads, int64_t query0, int rows)
{
    work->batch = batch;
    work->heads = heads;
    work->packed_key = work->packed_value = -1;
    for (int h = 0; h < heads; h++)
        work->head[h].group = (int)heed_kv_head_of(run->plan, pipeline->head[first_head + h]);
    place_keys(run, work);
    for (int h = 0; h < heads; h++) {
        heed_query_block *query = &work->head[h].query;
        const int64_t head = pipeline->head[first_head + h];
        query->batch = batch;
        query->head = (int)head;
        query->query0 = query0;
        query->rows = rows;
        heed_prepare_queries(run, pipeline, query, &work->rows);
    }
    for (int h = 0; h < heads; h++)
        summarise_keys(run, pipeline, work, h);
}
