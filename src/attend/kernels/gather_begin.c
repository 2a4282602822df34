/* Before queries and keys meet in lists: whether they can, what the form is shown, and clean sums. */
#include "attend/kernels/gather.h"

#include <heed/recall.h>

#include <string.h>

/* ---- what a plan must be ---- */

/* Whether a mask follows from positions, so that it can be asked about keys that do not lie together. */
static bool by_position(const heed_form_state *form)
{
    const bool from_start = strcmp(form->form->name, "causal") == 0 && form->arg[0].number == 1;
    const unsigned other = HEED_NEEDS_MASK | HEED_NEEDS_SEGMENTS | HEED_SEES_BY_HEAD;
    return heed_built_in(form->form) && !(form->form->flags & other) && !from_start;
}

const char *heed_gather_refuses(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_problem *p = &plan->problem;
    const heed_form *normalise = pipeline->form[pipeline->normalise].form;
    const heed_gather_rule *rule = pipeline->form[pipeline->gathers].form->gathers;
    if (pipeline->selects > 1)
        return "no other selector goes before or behind it";
    if (pipeline->whole_rows || !(normalise->flags & HEED_KEEPS_MOMENT))
        return "its parts are merged by their log-sum-exp, which takes exponential weights and no form that "
               "needs whole rows";
    if (pipeline->pair >= 0 || pipeline->auxes > 0 || pipeline->keys_by_head || pipeline->row_dim != p->dim)
        return "gathered rows are scored by a product of query and key";
    for (int n = 0; n < pipeline->adjusts && p->with & HEED_WITH_BACKWARD; n++)
        if (!pipeline->form[pipeline->adjust[n]].form->bias)
            return "gradients of a position form that looks at scores are made where keys lie together";
    if (rule->apart && normalise->norm_backward)
        return "each of its softmaxes would have a sink of its own";
    if (rule->makes && pipeline->adjusts > 0)
        return "the keys that it makes stand for many, so no form of position can add to their scores; one "
               "that "
               "turns rows can stand beside where=causal";
    if ((rule->makes || rule->places) && (pipeline->wheres != 1 || !pipeline->causal))
        return "keys that stand for many, or elsewhere than in the text, take where=causal and no other mask";
    for (int n = 0; n < pipeline->prepares && rule->places && pipeline->keys_ready; n++) {
        const heed_form *form = pipeline->form[pipeline->prepare[n]].form;
        if (form->prepare_key && !form->move_key && !(form->flags & HEED_SCALES_ROWS))
            return "keys that come prepared cannot be moved";
    }
    if (rule->places && p->with & HEED_WITH_BACKWARD)
        return "rows that stand elsewhere have no gradient";
    if (heed_outside_sees_tiles(pipeline))
        return "a form from outside is shown keys that lie together";
    if (p->with & (HEED_WITH_POSITIONS | HEED_WITH_MASS))
        return "queries and keys must stand in order, one behind the other (a cache policy, or positions "
               "that "
               "are given, puts them elsewhere)";
    if (p->with & (HEED_WITH_ENTROPY | HEED_WITH_KEY_SUMS | HEED_WITH_TOP | HEED_WITH_WEIGHTS))
        return "weights of gathered keys are not laid out by key, as statistics and captures take them";
    for (int n = 0; n < pipeline->wheres; n++)
        if (pipeline->where[n].kind == HEED_WHERE_LEAF &&
            !by_position(&pipeline->form[pipeline->where[n].form]))
            return "where keys are gathered, `where` goes by positions alone";
    return NULL;
}

/* ---- buffers ---- */

heed_gather_work heed_take_gather_work(heed_arena *arena, const heed_plan *plan,
                                       const heed_pipeline *pipeline)
{
    const size_t row = (size_t)heed_row_stride(plan, pipeline), value = (size_t)heed_value_stride(plan);
    const size_t queries = (size_t)plan->problem.queries + HEED_KEYS;
    const heed_form_state *form = &pipeline->form[pipeline->gathers];
    heed_gather_work work = {.pipeline = pipeline};
    work.query = heed_arena_take(arena, queries * row, sizeof(float));
    work.pos = heed_arena_take(arena, queries, sizeof(int32_t));
    work.sum = heed_arena_take(arena, queries * value, sizeof(float));
    work.total = heed_arena_take(arena, queries * value, sizeof(float));
    float **each[] = {&work.max, &work.norm_sum, &work.own_max, &work.own_sum};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        *each[i] = heed_arena_take(arena, queries, sizeof(float));
    work.keys.pos = heed_arena_take(arena, HEED_KEYS, sizeof(int32_t));
    work.keys.transposed = heed_arena_take(arena, row * HEED_KEY_STRIDE, sizeof(float));
    work.keys.natural = heed_arena_take(arena, row * HEED_KEY_STRIDE, sizeof(float));
    work.keys.value = heed_arena_take(arena, value * HEED_KEYS, sizeof(float));
    work.logs = heed_arena_take(arena, HEED_KEYS, sizeof(float));
    work.low = heed_arena_take(arena, HEED_KEYS / HEED_SUB, sizeof(int32_t));
    work.high = heed_arena_take(arena, HEED_KEYS / HEED_SUB, sizeof(int32_t));
    work.strip_query = heed_arena_take(arena, HEED_STRIP * row, sizeof(float));
    work.strip_sum = heed_arena_take(arena, HEED_STRIP * value, sizeof(float));
    work.score = heed_arena_take(arena, HEED_STRIP * HEED_KEYS, sizeof(float));
    work.was_open = heed_arena_take(arena, HEED_STRIP * HEED_KEYS, 1);
    work.end = heed_arena_take(arena, HEED_KEYS, sizeof *work.end);
    work.rows = heed_take_row_work(arena, plan, HEED_KEYS);
    work.sight = heed_take_sight(arena, plan);
    const heed_gather_rule *rule = form->form->gathers;
    work.at.work = heed_arena_take(arena, rule->bytes ? rule->bytes(form) : 0, 1);
    return work;
}

size_t heed_gather_per_thread(const heed_plan *plan, const heed_pipeline *pipeline)
{
    heed_arena arena = {0};
    heed_take_gather_work(&arena, plan, pipeline);
    return arena.used;
}

/* ---- what the form is shown ---- */

/* Rows from `first` on of a query head, or of the kv head that it reads, as they stand at pos. */
static void load(const heed_gathering *at, bool keys, int head, int64_t first, int64_t count,
                 const int32_t *pos, float *to, int64_t stride)
{
    heed_gather_work *work = at->kernel;
    for (int64_t done = 0; done < count; done += HEED_KEYS) {
        const int here = count - done < HEED_KEYS ? (int)(count - done) : HEED_KEYS;
        heed_prepare_list(work->run, work->pipeline, keys, at->batch, head, NULL, first + done, here,
                          pos + done, to + done * stride, stride, &work->rows);
    }
}

static void load_queries_of(const heed_gathering *at, int head, int64_t first, int64_t count, float *to,
                            int64_t stride)
{
    load(at, false, head, first, count, at->query_pos + first, to, stride);
}

static void load_keys(const heed_gathering *at, int64_t first, int64_t count, float *to, int64_t stride)
{
    load(at, true, at->head, first, count, at->key_pos + first, to, stride);
}

static void load_keys_of(const heed_gathering *at, int kv_head, int64_t first, int64_t count, float *to,
                         int64_t stride)
{
    const heed_plan *plan = ((heed_gather_work *)at->kernel)->run->plan;
    const int64_t group = plan->problem.heads / plan->problem.kv_heads;
    load(at, true, (int)(kv_head * group), first, count, at->key_pos + first, to, stride);
}

static void load_values(const heed_gathering *at, int64_t first, int64_t count, float *to, int64_t stride)
{
    const heed_gather_work *work = at->kernel;
    heed_load_rows(work->run, &work->run->v, work->run->plan->problem.with & HEED_WITH_PAGES, at->batch,
                   at->kv_head, first, (int)count, to, stride);
}

static void place_queries(const heed_gathering *at, int64_t first, int64_t count, const int32_t *pos,
                          float *to, int64_t stride)
{
    load(at, false, at->head, first, count, pos, to, stride);
}

/* Keys that come prepared are moved by what lies between. */
static void move_keys(heed_gather_work *work, int64_t first, int count, const int32_t *pos, float *to,
                      int64_t stride)
{
    int32_t by[HEED_KEYS];
    for (int i = 0; i < count; i++)
        by[i] = pos[i] - work->at.key_pos[first + i];
    for (int n = 0; n < work->pipeline->prepares; n++) {
        const heed_form_state *form = &work->pipeline->form[work->pipeline->prepare[n]];
        if (!form->form->move_key)
            continue;
        form->form->move_key(form, &(heed_rows){.count = count,
                                                .dim = work->at.dim,
                                                .batch = work->at.batch,
                                                .head = work->at.kv_head,
                                                .pos = by,
                                                .contiguous = heed_runs_by_one(by, count),
                                                .in = to,
                                                .in_stride = stride,
                                                .out = work->rows.raw,
                                                .out_stride = work->at.query_stride});
        for (int i = 0; i < count; i++)
            memcpy(to + i * stride, work->rows.raw + i * work->at.query_stride,
                   (size_t)work->at.dim * sizeof *to);
    }
}

static void place_keys(const heed_gathering *at, int64_t first, int64_t count, const int32_t *pos, float *to,
                       int64_t stride)
{
    heed_gather_work *work = at->kernel;
    for (int64_t done = 0; done < count; done += HEED_KEYS) {
        const int here = count - done < HEED_KEYS ? (int)(count - done) : HEED_KEYS;
        heed_prepare_list(work->run, work->pipeline, true, at->batch, at->head, NULL, first + done, here,
                          pos + done, to + done * stride, stride, &work->rows);
        if (work->pipeline->keys_ready)
            move_keys(work, first + done, here, pos + done, to + done * stride, stride);
    }
}

static void clear_row(float *sum, int64_t stride, float *max, float *norm)
{
    memset(sum, 0, (size_t)stride * sizeof *sum);
    *max = -INFINITY;
    *norm = 0.0f;
}

void heed_gather_begin(heed_gather_work *work, const heed_run *run, const heed_pipeline *pipeline, int batch,
                       int head)
{
    const heed_problem *p = &run->plan->problem;
    const int64_t kv_head = heed_kv_head_of(run->plan, head), value = heed_value_stride(run->plan);
    work->run = run;
    work->pipeline = pipeline;
    work->at.batch = batch;
    work->at.head = head;
    work->at.kv_head = (int)kv_head;
    work->at.queries = run->query_count[batch];
    work->at.keys = heed_key_count(run, batch, kv_head);
    work->at.before = work->at.keys > work->at.queries ? work->at.keys - work->at.queries : 0;
    work->at.dim = pipeline->row_dim;
    work->at.value_dim = (int)p->value_dim;
    work->at.query_pos = run->query_pos + batch * p->queries;
    work->at.key_pos = heed_key_positions(run, batch, kv_head);
    work->at.query = work->query;
    work->at.query_stride = heed_row_stride(run->plan, pipeline);
    work->at.memory = run->extra->memory ? run->extra->memory[batch] : NULL;
    work->at.query_scale = pipeline->pair < 0 ? (double)pipeline->scale : 1.0;
    work->at.load_keys = load_keys;
    work->at.load_keys_of = load_keys_of;
    work->at.load_queries_of = load_queries_of;
    work->at.load_values = load_values;
    work->at.place_queries = place_queries;
    work->at.place_keys = place_keys;
    work->keys.batch = batch;
    work->keys.group = (int)kv_head;
    for (int64_t i = 0; i < work->at.queries; i += HEED_KEYS) {
        const int64_t left = work->at.queries - i;
        heed_query_block block = {.batch = batch,
                                  .head = head,
                                  .query0 = i,
                                  .rows = left < HEED_KEYS ? (int)left : HEED_KEYS,
                                  .pos = work->pos + i,
                                  .prepared = work->query + i * work->at.query_stride};
        heed_prepare_queries(run, pipeline, &block, &work->rows);
    }
    for (int64_t i = 0; i < work->at.queries; i++) {
        clear_row(work->sum + i * value, value, &work->max[i], &work->norm_sum[i]);
        clear_row(work->total + i * value, value, &work->own_max[i], &work->own_sum[i]);
    }
}

void heed_gather_ask(heed_gather_work *work)
{
    const heed_form_state *form = &work->pipeline->form[work->pipeline->gathers];
    work->at.kernel = work;
    if (work->at.queries > 0 && work->at.keys > 0)
        form->form->gathers->gather(form, &work->at);
}

void heed_gather_clear(heed_gather_work *work, const heed_meeting *meeting)
{
    const int64_t value = heed_value_stride(work->run->plan);
    for (int64_t n = 0; n < meeting->queries; n++) {
        const int64_t i = heed_gather_query(meeting, n);
        clear_row(work->sum + i * value, value, &work->max[i], &work->norm_sum[i]);
    }
}
