/* The rows kernel up to final weights: scores tile by tile, then the stages that see complete rows. */
#include "attend/kernels/rows.h"
#include <string.h>

#define PLANE_BYTES (1536 * 1024) /* planes of a thread stay below this, so that they stay in the second cache */
#define MOST_ROWS 64
#define FEWEST_ROWS 16   /* below this, heads that share keys go one after the other */
#define ONLINE_COLS 1024 /* columns of a tile for online normalisers */

/* ---- memory ---- */

typedef struct planes {
    bool seen, scored, logit, weight, kept, kept_modify;
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
    bool reads_scores = mix;
    for (int n = 0; n < pipeline->adjusts; n++)
        reads_scores |= pipeline->form[pipeline->adjust[n]].form->adjust_backward != NULL;
    return (planes){
        .seen = mix || any_has(pipeline, pipeline->adjust, pipeline->adjusts, HEED_WHOLE_ROW),
        .scored = backward && reads_scores,
        .logit = backward && pipeline->modifies > 0,
        .weight = backward && mix,
        .kept = backward && any_has(pipeline, pipeline->adjust, pipeline->adjusts, HEED_KEEPS_INPUT),
        .kept_modify = backward && any_has(pipeline, pipeline->modify, pipeline->modifies, HEED_KEEPS_INPUT)};
}

static int64_t stride_of(const heed_plan *plan)
{
    return heed_round_up(plan->problem.keys > 0 ? plan->problem.keys : 1, HEED_KEYS);
}

/* Rows of score planes that fit, all heads together. */
static int64_t rows_that_fit(const heed_plan *plan, const heed_pipeline *pipeline, bool backward)
{
    const planes p = planes_of(pipeline, backward);
    const int floats = 1 + backward + p.scored + p.logit + p.weight + p.kept + p.kept_modify;
    return PLANE_BYTES / (stride_of(plan) * (4 * floats + 1 + p.seen));
}

int heed_rows_heads(const heed_plan *plan, const heed_pipeline *pipeline, bool backward)
{
    if (heed_rows_mix(pipeline))
        return pipeline->heads_here;
    const int most = heed_most_heads(plan, pipeline);
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
            floats += form->form->summary_floats(form, pipeline->row_dim);
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
    head.query.prepared = heed_arena_take(arena, queries * (size_t)heed_row_stride(plan, pipeline), sizeof(float));
    head.query.aux = heed_arena_take(arena, queries * (size_t)pipeline->aux_floats, sizeof(float));
    head.state = heed_arena_take(arena, (size_t)(work->stride / HEED_KEYS), 1);
    head.open = heed_arena_take(arena, plane, 1);
    head.seen = p.seen ? heed_arena_take(arena, plane, 1) : NULL;
    head.score = heed_arena_take(arena, plane, sizeof(float));
    const struct {
        float **plane;
        bool wanted;
    } more[] = {{&head.dscore, backward}, {&head.scored, p.scored}, {&head.logit, p.logit},
                {&head.weight, p.weight}, {&head.kept, p.kept},     {&head.kept_modify, p.kept_modify}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        *more[i].plane = more[i].wanted ? heed_arena_take(arena, plane, sizeof(float)) : NULL;
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
                           .stride = stride_of(plan)};
    const size_t heads = (size_t)work.most_heads, cols = (size_t)work.stride;
    const size_t row = (size_t)heed_row_stride(plan, pipeline) * HEED_KEYS;
    const size_t value = (size_t)heed_value_stride(plan) * HEED_KEYS;
    const int64_t summary = summary_floats(pipeline);
    work.keys.pos = heed_arena_take(arena, HEED_KEYS, sizeof(int32_t));
    work.keys.transposed = heed_arena_take(arena, row, sizeof(float));
    work.keys.value = heed_arena_take(arena, value, sizeof(float));
    if (backward)
        work.keys.value_transposed = heed_arena_take(arena, value, sizeof(float));
    if (backward || summary > 0)
        work.natural = heed_arena_take(arena, row, sizeof(float));
    work.key_pos = heed_arena_take(arena, cols, sizeof(int32_t));
    work.visible = heed_arena_take(arena, cols / HEED_KEYS, 1);
    float *lines = heed_arena_take(arena, 3 * cols, sizeof(float));
    for (int i = 0; i < 3 && lines; i++)
        work.line[i] = lines + i * work.stride;
    work.rescale = heed_arena_take(arena, (cols / ONLINE_COLS + 1) * HEED_STRIP, sizeof(float));
    for (int i = 0; i < 2; i++)
        work.plane[i] = heed_arena_take(arena, heads, sizeof(float *));
    if (heed_rows_mix(pipeline))
        work.mix = heed_arena_take(arena, 2 * heads * HEED_STRIP * HEED_KEYS, sizeof(float));
    work.summary = heed_arena_take(arena, heads * (size_t)summary, sizeof(float));
    work.summary_of = heed_arena_take(arena, heads, sizeof(int64_t));
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

static int64_t group_of(const heed_plan *plan, int head)
{
    return (int64_t)head * plan->problem.kv_heads / plan->problem.heads;
}

/* What heads share keys by: the query head where keys are prepared by query head, else the kv head. */
static int64_t key_head_of(const heed_plan *plan, const heed_pipeline *pipeline, int head)
{
    return pipeline->keys_by_head ? head : group_of(plan, head);
}

static void point_at_block(const heed_run *run, heed_rows_work *work, int64_t group, int64_t block)
{
    heed_key_block *keys = &work->keys;
    const int64_t left = run->key_count[work->batch] - block * HEED_KEYS;
    keys->batch = work->batch;
    keys->group = (int)group;
    keys->key0 = block * HEED_KEYS;
    keys->count = (int)(left < HEED_KEYS ? left : HEED_KEYS);
    keys->cols = (int)heed_round_up(keys->count, HEED_SUB);
}

void heed_rows_pack_keys(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                         const heed_row_head *head, int64_t block, bool natural)
{
    const int64_t blocks = work->stride / HEED_KEYS;
    const int64_t wanted = key_head_of(run->plan, pipeline, head->query.head) * blocks + block;
    point_at_block(run, work, group_of(run->plan, head->query.head), block);
    if (work->packed_key == wanted && (work->packed_natural || !natural))
        return;
    work->packed_key = wanted;
    work->packed_natural = natural;
    work->keys.natural = natural ? work->natural : NULL;
    heed_pack_keys(run, pipeline, head->query.head, &work->keys, &work->rows);
}

void heed_rows_pack_values(const heed_run *run, heed_rows_work *work, const heed_row_head *head, int64_t block)
{
    const int64_t group = group_of(run->plan, head->query.head);
    point_at_block(run, work, group, block);
    if (work->packed_value == group * (work->stride / HEED_KEYS) + block)
        return;
    work->packed_value = group * (work->stride / HEED_KEYS) + block;
    heed_pack_values(run, &work->keys);
}

/* Positions of all keys that exist, and on beyond them. */
static void place_keys(const heed_run *run, heed_rows_work *work)
{
    const int64_t count = run->key_count[work->batch];
    const int32_t *pos = run->key_pos + work->batch * run->key_pos_stride;
    memcpy(work->key_pos, pos, (size_t)count * sizeof *pos);
    for (int64_t j = count; j < work->stride; j++)
        work->key_pos[j] = count > 0 ? pos[count - 1] + (int32_t)(j - count + 1) : (int32_t)j;
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
    const int64_t key_head = key_head_of(plan, pipeline, head->query.head);
    const int64_t wanted = work->batch * key_heads + key_head;
    head->summary = work->summary + h * floats;
    if (h > 0 && key_head_of(plan, pipeline, work->head[h - 1].query.head) == key_head) {
        head->summary = work->head[h - 1].summary;
        return;
    }
    if (work->summary_of[h] == wanted)
        return;
    work->summary_of[h] = wanted;
    for (int64_t b = 0; b * HEED_KEYS < run->key_count[work->batch]; b++) {
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
            summary += form->form->summary_floats(form, pipeline->row_dim);
        }
    }
}

void heed_rows_begin(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, int batch,
                     int first_head, int heads, int64_t query0, int rows)
{
    work->batch = batch;
    work->heads = heads;
    work->packed_key = work->packed_value = -1;
    place_keys(run, work);
    for (int h = 0; h < heads; h++) {
        heed_query_block *query = &work->head[h].query;
        query->batch = batch;
        query->head = pipeline->head[first_head + h];
        query->query0 = query0;
        query->rows = rows;
        heed_prepare_queries(run, pipeline, query, &work->rows);
    }
    for (int h = 0; h < heads; h++)
        summarise_keys(run, pipeline, work, h);
}

/* ---- scores ---- */

heed_adjust_parts heed_part_adjusts(const heed_pipeline *pipeline)
{
    heed_adjust_parts parts = {.whole = pipeline->adjusts, .after = pipeline->adjusts};
    for (int n = pipeline->adjusts - 1; n >= 0; n--)
        if (pipeline->form[pipeline->adjust[n]].form->flags & HEED_WHOLE_ROW) {
            parts.after = parts.whole == pipeline->adjusts ? n + 1 : parts.after;
            parts.whole = n;
        }
    for (int n = parts.after; n < pipeline->adjusts; n++)
        parts.keys_after |= !pipeline->form[pipeline->adjust[n]].form->bias;
    return parts;
}

heed_tile heed_rows_tile(const heed_run *run, const heed_pipeline *pipeline, const heed_rows_work *work,
                         const heed_row_head *head, int row, int rows, int64_t col, int cols)
{
    const int64_t row_stride = heed_row_stride(run->plan, pipeline), at = row * work->stride + col;
    return (heed_tile){.rows = rows,
                       .cols = cols,
                       .batch = work->batch,
                       .head = head->query.head,
                       .kv_head = (int)group_of(run->plan, head->query.head),
                       .query0 = head->query.query0 + work->row0 + row,
                       .key0 = col,
                       .query_pos = head->query.pos + work->row0 + row,
                       .key_pos = work->key_pos + col,
                       .contiguous = head->query.contiguous && work->contiguous,
                       .score = head->score + at,
                       .stride = work->stride,
                       .open = head->seen ? head->seen + at : NULL,
                       .query = head->query.prepared + (work->row0 + row) * row_stride,
                       .query_stride = row_stride,
                       .dim = pipeline->row_dim,
                       .inputs = &run->inputs,
                       .dscore = head->dscore ? head->dscore + at : NULL};
}

static heed_query_range range_of(const heed_run *run, const heed_rows_work *work, const heed_query_block *query,
                                 int row, int rows)
{
    const int32_t *pos = query->pos + work->row0 + row;
    heed_query_range range = {.batch = query->batch,
                              .head = query->head,
                              .first = query->query0 + work->row0 + row,
                              .last = query->query0 + work->row0 + row + rows - 1,
                              .pos_min = pos[0],
                              .pos_max = pos[0],
                              .inputs = &run->inputs};
    for (int i = 1; i < rows; i++) {
        range.pos_min = pos[i] < range.pos_min ? pos[i] : range.pos_min;
        range.pos_max = pos[i] > range.pos_max ? pos[i] : range.pos_max;
    }
    return range;
}

/* Which blocks the rows at hand can see, and the columns between the first and the last of them. */
static void look(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work)
{
    const int64_t keys = run->key_count[work->batch], blocks = (keys + HEED_KEYS - 1) / HEED_KEYS;
    memset(work->visible, HEED_CLOSED, (size_t)blocks);
    for (int h = 0; h < work->heads && blocks > 0; h++) {
        heed_row_head *head = &work->head[h];
        const heed_query_range range = range_of(run, work, &head->query, 0, work->count);
        memcpy(head->state, heed_block_states(run, pipeline, &range, &work->sight), (size_t)blocks);
        for (int64_t b = 0; b < blocks; b++)
            work->visible[b] |= head->state[b];
    }
    int64_t first = 0, last = blocks;
    while (first < last && work->visible[first] == HEED_CLOSED)
        first++;
    while (last > first && work->visible[last - 1] == HEED_CLOSED)
        last--;
    const int64_t end = last * HEED_KEYS, exist = heed_round_up(keys, HEED_SUB);
    work->last = first == last ? 0 : end < exist ? end : exist;
    work->first = first == last || pipeline->selects > 0 ? 0 : first * HEED_KEYS;
    work->keys_end = work->last < keys ? work->last : keys;
}

/* Pairs that no tile reaches. Where a later stage looks at closed scores they must be numbers. */
static void fill_closed(const heed_rows_work *work, heed_row_head *head, int row, int rows, int64_t from, int64_t to)
{
    if (from >= to)
        return;
    const float closed = head->seen ? 0.0f : -INFINITY;
    for (int i = row; i < row + rows; i++) {
        const int64_t at = i * work->stride;
        for (int64_t j = from; j < to; j++)
            head->score[at + j] = closed;
        if (head->seen)
            memset(head->seen + at + from, 0, (size_t)(to - from));
        if (head->kept)
            memset(head->kept + at + from, 0, (size_t)(to - from) * sizeof(float));
    }
}

/* Columns of the packed block that rows may see, in runs of HEED_SUB; returns whether some pair between is closed. */
static bool narrow(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                   const heed_row_head *head, int row, int rows, int *first, int *last)
{
    const heed_query_range range = range_of(run, work, &head->query, row, rows);
    const uint8_t *sub =
        heed_sub_states(run, pipeline, &range, work->keys.key0, work->keys.cols, &work->sight);
    int low = 0, high = work->keys.cols / HEED_SUB;
    while (low < high && sub[low] == HEED_CLOSED)
        low++;
    while (high > low && sub[high - 1] == HEED_CLOSED)
        high--;
    bool partly = false;
    for (int s = low; s < high; s++)
        partly |= sub[s] != HEED_OPEN;
    *first = low * HEED_SUB;
    *last = high * HEED_SUB;
    return partly;
}

/* Scores of a strip of rows against the packed block, through the first part of the position forms. */
static void score_strip(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                        heed_row_head *head, int row, uint8_t state, int adjusts)
{
    const heed_key_block *keys = &work->keys;
    const int rows = work->count - row < HEED_STRIP ? work->count - row : HEED_STRIP;
    const bool mix = heed_rows_mix(pipeline); /* reads the scores of closed pairs too */
    int first = 0, last = keys->cols;
    bool partly = state != HEED_OPEN;
    if (state == HEED_PARTLY && !mix)
        partly = narrow(run, pipeline, work, head, row, rows, &first, &last);
    fill_closed(work, head, row, rows, keys->key0, keys->key0 + first);
    fill_closed(work, head, row, rows, keys->key0 + last, keys->key0 + keys->cols);
    if (first == last)
        return;
    const int64_t col = keys->key0 + first, at = row * work->stride + col;
    heed_tile tile = heed_rows_tile(run, pipeline, work, head, row, rows, col, last - first);
    tile.key = keys->transposed + first;
    tile.key_stride = HEED_KEYS;
    heed_scores(pipeline, &tile);
    heed_adjust(pipeline, pipeline->adjust, adjusts, &tile, &head->query, work->row0 + row,
                head->kept ? head->kept + at : NULL);
    const uint8_t *pair = partly && state != HEED_CLOSED ? heed_mask_tile(run, pipeline, &tile, &work->sight) : NULL;
    const int exist = keys->count - first;
    if (!head->seen) {
        if (pair || exist < tile.cols)
            heed_close(&tile, pair, HEED_KEYS, exist);
        return;
    }
    for (int i = 0; i < rows; i++) {
        uint8_t *seen = head->seen + at + i * work->stride;
        memset(seen, state != HEED_CLOSED, (size_t)tile.cols);
        if (pair)
            memcpy(seen, pair + i * HEED_KEYS, (size_t)tile.cols);
        if (exist < tile.cols)
            memset(seen + (exist > 0 ? exist : 0), 0, (size_t)(tile.cols - (exist > 0 ? exist : 0)));
    }
}

static void score_blocks(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, int adjusts)
{
    const bool mix = heed_rows_mix(pipeline);
    for (int64_t b = work->first / HEED_KEYS; b * HEED_KEYS < work->last; b++) {
        const int64_t key0 = b * HEED_KEYS, end = key0 + HEED_KEYS < work->last ? key0 + HEED_KEYS : work->last;
        for (int h = 0; h < work->heads; h++) {
            heed_row_head *head = &work->head[h];
            if (work->visible[b] == HEED_CLOSED || (head->state[b] == HEED_CLOSED && !mix)) {
                fill_closed(work, head, 0, work->count, key0, end);
                continue;
            }
            heed_rows_pack_keys(run, pipeline, work, head, b, false);
            for (int row = 0; row < work->count; row += HEED_STRIP)
                score_strip(run, pipeline, work, head, row, head->state[b], adjusts);
        }
    }
}

/* The second and third part of the position forms: whole rows, then tiles once more. */
static void adjust_rows(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                        const heed_adjust_parts *parts)
{
    const int *which = pipeline->adjust;
    for (int h = 0; h < work->heads && parts->whole < parts->after; h++) {
        heed_row_head *head = &work->head[h];
        heed_tile tile =
            heed_rows_tile(run, pipeline, work, head, 0, work->count, work->first, (int)(work->last - work->first));
        heed_adjust(pipeline, which + parts->whole, parts->after - parts->whole, &tile, &head->query, work->row0,
                    head->kept ? head->kept + work->first : NULL);
    }
    if (parts->after == pipeline->adjusts)
        return;
    for (int64_t b = work->first / HEED_KEYS; b * HEED_KEYS < work->last; b++)
        for (int h = 0; h < work->heads && work->visible[b] != HEED_CLOSED; h++) {
            heed_row_head *head = &work->head[h];
            point_at_block(run, work, group_of(run->plan, head->query.head), b);
            if (parts->keys_after)
                heed_rows_pack_keys(run, pipeline, work, head, b, false);
            for (int row = 0; row < work->count; row += HEED_STRIP) {
                const int rows = work->count - row < HEED_STRIP ? work->count - row : HEED_STRIP;
                const int64_t col = b * HEED_KEYS;
                heed_tile tile = heed_rows_tile(run, pipeline, work, head, row, rows, col, work->keys.cols);
                tile.key = parts->keys_after ? work->keys.transposed : NULL;
                tile.key_stride = HEED_KEYS;
                heed_adjust(pipeline, which + parts->after, pipeline->adjusts - parts->after, &tile, &head->query,
                            work->row0 + row, head->kept ? head->kept + row * work->stride + col : NULL);
            }
        }
}

static void copy_plane(const heed_rows_work *work, const float *from, float *to)
{
    for (int i = 0; i < work->count && to; i++)
        memcpy(to + i * work->stride + work->first, from + i * work->stride + work->first,
               (size_t)(work->last - work->first) * sizeof(float));
}

typedef void (*mix_hook)(const heed_form_state *, float *const *, int, int, int64_t, float *);

static void mix_heads(const heed_pipeline *pipeline, heed_rows_work *work, mix_hook mix)
{
    const heed_form_state *form = &pipeline->form[pipeline->heads];
    for (int64_t col = work->first; mix && col < work->last; col += HEED_KEYS) {
        const int64_t left = work->last - col;
        for (int row = 0; row < work->count; row += HEED_STRIP) {
            for (int h = 0; h < work->heads; h++)
                work->plane[0][h] = work->head[h].score + row * work->stride + col;
            mix(form, work->plane[0], work->count - row < HEED_STRIP ? work->count - row : HEED_STRIP,
                left < HEED_KEYS ? (int)left : HEED_KEYS, work->stride, work->mix);
        }
    }
}

static void close_rows(const heed_rows_work *work, heed_row_head *head)
{
    for (int i = 0; i < work->count && head->seen; i++) {
        float *score = head->score + i * work->stride;
        const uint8_t *seen = head->seen + i * work->stride;
        for (int64_t j = work->first; j < work->last; j++)
            score[j] = seen[j] ? score[j] : -INFINITY;
    }
}

/* ---- rows ---- */

static bool has_nan_or_inf(const float *score, int64_t n)
{
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t j = 0; j < n; j++)
        found |= !(score[j] < INFINITY);
    return found;
}

static void select_row(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                       heed_row_head *head, int row)
{
    (void)run;
    const float *summary = head->summary;
    const int64_t query = work->row0 + row;
    for (int n = 0; n < pipeline->selects; n++) {
        const heed_form_state *form = &pipeline->form[pipeline->select[n]];
        heed_row view = {.cols = (int)work->keys_end,
                         .batch = work->batch,
                         .head = head->query.head,
                         .query = head->query.query0 + query,
                         .pos = head->query.pos[query],
                         .key_pos = work->key_pos,
                         .score = head->score + row * work->stride,
                         .work = work->line[0],
                         .query_row = head->query.prepared + query * heed_row_stride(run->plan, pipeline),
                         .dim = pipeline->row_dim,
                         .summary = summary};
        form->form->choose(form, &view);
        if (form->form->summary_floats)
            summary += form->form->summary_floats(form, pipeline->row_dim);
    }
}

static void select_rows(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                        heed_row_head *head)
{
    for (int i = 0; i < work->count; i++) {
        const float *score = head->score + i * work->stride;
        head->broken[i] = has_nan_or_inf(score + work->first, work->last - work->first);
        if (!head->broken[i])
            select_row(run, pipeline, work, head, i);
        uint8_t *open = head->open + i * work->stride;
        for (int64_t j = work->first; j < work->last; j++)
            open[j] = score[j] != -INFINITY;
    }
}

static float log_sum(float max, float sum)
{
    return sum == 0.0f ? -INFINITY : (float)((double)max + log((double)sum));
}

/* An online normaliser on a strip: tile after tile, then every tile by the rescalings that came after it. */
static void normalise_online(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                             heed_row_head *head, int row, int rows)
{
    const heed_form_state *form = &pipeline->form[pipeline->normalise];
    heed_row_sums sums = {.max = head->max + row, .sum = head->sum + row, .count = head->count + row};
    for (int i = 0; i < rows; i++) {
        sums.max[i] = -INFINITY;
        sums.sum[i] = sums.count[i] = 0.0f;
    }
    int tiles = 0;
    for (int64_t col = work->first; col < work->last; col += ONLINE_COLS, tiles++) {
        const int64_t left = work->last - col;
        const int cols = left < ONLINE_COLS ? (int)left : ONLINE_COLS;
        heed_tile tile = heed_rows_tile(run, pipeline, work, head, row, rows, col, cols);
        for (int i = 0; i < rows && form->form->flags & HEED_COUNTS_OPEN; i++) {
            const uint8_t *open = head->open + (row + i) * work->stride + col;
            int count = 0;
            for (int j = 0; j < cols; j++)
                count += open[j];
            sums.count[i] += (float)count;
        }
        sums.rescale = work->rescale + tiles * HEED_STRIP;
        form->form->online(form, &tile, &sums);
    }
    form->form->finish(form, head->query.head, rows, &sums, head->end + row);
    for (int i = 0; i < rows; i++) {
        head->lse[row + i] = log_sum(sums.max[i], sums.sum[i]);
        head->norm[row + i] = head->end[row + i].norm;
        float factor = head->end[row + i].scale;
        for (int t = tiles - 1; t >= 0; t--) {
            float *weight = head->score + (row + i) * work->stride + work->first + t * ONLINE_COLS;
            const int64_t left = work->last - work->first - t * ONLINE_COLS;
            for (int64_t j = 0; j < (left < ONLINE_COLS ? left : ONLINE_COLS); j++)
                weight[j] *= factor;
            factor *= work->rescale[t * HEED_STRIP + i];
        }
    }
}

static float lse_of(const float *logit, int64_t n)
{
    float max = -INFINITY, sum = 0.0f;
#pragma omp simd reduction(max : max)
    for (int64_t j = 0; j < n; j++)
        max = logit[j] > max ? logit[j] : max;
    if (max == -INFINITY)
        return max;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += heed_exp(logit[j] - max);
    return log_sum(max, sum);
}

static void normalise_whole(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                            heed_row_head *head, int row)
{
    (void)run;
    const heed_form_state *form = &pipeline->form[pipeline->normalise];
    float *score = head->score + row * work->stride + work->first;
    const int64_t cols = work->last - work->first, real = work->keys_end - work->first;
    head->norm[row] = 0.0f;
    head->lse[row] = lse_of(score, cols);
    memset(head->aux + 4 * row, 0, 4 * sizeof(float));
    if (head->lse[row] == -INFINITY) {
        memset(score, 0, (size_t)cols * sizeof(float));
        return;
    }
    if (head->broken[row])
        return;
    const int64_t query = work->row0 + row;
    heed_row view = {.cols = (int)real,
                     .batch = work->batch,
                     .head = head->query.head,
                     .query = head->query.query0 + query,
                     .pos = head->query.pos[query],
                     .key_pos = work->key_pos + work->first,
                     .score = score,
                     .work = work->line[0],
                     .aux = head->aux + 4 * row};
    form->form->whole_row(form, &view);
    memset(score + real, 0, (size_t)(cols - real) * sizeof(float));
}

static void normalise_rows(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                           heed_row_head *head)
{
    const bool online = pipeline->form[pipeline->normalise].form->online != NULL;
    for (int row = 0; row < work->count; row += HEED_STRIP) {
        const int rows = work->count - row < HEED_STRIP ? work->count - row : HEED_STRIP;
        if (online)
            normalise_online(run, pipeline, work, head, row, rows);
        for (int i = row; i < row + rows && !online; i++)
            normalise_whole(run, pipeline, work, head, i);
    }
    for (int i = 0; i < work->count; i++) {
        head->broken[i] |= isnan(head->lse[i]);
        if (!head->broken[i])
            continue;
        head->norm[i] = head->lse[i] = NAN;
        for (int64_t j = work->first; j < work->last; j++)
            head->score[i * work->stride + j] = head->open[i * work->stride + j] ? NAN : 0.0f;
    }
}

void heed_rows_weights(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, int row0, int count)
{
    const heed_form *heads = pipeline->form[pipeline->heads].form;
    const heed_adjust_parts parts = heed_part_adjusts(pipeline);
    work->row0 = row0;
    work->count = count;
    look(run, pipeline, work);
    score_blocks(run, pipeline, work, parts.whole);
    adjust_rows(run, pipeline, work, &parts);
    for (int h = 0; h < work->heads; h++)
        copy_plane(work, work->head[h].score, work->head[h].scored);
    mix_heads(pipeline, work, heads->mix_scores);
    for (int h = 0; h < work->heads; h++) {
        heed_row_head *head = &work->head[h];
        close_rows(work, head);
        select_rows(run, pipeline, work, head);
        heed_tile tile =
            heed_rows_tile(run, pipeline, work, head, 0, count, work->first, (int)(work->last - work->first));
        heed_adjust(pipeline, pipeline->modify, pipeline->modifies, &tile, &head->query, row0,
                    head->kept_modify ? head->kept_modify + work->first : NULL);
        copy_plane(work, head->score, head->logit);
        normalise_rows(run, pipeline, work, head);
        copy_plane(work, head->score, head->weight);
    }
    mix_heads(pipeline, work, heads->mix_weights);
}

int heed_mark_used(const float *weight, const uint8_t *open, int64_t stride, int rows, int cols, uint8_t *used)
{
    int all = 0;
    for (int i = 0; i < rows; i++) {
        const float *w = weight + i * stride;
        uint8_t *to = used + i * HEED_KEYS;
        int count = 0;
        for (int j = 0; j < cols; j++) {
            to[j] = (w[j] != 0.0f) | (open ? open[i * stride + j] : 0);
            count += to[j];
        }
        all += count;
    }
    return all;
}
