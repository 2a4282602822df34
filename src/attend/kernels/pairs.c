#include "attend/kernels/pairs.h"
#include "attend/kernels/choose.h"
#include <stdlib.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Counts open pairs: whole blocks by their state, partly open tiles pair by pair. */
static int64_t count_block(const heed_run *run, const heed_pipeline *pipeline, const heed_query_block *query,
                           heed_sight *sight, uint8_t *state)
{
    const int rows = query->rows;
    const heed_query_range range = heed_range_of(run, query, 0, rows);
    const int64_t group = heed_kv_head_of(run->plan, query->head);
    const int64_t keys = heed_key_count(run, query->batch, group),
                  blocks = (keys + HEED_KEYS - 1) / HEED_KEYS;
    int64_t open = 0;
    if (keys > 0)
        memcpy(state, heed_block_states(run, pipeline, &range, sight), (size_t)blocks);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t key0 = b * HEED_KEYS;
        const int cols = (int)(keys - key0 < HEED_KEYS ? keys - key0 : HEED_KEYS);
        if (state[b] == HEED_OPEN)
            open += (int64_t)rows * cols;
        if (state[b] != HEED_PARTLY)
            continue;
        int32_t key_pos[HEED_KEYS];
        const int32_t *pos = heed_key_positions(run, query->batch, group) + key0;
        for (int j = 0; j < HEED_KEYS; j++)
            key_pos[j] = j < cols ? pos[j] : key_pos[j - 1] + (key_pos[j - 1] < HEED_POSITION_LIMIT);
        const heed_tile tile = {.rows = rows,
                                .cols = (int)heed_round_up(cols, HEED_SUB),
                                .batch = query->batch,
                                .head = query->head,
                                .query0 = query->query0,
                                .key0 = key0,
                                .query_pos = query->pos,
                                .key_pos = key_pos,
                                .contiguous = query->contiguous && heed_runs_by_one(key_pos, HEED_KEYS),
                                .inputs = heed_inputs_of(run, group)};
        const uint8_t *pair = heed_mask_tile(run, pipeline, &tile, sight);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++)
                open += pair[i * HEED_KEYS + j];
    }
    return open;
}

/* Open pairs of the first `queries` queries of a head. */
static int64_t count_head(const heed_run *run, const heed_pipeline *pipeline, int batch, int head,
                          int64_t queries, heed_sight *sight, uint8_t *state)
{
    int64_t open = 0;
    for (int64_t i = 0; i < queries; i += HEED_STRIP) {
        int32_t pos[HEED_STRIP];
        heed_query_block query = {.batch = batch, .head = head, .query0 = i, .pos = pos};
        query.rows = (int)smaller(queries - i, HEED_STRIP);
        const int32_t *from = run->query_pos + batch * run->plan->problem.queries + i;
        for (int r = 0; r < HEED_STRIP; r++)
            pos[r] = r < query.rows ? from[r] : pos[r - 1] + (pos[r - 1] < HEED_POSITION_LIMIT);
        query.contiguous = run->default_positions || heed_runs_by_one(pos, HEED_STRIP);
        open += count_block(run, pipeline, &query, sight, state);
    }
    return open;
}

static bool depends_on_data(const heed_pipeline *pipeline)
{
    for (int f = 0; f < pipeline->forms; f++)
        if (pipeline->form[f].form->flags & (HEED_NEEDS_MASK | HEED_NEEDS_SEGMENTS | HEED_SEES_BY_HEAD))
            return true;
    return false;
}

double heed_open_pairs(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const int64_t N = plan->problem.queries, M = plan->problem.keys;
    if (pipeline->wheres == 0 || depends_on_data(pipeline) || N == 0 || M == 0)
        return (double)N * (double)M;
    const int64_t subs = (M + HEED_SUB - 1) / HEED_SUB, blocks = (M + HEED_KEYS - 1) / HEED_KEYS;
    heed_arena arena = {0};
    int32_t *list[6];
    const int64_t size[6] = {N + HEED_STRIP, subs, subs, blocks, blocks, M};
    uint8_t *state = NULL;
    heed_sight sight = {0};
    for (int pass = 0; pass < 2; pass++) {
        arena.used = 0;
        for (int i = 0; i < 6; i++)
            list[i] = heed_arena_take(&arena, (size_t)size[i], sizeof(int32_t));
        state = heed_arena_take(&arena, (size_t)blocks, 1);
        sight = heed_take_sight(&arena, plan);
        if (pass == 0 && !(arena.base = heed_allocate(arena.used, 1)))
            return -1.0;
    }
    for (int64_t i = 0; i < N + HEED_STRIP; i++)
        list[0][i] = (int32_t)(i + M - N);
    for (int64_t s = 0; s < subs; s++) {
        list[1][s] = (int32_t)(s * HEED_SUB);
        list[2][s] = (int32_t)(smaller((s + 1) * HEED_SUB, M) - 1);
    }
    for (int64_t b = 0; b < blocks; b++) {
        list[3][b] = (int32_t)(b * HEED_KEYS);
        list[4][b] = (int32_t)(smaller((b + 1) * HEED_KEYS, M) - 1);
    }
    for (int64_t j = 0; j < M; j++)
        list[5][j] = (int32_t)j;
    const int32_t count = (int32_t)M;
    heed_inputs inputs = {.key_end = &count, .key_count = &count, .keys = M};
    const heed_run run = {.plan = plan,
                          .query_pos = list[0],
                          .key_pos = list[5],
                          .default_positions = true,
                          .sub_min = list[1],
                          .sub_max = list[2],
                          .block_min = list[3],
                          .block_max = list[4],
                          .subs = subs,
                          .blocks = blocks,
                          .key_count = &count,
                          .inputs = &inputs};
    const int64_t open = count_head(&run, pipeline, 0, 0, N, &sight, state);
    free(arena.base);
    return (double)open;
}

typedef struct pairs_work {
    heed_sight sight;
    uint8_t *state; /* [blocks] */
} pairs_work;

static pairs_work take_work(heed_arena *arena, const heed_plan *plan)
{
    pairs_work work = {.sight = heed_take_sight(arena, plan)};
    work.state = heed_arena_take(arena, (size_t)((plan->problem.keys + HEED_KEYS - 1) / HEED_KEYS), 1);
    return work;
}

size_t heed_pairs_scratch(const heed_plan *plan)
{
    heed_arena arena = {0};
    take_work(&arena, plan);
    return arena.used;
}

void heed_count_pairs(const heed_run *run, const heed_pipeline *pipeline)
{
    const heed_problem *problem = &run->plan->problem;
    heed_arena arena = {.base = run->threads};
    pairs_work work = take_work(&arena, run->plan);
    const bool alike = heed_sees_alike(run, pipeline);
    double all = 0.0;
    for (int64_t b = 0; b < problem->batch; b++) {
        int64_t open = 0;
        for (int n = 0; n < pipeline->heads_here; n++) {
            if (n == 0 || !alike || heed_keys_by_kv_head(run->plan))
                open = count_head(run, pipeline, (int)b, pipeline->head[n], run->query_count[b], &work.sight,
                                  work.state);
            all += (double)open;
        }
    }
    run->extra->capture.pairs[1] += all;
    if (pipeline->selects == 0)
        run->extra->capture.pairs[0] += all;
}
