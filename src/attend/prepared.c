/* Keys prepared once, when they enter a cache, instead of each time they are read. */
#include "attend/prepared.h"
#include "base/try.h"
#include <string.h>

heed_status heed_take_prepared_keys(const heed_plan *plan, heed_pipeline *pipeline)
{
    if (plan->problem.with & HEED_WITH_BACKWARD)
        return heed_fail(HEED_UNSUPPORTED, "backward needs the keys as they were given, not prepared ones");
    for (int i = 0; i < pipeline->prepares; i++) {
        const heed_form *form = pipeline->form[pipeline->prepare[i]].form;
        if (!form->prepare_key)
            continue;
        if (form->flags & HEED_KEYS_BY_HEAD || form->params || form->derived_floats)
            return heed_fail(
                HEED_UNSUPPORTED,
                "%s=%s prepares keys by parameters or by query head, so a cache cannot hold them prepared",
                heed_stage_name(form->stage), form->name);
    }
    if (pipeline->row_dim != plan->problem.dim)
        return heed_fail(HEED_UNSUPPORTED,
                         "%s=%s changes the length of keys, so a cache cannot hold them prepared",
                         heed_stage_name(HEED_SCORE), pipeline->form[pipeline->score].form->name);
    pipeline->keys_ready = pipeline->plain_key = true;
    return HEED_OK;
}

/* The i-th of the forms that prepare keys; NULL from the end on. */
static const heed_form_state *preparing(const heed_pipeline *pipeline, int i)
{
    for (int n = 0; n < pipeline->prepares; n++) {
        const heed_form_state *form = &pipeline->form[pipeline->prepare[n]];
        if (form->form->prepare_key && i-- == 0)
            return form;
    }
    return NULL;
}

static bool same_values(const heed_form_state *a, const heed_form_state *b)
{
    for (int i = 0; i < HEED_MAX_ARGS; i++)
        if (memcmp(&a->arg[i].number, &b->arg[i].number, sizeof(double)) != 0 ||
            memcmp(a->arg[i].sub, b->arg[i].sub, sizeof a->arg[i].sub) != 0)
            return false;
    return true;
}

static bool prepare_alike(const heed_pipeline *a, const heed_pipeline *b)
{
    for (int i = 0; i < HEED_MAX_HOOKS; i++) {
        const heed_form_state *one = preparing(a, i), *other = preparing(b, i);
        if (!one || !other)
            return one == other;
        if (one->form != other->form || !same_values(one, other))
            return false;
    }
    return true;
}

/* The first pipeline from `from` on with heads that read a kv head; NULL when there is none. */
static const heed_pipeline *reader_of(const heed_plan *plan, int64_t kv_head, int from)
{
    for (int p = from; p < plan->pipelines; p++)
        if (plan->pipeline[p].group_first[kv_head + 1] > plan->pipeline[p].group_first[kv_head])
            return &plan->pipeline[p];
    return NULL;
}

heed_status heed_check_prepared_keys(const heed_plan *plan)
{
    for (int64_t g = 0; g < plan->problem.kv_heads; g++) {
        const heed_pipeline *first = reader_of(plan, g, 0), *other = first;
        while (other && (other = reader_of(plan, g, (int)(other - plan->pipeline) + 1)) != NULL)
            if (!prepare_alike(first, other))
                return heed_fail(
                    HEED_UNSUPPORTED,
                    "the query heads that share kv head %lld prepare its keys in different ways, so a cache "
                    "cannot hold them prepared",
                    (long long)g);
    }
    return HEED_OK;
}

static heed_status check(const heed_plan *plan, const heed_new_keys *keys, const char *what, int64_t heads)
{
    if (!plan || !keys)
        return heed_fail(HEED_INVALID, "a plan and keys are needed");
    const heed_problem *p = &plan->problem;
    if (!(p->with & HEED_WITH_PREPARED_KEYS))
        return heed_fail(HEED_INVALID, "the plan was made without HEED_WITH_PREPARED_KEYS");
    if (keys->kv_head < 0 || keys->kv_head >= heads)
        return heed_fail(HEED_INVALID, "there is no %s %lld, the plan has %lld", what,
                         (long long)keys->kv_head, (long long)heads);
    if (keys->count < 0 || keys->count > INT32_MAX || keys->k_stride < p->dim || keys->out_stride < p->dim)
        return heed_fail(HEED_INVALID, "%lld keys with strides %lld and %lld: rows have %lld entries",
                         (long long)keys->count, (long long)keys->k_stride, (long long)keys->out_stride,
                         (long long)p->dim);
    for (int64_t i = 0; i < keys->count; i++)
        if (keys->pos[i] < -HEED_POSITION_LIMIT || keys->pos[i] > HEED_POSITION_LIMIT)
            return heed_fail(HEED_INVALID, "position %d of key %lld is beyond 2^30 in size", keys->pos[i],
                             (long long)i);
    return HEED_OK;
}

typedef void (*row_hook)(const heed_form_state *form, const heed_rows *rows);

static row_hook query_hook(const heed_form *form)
{
    return form->prepare_query;
}

static row_hook key_hook(const heed_form *form)
{
    return form->prepare_key;
}

static row_hook motion_hook(const heed_form *form)
{
    return form->move_key;
}

/* Rows through one hook of all forms that have it, from k to out and back, until they lie in out. */
static void pass(const heed_plan *plan, const heed_pipeline *pipeline, const heed_new_keys *keys,
                 row_hook (*hook_of)(const heed_form *))
{
    heed_rows rows = {.count = (int)keys->count,
                      .dim = (int)plan->problem.dim,
                      .head = (int)keys->kv_head,
                      .pos = keys->pos,
                      .contiguous = true};
    for (int r = 1; r < rows.count; r++)
        rows.contiguous &= keys->pos[r] == keys->pos[0] + r;
    bool in_out = false; /* where the rows are now */
    for (int n = 0; pipeline && n < pipeline->prepares; n++) {
        const heed_form_state *form = &pipeline->form[pipeline->prepare[n]];
        const row_hook hook = hook_of(form->form);
        if (!hook)
            continue;
        rows.in = in_out ? keys->out : keys->k;
        rows.in_stride = in_out ? keys->out_stride : keys->k_stride;
        rows.out = in_out ? keys->k : keys->out;
        rows.out_stride = in_out ? keys->k_stride : keys->out_stride;
        hook(form, &rows);
        in_out = !in_out;
    }
    for (int r = 0; !in_out && r < rows.count; r++)
        memcpy(keys->out + r * keys->out_stride, keys->k + r * keys->k_stride,
               (size_t)rows.dim * sizeof(float));
}

heed_status heed_plan_prepare_keys(const heed_plan *plan, const heed_new_keys *keys)
{
    TRY(check(plan, keys, "kv head", plan ? plan->problem.kv_heads : 0));
    pass(plan, reader_of(plan, keys->kv_head, 0), keys, key_hook);
    return HEED_OK;
}

/* The pipeline of a query head. */
static const heed_pipeline *pipeline_of(const heed_plan *plan, int64_t head)
{
    for (int p = 0; p < plan->pipelines; p++)
        for (int n = 0; n < plan->pipeline[p].heads_here; n++)
            if (plan->pipeline[p].head[n] == head)
                return &plan->pipeline[p];
    return NULL;
}

heed_status heed_plan_prepare_queries(const heed_plan *plan, const heed_new_keys *rows)
{
    TRY(check(plan, rows, "head", plan ? plan->problem.heads : 0));
    const heed_pipeline *pipeline = pipeline_of(plan, rows->kv_head);
    if (pipeline->pair >= 0) {
        const heed_form *form = pipeline->form[pipeline->pair].form;
        return heed_fail(HEED_UNSUPPORTED, "%s=%s makes scores that are no products of queries and keys",
                         heed_stage_name(form->stage), form->name);
    }
    for (int n = 0; n < pipeline->prepares; n++) {
        const heed_form *form = pipeline->form[pipeline->prepare[n]].form;
        if (form->prepare_query && (form->params || form->derived_floats))
            return heed_fail(HEED_UNSUPPORTED,
                             "%s=%s prepares queries by parameters, which only an execution has",
                             heed_stage_name(form->stage), form->name);
    }
    pass(plan, pipeline, rows, query_hook);
    for (int64_t r = 0; pipeline->scale != 1.0f && r < rows->count; r++)
        for (int64_t d = 0; d < plan->problem.dim; d++)
            rows->out[r * rows->out_stride + d] *= pipeline->scale;
    return HEED_OK;
}

heed_status heed_plan_move_keys(const heed_plan *plan, const heed_new_keys *keys)
{
    TRY(check(plan, keys, "kv head", plan ? plan->problem.kv_heads : 0));
    const heed_pipeline *pipeline = reader_of(plan, keys->kv_head, 0);
    bool moves = false;
    for (int n = 0; pipeline && n < pipeline->prepares; n++) {
        const heed_form *form = pipeline->form[pipeline->prepare[n]].form;
        const bool stays = form->stage != HEED_POSITION && (!moves || form->flags & HEED_SCALES_ROWS);
        if (form->prepare_key && !form->move_key && !stays)
            return heed_fail(HEED_UNSUPPORTED, "%s=%s has no way to move keys that it has prepared",
                             heed_stage_name(form->stage), form->name);
        moves |= form->move_key != NULL;
    }
    pass(plan, pipeline, keys, motion_hook);
    return HEED_OK;
}
