/* Planning: a spec and a problem become pipelines of forms, a kernel for each, and memory for executing. */
#include "attend/plan.h"
#include "attend/execute.h"
#include "attend/memory.h"
#include "attend/plan_checks.h"
#include "attend/prepared.h"
#include "attend/registry.h"
#include "attend/spec.h"
#include "attend/summaries.h"
#include "base/cpu.h"
#include "base/each_isa.h"
#include "base/try.h"
#include "tensor/channel.h"
#include "tensor/rotate.h"
#include <heed/gather.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static heed_status check_size(const char *name, int64_t size, int64_t least, int64_t most)
{
    if (size < least)
        return heed_fail(HEED_INVALID, "%s is %lld, it must be at least %lld", name, (long long)size,
                         (long long)least);
    if (size > most)
        return heed_fail(HEED_INVALID, "%s is %lld, the most is %lld", name, (long long)size,
                         (long long)most);
    return HEED_OK;
}

static heed_status check_volume(const char *name, heed_type type, int64_t a, int64_t b, int64_t c, int64_t d)
{
    size_t bytes;
    if (heed_tensor_bytes(type, 4, (int64_t[]){a, b, c, d}, &bytes) != HEED_OK || bytes > INT64_MAX / 4)
        return heed_fail(HEED_INVALID, "%s would have more bytes than can be counted", name);
    return HEED_OK;
}

static bool is_floating(heed_type type)
{
    return type == HEED_F32 || type == HEED_F16 || type == HEED_BF16;
}

static bool is_cache_block(heed_type type)
{
    const heed_type plain = heed_type_unrotated(type);
    return type == HEED_ROTATED_F16 || plain == HEED_Q8 || plain == HEED_Q4 || plain == HEED_Q3 ||
           plain == HEED_Q2;
}

/* Rows of all grades must be turned alike, for queries are turned once and sums turned back. */
static heed_status check_grades(const heed_problem *p)
{
    if (p->grades < 0 || p->grades > HEED_MOST_GRADES || (p->grades && !(p->with & HEED_WITH_PAGES)))
        return heed_fail(HEED_INVALID, "%d grades of pages: 0 to %d, with pages only", p->grades,
                         HEED_MOST_GRADES);
    for (int g = 0; g < p->grades; g++) {
        const heed_type k = p->grade[g].k, v = p->grade[g].v;
        const bool by_channel = heed_type_by_channel(k);
        if ((!is_floating(k) && !is_cache_block(k) && !by_channel && k != HEED_PACKED) ||
            (!is_floating(v) && !is_cache_block(v) && v != HEED_PACKED))
            return heed_fail(HEED_INVALID, "grade %d stores keys as type %d and values as type %d", g + 1,
                             (int)k, (int)v);
        if (by_channel && p->page % HEED_CHANNEL_GROUP != 0)
            return heed_fail(HEED_INVALID, "keys by channel go in groups of %d, but a page has %lld",
                             (int)HEED_CHANNEL_GROUP, (long long)p->page);
        if (heed_type_rotated(k) != heed_type_rotated(p->k_type) ||
            heed_type_rotated(v) != heed_type_rotated(p->v_type))
            return heed_fail(HEED_UNSUPPORTED, "either all grades of pages are rotated or none");
    }
    return HEED_OK;
}

static heed_status check_problem(heed_problem *p)
{
    p->kv_heads = p->kv_heads ? p->kv_heads : p->heads;
    p->value_dim = p->value_dim ? p->value_dim : p->dim;
    p->threads = p->threads ? p->threads : heed_cpu_physical_cores();
    const int64_t many = HEED_POSITION_LIMIT;
    TRY(check_size("batch", p->batch, 0, many));
    TRY(check_size("heads", p->heads, 1, many));
    TRY(check_size("kv_heads", p->kv_heads, 1, many));
    TRY(check_size("queries", p->queries, 0, many));
    TRY(check_size("keys", p->keys, 0, many));
    TRY(check_size("dim", p->dim, 1, 1 << 16));
    TRY(check_size("value_dim", p->value_dim, 1, 1 << 16));
    TRY(check_size("threads", p->threads, 1, 1024));
    TRY(check_size("layer", p->layer, 0, many));
    if (p->heads % p->kv_heads != 0)
        return heed_fail(HEED_INVALID, "heads is %lld, it must be a multiple of kv_heads, which is %lld",
                         (long long)p->heads, (long long)p->kv_heads);
    if (!is_floating(p->q_type))
        return heed_fail(HEED_INVALID, "q is %s, it must be f32, f16 or bf16", heed_type_name(p->q_type));
    const heed_type kv[] = {p->k_type, p->v_type};
    for (int i = 0; i < 2; i++)
        if (!is_floating(kv[i]) && !is_cache_block(kv[i]))
            return heed_fail(HEED_INVALID,
                             "%s is %s, it must be f32, f16, bf16, q8, q4, q3, q2, rq8, rq4, rq3 or rq2",
                             i ? "v" : "k", heed_type_name(kv[i]));
    TRY(check_volume("q", HEED_F32, p->batch, p->heads, p->queries, p->dim));
    TRY(check_volume("k", HEED_F32, p->batch, p->heads, p->keys, p->dim));
    TRY(check_volume("v", HEED_F32, p->batch, p->heads, p->keys, p->value_dim));
    TRY(check_volume("out", HEED_F32, p->batch, p->heads, p->queries, p->value_dim));
    if (p->with & HEED_WITH_PAGES && (p->page < 1 || (p->page & (p->page - 1)) != 0))
        return heed_fail(HEED_INVALID, "page is %lld, it must be a power of two", (long long)p->page);
    TRY(check_grades(p));
    if (p->with & HEED_WITH_PAGES && p->with & HEED_WITH_BACKWARD)
        return heed_fail(HEED_UNSUPPORTED, "gradients are not computed for paged keys and values");
    if (p->with & HEED_WITH_BACKWARD && (!is_floating(p->k_type) || !is_floating(p->v_type)))
        return heed_fail(HEED_UNSUPPORTED, "gradients are not computed for quantised keys and values");
    const unsigned no_backward = HEED_WITH_KEYS_BY_HEAD | HEED_WITH_MASS;
    if (p->with & HEED_WITH_BACKWARD && p->with & no_backward)
        return heed_fail(HEED_UNSUPPORTED, "gradients are not computed %s",
                         p->with & HEED_WITH_MASS ? "for keys with a mass"
                                                  : "where kv heads hold keys of their own");
    if (p->with & HEED_WITH_KEYS_BY_HEAD && p->with & HEED_WITH_SEGMENTS)
        return heed_fail(HEED_UNSUPPORTED,
                         "k_segment is the same for all kv heads, but here each holds keys of its own");
    if (p->with & HEED_WITH_TOP && (p->top < 1 || p->top > 4096))
        return heed_fail(HEED_INVALID, "top is %d, it must be 1 to 4096", p->top);
    return HEED_OK;
}

#define DECLARE(name, isa) extern const heed_kernel_table heed_kernels_##name;
HEED_EACH_ISA(DECLARE)

static const heed_kernel_table *kernels_of(heed_isa isa)
{
    static const heed_kernel_table *const table[] = {
#define ENTRY(name, isa) [isa] = &heed_kernels_##name,
        HEED_EACH_ISA(ENTRY)};
    return table[isa];
}

static const heed_form *form_for_isa(const heed_plan *plan, const heed_form *form)
{
    if (heed_registry_find(HEED_ISA_PORTABLE, form->stage, form->name) != form)
        return form; /* a user's own */
    return heed_registry_find(plan->isa, form->stage, form->name);
}

static heed_status add_state(const heed_plan *plan, heed_pipeline *pipeline, const heed_form *form,
                             const heed_value *arg, int *index)
{
    if (pipeline->forms == HEED_MAX_FORMS)
        return heed_fail(HEED_INVALID, "the spec holds more than %d forms", HEED_MAX_FORMS);
    heed_form_state *state = &pipeline->form[pipeline->forms];
    *state = (heed_form_state){.form = form_for_isa(plan, form)};
    memcpy(state->arg, arg, sizeof state->arg);
    *index = pipeline->forms++;
    return HEED_OK;
}

/* The default form of a stage, by name, with default arguments. */
static heed_status add_default(const heed_plan *plan, heed_pipeline *pipeline, heed_stage stage,
                               const char *name, int *index)
{
    const heed_form *form = heed_registry_find(HEED_ISA_PORTABLE, stage, name);
    heed_value arg[HEED_MAX_ARGS] = {0};
    for (int i = 0; form->args && form->args[i].name; i++)
        arg[i].number = form->args[i].value;
    return add_state(plan, pipeline, form, arg, index);
}

static heed_status add_where(const heed_plan *plan, heed_pipeline *pipeline, const heed_spec *spec, int root,
                             int *index)
{
    const heed_node *node = &spec->node[root];
    heed_where_node made = {.kind = HEED_WHERE_LEAF, .form = -1, .left = -1, .right = -1};
    if (node->kind == HEED_NODE_FORM) {
        TRY(add_state(plan, pipeline, node->form, node->arg, &made.form));
    } else {
        made.kind = node->kind == HEED_NODE_NOT   ? HEED_WHERE_NOT
                    : node->kind == HEED_NODE_AND ? HEED_WHERE_AND
                                                  : HEED_WHERE_OR;
        TRY(add_where(plan, pipeline, spec, node->left, &made.left));
        if (node->kind != HEED_NODE_NOT)
            TRY(add_where(plan, pipeline, spec, node->right, &made.right));
    }
    if (pipeline->wheres == HEED_MAX_WHERE)
        return heed_fail(HEED_INVALID, "where holds more than %d operators and forms", HEED_MAX_WHERE);
    *index = pipeline->wheres;
    pipeline->where[pipeline->wheres++] = made;
    return HEED_OK;
}

static bool has_causal_factor(const heed_spec *spec, int root)
{
    const heed_node *node = &spec->node[root];
    if (node->kind == HEED_NODE_AND)
        return has_causal_factor(spec, node->left) || has_causal_factor(spec, node->right);
    return node->kind == HEED_NODE_FORM && strcmp(node->form->name, "causal") == 0;
}

static heed_status append(int *list, int *count, int index)
{
    if (*count == HEED_MAX_HOOKS)
        return heed_fail(HEED_INVALID, "the spec holds more than %d forms of one kind", HEED_MAX_HOOKS);
    list[(*count)++] = index;
    return HEED_OK;
}

/* Forms of a sum or a chain, left to right. */
static heed_status add_list(const heed_plan *plan, heed_pipeline *pipeline, const heed_spec *spec, int root,
                            int *list, int *count)
{
    const heed_node *node = &spec->node[root];
    if (node->kind == HEED_NODE_FORM) {
        int index = -1;
        TRY(add_state(plan, pipeline, node->form, node->arg, &index));
        return append(list, count, index);
    }
    TRY(add_list(plan, pipeline, spec, node->left, list, count));
    return add_list(plan, pipeline, spec, node->right, list, count);
}

static heed_status add_one(const heed_plan *plan, heed_pipeline *pipeline, const heed_spec *spec, int root,
                           heed_stage stage, const char *fallback, int *index)
{
    if (root < 0)
        return add_default(plan, pipeline, stage, fallback, index);
    return add_state(plan, pipeline, spec->node[root].form, spec->node[root].arg, index);
}

static heed_status add_normalise(const heed_plan *plan, heed_pipeline *pipeline, const heed_spec *spec,
                                 int root)
{
    int list[HEED_MAX_HOOKS], count = 0;
    if (root >= 0)
        TRY(add_list(plan, pipeline, spec, root, list, &count));
    pipeline->normalise = -1;
    for (int i = 0; i < count; i++) {
        if (pipeline->form[list[i]].form->flags & HEED_MODIFIER)
            TRY(append(pipeline->modify, &pipeline->modifies, list[i]));
        else
            pipeline->normalise = list[i];
    }
    if (pipeline->normalise < 0)
        TRY(add_default(plan, pipeline, HEED_NORMALISE, "softmax", &pipeline->normalise));
    return HEED_OK;
}

static heed_status needs(const heed_plan *plan, const heed_pipeline *pipeline, const heed_form *form)
{
    const unsigned with = plan->problem.with;
    const char *stage = heed_stage_name(form->stage);
    if (form->flags & HEED_NEEDS_DOT && strcmp(pipeline->form[pipeline->score].form->name, "dot") != 0)
        return heed_fail(HEED_INVALID, "%s=%s works only with score=dot", stage, form->name);
    if (form->flags & HEED_NEEDS_CAUSAL && !pipeline->causal)
        return heed_fail(HEED_INVALID, "%s=%s works only where `causal` is a factor of `where`", stage,
                         form->name);
    if (form->flags & HEED_NEEDS_SEGMENTS && !(with & HEED_WITH_SEGMENTS))
        return heed_fail(HEED_INVALID, "%s=%s needs the tensors q_segment and k_segment", stage, form->name);
    if (form->flags & HEED_NEEDS_MASK && !(with & HEED_WITH_MASK))
        return heed_fail(HEED_INVALID, "%s=%s needs the tensor mask", stage, form->name);
    return HEED_OK;
}

/* Sizes and computed defaults; the score form comes first because others ask for its scale. */
static heed_status resolve_forms(const heed_plan *plan, heed_pipeline *pipeline)
{
    const heed_problem *p = &plan->problem;
    heed_sizes sizes = {.batch = p->batch,
                        .heads = p->heads,
                        .kv_heads = p->kv_heads,
                        .queries = p->queries,
                        .keys = p->keys,
                        .dim = p->dim,
                        .value_dim = p->value_dim,
                        .causal = pipeline->causal,
                        .score_scale = 1.0 / sqrt((double)p->dim)};
    for (int f = 0; f < pipeline->forms; f++) {
        heed_form_state *form = &pipeline->form[f];
        form->sizes = sizes;
        form->backward = p->with & HEED_WITH_BACKWARD;
        TRY(needs(plan, pipeline, form->form));
        if (form->form->resolve)
            TRY(form->form->resolve(form));
        if (f == pipeline->score && form->form->scale && form->form->flags & HEED_SHARES_SCALE)
            sizes.score_scale = form->form->scale(form);
    }
    const heed_form_state *score = &pipeline->form[pipeline->score];
    pipeline->scale = score->form->scale ? (float)score->form->scale(score) : 1.0f;
    pipeline->row_dim =
        score->form->prepared_dim ? score->form->prepared_dim(score, (int)p->dim) : (int)p->dim;
    return HEED_OK;
}

static heed_status sort_position(heed_pipeline *pipeline, const int *list, int count)
{
    for (int pass = 0; pass < 2; pass++) /* those that read raw scores go first */
        for (int i = 0; i < count; i++) {
            const heed_form *form = pipeline->form[list[i]].form;
            const bool raw = form->flags & HEED_RAW_SCORES;
            if ((form->adjust || form->bias) && raw == (pass == 0))
                TRY(append(pipeline->adjust, &pipeline->adjusts, list[i]));
        }
    for (int i = 0; i < count; i++) {
        const heed_form *form = pipeline->form[list[i]].form;
        if (form->prepare_query || form->prepare_key)
            TRY(append(pipeline->prepare, &pipeline->prepares, list[i]));
        if (form->pair)
            pipeline->pair = list[i];
    }
    return HEED_OK;
}

/* A selector by lists that does not gather at these sizes is none. */
static void drop_idle_selector(heed_pipeline *pipeline)
{
    if (pipeline->selects != 1)
        return;
    const heed_form_state *form = &pipeline->form[pipeline->select[0]];
    const heed_gather_rule *rule = form->form->gathers;
    if (rule && rule->serves && !rule->serves(form))
        pipeline->selects = 0;
}

/* Which selectors decide by blocks, and whether nothing but selectors needs whole rows. */
static void note_selectors(heed_pipeline *pipeline)
{
    pipeline->by_blocks = pipeline->recalls = pipeline->votes = pipeline->gathers = -1;
    for (int n = 0; n < pipeline->selects; n++) {
        const heed_form_state *form = &pipeline->form[pipeline->select[n]];
        if (form->form->gathers)
            pipeline->gathers = pipeline->select[n];
        if (form->form->recall)
            pipeline->recalls = pipeline->select[n];
        pipeline->votes = form->form->vote ? pipeline->select[n] : pipeline->votes;
        if (!form->form->block_rule)
            continue;
        pipeline->by_group |= form->form->block_rule(form).by_group;
        pipeline->many_blocks |= n > 0;
        if (n == 0)
            pipeline->by_blocks = pipeline->select[0];
    }
    pipeline->only_selects = pipeline->selects > 0;
    for (int f = 0; f < pipeline->forms; f++) {
        const heed_form *form = pipeline->form[f].form;
        pipeline->only_selects &= !(form->flags & (HEED_WHOLE_ROW | HEED_MIXES_HEADS)) && !form->whole_row;
    }
}

/* What the kernels must know about the forms together. */
static heed_status gather(const heed_plan *plan, heed_pipeline *pipeline)
{
    const heed_form *score = pipeline->form[pipeline->score].form;
    if (score->prepare_query || score->prepare_key)
        TRY(append(pipeline->prepare, &pipeline->prepares, pipeline->score));
    if (score->pair)
        pipeline->pair = pipeline->score;
    if (pipeline->prepares > 2)
        return heed_fail(HEED_INVALID,
                         "at most one position form and the score may prepare queries and keys");
    pipeline->plain_query = pipeline->plain_key = true;
    for (int i = 0; i < pipeline->prepares; i++) {
        const heed_form *form = pipeline->form[pipeline->prepare[i]].form;
        pipeline->plain_query &= !form->prepare_query;
        pipeline->plain_key &= !form->prepare_key;
        pipeline->keys_by_head |= (form->flags & HEED_KEYS_BY_HEAD) != 0;
    }
    if (plan->problem.with & HEED_WITH_PREPARED_KEYS)
        TRY(heed_take_prepared_keys(plan, pipeline));
    drop_idle_selector(pipeline);
    note_selectors(pipeline);
    for (int f = 0; f < pipeline->forms; f++) {
        const heed_form_state *form = &pipeline->form[f];
        if (form->form->query_aux) {
            pipeline->aux_at[f] = pipeline->aux_floats;
            pipeline->aux_floats += form->form->aux_floats(form);
            TRY(append(pipeline->aux, &pipeline->auxes, f));
        }
        if (form->form->flags & HEED_WHOLE_ROW)
            pipeline->why = "a position form counts over the whole row";
        else if (form->form->stage == HEED_SELECT && !form->form->gathers)
            pipeline->why = "the selector needs the whole row";
        else if (form->form->flags & HEED_MIXES_HEADS)
            pipeline->why = "the heads mix their scores";
        else if (form->form->whole_row)
            pipeline->why = "the normaliser needs the whole row";
    }
    pipeline->whole_rows = pipeline->why != NULL;
    for (int f = 0; f < pipeline->forms; f++) {
        const heed_form *form = pipeline->form[f].form;
        const unsigned keeps =
            plan->problem.with & HEED_WITH_BACKWARD && form->adjust_backward ? form->flags : 0;
        pipeline->kept_before[f] = keeps & HEED_KEEPS_INPUT ? pipeline->kept_planes++ : -1;
        pipeline->kept_after[f] = keeps & HEED_KEEPS_OUTPUT ? pipeline->kept_planes++ : -1;
    }
    return HEED_OK;
}

static heed_status build_pipeline(const heed_plan *plan, heed_pipeline *pipeline, const heed_spec *spec,
                                  const int root[HEED_STAGES])
{
    int position[HEED_MAX_HOOKS], positions = 0, unused;
    pipeline->pair = -1;
    pipeline->causal = root[HEED_WHERE] >= 0 && has_causal_factor(spec, root[HEED_WHERE]);
    TRY(add_one(plan, pipeline, spec, root[HEED_SCORE], HEED_SCORE, "dot", &pipeline->score));
    if (root[HEED_POSITION] >= 0)
        TRY(add_list(plan, pipeline, spec, root[HEED_POSITION], position, &positions));
    if (root[HEED_WHERE] >= 0)
        TRY(add_where(plan, pipeline, spec, root[HEED_WHERE], &unused));
    if (root[HEED_SELECT] >= 0)
        TRY(add_list(plan, pipeline, spec, root[HEED_SELECT], pipeline->select, &pipeline->selects));
    TRY(add_normalise(plan, pipeline, spec, root[HEED_NORMALISE]));
    TRY(add_one(plan, pipeline, spec, root[HEED_HEADS], HEED_HEADS, "shared", &pipeline->heads));
    TRY(add_one(plan, pipeline, spec, root[HEED_READ], HEED_READ, "sum", &pipeline->read));
    TRY(resolve_forms(plan, pipeline));
    TRY(sort_position(pipeline, position, positions));
    TRY(gather(plan, pipeline));
    if (pipeline->form[pipeline->heads].form->flags & HEED_MIXES_HEADS &&
        pipeline->heads_here != plan->problem.heads)
        return heed_fail(HEED_INVALID, "heads=%s mixes all heads, so all heads must have the same spec",
                         pipeline->form[pipeline->heads].form->name);
    TRY(heed_check_votes(plan, pipeline));
    TRY(heed_check_keys(plan, pipeline));
    return heed_check_storage(plan, spec, root[HEED_CACHE]);
}

/* Heads whose clauses agree share a pipeline. */
static heed_status build_pipelines(heed_plan *plan, const heed_spec *spec)
{
    const int heads = (int)plan->problem.heads, groups = (int)plan->problem.kv_heads;
    int *kind = heed_allocate((size_t)heads, sizeof *kind);
    int(*root)[HEED_STAGES] = heed_allocate((size_t)heads, sizeof *root);
    heed_status status = HEED_OK;
    int kinds = 0;
    if (!kind || !root) {
        status = heed_fail(HEED_NO_MEMORY, "no memory for the clauses of %d heads", heads);
        goto end;
    }
    for (int h = 0; h < heads; h++) {
        int clauses[HEED_STAGES];
        heed_spec_clauses(spec, plan->problem.layer, h, clauses);
        int k = 0;
        while (k < kinds && memcmp(root[k], clauses, sizeof clauses) != 0)
            k++;
        if (k == kinds)
            memcpy(root[kinds++], clauses, sizeof clauses);
        kind[h] = k;
    }
    plan->pipeline = heed_allocate((size_t)kinds, sizeof *plan->pipeline);
    if (!plan->pipeline) {
        status = heed_fail(HEED_NO_MEMORY, "no memory for %d pipelines", kinds);
        goto end;
    }
    plan->pipelines = kinds;
    for (int k = 0; k < kinds && status == HEED_OK; k++) {
        heed_pipeline *pipeline = &plan->pipeline[k];
        pipeline->head = heed_allocate((size_t)heads, sizeof(int));
        pipeline->group_first = heed_allocate((size_t)groups + 1, sizeof(int));
        if (!pipeline->head || !pipeline->group_first) {
            status = heed_fail(HEED_NO_MEMORY, "no memory for a list of %d heads", heads);
            break;
        }
        for (int h = 0; h < heads; h++) {
            if (kind[h] != k)
                continue;
            pipeline->head[pipeline->heads_here++] = h;
            for (int g = (int)((int64_t)h * groups / heads) + 1; g <= groups; g++)
                pipeline->group_first[g]++;
        }
        status = build_pipeline(plan, pipeline, spec, root[k]);
    }
    if (status == HEED_OK && plan->problem.with & HEED_WITH_PREPARED_KEYS)
        status = heed_check_prepared_keys(plan);
    status = status == HEED_OK ? heed_check_summaries(plan) : status;
end:
    free(kind);
    free(root);
    return status;
}

static heed_status set_up_tables(heed_plan *plan)
{
    for (int p = 0; p < plan->pipelines; p++)
        for (int f = 0; f < plan->pipeline[p].forms; f++) {
            heed_form_state *form = &plan->pipeline[p].form[f];
            if (!form->form->table_bytes)
                continue;
            const size_t bytes = form->form->table_bytes(form);
            form->table = heed_allocate(bytes ? bytes : 1, 1);
            if (!form->table)
                return heed_fail(HEED_NO_MEMORY, "no memory for a table of %zu bytes of %s", bytes,
                                 form->form->name);
            if (form->form->setup)
                form->form->setup(form);
        }
    return HEED_OK;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static heed_status lay_out(heed_plan *plan)
{
    for (int p = 0; p < plan->pipelines; p++)
        TRY(plan->kernels->choose(plan, &plan->pipeline[p]));
    TRY(heed_check_memory(plan));
    plan->kernels->layout(plan);
    plan->tables = heed_run_tables(plan);
    heed_layout *both[] = {&plan->forward, &plan->backward};
    for (int i = 0; i < 2; i++)
        both[i]->total = plan->tables + both[i]->shared + (size_t)plan->problem.threads * both[i]->per_thread;
    const size_t bytes = larger(plan->forward.total, plan->backward.total);
    const bool keeps = !(plan->problem.with & HEED_WITH_SCRATCH);
    plan->scratch = keeps ? heed_allocate(bytes, 1) : NULL;
    plan->busy = malloc(sizeof *plan->busy);
    if ((keeps && !plan->scratch) || !plan->busy)
        return heed_fail(HEED_NO_MEMORY, "no memory for %zu bytes of scratch", bytes);
    atomic_flag_clear(plan->busy);
    return HEED_OK;
}

static heed_status keep_spec(heed_plan *plan, const heed_spec *spec)
{
    const size_t length = heed_spec_print(spec, NULL, 0);
    plan->spec = malloc(length + 1);
    if (!plan->spec)
        return heed_fail(HEED_NO_MEMORY, "no memory for the text of the spec");
    heed_spec_print(spec, plan->spec, length + 1);
    return HEED_OK;
}

static heed_status make(heed_plan *plan, const heed_spec *spec)
{
    TRY(heed_check_stages(spec, plan->problem.layer));
    TRY(keep_spec(plan, spec));
    TRY(build_pipelines(plan, spec));
    TRY(heed_list_params(plan));
    TRY(set_up_tables(plan));
    return lay_out(plan);
}

heed_status heed_plan_create(heed_plan **out, const char *text, const heed_problem *problem)
{
    if (!out || !text || !problem)
        return heed_fail(HEED_INVALID, "plan, spec and problem must not be NULL");
    *out = NULL;
    heed_problem checked = *problem;
    TRY(check_problem(&checked));
    heed_isa isa;
    TRY(heed_isa_resolve(problem->isa, &isa));
    heed_spec *spec;
    TRY(heed_spec_parse(&spec, text, problem->forms));
    heed_plan *plan = calloc(1, sizeof *plan);
    heed_status status = HEED_NO_MEMORY;
    if (plan) {
        plan->problem = checked;
        plan->isa = isa;
        plan->kernels = kernels_of(isa);
        status = make(plan, spec);
    } else {
        heed_fail(HEED_NO_MEMORY, "no memory for a plan");
    }
    heed_spec_free(spec);
    if (status != HEED_OK) {
        heed_plan_free(plan);
        return status;
    }
    *out = plan;
    return HEED_OK;
}

void heed_plan_free(heed_plan *plan)
{
    if (!plan)
        return;
    for (int p = 0; p < plan->pipelines; p++) {
        heed_pipeline *pipeline = &plan->pipeline[p];
        for (int f = 0; f < pipeline->forms; f++)
            free(pipeline->form[f].table);
        free(pipeline->head);
        free(pipeline->group_first);
    }
    for (int s = 0; s < plan->slots; s++)
        free(plan->slot[s].initial);
    free(plan->slot);
    free(plan->pipeline);
    free(plan->spec);
    free(plan->scratch);
    free(plan->busy);
    free(plan);
}

size_t heed_plan_scratch(const heed_plan *plan)
{
    return larger(plan->forward.total, plan->backward.total);
}
