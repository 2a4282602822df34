/* Blocks of keys that queries choose, in the flash kernel: which runs of HEED_SUB keys a block of queries or
 * a strip visits, and which pairs inside them are closed. */
#include "attend/kernels/flash_work.h"
#include <string.h>

static int estimate_rows(void)
{
    return 2 * HEED_STRIP;
}

heed_flash_choice heed_take_flash_choice(heed_arena *arena, const heed_plan *plan,
                                         const heed_pipeline *pipeline, int rows)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    heed_flash_choice choice = {.block_query = NULL};
    if (!form)
        return choice;
    const size_t row = (size_t)heed_row_stride(plan, pipeline);
    choice.of = heed_take_choice(arena, form->form->block_rule(form).keys, plan->problem.keys, rows, true);
    choice.block_query =
        heed_arena_take(arena, (size_t)rows * (size_t)heed_block_stride(pipeline), sizeof(float));
    choice.mean = heed_arena_take(arena, row, sizeof(float));
    choice.line = heed_arena_take(arena, 4 * (size_t)choice.of.units, sizeof(float));
    choice.any = heed_arena_take(arena, (size_t)choice.of.units, 1);
    choice.all = heed_arena_take(arena, (size_t)choice.of.units, 1);
    choice.value_work = heed_take_value_work(arena, rows);
    if (!form->form->observe)
        return choice;
    const size_t seen = (size_t)estimate_rows();
    choice.prepared = heed_arena_take(arena, (seen + HEED_STRIP) * row, sizeof(float));
    choice.pos = heed_arena_take(arena, seen + HEED_STRIP, sizeof(int32_t));
    choice.weight_stride = heed_round_up(plan->problem.keys, HEED_KEYS) + 16;
    choice.weight = heed_arena_take(arena, seen * (size_t)choice.weight_stride, sizeof(float));
    return choice;
}

heed_flash_shared_choice heed_take_shared_choice(heed_arena *arena, const heed_plan *plan,
                                                 const heed_pipeline *pipeline)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    const heed_problem *p = &plan->problem;
    heed_flash_shared_choice shared = {.summary_floats = heed_summaries_floats(plan, pipeline)};
    if (!form)
        return shared;
    const int64_t unit = form->form->block_rule(form).keys;
    if (form->form->estimate_floats)
        shared.estimate_floats = form->form->estimate_floats(form, (p->keys + unit - 1) / unit);
    if (shared.summary_floats > 0)
        shared.summary =
            heed_arena_take(arena, (size_t)(p->batch * p->kv_heads * shared.summary_floats), sizeof(float));
    if (shared.estimate_floats > 0)
        shared.estimate =
            heed_arena_take(arena, (size_t)(p->batch * p->heads * shared.estimate_floats), sizeof(float));
    return shared;
}

static const float *summary_of(const heed_run *run, const heed_flash_shared_choice *shared, int batch,
                               int group)
{
    if (!shared->summary)
        return NULL;
    return shared->summary + (batch * run->plan->problem.kv_heads + group) * shared->summary_floats;
}

static float *estimate_of(const heed_run *run, const heed_flash_shared_choice *shared, int batch, int head)
{
    if (!shared->estimate)
        return NULL;
    return shared->estimate + (batch * run->plan->problem.heads + head) * shared->estimate_floats;
}

/* ---- observing ---- */

/* The queries that are observed, counted from the last backwards: the i-th of `count`. */
static int64_t observed_query(const heed_block_rule *rule, int64_t queries, int64_t count, int64_t i)
{
    return rule->observes_share > 0 ? queries - 1 - i * queries / count : queries - 1 - i;
}

static int64_t observed_count(const heed_block_rule *rule, int64_t queries)
{
    const int64_t wanted =
        rule->observes_share > 0 ? (int64_t)ceil(rule->observes_share * (double)queries) : rule->observes;
    return wanted < queries ? wanted : queries;
}

/* Closes what a row does not see in the packed block, and notes its last open key. */
static void close_row(const heed_run *run, const heed_pipeline *pipeline, heed_tile tile, int real,
                      int64_t *last, heed_sight *sight)
{
    const uint8_t *open = heed_mask_tile(run, pipeline, &tile, sight);
    for (int j = 0; j < tile.cols; j++) {
        const bool is_open = j < real && open[j];
        tile.score[j] = is_open ? tile.score[j] : -INFINITY;
        *last = is_open ? tile.key0 + j : *last;
    }
}

/* Logits of one row to weights. Rows of NaN keep it. */
static void soften(float *weight, int64_t keys)
{
    float max = -INFINITY, sum = 0.0f;
    for (int64_t j = 0; j < keys; j++)
        max = weight[j] > max ? weight[j] : max;
    for (int64_t j = 0; j < keys; j++) {
        weight[j] = max == -INFINITY ? 0.0f : heed_exp(weight[j] - max);
        sum += weight[j];
    }
    for (int64_t j = 0; j < keys && sum > 0.0f; j++)
        weight[j] /= sum;
}

/* Weights of a few queries, given by index, over all keys. */
static void observe_rows(const heed_run *run, const heed_pipeline *pipeline, int batch, int head,
                         const int64_t *index, int rows, heed_flash_work *work, float *estimate, float *mean)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    heed_flash_choice *choice = &work->choice;
    const int64_t stride = heed_row_stride(run->plan, pipeline), group = heed_kv_head_of(run->plan, head);
    const int64_t keys = heed_key_count(run, batch, group);
    int64_t last[2 * HEED_STRIP];
    for (int i = 0; i < rows; i++) {
        heed_query_block one = {.batch = batch, .head = head, .query0 = index[i], .rows = 1};
        one.pos = choice->pos + i;
        one.prepared = choice->prepared + i * stride;
        heed_prepare_queries(run, pipeline, &one, &work->rows);
        for (int d = 0; d < pipeline->row_dim; d++)
            mean[d] += one.prepared[d];
        last[i] = -1;
    }
    heed_key_block *block = &work->keys;
    for (int64_t key0 = 0; key0 < keys; key0 += HEED_KEYS) {
        block->batch = batch;
        block->group = (int)group;
        block->key0 = key0;
        block->count = keys - key0 < HEED_KEYS ? (int)(keys - key0) : HEED_KEYS;
        block->cols = (int)heed_round_up(block->count, HEED_SUB);
        heed_pack_keys(run, pipeline, head, block, &work->rows);
        for (int row = 0; row < rows; row += HEED_STRIP) {
            heed_query_block query = {.batch = batch, .head = head, .query0 = index[row], .rows = rows};
            query.pos = choice->pos;
            query.prepared = choice->prepared;
            const int here = rows - row < HEED_STRIP ? rows - row : HEED_STRIP;
            heed_tile tile = heed_tile_of(run, pipeline, &query, row, here, block, 0, block->cols);
            tile.score = choice->weight + row * choice->weight_stride + key0;
            tile.stride = choice->weight_stride;
            heed_scores(pipeline, &tile);
            heed_adjust(pipeline, pipeline->adjust, pipeline->adjusts, &tile, &query, row, (heed_kept){0});
            for (int i = 0; i < here; i++) {
                heed_tile own = tile;
                own.rows = 1;
                own.query0 = index[row + i];
                own.query_pos += i;
                own.score += i * tile.stride;
                close_row(run, pipeline, own, block->count, &last[row + i], &work->sight);
            }
        }
    }
    for (int i = 0; i < rows; i++) {
        soften(choice->weight + i * choice->weight_stride, keys);
        last[i] = last[i] < 0 ? -1 : last[i] / choice->of.unit;
    }
    const heed_observed seen = {.rows = rows,
                                .blocks = (int)((keys + choice->of.unit - 1) / choice->of.unit),
                                .keys = keys,
                                .current = last,
                                .weight = choice->weight,
                                .stride = choice->weight_stride,
                                .estimate = estimate};
    form->form->observe(form, &seen);
}

static void observe_head(const heed_run *run, const heed_pipeline *pipeline,
                         const heed_flash_shared_choice *shared, int batch, int head, heed_flash_work *work)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    const heed_block_rule rule = form->form->block_rule(form);
    heed_flash_choice *choice = &work->choice;
    float *estimate = estimate_of(run, shared, batch, head);
    const int group = (int)heed_kv_head_of(run->plan, head);
    const int64_t queries = run->query_count[batch], count = observed_count(&rule, queries);
    const int64_t blocks = (heed_key_count(run, batch, group) + choice->of.unit - 1) / choice->of.unit;
    memset(estimate, 0, (size_t)shared->estimate_floats * sizeof *estimate);
    memset(choice->mean, 0, (size_t)heed_row_stride(run->plan, pipeline) * sizeof *choice->mean);
    int64_t index[2 * HEED_STRIP];
    for (int64_t i = 0; i < count;) {
        int rows = 0;
        for (; i < count && rows < estimate_rows(); i++)
            index[rows++] = observed_query(&rule, queries, count, i);
        observe_rows(run, pipeline, batch, head, index, rows, work, estimate, choice->mean);
    }
    if (!form->form->settle || count == 0)
        return;
    float *value = NULL;
    if (form->form->block_query) {
        for (int d = 0; d < pipeline->row_dim; d++)
            choice->mean[d] /= (float)count;
        memset(choice->block_query, 0, (size_t)heed_block_stride(pipeline) * sizeof(float));
        form->form->block_query(form, head, choice->mean, pipeline->row_dim, choice->block_query);
        value = choice->of.value;
        heed_choice_values(run, pipeline, summary_of(run, shared, batch, group), batch, group, 0, blocks, 1,
                           choice->block_query, value, choice->of.stride, &choice->value_work);
        heed_query_block query = {.batch = batch, .head = head, .query0 = index[0], .rows = 1};
        query.pos = choice->pos;
        heed_prepare_queries(run, pipeline,
                             &(heed_query_block){.batch = batch,
                                                 .head = head,
                                                 .query0 = queries - 1,
                                                 .rows = 1,
                                                 .pos = choice->pos,
                                                 .prepared = choice->prepared},
                             &work->rows);
        query.query0 = queries - 1;
        heed_choice_see(run, pipeline, &query, 0, 1, 0, &choice->of, &work->sight);
        for (int64_t u = 0; u < blocks; u++)
            value[u] = choice->of.state[u] & HEED_SEEN ? value[u] : -INFINITY;
    }
    const heed_settled seen = {
        .blocks = (int)blocks, .value = value, .estimate = estimate, .work = choice->line};
    form->form->settle(form, &seen);
}

void heed_flash_observe(const heed_run *run, const heed_pipeline *pipeline,
                        const heed_flash_shared_choice *shared, heed_flash_work *work)
{
    const heed_problem *p = &run->plan->problem;
    const int64_t chunks = heed_summaries_chunks(run->plan, pipeline);
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < p->batch * p->kv_heads * chunks; n++) {
        const int batch = (int)(n / chunks / p->kv_heads), group = (int)(n / chunks % p->kv_heads);
        heed_summaries_make(run, pipeline, batch, group, n % chunks, &work->rows,
                            shared->summary + (n / chunks) * shared->summary_floats);
    }
    if (!shared->estimate)
        return;
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < p->batch * pipeline->heads_here; n++)
        observe_head(run, pipeline, shared, (int)(n / pipeline->heads_here),
                     pipeline->head[n % pipeline->heads_here], work);
}

/* ---- choosing ---- */

/* The rows of one head as they meet summaries; with pooled queries only the first, of their mean. Returns how
 * many. */
static int make_block_queries(const heed_run *run, const heed_pipeline *pipeline,
                              const heed_query_block *query, int head_row0, int rows,
                              heed_flash_choice *choice)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    const int64_t row = heed_row_stride(run->plan, pipeline), stride = heed_block_stride(pipeline);
    const heed_block_rule rule = form->form->block_rule(form);
    const bool pooled = rule.queries > 1 && !rule.searches;
    const float *prepared = query->prepared;
    if (pooled) {
        memset(choice->mean, 0, (size_t)row * sizeof *choice->mean);
        for (int i = 0; i < rows; i++)
            for (int d = 0; d < pipeline->row_dim; d++)
                choice->mean[d] += prepared[i * row + d];
        for (int d = 0; d < pipeline->row_dim; d++)
            choice->mean[d] /= (float)rows;
        prepared = choice->mean;
    }
    for (int i = 0; i < (pooled ? 1 : rows); i++) {
        float *to = choice->block_query + (head_row0 + i) * stride;
        memset(to, 0, (size_t)stride * sizeof *to);
        form->form->block_query(form, query->head, prepared + i * row, pipeline->row_dim, to);
    }
    return pooled ? 1 : rows;
}

static void put_values(const heed_run *run, const heed_pipeline *pipeline,
                       const heed_flash_shared_choice *shared, int h, int rows, int padded,
                       heed_flash_work *work)
{
    heed_flash_choice *choice = &work->choice;
    const heed_query_block *query = &work->query[h];
    const int group = (int)heed_kv_head_of(run->plan, query->head);
    const int64_t row0 = (int64_t)h * padded;
    int64_t last = -1;
    for (int i = 0; i < rows; i++)
        last = choice->of.last[row0 + i] > last ? choice->of.last[row0 + i] : last;
    const int64_t blocks = last / choice->of.unit + (last >= 0);
    float *value = choice->of.value + row0 * choice->of.stride;
    const int made = make_block_queries(run, pipeline, query, (int)row0, rows, choice);
    if (blocks == 0 ||
        heed_block_selector(pipeline)->form->block_rule(heed_block_selector(pipeline)).searches)
        return;
    heed_choice_values(run, pipeline, summary_of(run, shared, query->batch, group), query->batch, group, 0,
                       blocks, made, choice->block_query + row0 * heed_block_stride(pipeline), value,
                       choice->of.stride, &choice->value_work);
    for (int i = made; i < rows; i++)
        memcpy(value + i * choice->of.stride, value, (size_t)blocks * sizeof *value);
}

/* In `any` and `all`: what is seen of each block by some of the rows, and what is closed to some. */
static void gather_rows(heed_flash_choice *choice, int64_t row0, int rows, int64_t first, int64_t end)
{
    memset(choice->any + first, 0, (size_t)(end - first));
    memset(choice->all + first, HEED_SEEN, (size_t)(end - first));
    for (int i = 0; i < rows; i++) {
        const uint8_t *restrict state = choice->of.state + (row0 + i) * choice->of.stride;
        uint8_t *restrict any = choice->any, *restrict all = choice->all;
        for (int64_t u = first; u < end; u++) {
            any[u] |= state[u];
            all[u] &= state[u];
        }
    }
}

/* What the gathered rows see of a run of keys, from what `where` leaves of it. */
static uint8_t state_of(const heed_flash_choice *choice, int64_t key0, uint8_t where)
{
    const int64_t first = key0 / choice->of.unit, last = (key0 + HEED_SUB - 1) / choice->of.unit;
    int any = 0, all = HEED_SEEN;
    for (int64_t u = first; u <= last && u < choice->of.units; u++) {
        any |= choice->any[u];
        all &= choice->all[u];
    }
    return !(any & HEED_SEEN)  ? HEED_CLOSED
           : all & HEED_SEEN   ? where
           : where & HEED_OPEN ? HEED_PARTLY
                               : where;
}

void heed_flash_choose(const heed_run *run, const heed_pipeline *pipeline,
                       const heed_flash_shared_choice *shared, int heads, int rows, int padded,
                       heed_flash_work *work)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    heed_flash_choice *choice = &work->choice;
    const bool alike = heed_sees_alike(run, pipeline);
    for (int h = 0; h < heads; h++) {
        const int64_t row0 = (int64_t)h * padded;
        if (h > 0 && alike)
            heed_choice_copy(&choice->of, 0, row0, rows);
        else
            heed_choice_see(run, pipeline, &work->query[h], 0, rows, row0, &choice->of, &work->sight);
        if (form->form->block_query)
            put_values(run, pipeline, shared, h, rows, padded, work);
        else
            for (int i = 0; i < rows; i++)
                memset(choice->of.value + (row0 + i) * choice->of.stride, 0,
                       (size_t)choice->of.units * sizeof(float));
    }
    if (shared->estimate) {
        for (int h = 0; h < heads; h++)
            heed_choice_decide_from(pipeline, &choice->of, (int64_t)h * padded, rows,
                                    estimate_of(run, shared, work->query[h].batch, work->query[h].head),
                                    choice->line);
    } else if (form->form->block_rule(form).searches) {
        const int batch = work->query[0].batch, group = (int)heed_kv_head_of(run->plan, work->query[0].head);
        heed_looker looker = {.run = run,
                              .pipeline = pipeline,
                              .made = summary_of(run, shared, batch, group),
                              .batch = batch,
                              .group = group,
                              .query = choice->block_query,
                              .work = &choice->value_work};
        heed_choice_search(&choice->of, &looker, heads, rows, padded, choice->line);
    } else {
        heed_choice_decide(pipeline, &choice->of, heads, rows, padded, choice->line);
    }
    for (int h = 0; h < heads; h++) {
        uint8_t *state = work->state + h * work->subs;
        gather_rows(choice, (int64_t)h * padded, rows, 0, choice->of.units);
        for (int64_t s = 0; s < work->subs; s++)
            if (state[s] != HEED_CLOSED)
                state[s] = state_of(choice, s * HEED_SUB, state[s]);
    }
}

bool heed_flash_narrow(heed_flash_work *work, int64_t row0, int rows, int64_t key0, const uint8_t *sub,
                       int subs, uint8_t *to)
{
    heed_flash_choice *choice = &work->choice;
    const int64_t first = key0 / choice->of.unit, end = (key0 + subs * HEED_SUB - 1) / choice->of.unit + 1;
    gather_rows(choice, row0, rows, first, end < choice->of.units ? end : choice->of.units);
    bool cut = false;
    for (int s = 0; s < subs; s++) {
        const int64_t key = key0 + s * HEED_SUB;
        to[s] = sub[s] == HEED_CLOSED ? HEED_CLOSED : state_of(choice, key, sub[s]);
        for (int64_t u = key / choice->of.unit;
             u <= (key + HEED_SUB - 1) / choice->of.unit && u < choice->of.units; u++)
            cut |= !(choice->all[u] & HEED_SEEN);
    }
    return cut;
}

void heed_flash_cut(const heed_flash_work *work, int64_t row0, int64_t keys, heed_tile *tile)
{
    const heed_choice *choice = &work->choice.of;
    for (int i = 0; i < tile->rows; i++) {
        const uint8_t *state = choice->state + (row0 + i) * choice->stride;
        float *score = tile->score + i * tile->stride;
        for (int64_t key = tile->key0, next; key < tile->key0 + tile->cols && key < keys; key = next) {
            const int64_t u = key / choice->unit;
            next = (u + 1) * choice->unit;
            const int64_t end = next < tile->key0 + tile->cols ? next : tile->key0 + tile->cols;
            for (int64_t j = key; !(state[u] & HEED_SEEN) && j < end; j++)
                score[j - tile->key0] = -INFINITY;
        }
    }
}
