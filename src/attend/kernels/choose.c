#include "attend/kernels/choose.h"
#include "attend/kernels/decode.h"
#include <float.h>
#include <string.h>

heed_choice heed_take_choice(heed_arena *arena, int64_t unit, int64_t keys, int rows, bool values)
{
    heed_choice choice = {.unit = unit, .units = (keys + unit - 1) / unit};
    choice.stride = heed_round_up(choice.units, 16);
    const size_t all = (size_t)choice.stride * (size_t)rows;
    choice.state = heed_arena_take(arena, all, sizeof *choice.state);
    choice.value = values ? heed_arena_take(arena, all, sizeof *choice.value) : NULL;
    choice.last = heed_arena_take(arena, (size_t)rows, sizeof *choice.last);
    return choice;
}

/* ---- what rows see ---- */

/* Marks the blocks that keys first .. end-1 lie in. */
static void mark(const heed_choice *choice, int64_t first, int64_t end, uint8_t flag, uint8_t *state)
{
    for (int64_t u = first / choice->unit; u * choice->unit < end; u++)
        state[u] |= flag;
}

/* One row of a run of `count` keys. */
static void see_pairs(const heed_choice *choice, int64_t row, int64_t key0, const uint8_t *open, int count)
{
    uint8_t *state = choice->state + row * choice->stride;
    int64_t u = key0 / choice->unit, next = (u + 1) * choice->unit - key0;
    for (int j = 0; j < count; u++, next += choice->unit) {
        const int end = next < count ? (int)next : count;
        int any = 0, all = 1;
        for (; j < end; j++) {
            any |= open[j];
            all &= open[j];
        }
        state[u] |= (any ? HEED_SEEN : 0) | (all ? 0 : HEED_UNSEEN);
    }
    int end = count;
    while (end > 0 && !open[end - 1])
        end--;
    if (end > 0 && key0 + end - 1 > choice->last[row])
        choice->last[row] = key0 + end - 1;
}

/* A run of HEED_SUB keys that is open to some pairs only. */
static void see_partly(const heed_run *run, const heed_pipeline *pipeline, const heed_query_block *query,
                       int first, int rows, int64_t row0, int64_t key0, const heed_choice *choice,
                       heed_sight *sight)
{
    const int64_t group = heed_kv_head_of(run->plan, query->head);
    const int64_t left = heed_key_count(run, query->batch, group) - key0;
    const int count = left < HEED_SUB ? (int)left : HEED_SUB;
    const int32_t *from = heed_key_positions(run, query->batch, group) + key0;
    int32_t pos[HEED_SUB];
    for (int j = 0; j < HEED_SUB; j++)
        pos[j] = j < count ? from[j] : pos[j - 1] + (pos[j - 1] < HEED_POSITION_LIMIT);
    const bool contiguous = run->default_positions || heed_runs_by_one(pos, HEED_SUB);
    for (int i = 0; i < rows; i += HEED_STRIP) {
        const int here = rows - i < HEED_STRIP ? rows - i : HEED_STRIP;
        const heed_tile tile = {.rows = here,
                                .cols = HEED_SUB,
                                .batch = query->batch,
                                .head = query->head,
                                .kv_head = (int)group,
                                .query0 = query->query0 + first + i,
                                .key0 = key0,
                                .query_pos = query->pos + first + i,
                                .key_pos = pos,
                                .contiguous = query->contiguous && contiguous,
                                .inputs = heed_inputs_of(run, group)};
        const uint8_t *open = heed_mask_tile(run, pipeline, &tile, sight);
        for (int r = 0; r < here; r++)
            see_pairs(choice, row0 + i + r, key0, open + r * HEED_KEYS, count);
    }
}

void heed_choice_see(const heed_run *run, const heed_pipeline *pipeline, const heed_query_block *query,
                     int first, int rows, int64_t row0, const heed_choice *choice, heed_sight *sight)
{
    const int64_t keys = heed_key_count(run, query->batch, heed_kv_head_of(run->plan, query->head));
    uint8_t *state = choice->state + row0 * choice->stride;
    memset(state, 0, (size_t)choice->stride);
    choice->last[row0] = -1;
    const heed_query_range range = heed_range_of(run, query, first, rows);
    const uint8_t *sub = keys > 0 ? heed_all_sub_states(run, pipeline, &range, sight) : NULL;
    for (int64_t key0 = 0; key0 < keys; key0 += HEED_SUB) {
        const int64_t end = key0 + HEED_SUB < keys ? key0 + HEED_SUB : keys;
        const uint8_t seen = sub[key0 / HEED_SUB];
        if (seen == HEED_PARTLY)
            continue;
        mark(choice, key0, end, seen == HEED_OPEN ? HEED_SEEN : HEED_UNSEEN, state);
        choice->last[row0] = seen == HEED_OPEN ? end - 1 : choice->last[row0];
    }
    for (int r = 1; r < rows; r++)
        heed_choice_copy(choice, row0, row0 + r, 1);
    for (int64_t key0 = 0; key0 < keys; key0 += HEED_SUB)
        if (sub[key0 / HEED_SUB] == HEED_PARTLY)
            see_partly(run, pipeline, query, first, rows, row0, key0, choice, sight);
}

void heed_choice_copy(const heed_choice *choice, int64_t from, int64_t to, int rows)
{
    memcpy(choice->state + to * choice->stride, choice->state + from * choice->stride,
           (size_t)(rows * choice->stride));
    memcpy(choice->last + to, choice->last + from, (size_t)rows * sizeof *choice->last);
}

bool heed_sees_alike(const heed_run *run, const heed_pipeline *pipeline)
{
    for (int n = 0; n < pipeline->wheres; n++) {
        if (pipeline->where[n].kind != HEED_WHERE_LEAF)
            continue;
        const heed_form *form = pipeline->form[pipeline->where[n].form].form;
        if (!heed_built_in(form) || form->flags & HEED_SEES_BY_HEAD ||
            (form->flags & HEED_NEEDS_MASK && run->inputs->mask_head_stride != 0))
            return false;
    }
    return true;
}

/* ---- what is chosen ---- */

/* NaN comes from keys that the row does not see, or that are not finite: nothing is known of such a block, so
 * it comes first. */
static float known(float value)
{
    return value != value ? INFINITY : value > -FLT_MAX ? value : -FLT_MAX;
}

static void pool_heads(const heed_choice *choice, int heads, int row, int64_t apart)
{
    float *first = choice->value + row * choice->stride;
    for (int64_t u = 0; u < choice->units; u++)
        first[u] = known(first[u]);
    for (int h = 1; h < heads; h++) {
        const float *value = first + h * apart * choice->stride;
        for (int64_t u = 0; u < choice->units; u++)
            first[u] = known(value[u]) > first[u] ? known(value[u]) : first[u];
    }
    for (int h = 1; h < heads; h++)
        memcpy(first + h * apart * choice->stride, first, (size_t)choice->units * sizeof *first);
}

/* Whether all heads see the same of the keys, in this row. */
static bool see_alike(const heed_choice *choice, int heads, int row, int64_t apart)
{
    bool alike = true;
    for (int h = 1; h < heads && alike; h++) {
        const int64_t other = row + h * apart;
        alike = choice->last[row] == choice->last[other] &&
                memcmp(choice->state + row * choice->stride, choice->state + other * choice->stride,
                       (size_t)choice->units) == 0;
    }
    return alike;
}

/* Whether the rows of a head that go through together have the same values. */
static bool same_values(const heed_form_state *form)
{
    const heed_block_rule rule = form->form->block_rule(form);
    return !form->form->block_query || (rule.queries > 1 && !rule.by_group);
}

static void decide_row(const heed_form_state *form, const heed_choice *choice, int64_t row,
                       const float *estimate, float *work)
{
    uint8_t *state = choice->state + row * choice->stride;
    const int64_t last = choice->last[row];
    if (last < 0)
        return;
    heed_block_row view = {.blocks = (int)(last / choice->unit) + 1,
                           .current = (int)(last / choice->unit),
                           .value = choice->value + row * choice->stride,
                           .work = work,
                           .estimate = estimate};
    for (int u = 0; u < view.blocks; u++)
        view.value[u] = state[u] & HEED_SEEN ? known(view.value[u]) : -INFINITY;
    form->form->choose_blocks(form, &view);
    for (int u = 0; u < view.blocks; u++)
        state[u] = view.value[u] == -INFINITY ? HEED_UNSEEN : state[u];
}

/* Rows of one head of the same values, which decide the same where they see the same of the blocks before the
 * same current one. */
static void decide_alike(const heed_form_state *form, const heed_choice *choice, int64_t row0, int rows,
                         const float *estimate, float *work)
{
    for (int64_t row = row0, next; row < row0 + rows; row = next) {
        uint8_t *state = choice->state + row * choice->stride;
        const int64_t current = choice->last[row] < 0 ? -1 : choice->last[row] / choice->unit;
        next = row + 1;
        while (current >= 0 && next < row0 + rows && choice->last[next] >= 0 &&
               choice->last[next] / choice->unit == current &&
               !memcmp(state, choice->state + next * choice->stride, (size_t)current))
            next++;
        decide_row(form, choice, row, estimate, work);
        for (int64_t r = row + 1; r < next; r++) {
            uint8_t *other = choice->state + r * choice->stride;
            memcpy(other, state, (size_t)current);
            other[current] = state[current] == HEED_UNSEEN ? HEED_UNSEEN : other[current];
        }
    }
}

void heed_choice_decide(const heed_pipeline *pipeline, const heed_choice *choice, int heads, int rows,
                        int64_t apart, float *work)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    if (same_values(form)) {
        for (int h = 0; h < heads; h++)
            decide_alike(form, choice, h * apart, rows, NULL, work);
        return;
    }
    const bool by_group = form->form->block_rule(form).by_group;
    for (int i = 0; i < rows; i++) {
        const bool alike = by_group && see_alike(choice, heads, i, apart);
        if (by_group)
            pool_heads(choice, heads, i, apart);
        decide_row(form, choice, i, NULL, work);
        for (int h = 1; h < heads; h++) {
            if (alike)
                heed_choice_copy(choice, i, h * apart + i, 1);
            else
                decide_row(form, choice, h * apart + i, NULL, work);
        }
    }
}

void heed_choice_decide_from(const heed_pipeline *pipeline, const heed_choice *choice, int64_t row0, int rows,
                             const float *estimate, float *work)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    for (int i = 0; i < rows && !same_values(form); i++)
        decide_row(form, choice, row0 + i, estimate, work);
    if (same_values(form))
        decide_alike(form, choice, row0, rows, estimate, work);
}

/* ---- summaries ---- */

#define CHUNK 1024 /* keys that are summarised at a time, in whole blocks */

/* Floats before this pipeline's block selector in a summary of `keys` keys that came with them. */
static int64_t floats_before(const heed_run *run, const heed_pipeline *pipeline, int64_t keys)
{
    const heed_plan *plan = run->plan;
    int64_t floats = 0;
    for (int p = 0; p < plan->pipelines; p++)
        for (int n = 0; n < plan->pipeline[p].selects; n++) {
            const heed_form_state *form = &plan->pipeline[p].form[plan->pipeline[p].select[n]];
            if (&run->pipeline[p] == pipeline && plan->pipeline[p].select[n] == pipeline->by_blocks)
                return floats;
            if (form->form->summary_floats)
                floats += form->form->summary_floats(form, plan->pipeline[p].row_dim, keys);
        }
    return floats;
}

/* The summary of block u that came with the keys, and in *count how many blocks follow one another there. */
static const float *given_summary(const heed_run *run, const heed_pipeline *pipeline, int batch, int group,
                                  int64_t u, int64_t floats, int64_t *count)
{
    const heed_tensor *given = &run->extra->summaries;
    const heed_problem *problem = &run->plan->problem;
    const int64_t unit = heed_block_selector(pipeline)->form->block_rule(heed_block_selector(pipeline)).keys;
    const char *data = (const char *)given->data + group * given->stride[1];
    if (!run->summaries_paged) {
        *count = INT64_MAX;
        data += batch * given->stride[0];
        return (const float *)(const void *)data + floats_before(run, pipeline, problem->keys) + u * floats;
    }
    const int64_t key = u * unit, page = key / problem->page, within = key % problem->page / unit;
    const char *entry =
        run->page_table + batch * run->page_step[0] + group * run->page_step[1] + page * run->page_step[2];
    *count = problem->page / unit - within;
    const int grade = *(const int32_t *)(const void *)entry >> HEED_GRADE_SHIFT;
    if (grade > 0) {
        given = &run->grade[grade - 1].summaries;
        data = (const char *)given->data + group * given->stride[1];
    }
    data += (*(const int32_t *)(const void *)entry & ((1 << HEED_GRADE_SHIFT) - 1)) * given->stride[0];
    return (const float *)(const void *)data + floats_before(run, pipeline, problem->page) + within * floats;
}

int64_t heed_block_floats(const heed_pipeline *pipeline)
{
    int64_t most = 0;
    for (int n = 0; n < pipeline->selects; n++) {
        const heed_form_state *form = &pipeline->form[pipeline->select[n]];
        if (!form->form->block_query)
            continue;
        const int64_t unit = form->form->block_rule(form).keys;
        const int64_t floats = form->form->summary_floats(form, pipeline->row_dim, unit);
        most = floats > most ? floats : most;
    }
    return most;
}

heed_value_work heed_take_value_work(heed_arena *arena, int rows)
{
    heed_value_work work = {0};
    work.row = heed_arena_take(arena, HEED_KEYS + HEED_AHEAD, sizeof *work.row);
    work.product = heed_arena_take(arena, (size_t)rows * HEED_KEYS, sizeof *work.product);
    return work;
}

void heed_choice_values(const heed_run *run, const heed_pipeline *pipeline, const float *made, int batch,
                        int group, int64_t first, int64_t count, int rows, const float *query, float *value,
                        int64_t value_stride, heed_value_work *work)
{
    const int64_t floats = heed_block_floats(pipeline);
    for (int64_t u = first; u < first + count; u += HEED_KEYS) {
        const int here = first + count - u < HEED_KEYS ? (int)(first + count - u) : HEED_KEYS;
        int64_t left = 0;
        const float *summary = NULL;
        for (int i = 0; i < here; i++, left--, summary += floats) {
            if (left == 0)
                summary = made ? made + (u + i) * floats
                               : given_summary(run, pipeline, batch, group, u + i, floats, &left);
            work->row[i] = (const char *)summary;
        }
        for (int i = here; i < HEED_KEYS + HEED_AHEAD; i++)
            work->row[i] = work->row[here - 1];
        const heed_decode_rows blocks = {.type = HEED_F32,
                                         .count = (int)heed_round_up(here, HEED_SUB),
                                         .dim = (int)floats,
                                         .row = work->row,
                                         .far = 8};
        heed_decode_scores(&blocks, rows, query, heed_block_stride(pipeline), work->product);
        for (int r = 0; r < rows; r++)
            memcpy(value + r * value_stride + (u - first), work->product + r * HEED_KEYS,
                   (size_t)here * sizeof *value);
    }
}

/* ---- searching ---- */

static void look(const heed_block_row *row, const int32_t *block, int count, float *value)
{
    const heed_looker *looker = row->looker;
    heed_value_work *work = looker->work;
    const int64_t floats = heed_block_floats(looker->pipeline), stride = heed_block_stride(looker->pipeline);
    for (int first = 0; first < count; first += HEED_KEYS) {
        const int here = count - first < HEED_KEYS ? count - first : HEED_KEYS;
        for (int i = 0; i < HEED_KEYS + HEED_AHEAD; i++) {
            const int64_t u = block[first + (i < here ? i : here - 1)];
            int64_t left;
            work->row[i] =
                (const char *)(looker->made ? looker->made + u * floats
                                            : given_summary(looker->run, looker->pipeline, looker->batch,
                                                            looker->group, u, floats, &left));
        }
        const heed_decode_rows blocks = {.type = HEED_F32,
                                         .count = (int)heed_round_up(here, HEED_SUB),
                                         .dim = (int)floats,
                                         .row = work->row,
                                         .far = 8};
        for (int i = 0; i < here; i++)
            value[first + i] = -FLT_MAX;
        for (int h = 0; h < looker->heads; h++) {
            heed_decode_scores(&blocks, looker->rows, looker->query + h * looker->apart * stride, stride,
                               work->product);
            for (int r = 0; r < looker->rows; r++)
                for (int i = 0; i < here; i++) {
                    const float x = known(work->product[r * HEED_KEYS + i]);
                    value[first + i] = x > value[first + i] ? x : value[first + i];
                }
        }
    }
}

/* One choice for rows of some heads from row0 on. */
static void search(const heed_choice *choice, heed_looker *looker, int64_t row0, float *work)
{
    const heed_form_state *form = heed_block_selector(looker->pipeline);
    float *value = choice->value + row0 * choice->stride;
    int64_t last = -1, first = INT64_MAX;
    for (int64_t u = 0; u < choice->units; u++)
        value[u] = -INFINITY;
    for (int h = 0; h < looker->heads; h++)
        for (int i = 0; i < looker->rows; i++) {
            const int64_t row = row0 + h * looker->apart + i, own = choice->last[row];
            const uint8_t *state = choice->state + row * choice->stride;
            for (int64_t u = 0; own >= 0 && u <= own / choice->unit; u++)
                value[u] = state[u] & HEED_SEEN ? 0.0f : value[u];
            last = own > last ? own : last;
            first = own >= 0 && own < first ? own : first;
        }
    if (last < 0)
        return;
    heed_block_row view = {.blocks = (int)(last / choice->unit) + 1,
                           .current = (int)(last / choice->unit),
                           .earliest = (int)(first / choice->unit),
                           .value = value,
                           .work = work,
                           .look = look,
                           .looker = looker};
    form->form->choose_blocks(form, &view);
    for (int h = 0; h < looker->heads; h++)
        for (int i = 0; i < looker->rows; i++) {
            const int64_t row = row0 + h * looker->apart + i;
            uint8_t *state = choice->state + row * choice->stride;
            for (int u = 0; u < view.blocks; u++)
                state[u] = value[u] == -INFINITY ? HEED_UNSEEN : state[u];
        }
}

void heed_choice_search(const heed_choice *choice, heed_looker *looker, int heads, int rows, int64_t apart,
                        float *work)
{
    const heed_form_state *form = heed_block_selector(looker->pipeline);
    const float *query = looker->query;
    const bool by_group = form->form->block_rule(form).by_group;
    looker->heads = by_group ? heads : 1;
    looker->rows = rows;
    looker->apart = apart;
    for (int h = 0; h < heads; h += looker->heads) {
        looker->query = query + h * apart * heed_block_stride(looker->pipeline);
        search(choice, looker, h * apart, work);
    }
}

int64_t heed_summaries_floats(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    if (!form || !form->form->summary_floats || plan->problem.with & HEED_WITH_SUMMARIES)
        return 0;
    return form->form->summary_floats(form, pipeline->row_dim, plan->problem.keys);
}

static int64_t chunk_keys(const heed_form_state *form)
{
    const int64_t unit = form->form->block_rule(form).keys;
    return unit < CHUNK ? CHUNK / unit * unit : unit;
}

int64_t heed_summaries_chunks(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    if (heed_summaries_floats(plan, pipeline) == 0)
        return 0;
    return (plan->problem.keys + chunk_keys(form) - 1) / chunk_keys(form);
}

void heed_summaries_make(const heed_run *run, const heed_pipeline *pipeline, int batch, int group,
                         int64_t chunk, heed_row_work *work, float *made)
{
    const heed_form_state *form = heed_block_selector(pipeline);
    const int64_t step = chunk_keys(form), keys = heed_key_count(run, batch, group);
    const int64_t end = (chunk + 1) * step < keys ? (chunk + 1) * step : keys;
    for (int64_t key0 = chunk * step; key0 < end; key0 += HEED_KEYS) {
        heed_rows rows = heed_prepared_keys(run, pipeline, batch, group, key0,
                                            end - key0 < HEED_KEYS ? (int)(end - key0) : HEED_KEYS, work);
        form->form->summarise(form, &rows, key0, made);
    }
}
