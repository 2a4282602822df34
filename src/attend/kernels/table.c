/* The table of kernels in the build for one instruction set: which class serves a pipeline, and the way out.
 */
#include "attend/kernels/bf16.h"
#include "attend/kernels/flash.h"
#include <stdlib.h>
#include <string.h>

#define ROWS_AT_ONCE 384       /* query rows that share a packed block of keys */
#define SCATTERED_BLOCK 64     /* queries at once where open blocks lie scattered */
#define ROW_BYTES (512 * 1024) /* queries and sums of a piece of work stay below this */
#define KEPT_BYTES (1536 * 1024)
#define SEGMENTS 8

void heed_write_lse(const heed_run *run, int64_t batch, int64_t head, int64_t query, float lse)
{
    const heed_tensor *to = &run->extra->lse;
    if (to->data)
        *(float *)((char *)to->data + batch * to->stride[0] + head * to->stride[1] + query * to->stride[2]) =
            lse;
}

void heed_write_output(const heed_run *run, const heed_pipeline *pipeline, int batch, int head,
                       int64_t query0, int rows, float *sum, int64_t stride)
{
    const heed_form_state *read = &pipeline->form[pipeline->read];
    const heed_tensor *to = &run->out;
    const int64_t dim = run->plan->problem.value_dim;
    if (read->form->output)
        read->form->output(read, batch, head, query0, rows, sum, stride);
    for (int i = 0; i < rows; i++) {
        char *row =
            (char *)to->data + batch * to->stride[0] + head * to->stride[1] + (query0 + i) * to->stride[2];
        if (to->stride[3] == sizeof(float))
            memcpy(row, sum + i * stride, (size_t)dim * sizeof(float));
        else
            for (int64_t e = 0; e < dim; e++)
                *(float *)(row + e * to->stride[3]) = sum[i * stride + e];
    }
}

static bool scatters(const heed_pipeline *pipeline)
{
    for (int f = 0; f < pipeline->forms; f++)
        if (pipeline->form[f].form->flags & HEED_SCATTERS)
            return true;
    return false;
}

static heed_status choose(const heed_plan *plan, heed_pipeline *pipeline)
{
    const heed_kernel forced = plan->problem.kernel;
    const char *not_decode = heed_decode_refuses(plan, pipeline);
    if (pipeline->whole_rows) {
        if (forced != HEED_KERNEL_AUTO && forced != HEED_KERNEL_ROWS)
            return heed_fail(HEED_UNSUPPORTED, "the %s kernel cannot run this spec: %s",
                             heed_kernel_name(forced), pipeline->why);
        pipeline->kernel = HEED_KERNEL_ROWS;
        return HEED_OK;
    }
    if (forced == HEED_KERNEL_DECODE && not_decode)
        return heed_fail(HEED_UNSUPPORTED, "the decode kernel cannot run this: %s", not_decode);
    if (forced != HEED_KERNEL_AUTO) {
        pipeline->kernel = forced;
        pipeline->why = "it was asked for";
        return HEED_OK;
    }
    if (!not_decode && plan->problem.queries <= heed_decode_most_queries(plan, pipeline)) {
        pipeline->kernel = HEED_KERNEL_DECODE;
        pipeline->why = "few queries: keys are read once, where they lie";
    } else if (scatters(pipeline)) {
        pipeline->kernel = HEED_KERNEL_SPARSE;
        pipeline->why = "the open key blocks lie scattered: each block of queries has its own list";
    } else {
        pipeline->kernel = HEED_KERNEL_FLASH;
        pipeline->why = "weights can be normalised online";
    }
    return HEED_OK;
}

static int64_t clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* Queries of one head in a piece of work. */
static void choose_blocks(const heed_plan *plan, heed_pipeline *pipeline)
{
    const heed_problem *p = &plan->problem;
    const int heads = heed_most_heads(plan, pipeline);
    const int64_t row =
        (heed_row_stride(plan, pipeline) + heed_value_stride(plan) + pipeline->aux_floats) * 4;
    int64_t rows = clamp(ROW_BYTES / row, HEED_STRIP, ROWS_AT_ONCE) / heads;
    if (pipeline->kernel == HEED_KERNEL_SPARSE)
        rows = SCATTERED_BLOCK;
    if (heed_sweeps(plan, pipeline))
        rows = clamp(KEPT_BYTES / ((p->keys + HEED_KEYS) * 4 * heads), 1, rows);
    rows = heed_round_up(clamp(rows, 1, p->queries > 0 ? p->queries : 1), HEED_STRIP);
    pipeline->query_block = (int)rows;
    const int64_t blocks = (p->queries + rows - 1) / rows;
    pipeline->segments = 0;
    if (p->with & HEED_WITH_KEY_SUMS)
        pipeline->segments = (int)clamp(SEGMENTS, 1, blocks > 0 ? blocks : 1);
}

static void most(size_t *a, size_t b)
{
    *a = b > *a ? b : *a;
}

static void layout(heed_plan *plan)
{
    plan->forward = plan->backward = (heed_layout){0};
    for (int i = 0; i < plan->pipelines; i++) {
        heed_pipeline *pipeline = &plan->pipeline[i];
        choose_blocks(plan, pipeline);
        if (pipeline->kernel == HEED_KERNEL_FLASH || pipeline->kernel == HEED_KERNEL_SPARSE)
            pipeline->fast_products = heed_bf16_serves(plan, pipeline);
        size_t shared = 0, thread = 0;
        switch (pipeline->kernel) {
        case HEED_KERNEL_ROWS:
            heed_rows_layout(plan, pipeline, &shared, &thread);
            break;
        case HEED_KERNEL_DECODE:
            heed_decode_layout(plan, pipeline, &shared, &thread);
            break;
        default:
            shared = heed_flash_shared(plan, pipeline);
            thread = heed_flash_per_thread(plan, pipeline);
        }
        most(&plan->forward.shared, shared);
        most(&plan->forward.per_thread, thread);
    }
    if (plan->problem.with & HEED_WITH_BACKWARD)
        heed_backward_layout(plan);
}

static heed_status forward(const heed_run *run)
{
    for (int i = 0; i < run->plan->pipelines; i++) {
        const heed_pipeline *pipeline = &run->pipeline[i];
        if (pipeline->kernel == HEED_KERNEL_ROWS)
            heed_rows_forward(run, pipeline);
        else if (pipeline->kernel == HEED_KERNEL_DECODE)
            heed_decode_forward(run, pipeline);
        else
            heed_flash_forward(run, pipeline);
    }
    return HEED_OK;
}

/* Counts open pairs: whole blocks by their state, partly open tiles pair by pair. */
static int64_t count_block(const heed_run *run, const heed_pipeline *pipeline, int64_t query0, int rows,
                           heed_sight *sight, uint8_t *state)
{
    const heed_query_range range = {.first = query0,
                                    .last = query0 + rows - 1,
                                    .pos_min = run->query_pos[query0],
                                    .pos_max = run->query_pos[query0 + rows - 1],
                                    .inputs = run->inputs};
    const int64_t keys = run->plan->problem.keys;
    int64_t open = 0;
    memcpy(state, heed_block_states(run, pipeline, &range, sight), (size_t)run->blocks);
    for (int64_t b = 0; b < run->blocks; b++) {
        const int64_t key0 = b * HEED_KEYS;
        const int cols = (int)clamp(keys - key0, 0, HEED_KEYS);
        if (state[b] == HEED_OPEN)
            open += (int64_t)rows * cols;
        if (state[b] != HEED_PARTLY)
            continue;
        int32_t key_pos[HEED_KEYS];
        for (int j = 0; j < HEED_KEYS; j++)
            key_pos[j] = (int32_t)(key0 + j);
        const heed_tile tile = {.rows = rows,
                                .cols = (int)heed_round_up(cols, HEED_SUB),
                                .query0 = query0,
                                .key0 = key0,
                                .query_pos = run->query_pos + query0,
                                .key_pos = key_pos,
                                .contiguous = true,
                                .inputs = run->inputs};
        const uint8_t *pair = heed_mask_tile(run, pipeline, &tile, sight);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++)
                open += pair[i * HEED_KEYS + j];
    }
    return open;
}

static bool depends_on_data(const heed_pipeline *pipeline)
{
    for (int f = 0; f < pipeline->forms; f++)
        if (pipeline->form[f].form->flags & (HEED_NEEDS_MASK | HEED_NEEDS_SEGMENTS))
            return true;
    return false;
}

static double open_pairs(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const int64_t N = plan->problem.queries, M = plan->problem.keys;
    if (pipeline->wheres == 0 || depends_on_data(pipeline) || N == 0 || M == 0)
        return (double)N * (double)M;
    const int64_t subs = (M + HEED_SUB - 1) / HEED_SUB, blocks = (M + HEED_KEYS - 1) / HEED_KEYS;
    heed_arena arena = {0};
    int32_t *list[5];
    const int64_t size[5] = {N + HEED_STRIP, subs, subs, blocks, blocks};
    uint8_t *state = NULL;
    heed_sight sight = {0};
    for (int pass = 0; pass < 2; pass++) {
        arena.used = 0;
        for (int i = 0; i < 5; i++)
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
        list[2][s] = (int32_t)(clamp((s + 1) * HEED_SUB, 0, M) - 1);
    }
    for (int64_t b = 0; b < blocks; b++) {
        list[3][b] = (int32_t)(b * HEED_KEYS);
        list[4][b] = (int32_t)(clamp((b + 1) * HEED_KEYS, 0, M) - 1);
    }
    const int32_t count = (int32_t)M;
    heed_inputs inputs = {.key_end = &count, .key_count = &count, .keys = M};
    const heed_run run = {.plan = plan,
                          .query_pos = list[0],
                          .sub_min = list[1],
                          .sub_max = list[2],
                          .block_min = list[3],
                          .block_max = list[4],
                          .subs = subs,
                          .blocks = blocks,
                          .key_count = &count,
                          .inputs = &inputs};
    int64_t open = 0;
    for (int64_t i = 0; i < N; i += HEED_STRIP)
        open += count_block(&run, pipeline, i, (int)clamp(N - i, 0, HEED_STRIP), &sight, state);
    free(arena.base);
    return (double)open;
}

const heed_kernel_table heed_kernels = {
    .rows = HEED_STRIP,
    .width = HEED_WIDTH,
    .forms = heed_form_table,
    .layout = layout,
    .forward = forward,
    .backward = heed_backward,
    .open_pairs = open_pairs,
    .choose = choose,
};
