/* Decoding with a selector whose choice outlives executions (heed/recall.h): of each sequence either all keys
 * are read and a memory is made of them, or what the memory says and the keys that are newer than it.
 */
#include "attend/kernels/decode.h"
#include "attend/memory.h"
#include <string.h>

void heed_take_recalled(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                        const heed_decode_sizes *sizes, heed_decode_group *group)
{
    const heed_problem *p = &plan->problem;
    if (!sizes->recalls)
        return;
    heed_decode_recalled *recalled = heed_arena_take(arena, (size_t)p->batch, sizeof *recalled);
    const float **query = heed_arena_take(arena, (size_t)(p->batch * p->heads), sizeof *query);
    float **weight = heed_arena_take(arena, (size_t)(p->batch * p->heads), sizeof *weight);
    uint8_t **keep = heed_arena_take(arena, (size_t)(p->batch * p->kv_heads), sizeof *keep);
    const int64_t units = (p->keys + sizes->unit - 1) / sizes->unit;
    uint8_t *flags = heed_arena_take(arena, (size_t)(p->batch * p->kv_heads), (size_t)units);
    for (int64_t b = 0; arena->base && b < p->batch; b++) {
        recalled[b] = (heed_decode_recalled){.now = {.heads = (int)p->heads,
                                                     .kv_heads = (int)p->kv_heads,
                                                     .dim = pipeline->row_dim,
                                                     .query = query + b * p->heads,
                                                     .weight = weight + b * p->heads,
                                                     .keep = keep + b * p->kv_heads},
                                             .flags = flags + b * p->kv_heads * units,
                                             .units = units};
        for (int64_t g = 0; g < p->kv_heads; g++) {
            const int64_t n = b * p->kv_heads + g, first = pipeline->group_first[g];
            group[n].recalled = &recalled[b];
            keep[n] = flags + n * units;
            for (int64_t h = first; h < pipeline->group_first[g + 1]; h++) {
                const int64_t head = b * p->heads + pipeline->head[h];
                query[head] = group[n].prepared + (h - first) * sizes->stride;
                weight[head] = group[n].score ? group[n].score + (h - first) * sizes->score_stride : NULL;
            }
        }
    }
}

/* Where `load` finds keys. */
typedef struct loading {
    const heed_run *run;
    const heed_pipeline *pipeline;
    heed_row_work *rows;
    int batch;
} loading;

static void load(const void *context, int kv_head, int64_t first, int count, float *to, int64_t stride)
{
    const loading *l = context;
    const heed_rows keys = heed_prepared_keys(l->run, l->pipeline, l->batch, kv_head, first, count, l->rows);
    for (int i = 0; i < count; i++)
        memcpy(to + i * stride, keys.in + i * keys.in_stride, (size_t)keys.dim * sizeof *to);
}

/* Whether everything is read, and whether it is remembered; else what the memory says. */
static void decide(const heed_run *run, const heed_form_state *form, heed_decode_recalled *recalled,
                   int64_t b, const loading *from, heed_decode_work *work)
{
    const heed_recall *recall = form->form->recall;
    heed_recalled *now = &recalled->now;
    now->memory = run->extra->memory ? run->extra->memory[b] : NULL;
    now->keys = heed_key_count(run, b, 0);
    now->work = work->line;
    now->load = load;
    now->context = from;
    recalled->reads_all = !now->memory || run->query_count[b] < 1 || now->keys < 1;
    recalled->remembers = false;
    if (recalled->reads_all)
        return;
    const bool none = now->memory->keys < 0 || now->memory->keys > now->keys;
    recalled->reads_all = none || (recall->renews && recall->renews(form, now));
    recalled->remembers = recalled->reads_all && recall->remember;
    if (recalled->remembers && recall->flags & HEED_RECALL_AT_ONCE && now->keys > 1) {
        now->keys--;
        recall->remember(form, now);
        now->memory->keys = now->keys++;
        recalled->remembers = false;
        recalled->reads_all = recall->renews && recall->renews(form, now);
    }
    if (recalled->reads_all)
        return;
    memset(recalled->flags, 0, (size_t)(recalled->units * now->kv_heads));
    recall->recall(form, now);
}

/* Blocks that are not recalled, and hold no newer keys, become unseen. */
static void apply(heed_decode_group *group)
{
    const heed_choice *choice = &group->list[0].choice;
    const heed_recalled *now = &group->recalled->now;
    const uint8_t *keep = now->keep[group->group];
    const int64_t older = now->memory->keys / choice->unit; /* blocks whose keys are all older */
    for (int r = 0; r < group->rows; r++) {
        uint8_t *state = choice->state + r * choice->stride;
        for (int64_t u = 0; u < older; u++)
            state[u] = keep[u] ? state[u] : HEED_UNSEEN;
    }
}

/* From scores of all keys to weights. A score that is no number, or is infinite, has the largest weight of
 * all. */
static void weigh(float *score, int64_t keys)
{
    float most = -INFINITY, sum = 0;
    int broken = 0;
    for (int64_t j = 0; j < keys; j++) {
        broken |= !(score[j] < INFINITY);
        most = score[j] > most ? score[j] : most;
    }
    for (int64_t j = 0; j < keys; j++) {
        const float shifted = most > -INFINITY ? heed_exp(score[j] - most) : 0;
        score[j] = !broken ? shifted : score[j] < INFINITY ? 0 : INFINITY;
        sum += score[j];
    }
    const float scale = broken || !(sum > 0) ? 1 : 1 / sum;
    for (int64_t j = 0; j < keys; j++)
        score[j] *= scale;
}

/* Scores of keys that no piece will touch are those of closed pairs. */
static void clear(heed_decode_group *group, int64_t row, const heed_decode_sizes *sizes)
{
    for (int64_t j = 0; group->recalled->remembers && j < group->keys; j++)
        group->score[row * sizes->score_stride + j] = -INFINITY;
}

void heed_decode_recall(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                        heed_decode_group *group, heed_decode_work *work)
{
    const heed_form_state *form = heed_recaller(pipeline);
    const heed_problem *p = &run->plan->problem;
    heed_run as_given = *run; /* selectors see keys that were turned before they were stored turned back */
    as_given.k.type = p->k_type;
#pragma omp for schedule(dynamic, 1)
    for (int64_t b = 0; b < p->batch; b++) {
        const loading from = {&as_given, pipeline, &work->rows, (int)b};
        decide(run, form, group[b * p->kv_heads].recalled, b, &from, work);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < sizes->groups; n++) {
        group[n].reads = NULL;
        if (group[n].recalled->reads_all)
            continue;
        heed_decode_see(run, pipeline, &group[n], work);
        apply(&group[n]);
        heed_decode_list_blocks(&group[n], &group[n].list[0]);
        group[n].reads = &group[n].list[0];
    }
    if (sizes->weighs) {
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < sizes->groups * sizes->rows; n++)
            clear(&group[n / sizes->rows], n % sizes->rows, sizes);
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < sizes->groups * sizes->pieces; n++)
            if (group[n / sizes->pieces].recalled->remembers)
                heed_decode_scored(run, pipeline, sizes, &group[n / sizes->pieces], n % sizes->pieces, work);
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < sizes->groups * sizes->rows; n++) {
            const heed_decode_group *here = &group[n / sizes->rows];
            if (here->recalled->remembers && n % sizes->rows < here->rows)
                weigh(here->score + n % sizes->rows * sizes->score_stride, here->keys);
        }
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t b = 0; b < p->batch; b++) {
        heed_decode_recalled *recalled = group[b * p->kv_heads].recalled;
        if (!recalled->remembers)
            continue;
        const loading from = {&as_given, pipeline, &work->rows, (int)b};
        recalled->now.context = &from;
        recalled->now.work = work->line;
        form->form->recall->remember(form, &recalled->now);
        recalled->now.memory->keys = recalled->now.keys;
    }
}
