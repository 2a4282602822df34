/* Decoding: few queries against a long cache, which is read once, where it
 * lies.
 *
 * All query heads that share a kv head go through its keys together, a tile of
 * HEED_KEYS keys at a time; keys and values may be quantised, paged or both,
 * each in its own way, and are turned into floats in registers.
 *
 *   1. groups: for each kv head of each batch entry the queries are prepared,
 * and which key blocks they see is settled
 *   2. pieces: runs of HEED_PIECE keys of a group, each with sums of its own
 * (decode_piece.c)
 *   3. groups again: pieces are put together in their order (decode_finish.c)
 *
 * Pieces are cut at the same keys always, so neither threads nor neighbours in
 * the batch nor room behind the last key change a bit of the result.
 */
#include "attend/kernels/decode.h"
#include "attend/kernels/capture.h"
#include "attend/kernels/decode_load.h"
#include "attend/memory.h"
#include "tensor/channel.h"
#include "tensor/rotate.h"
#include <string.h>

#define ROWS_AT_ONCE 32 /* query rows of a group that go together; more heads still do */
#define MOST_QUERIES 8

const char *heed_decode_refuses(const heed_plan *plan, const heed_pipeline *pipeline)
{
    if (pipeline->whole_rows && !pipeline->only_selects)
        return pipeline->why;
    if (pipeline->selects > 0) {
        if (plan->problem.with & HEED_WITH_BACKWARD)
            return "gradients beyond a selector are made from whole rows";
        for (int n = 0; n < pipeline->selects; n++)
            if (!heed_built_in(pipeline->form[pipeline->select[n]].form) && pipeline->recalls < 0)
                return "a selector from outside is shown whole rows";
        if (pipeline->many_blocks)
            return "a selector behind the first decides by blocks of keys, which whole rows serve";
        const heed_form_state *by_blocks = heed_block_selector(pipeline);
        if (by_blocks && by_blocks->form->observe)
            return "the selector observes queries before it chooses";
        if (by_blocks && by_blocks->form->block_rule(by_blocks).queries > 1 && plan->problem.queries > 1)
            return "the selector chooses for blocks of queries";
        if ((pipeline->by_blocks >= 0 || pipeline->recalls >= 0) && pipeline->keys_by_head)
            return "the selector looks at keys that are prepared anew for each query head";
    }
    if (pipeline->pair >= 0)
        return "the score is no product of query and key";
    if (!pipeline->plain_key || pipeline->row_dim != plan->problem.dim)
        return "keys are prepared before they are compared (turned or normalised), "
               "so they cannot be read "
               "where they lie";
    if (heed_outside_sees_tiles(pipeline))
        return "a form from outside works on tiles and may ask for their keys, "
               "which are not laid out "
               "for it";
    return NULL;
}

int64_t heed_decode_most_queries(const heed_plan *plan, const heed_pipeline *pipeline)
{
    (void)plan, (void)pipeline;
    return MOST_QUERIES;
}

static bool is_blocks(heed_type type)
{
    return heed_is_blocks(heed_type_unrotated(type)) || type == HEED_CHANNEL_Q4;
}

#if HEED_WIDTH == 16
static bool whole_serves(heed_type type)
{
    return heed_whole_products(heed_type_unrotated(type)) ||
           (type == HEED_CHANNEL_Q4 && heed_whole_products(HEED_Q4));
}
#endif

/* Whether the keys, or the values, of some grade are of a type that `is` names. */
static bool any_grade(const heed_problem *p, bool (*is)(heed_type type), bool keys)
{
    bool any = is(keys ? p->k_type : p->v_type);
    for (int g = 0; g < p->grades; g++)
        any |= is(keys ? p->grade[g].k : p->grade[g].v);
    return any;
}

heed_decode_sizes heed_decode_sizes_of(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_problem *p = &plan->problem;
    heed_decode_sizes sizes = {.heads = heed_most_heads(plan, pipeline),
                               .queries = pipeline->query_block,
                               .groups = p->batch * p->kv_heads,
                               .pieces = (p->keys + HEED_PIECE - 1) / HEED_PIECE,
                               .blocks = (p->keys + HEED_KEYS - 1) / HEED_KEYS,
                               .stride = heed_round_up(p->dim, HEED_BLOCK),
                               .value_stride = heed_round_up(p->value_dim, HEED_BLOCK)};
    sizes.rows = sizes.heads * sizes.queries;
    sizes.rotated = heed_type_rotated(p->k_type);
    if (any_grade(p, is_blocks, true))
        sizes.key_blocks = sizes.stride / HEED_BLOCK;
    if (any_grade(p, is_blocks, false))
        sizes.value_blocks = sizes.value_stride / HEED_BLOCK;
    const unsigned captures = HEED_WITH_KEY_SUMS | HEED_WITH_TOP | HEED_WITH_WEIGHTS;
    const heed_form *normalise = pipeline->form[pipeline->normalise].form;
    sizes.keeps =
        p->with & captures || (p->with & HEED_WITH_ENTROPY && !(normalise->flags & HEED_KEEPS_MOMENT));
    sizes.selects = pipeline->selects > 0;
    sizes.tiles = sizes.blocks;
    if (!sizes.selects)
        return sizes;
    const heed_form_state *by_blocks = heed_block_selector(pipeline);
    sizes.unit = by_blocks ? by_blocks->form->block_rule(by_blocks).keys : HEED_SUB;
    const heed_form_state *recaller = heed_recaller(pipeline);
    if (recaller) {
        sizes.recalls = true;
        sizes.unit = recaller->form->recall->unit(recaller);
        sizes.weighs = recaller->form->recall->flags & HEED_RECALL_WEIGHS;
    }
    sizes.by_scores = !recaller && pipeline->selects > (by_blocks ? 1 : 0);
    sizes.summary = heed_summaries_floats(plan, pipeline);
    sizes.score_stride = heed_round_up((p->keys + sizes.unit - 1) / sizes.unit * sizes.unit, HEED_KEYS);
    const int64_t each = sizes.unit < HEED_PIECE ? HEED_PIECE / sizes.unit : 1;
    const int64_t pieces = ((p->keys + sizes.unit - 1) / sizes.unit + each - 1) / each;
    sizes.pieces = pieces > sizes.pieces ? pieces : sizes.pieces;
    sizes.piece_tiles = (int)((each * sizes.unit + HEED_KEYS - 1) / HEED_KEYS);
    if (sizes.by_scores)
        sizes.piece_tiles = HEED_PIECE / HEED_KEYS;
    sizes.tiles = sizes.pieces * sizes.piece_tiles;
    return sizes;
}

static size_t product(int64_t a, int64_t b, int64_t c)
{
    return (size_t)a * (size_t)b * (size_t)c;
}

/* What all threads share: one group after the other, with its parts laid out.
 */
static heed_decode_group *take_groups(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                                      const heed_decode_sizes *s)
{
    const int64_t strip = heed_round_up(s->queries, HEED_STRIP), groups = s->groups;
    heed_decode_group *group = heed_arena_take(arena, (size_t)groups, sizeof *group);
    heed_query_block *query = heed_arena_take(arena, product(groups, s->heads, 1), sizeof *query);
    int32_t *pos = heed_arena_take(arena, product(groups, s->heads, strip), sizeof *pos);
    float *aux = heed_arena_take(arena, product(groups * s->heads, strip, pipeline->aux_floats), sizeof *aux);
    float *prepared = heed_arena_take(arena, product(groups, s->rows, s->stride), sizeof *prepared);
    float *compared = prepared;
    if (s->rotated)
        compared = heed_arena_take(arena, product(groups, s->rows, s->stride), sizeof *compared);
    const int64_t whole_blocks = pipeline->fast_products ? s->key_blocks : 0;
    heed_whole_query *whole = heed_arena_take(arena, product(groups, s->rows, whole_blocks), sizeof *whole);
    uint8_t *state = heed_arena_take(arena, product(groups, s->heads, s->blocks), sizeof *state);
    bool *begun = heed_arena_take(arena, product(groups, s->pieces, 1), sizeof *begun);
    float *sums = heed_arena_take(arena, product(groups * s->pieces, s->rows, HEED_SUMS), sizeof *sums);
    float *out = heed_arena_take(arena, product(groups * s->pieces, s->rows, s->value_stride), sizeof *out);
    float *kept = NULL, *later = NULL;
    if (s->keeps) {
        kept = heed_arena_take(arena, product(groups * s->rows, s->blocks, HEED_KEYS), sizeof *kept);
        later = heed_arena_take(arena, product(groups, s->rows, s->tiles), sizeof *later);
    }
    for (int64_t n = 0; arena->base && n < groups; n++) {
        group[n] = (heed_decode_group){.query = query + n * s->heads,
                                       .prepared = prepared + n * s->rows * s->stride,
                                       .compared = compared + n * s->rows * s->stride,
                                       .whole = whole + n * s->rows * whole_blocks,
                                       .state = state + n * s->heads * s->blocks,
                                       .begun = begun + n * s->pieces,
                                       .sums = sums + n * s->pieces * HEED_SUMS * s->rows,
                                       .out = out + n * s->pieces * s->rows * s->value_stride};
        if (s->keeps) {
            group[n].kept = kept + n * s->rows * s->blocks * HEED_KEYS;
            group[n].later = later + n * s->rows * s->tiles;
        }
        for (int h = 0; h < s->heads; h++)
            group[n].query[h] =
                (heed_query_block){.pos = pos + (n * s->heads + h) * strip,
                                   .aux = aux + (n * s->heads + h) * strip * pipeline->aux_floats};
    }
    heed_take_lists(arena, plan, pipeline, s, group);
    return group;
}

static heed_decode_work take_work(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                                  const heed_decode_sizes *s)
{
    const size_t rows = (size_t)s->rows, strip = (size_t)heed_round_up(s->queries, HEED_STRIP);
    heed_decode_work work = {0};
    work.score = heed_arena_take(arena, rows * HEED_KEYS, sizeof(float));
    size_t scaled = product(s->value_blocks, s->rows, HEED_SUB);
#if HEED_WIDTH == 16
    const size_t levels = (size_t)heed_whole_values_floats(s->rows);
    if (any_grade(&plan->problem, whole_serves, false) && levels > scaled)
        scaled = levels;
#endif
    work.scaled = heed_arena_take(arena, scaled, sizeof(float));
    const int64_t blocks = s->key_blocks > s->value_blocks ? s->key_blocks : s->value_blocks;
    work.half = heed_arena_take(arena, product(blocks, HEED_SUB, 1), sizeof *work.half);
    work.spare = heed_arena_take(arena, product(blocks, HEED_SUB, HEED_Q8_BYTES), 1);
    work.was_open = heed_arena_take(arena, rows * HEED_KEYS, 1);
    work.rescale = heed_arena_take(arena, rows, sizeof(float));
    work.before = heed_arena_take(arena, rows * (size_t)s->value_stride, sizeof(float));
    for (int i = 0; i < HEED_SUMS; i++)
        work.all[i] = heed_arena_take(arena, rows, sizeof(float));
    work.end = heed_arena_take(arena, rows, sizeof *work.end);
    work.key = heed_arena_take(arena, HEED_KEYS * (size_t)s->stride, sizeof(float));
    work.value = heed_arena_take(arena, HEED_KEYS * (size_t)s->value_stride, sizeof(float));
    if (any_grade(&plan->problem, heed_type_by_channel, true))
        work.channel = heed_arena_take(arena, (size_t)heed_channel_floats(s->rows, s->stride), sizeof(float));
    work.row = heed_arena_take(arena, 2 * HEED_KEYS + HEED_AHEAD, sizeof *work.row);
    work.pos = heed_arena_take(arena, HEED_KEYS, sizeof *work.pos);
    for (int i = 0; i < 2; i++) {
        work.partly[i] = heed_arena_take(arena, (size_t)s->heads, 1);
        work.runs[i] = heed_arena_take(arena, HEED_KEYS, sizeof *work.runs[i]);
    }
    if (s->selects) {
        const size_t keys = (size_t)heed_round_up(plan->problem.keys, HEED_KEYS) + (size_t)s->unit;
        const heed_form_state *recaller = heed_recaller(pipeline);
        size_t more = 0;
        if (recaller && recaller->form->recall->work)
            more = (size_t)recaller->form->recall->work(recaller, plan->problem.keys);
        work.line = heed_arena_take(arena, 2 * keys + more, sizeof *work.line);
        work.line_pos = heed_arena_take(arena, keys, sizeof *work.line_pos);
        work.value_work = heed_take_value_work(arena, s->rows);
    }
    work.prepared = heed_arena_take(arena, strip * (size_t)heed_row_stride(plan, pipeline), sizeof(float));
    work.rows = heed_take_row_work(arena, plan, (int)strip);
    work.sight = heed_take_sight(arena, plan);
    return work;
}

void heed_decode_layout(const heed_plan *plan, heed_pipeline *pipeline, size_t *shared, size_t *per_thread)
{
    const int64_t queries = plan->problem.queries, together = ROWS_AT_ONCE / heed_most_heads(plan, pipeline);
    pipeline->query_block = (int)(together < 1         ? 1
                                  : together < queries ? together
                                  : queries > 0        ? queries
                                                       : 1);
    pipeline->fast_products = false;
#if HEED_WIDTH == 16
    pipeline->fast_products =
        plan->problem.with & HEED_WITH_WHOLE_NUMBERS &&
        (any_grade(&plan->problem, whole_serves, true) || any_grade(&plan->problem, whole_serves, false));
#endif
    const heed_decode_sizes sizes = heed_decode_sizes_of(plan, pipeline);
    heed_arena all = {0}, own = {0};
    take_groups(&all, plan, pipeline, &sizes);
    take_work(&own, plan, pipeline, &sizes);
    *shared = all.used;
    *per_thread = own.used;
}

static void settle_blocks(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                          heed_decode_group *group, heed_decode_work *work)
{
    const int64_t blocks = (group->keys + HEED_KEYS - 1) / HEED_KEYS;
    for (int h = 0; blocks > 0 && h < (group->alike ? 1 : group->heads); h++) {
        const heed_query_range range = heed_range_of(run, &group->query[h], 0, group->queries);
        memcpy(group->state + h * sizes->blocks, heed_block_states(run, pipeline, &range, &work->sight),
               (size_t)blocks);
    }
}

/* The queries query0... of one kv head, prepared, one row behind the other. */
static void begin_group(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                        heed_decode_group *group, int64_t n, int64_t query0, heed_decode_work *work)
{
    const heed_problem *problem = &run->plan->problem;
    group->batch = (int)(n / problem->kv_heads);
    group->group = (int)(n % problem->kv_heads);
    const int first = pipeline->group_first[group->group];
    const int64_t left = run->query_count[group->batch] - query0;
    group->heads = pipeline->group_first[group->group + 1] - first;
    group->queries = left < 0 ? 0 : left < sizes->queries ? (int)left : sizes->queries;
    group->rows = group->heads * group->queries;
    group->query0 = query0;
    group->keys = heed_key_count(run, group->batch, group->group);
    group->alike = heed_sees_alike(run, pipeline);
    group->is_whole = pipeline->fast_products && sizes->key_blocks > 0;
    const int64_t row_stride = heed_row_stride(run->plan, pipeline), dim = problem->dim;
    for (int h = 0; group->rows > 0 && h < group->heads; h++) {
        heed_query_block *query = &group->query[h];
        query->batch = group->batch;
        query->head = pipeline->head[first + h];
        query->query0 = query0;
        query->rows = group->queries;
        query->prepared = work->prepared;
        heed_prepare_queries(run, pipeline, query, &work->rows);
        for (int i = 0; i < group->queries; i++) {
            float *to = group->prepared + ((int64_t)h * group->queries + i) * sizes->stride;
            memcpy(to, work->prepared + i * row_stride, (size_t)dim * sizeof *to);
            memset(to + dim, 0, (size_t)(sizes->stride - dim) * sizeof *to);
        }
    }
    for (int64_t r = 0; sizes->rotated && r < group->rows; r++) {
        float *to = group->compared + r * sizes->stride;
        memcpy(to, group->prepared + r * sizes->stride, (size_t)sizes->stride * sizeof *to);
        heed_rotate_row(to, dim);
    }
#if HEED_WIDTH == 16
    for (int r = 0; group->is_whole && r < group->rows; r++)
        group->is_whole = heed_whole_queries(group->compared + r * sizes->stride, sizes->key_blocks,
                                             group->whole + r * sizes->key_blocks);
#endif
    if (group->rows > 0 && (!sizes->selects || sizes->recalls))
        settle_blocks(run, pipeline, sizes, group, work);
}

static bool captures_weights(const heed_run *run, const heed_decode_sizes *sizes)
{
    const heed_capture *capture = &run->extra->capture;
    return sizes->keeps && (capture->key_sums || capture->top_weight || capture->sink || capture->entropy);
}

/* Rows that were rotated before they were stored are read as they are: queries are rotated too, and what
 * comes out is rotated back. */
static heed_run unrotated(const heed_run *run)
{
    heed_run plain = *run;
    plain.k.type = heed_type_unrotated(run->k.type);
    plain.v.type = heed_type_unrotated(run->v.type);
    for (int g = 0; g < run->plan->problem.grades; g++) {
        plain.grade[g].k.type = heed_type_unrotated(run->grade[g].k.type);
        plain.grade[g].v.type = heed_type_unrotated(run->grade[g].v.type);
    }
    return plain;
}

void heed_decode_forward(const heed_run *given, const heed_pipeline *pipeline)
{
    const heed_run plain = unrotated(given), *run = &plain;
    const heed_plan *plan = run->plan;
    const heed_decode_sizes sizes = heed_decode_sizes_of(plan, pipeline);
    heed_arena shared = {.base = run->shared};
    heed_decode_group *group = take_groups(&shared, plan, pipeline, &sizes);
    for (int64_t n = 0; n < sizes.groups; n++)
        group[n].kept = captures_weights(run, &sizes) ? group[n].kept : NULL;

#pragma omp parallel num_threads(plan->problem.threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        heed_decode_work work = take_work(&arena, plan, pipeline, &sizes);
        for (int64_t query0 = 0; query0 < plan->problem.queries; query0 += sizes.queries) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t n = 0; n < sizes.groups; n++)
                begin_group(run, pipeline, &sizes, &group[n], n, query0, &work);
            if (sizes.selects)
                heed_decode_select(run, pipeline, &sizes, group, &work);
#pragma omp for schedule(dynamic, 1)
            for (int64_t n = 0; n < sizes.groups * sizes.pieces; n++)
                if (group[n / sizes.pieces].rows > 0)
                    heed_decode_piece(run, pipeline, &sizes, &group[n / sizes.pieces], n % sizes.pieces,
                                      &work);
#pragma omp for schedule(dynamic, 1)
            for (int64_t n = 0; n < sizes.groups; n++)
                if (group[n].rows > 0)
                    heed_decode_finish(run, pipeline, &sizes, &group[n], &work);
        }
    }
}
