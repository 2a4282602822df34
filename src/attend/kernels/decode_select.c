/* Decoding with selectors: which keys a group reads.
 *
 *   1. values of all blocks from their summaries, if the first selector decides by blocks; the choice of each
 *      row; list[0] holds the blocks that some row chose (or just sees)
 *   2. if selectors need scores: those of the keys of list[0] only, the choice of each row among its keys,
 *      and list[1] of the keys that some row kept
 *
 * What no list holds is never touched. Pieces of keys then pass by as without selectors (decode_piece.c).
 */
#include "attend/kernels/decode.h"
#include <string.h>

#define VALUES_AT_ONCE 256 /* blocks whose values are a piece of work */

void heed_take_lists(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                     const heed_decode_sizes *s, heed_decode_group *group)
{
    for (int64_t n = 0; s->selects && n < s->groups; n++) {
        heed_decode_list list[2] = {{.entries = 0}};
        for (int i = 0; i < (s->by_scores ? 2 : 1); i++) {
            list[i].choice = heed_take_choice(arena, i ? 1 : s->unit, plan->problem.keys, s->rows, i == 0);
            list[i].entry = heed_arena_take(arena, (size_t)list[i].choice.units, sizeof(int32_t));
        }
        float *query = heed_arena_take(arena, (size_t)(s->rows * heed_block_stride(pipeline)), sizeof *query);
        float *summary = heed_arena_take(arena, (size_t)s->summary, sizeof *summary);
        float *score = NULL;
        if (s->by_scores || s->weighs)
            score = heed_arena_take(arena, (size_t)s->score_stride * (size_t)s->rows, sizeof *score);
        if (!arena->base)
            continue;
        memcpy(group[n].list, list, sizeof list);
        group[n].summary = s->summary > 0 ? summary : NULL;
        group[n].score = score;
        group[n].block_query = query;
    }
    heed_take_recalled(arena, plan, pipeline, s, group);
}

/* ---- blocks ---- */

void heed_decode_see(const heed_run *run, const heed_pipeline *pipeline, heed_decode_group *group,
                     heed_decode_work *work)
{
    const heed_choice *choice = &group->list[0].choice;
    for (int h = 0; h < group->heads; h++)
        for (int i = 0; i < group->queries; i++) {
            const int64_t row = (int64_t)h * group->queries + i;
            if (h > 0 && group->alike)
                heed_choice_copy(choice, i, row, 1);
            else
                heed_choice_see(run, pipeline, &group->query[h], i, 1, row, choice, &work->sight);
        }
}

static void make_block_queries(const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                               heed_decode_group *group)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    const int64_t floats = heed_block_floats(pipeline), stride = heed_block_stride(pipeline);
    for (int r = 0; r < group->rows; r++) {
        float *to = group->block_query + r * stride;
        form->form->block_query(form, group->query[r / group->queries].head,
                                group->prepared + r * sizes->stride, pipeline->row_dim, to);
        memset(to + floats, 0, (size_t)(stride - floats) * sizeof *to);
    }
}

static void put_values(const heed_run *run, const heed_pipeline *pipeline, heed_decode_group *group,
                       int64_t first, heed_decode_work *work)
{
    const heed_choice *choice = &group->list[0].choice;
    const int64_t blocks = (group->keys + choice->unit - 1) / choice->unit, left = blocks - first;
    if (left <= 0)
        return;
    heed_choice_values(run, pipeline, group->summary, group->batch, group->group, first,
                       left < VALUES_AT_ONCE ? left : VALUES_AT_ONCE, group->rows, group->block_query,
                       choice->value + first, choice->stride, &work->value_work);
}

static void search_blocks(const heed_run *run, const heed_pipeline *pipeline, heed_decode_group *group,
                          heed_decode_work *work)
{
    heed_looker looker = {.run = run,
                          .pipeline = pipeline,
                          .made = group->summary,
                          .batch = group->batch,
                          .group = group->group,
                          .query = group->block_query,
                          .work = &work->value_work};
    heed_choice_search(&group->list[0].choice, &looker, group->heads, group->queries, group->queries,
                       work->line);
}

void heed_decode_list_blocks(const heed_decode_group *group, heed_decode_list *list)
{
    const heed_choice *choice = &list->choice;
    const int64_t blocks = (group->keys + choice->unit - 1) / choice->unit;
    list->entries = 0;
    for (int64_t u = 0; u < blocks; u++) {
        int seen = 0;
        for (int r = 0; r < group->rows; r++)
            seen |= choice->state[r * choice->stride + u];
        list->entry[list->entries] = (int32_t)u;
        list->entries += seen & HEED_SEEN;
    }
}

/* Tells of all that a list reads. */
static void will_read(const heed_run *run, const heed_decode_group *group)
{
    const heed_decode_list *list = group->reads;
    const int64_t all = run->extra->reads ? list->entries * list->choice.unit : 0;
    for (int64_t place = 0; place < all;) {
        const heed_key_run keys = heed_list_run(list, place, all, group->keys);
        heed_will_read(run, group->batch, group->group, keys.first, keys.count, HEED_READS_LATER);
        place += keys.count > 0 ? keys.count : all;
    }
}

/* ---- keys ---- */

/* Keys of the blocks of list[0], one behind the other. */
static int64_t listed_keys(const heed_decode_group *group)
{
    const heed_decode_list *list = &group->list[0];
    const int64_t unit = list->choice.unit;
    if (list->entries == 0)
        return 0;
    const int64_t last = list->entry[list->entries - 1] * unit, left = group->keys - last;
    return (list->entries - 1) * unit + (left < unit ? left : unit);
}

static int64_t key_of(const heed_decode_list *list, int64_t place)
{
    return list->entry[place / list->choice.unit] * list->choice.unit + place % list->choice.unit;
}

static bool has_nan_or_inf(const float *score, int64_t n)
{
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t j = 0; j < n; j++)
        found |= !(score[j] < INFINITY);
    return found;
}

/* The selectors that need scores on one row of those of list[0], closed up. A row with a score that is NaN or
 * +inf keeps all its keys, so that it becomes NaN. */
static void choose_keys(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                        heed_decode_group *group, int r, heed_decode_work *work)
{
    const int64_t count = listed_keys(group);
    const heed_decode_list *list = &group->list[0];
    const heed_choice *keys = &group->list[1].choice;
    float *score = group->score + r * sizes->score_stride;
    const heed_query_block *query = &group->query[r / group->queries];
    const int i = r % group->queries;
    const int32_t *pos = heed_key_positions(run, group->batch, group->group);
    for (int64_t j = 0; j < count; j++)
        work->line_pos[j] = pos[key_of(list, j)];
    heed_row row = {.cols = (int)count,
                    .batch = group->batch,
                    .head = query->head,
                    .query = query->query0 + i,
                    .pos = query->pos[i],
                    .key_pos = work->line_pos,
                    .score = score,
                    .work = work->line,
                    .query_row = group->prepared + r * sizes->stride,
                    .dim = pipeline->row_dim};
    const bool broken = has_nan_or_inf(score, count);
    for (int n = pipeline->by_blocks < 0 ? 0 : 1; n < pipeline->selects && !broken; n++) {
        const heed_form_state *form = &pipeline->form[pipeline->select[n]];
        form->form->choose(form, &row);
    }
    memset(keys->state + r * keys->stride, HEED_UNSEEN, (size_t)keys->units);
    for (int64_t j = 0; j < count; j++)
        if (score[j] != -INFINITY)
            keys->state[r * keys->stride + key_of(list, j)] = HEED_SEEN;
}

void heed_decode_select(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                        heed_decode_group *group, heed_decode_work *work)
{
    if (sizes->recalls) {
        heed_decode_recall(run, pipeline, sizes, group, work);
        return;
    }
    const int64_t chunks = heed_summaries_chunks(run->plan, pipeline);
    heed_run as_given = *run; /* selectors see keys that were turned before they were stored turned back */
    as_given.k.type = run->plan->problem.k_type;
    for (int g = 0; g < run->plan->problem.grades; g++)
        as_given.grade[g].k.type = run->plan->problem.grade[g].k;
    const int64_t values =
        (run->plan->problem.keys + sizes->unit * VALUES_AT_ONCE - 1) / (sizes->unit * VALUES_AT_ONCE);
    const heed_form_state *selector = heed_block_selector(pipeline);
    const bool by_blocks = selector != NULL, valued = by_blocks && selector->form->block_query != NULL,
               searches = by_blocks && selector->form->block_rule(selector).searches;
    if (chunks > 0)
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < sizes->groups * chunks; n++)
            heed_summaries_make(&as_given, pipeline, group[n / chunks].batch, group[n / chunks].group,
                                n % chunks, &work->rows, group[n / chunks].summary);
    if (valued)
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < sizes->groups; n++)
            make_block_queries(pipeline, sizes, &group[n]);
    if (valued && !searches)
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < sizes->groups * values; n++)
            put_values(run, pipeline, &group[n / values], n % values * VALUES_AT_ONCE, work);
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < sizes->groups; n++) {
        heed_decode_see(run, pipeline, &group[n], work);
        if (by_blocks && !valued)
            memset(group[n].list[0].choice.value, 0,
                   (size_t)(group[n].rows * group[n].list[0].choice.stride) * sizeof(float));
        if (searches)
            search_blocks(run, pipeline, &group[n], work);
        else if (by_blocks)
            heed_choice_decide(pipeline, &group[n].list[0].choice, group[n].heads, group[n].queries,
                               group[n].queries, work->line);
        heed_decode_list_blocks(&group[n], &group[n].list[0]);
        group[n].reads = &group[n].list[0];
        will_read(run, &group[n]);
    }
    if (!sizes->by_scores)
        return;
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < sizes->groups * sizes->pieces; n++)
        heed_decode_scored(run, pipeline, sizes, &group[n / sizes->pieces], n % sizes->pieces, work);
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < sizes->groups * sizes->rows; n++)
        if (n % sizes->rows < group[n / sizes->rows].rows)
            choose_keys(run, pipeline, sizes, &group[n / sizes->rows], (int)(n % sizes->rows), work);
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < sizes->groups; n++) {
        heed_decode_list_blocks(&group[n], &group[n].list[1]);
        group[n].reads = &group[n].list[1];
    }
}
