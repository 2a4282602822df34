/* What may be seen: the `where` expression over key blocks and over the pairs of a tile. */
#include "attend/kernels/work.h"
#include <string.h>

/* Most values on the stack when the nodes are evaluated in order. */
static int depth_of(const heed_pipeline *pipeline)
{
    int depth = 0, most = 1;
    for (int n = 0; n < pipeline->wheres; n++) {
        const int kind = (int)pipeline->where[n].kind;
        depth += kind == HEED_WHERE_LEAF ? 1 : kind == HEED_WHERE_NOT ? 0 : -1;
        most = depth > most ? depth : most;
    }
    return most;
}

heed_sight heed_take_sight(heed_arena *arena, const heed_plan *plan)
{
    int depth = 1;
    for (int p = 0; p < plan->pipelines; p++) {
        const int here = depth_of(&plan->pipeline[p]);
        depth = here > depth ? here : depth;
    }
    heed_sight sight = {.stride =
                            heed_round_up((plan->problem.keys + HEED_SUB - 1) / HEED_SUB + HEED_KEYS, 64)};
    sight.state = heed_arena_take(arena, (size_t)depth * (size_t)sight.stride, 1);
    sight.open = heed_arena_take(arena, (size_t)depth * HEED_STRIP * HEED_KEYS, 1);
    return sight;
}

static const uint8_t *evaluate_blocks(const heed_pipeline *pipeline, const heed_query_range *range,
                                      const heed_key_blocks *blocks, heed_sight *sight)
{
    uint8_t *top = sight->state;
    if (pipeline->wheres == 0) {
        memset(top, HEED_OPEN, (size_t)blocks->count);
        return top;
    }
    top -= sight->stride;
    for (int n = 0; n < pipeline->wheres; n++) {
        const heed_where_node *node = &pipeline->where[n];
        if (node->kind == HEED_WHERE_LEAF) {
            const heed_form_state *form = &pipeline->form[node->form];
            top += sight->stride;
            if (form->form->blocks)
                form->form->blocks(form, range, blocks, top);
            else
                memset(top, HEED_PARTLY, (size_t)blocks->count);
        } else if (node->kind == HEED_WHERE_NOT) {
            for (int b = 0; b < blocks->count; b++)
                top[b] = (uint8_t)(HEED_OPEN - top[b]);
        } else {
            const uint8_t *right = top;
            top -= sight->stride;
            if (node->kind == HEED_WHERE_AND)
                for (int b = 0; b < blocks->count; b++)
                    top[b] = top[b] < right[b] ? top[b] : right[b];
            else
                for (int b = 0; b < blocks->count; b++)
                    top[b] = top[b] > right[b] ? top[b] : right[b];
        }
    }
    return top;
}

heed_query_range heed_range_of(const heed_run *run, const heed_query_block *query, int first, int rows)
{
    heed_query_range range = {.batch = query->batch,
                              .head = query->head,
                              .first = query->query0 + first,
                              .last = query->query0 + first + rows - 1,
                              .pos_min = query->pos[first],
                              .pos_max = query->pos[first],
                              .inputs = heed_inputs_of(run, heed_kv_head_of(run->plan, query->head))};
    for (int i = first + 1; i < first + rows; i++) {
        range.pos_min = query->pos[i] < range.pos_min ? query->pos[i] : range.pos_min;
        range.pos_max = query->pos[i] > range.pos_max ? query->pos[i] : range.pos_max;
    }
    return range;
}

const uint8_t *heed_list_states(const heed_pipeline *pipeline, const heed_query_range *range,
                                const heed_key_blocks *blocks, heed_sight *sight)
{
    return evaluate_blocks(pipeline, range, blocks, sight);
}

const uint8_t *heed_block_states(const heed_run *run, const heed_pipeline *pipeline,
                                 const heed_query_range *range, heed_sight *sight)
{
    const int64_t kv_head = heed_kv_head_of(run->plan, range->head);
    const int64_t keys = heed_key_count(run, range->batch, kv_head);
    const int64_t shift = heed_key_list(run, range->batch, kv_head) * run->blocks;
    const heed_key_blocks blocks = {.count = (int)((keys + HEED_KEYS - 1) / HEED_KEYS),
                                    .size = HEED_KEYS,
                                    .first = 0,
                                    .keys = keys,
                                    .pos_min = run->block_min + shift,
                                    .pos_max = run->block_max + shift};
    return evaluate_blocks(pipeline, range, &blocks, sight);
}

const uint8_t *heed_all_sub_states(const heed_run *run, const heed_pipeline *pipeline,
                                   const heed_query_range *range, heed_sight *sight)
{
    const int64_t kv_head = heed_kv_head_of(run->plan, range->head);
    const int64_t keys = heed_key_count(run, range->batch, kv_head);
    const int64_t shift = heed_key_list(run, range->batch, kv_head) * run->subs;
    const heed_key_blocks blocks = {.count = (int)((keys + HEED_SUB - 1) / HEED_SUB),
                                    .size = HEED_SUB,
                                    .first = 0,
                                    .keys = keys,
                                    .pos_min = run->sub_min + shift,
                                    .pos_max = run->sub_max + shift};
    return evaluate_blocks(pipeline, range, &blocks, sight);
}

const uint8_t *heed_sub_states(const heed_run *run, const heed_pipeline *pipeline,
                               const heed_query_range *range, int64_t key0, int cols, heed_sight *sight)
{
    const int64_t kv_head = heed_kv_head_of(run->plan, range->head);
    const int64_t shift = heed_key_list(run, range->batch, kv_head) * run->subs + key0 / HEED_SUB;
    const heed_key_blocks blocks = {.count = (cols + HEED_SUB - 1) / HEED_SUB,
                                    .size = HEED_SUB,
                                    .first = key0,
                                    .keys = heed_key_count(run, range->batch, kv_head),
                                    .pos_min = run->sub_min + shift,
                                    .pos_max = run->sub_max + shift};
    /* the block states of the caller stay where they are */
    heed_sight inner = *sight;
    inner.state += sight->stride - HEED_KEYS;
    return evaluate_blocks(pipeline, range, &blocks, &inner);
}

const uint8_t *heed_mask_tile(const heed_run *run, const heed_pipeline *pipeline, const heed_tile *tile,
                              heed_sight *sight)
{
    (void)run;
    const int size = HEED_STRIP * HEED_KEYS;
    uint8_t *top = sight->open;
    if (pipeline->wheres == 0) {
        memset(top, 1, (size_t)size);
        return top;
    }
    heed_tile view = *tile;
    view.stride = HEED_KEYS;
    const int used = tile->rows * HEED_KEYS;
    top -= size;
    for (int n = 0; n < pipeline->wheres; n++) {
        const heed_where_node *node = &pipeline->where[n];
        if (node->kind == HEED_WHERE_LEAF) {
            const heed_form_state *form = &pipeline->form[node->form];
            top += size;
            form->form->mask(form, &view, top);
        } else if (node->kind == HEED_WHERE_NOT) {
            for (int i = 0; i < used; i++)
                top[i] = !top[i];
        } else {
            const uint8_t *right = top;
            top -= size;
            if (node->kind == HEED_WHERE_AND)
                for (int i = 0; i < used; i++)
                    top[i] &= right[i];
            else
                for (int i = 0; i < used; i++)
                    top[i] |= right[i];
        }
    }
    return top;
}

void heed_close(heed_tile *tile, const uint8_t *open, int64_t open_stride, int keys)
{
    const int known = keys < tile->cols ? (keys > 0 ? keys : 0) : tile->cols;
    for (int i = 0; i < tile->rows; i++) {
        float *score = tile->score + i * tile->stride;
        if (open) {
            const uint8_t *pair = open + i * open_stride;
            for (int j = 0; j < known; j++)
                score[j] = pair[j] ? score[j] : -INFINITY;
        }
        for (int j = known; j < tile->cols; j++)
            score[j] = -INFINITY;
    }
}
