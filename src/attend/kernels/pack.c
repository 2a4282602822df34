/* Rows of q, k and v as the products want them: floats, prepared by the forms, keys transposed. */
#include "attend/kernels/convert.h"
#include "attend/kernels/work.h"
#include "tensor/channel_load.h"
#include "tensor/packed.h"
#include "tensor/rotate.h"
#include <string.h>

int heed_most_heads(const heed_plan *plan, const heed_pipeline *pipeline)
{
    int most = 1;
    for (int64_t g = 0; g < plan->problem.kv_heads; g++) {
        const int here = pipeline->group_first[g + 1] - pipeline->group_first[g];
        most = here > most ? here : most;
    }
    return most;
}

float *heed_aux_of(const heed_pipeline *pipeline, int form, const heed_query_block *block, float *aux,
                   int row)
{
    const heed_form_state *state = &pipeline->form[form];
    return aux + (int64_t)pipeline->aux_at[form] * heed_round_up(block->rows, HEED_STRIP) +
           (int64_t)row * state->form->aux_floats(state);
}

int64_t heed_row_stride(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const int64_t dim = plan->problem.dim;
    return heed_round_up(pipeline->row_dim > dim ? pipeline->row_dim : dim, 2 * HEED_WIDTH);
}

int64_t heed_value_stride(const heed_plan *plan)
{
    const int64_t stride = heed_value_cols(plan);
    return stride >= 64 && stride % 32 == 0 ? stride + 16
                                            : stride; /* an odd number of cache lines, see HEED_KEY_STRIDE */
}

int64_t heed_value_cols(const heed_plan *plan)
{
    return heed_round_up(plan->problem.value_dim, HEED_WIDTH);
}

heed_row_work heed_take_row_work(heed_arena *arena, const heed_plan *plan, int rows)
{
    int64_t stride = heed_value_stride(plan);
    for (int p = 0; p < plan->pipelines; p++) {
        const int64_t wanted = heed_row_stride(plan, &plan->pipeline[p]);
        stride = wanted > stride ? wanted : stride;
    }
    const int all = rows > HEED_KEYS ? rows : HEED_KEYS;
    const size_t floats = (size_t)(all + 2 * HEED_WIDTH) * (size_t)stride;
    heed_row_work work = {.rows = all};
    work.raw = heed_arena_take(arena, floats, sizeof(float));
    for (int i = 0; i < 2; i++)
        work.step[i] = heed_arena_take(arena, floats, sizeof(float));
    return work;
}

const char *heed_row_of(const heed_run *run, const heed_tensor *tensor, bool paged, int64_t batch,
                        int64_t head, int64_t row)
{
    const char *data = tensor->data;
    if (!paged)
        return data + batch * tensor->stride[0] + head * tensor->stride[1] + row * tensor->stride[2];
    const int64_t page = run->plan->problem.page, *step = run->page_step;
    const char *entry = run->page_table + batch * step[0] + head * step[1] + row / page * step[2];
    int64_t at;
    tensor = heed_pool_of(run, tensor, *(const int32_t *)(const void *)entry, &at);
    data = tensor->data;
    return data + at * tensor->stride[0] + head * tensor->stride[1] + row % page * tensor->stride[2];
}

static void load_row(const heed_tensor *tensor, const char *row, int64_t dim, float *to)
{
    const int64_t step = tensor->stride[3];
    switch (tensor->type) {
    case HEED_F32:
        if (step == sizeof(float))
            memcpy(to, row, (size_t)dim * sizeof(float));
        else
            for (int64_t d = 0; d < dim; d++)
                to[d] = *(const float *)(row + d * step);
        break;
    case HEED_BF16:
        if (step == 2)
            for (int64_t d = 0; d < dim; d++)
                to[d] = heed_float_from_bits((uint32_t)((const uint16_t *)row)[d] << 16);
        else
            for (int64_t d = 0; d < dim; d++)
                to[d] = heed_float_from_bits((uint32_t) * (const uint16_t *)(row + d * step) << 16);
        break;
    case HEED_F16:
        if (step == 2)
            heed_load_f16((const uint16_t *)row, to, dim);
        else
            for (int64_t d = 0; d < dim; d++)
                heed_load_f16((const uint16_t *)(row + d * step), to + d, 1);
        break;
    case HEED_Q8:
        heed_load_q8(row, to, dim);
        break;
    case HEED_Q4:
        heed_load_q4(row, to, dim);
        break;
    case HEED_Q2:
        heed_load_q2_row(row, to, dim);
        break;
    case HEED_ROTATED_Q2:
        heed_load_q2_row(row, to, dim);
        heed_rotate_row(to, dim);
        break;
    case HEED_ROTATED_Q8:
        heed_load_q8(row, to, dim);
        heed_rotate_row(to, dim);
        break;
    case HEED_ROTATED_Q4:
        heed_load_q4(row, to, dim);
        heed_rotate_row(to, dim);
        break;
    default: /* the others that caches have */
        heed_load(tensor->type, row, to, dim);
        break;
    }
}

/* Rows first... of a page. */
static void load_page_rows(const heed_tensor *pool, const char *page, int64_t first, int count, float *to,
                           int64_t stride)
{
    if (pool->type == HEED_CHANNEL_Q4) {
        heed_channel_load_rows(HEED_CHANNEL_Q4, page, first, count, pool->shape[3], to, stride);
        return;
    }
    if (pool->type == HEED_CHANNEL_Q2) {
        heed_channel_load_rows(HEED_CHANNEL_Q2, page, first, count, pool->shape[3], to, stride);
        return;
    }
    if (pool->type == HEED_PACKED) {
        heed_packed_load(page, first, count, pool->shape[3], to, stride);
        return;
    }
    for (int r = 0; r < count; r++)
        load_row(pool, page + (first + r) * pool->stride[2], pool->shape[3], to + r * stride);
}

void heed_load_rows(const heed_run *run, const heed_tensor *tensor, bool paged, int64_t batch, int64_t head,
                    int64_t first, int count, float *to, int64_t stride)
{
    const int64_t dim = tensor->shape[3];
    if (!paged || run->plan->problem.grades == 0) {
        for (int r = 0; r < count; r++)
            load_row(tensor, heed_row_of(run, tensor, paged, batch, head, first + r), dim, to + r * stride);
        return;
    }
    const int64_t page = run->plan->problem.page, *step = run->page_step;
    const char *table = run->page_table + batch * step[0] + head * step[1];
    for (int r = 0, here; r < count; r += here) {
        const int64_t within = (first + r) % page;
        here = page - within < count - r ? (int)(page - within) : count - r;
        int64_t at;
        const char *entry = table + (first + r) / page * step[2];
        const heed_tensor *pool = heed_pool_of(run, tensor, *(const int32_t *)(const void *)entry, &at);
        const char *data = (const char *)pool->data + at * pool->stride[0] + head * pool->stride[1];
        load_page_rows(pool, data, within, here, to + r * stride, stride);
    }
}

/* One stage of a transposition: x[i] and x[i + half] exchange every other run of `half` entries. */
#define KEEP_LOW(lane, half) ((lane) & (half) ? (lane) - (half) + HEED_WIDTH : (lane))
#define KEEP_HIGH(lane, half) ((lane) & (half) ? (lane) + HEED_WIDTH : (lane) + (half))
#define EXCHANGE(x, half)                                                                                    \
    do {                                                                                                     \
        const heed_ivec low = HEED_LANES(KEEP_LOW, half), high = HEED_LANES(KEEP_HIGH, half);                \
        _Pragma("GCC unroll 16") for (int i = 0; i < HEED_WIDTH; i++)                                        \
        {                                                                                                    \
            if (i & (half))                                                                                  \
                continue;                                                                                    \
            const heed_vec a = x[i], b = x[i + (half)];                                                      \
            x[i] = heed_vec_shuffle(a, b, low);                                                              \
            x[i + (half)] = heed_vec_shuffle(a, b, high);                                                    \
        }                                                                                                    \
    } while (0)

void heed_transpose(const float *from, int64_t from_stride, int rows, int cols, float *to, int64_t to_stride,
                    int padded_rows)
{
    const int whole = cols / HEED_WIDTH * HEED_WIDTH;
    for (int r0 = 0; r0 < padded_rows; r0 += HEED_WIDTH) {
        const int here = rows - r0 < HEED_WIDTH ? (rows > r0 ? rows - r0 : 0) : HEED_WIDTH;
        for (int c0 = 0; c0 < whole; c0 += HEED_WIDTH) {
            heed_vec x[HEED_WIDTH];
#pragma GCC unroll 16
            for (int i = 0; i < HEED_WIDTH; i++)
                x[i] = i < here ? heed_vec_load(from + (r0 + i) * from_stride + c0) : (heed_vec){0};
#if HEED_WIDTH == 16
            EXCHANGE(x, 8);
#endif
#if HEED_WIDTH >= 8
            EXCHANGE(x, 4);
#endif
            EXCHANGE(x, 2);
            EXCHANGE(x, 1);
#pragma GCC unroll 16
            for (int i = 0; i < HEED_WIDTH; i++)
                heed_vec_store(to + (c0 + i) * to_stride + r0, x[i]);
        }
        for (int c = whole; c < cols; c++)
            for (int i = 0; i < HEED_WIDTH; i++)
                to[c * to_stride + r0 + i] = i < here ? from[(r0 + i) * from_stride + c] : 0.0f;
    }
}

/* Runs the forms that prepare rows: from work->raw to `out`. */
static void run_prepares(const heed_pipeline *pipeline, bool keys, heed_rows rows, heed_row_work *work,
                         float *out, int64_t out_stride, float scale, int dim_out)
{
    void (*hook[HEED_MAX_HOOKS])(const heed_form_state *, const heed_rows *);
    const heed_form_state *state[HEED_MAX_HOOKS];
    int count = 0;
    for (int i = 0; i < pipeline->prepares; i++) {
        const heed_form_state *form = &pipeline->form[pipeline->prepare[i]];
        hook[count] = !keys                  ? form->form->prepare_query
                      : pipeline->keys_ready ? NULL
                                             : form->form->prepare_key;
        state[count] = form;
        count += hook[count] != NULL;
    }
    for (int i = 0; i < count; i++) {
        const bool last = i == count - 1;
        rows.out = last ? out : work->step[i % 2];
        rows.out_stride = last ? out_stride : rows.in_stride;
        hook[i](state[i], &rows);
        rows.in = rows.out;
    }
    if (count == 0 && rows.in != out)
        for (int r = 0; r < rows.count; r++)
            memcpy(out + r * out_stride, rows.in + r * rows.in_stride, (size_t)dim_out * sizeof(float));
    if (scale != 1.0f)
        for (int r = 0; r < rows.count; r++)
            for (int d = 0; d < dim_out; d++)
                out[r * out_stride + d] *= scale;
}

/* Goes on counting beyond the rows that exist, so that padding has valid positions. */
static void continue_positions(int32_t *pos, int count, int padded)
{
    for (int i = count; i < padded; i++)
        pos[i] = count > 0 && pos[i - 1] < HEED_POSITION_LIMIT ? pos[i - 1] + 1 : count > 0 ? pos[i - 1] : 0;
}

void heed_prepare_queries(const heed_run *run, const heed_pipeline *pipeline, heed_query_block *block,
                          heed_row_work *work)
{
    const heed_plan *plan = run->plan;
    const int64_t stride = heed_row_stride(plan, pipeline);
    const int padded = (int)heed_round_up(block->rows, HEED_STRIP);
    const int32_t *pos = run->query_pos + block->batch * plan->problem.queries + block->query0;
    memcpy(block->pos, pos, (size_t)block->rows * sizeof *pos);
    continue_positions(block->pos, block->rows, padded);
    block->contiguous = run->default_positions || heed_runs_by_one(block->pos, padded);

    const bool plain = pipeline->plain_query && pipeline->auxes == 0;
    float *raw = plain ? block->prepared : work->raw;
    heed_load_rows(run, &run->q, false, block->batch, block->head, block->query0, block->rows, raw, stride);
    heed_rows rows = {.count = block->rows,
                      .dim = (int)plan->problem.dim,
                      .batch = block->batch,
                      .head = block->head,
                      .pos = block->pos,
                      .contiguous = block->contiguous,
                      .in = raw,
                      .in_stride = stride};
    if (pipeline->auxes > 0)
        memset(block->aux, 0, (size_t)padded * (size_t)pipeline->aux_floats * sizeof(float));
    for (int n = 0; n < pipeline->auxes; n++) {
        const heed_form_state *form = &pipeline->form[pipeline->aux[n]];
        rows.out = heed_aux_of(pipeline, pipeline->aux[n], block, block->aux, 0);
        rows.out_stride = form->form->aux_floats(form);
        form->form->query_aux(form, &rows);
    }
    const float scale = pipeline->pair < 0 ? pipeline->scale : 1.0f;
    run_prepares(pipeline, false, rows, work, block->prepared, stride, scale, pipeline->row_dim);
    for (int r = block->rows; r < padded; r++)
        memset(block->prepared + r * stride, 0, (size_t)stride * sizeof(float));
}

void heed_place_keys(const heed_run *run, heed_key_block *block)
{
    const int32_t *pos = heed_key_positions(run, block->batch, block->group) + block->key0;
    memcpy(block->pos, pos, (size_t)block->count * sizeof *pos);
    continue_positions(block->pos, block->count, HEED_KEYS);
    block->contiguous = run->default_positions || heed_runs_by_one(block->pos, HEED_KEYS);
}

void heed_pack_keys(const heed_run *run, const heed_pipeline *pipeline, int head, heed_key_block *block,
                    heed_row_work *work)
{
    const heed_plan *plan = run->plan;
    const bool paged = plan->problem.with & HEED_WITH_PAGES;
    const int64_t stride = heed_row_stride(plan, pipeline);
    heed_place_keys(run, block);
    heed_will_read(run, block->batch, block->group, block->key0, block->count, HEED_READS_NOW);

    const float *rows_in = work->raw;
    int64_t in_stride = stride;
    if (run->k.type == HEED_F32 && run->k.stride[3] == sizeof(float) && !paged) {
        rows_in = (const float *)heed_row_of(run, &run->k, false, block->batch, block->group, block->key0);
        in_stride = run->k.stride[2] / (int64_t)sizeof(float);
        if (run->k.stride[2] % (int64_t)sizeof(float) != 0)
            rows_in = NULL;
    } else {
        rows_in = NULL;
    }
    if (!rows_in) {
        heed_load_rows(run, &run->k, paged, block->batch, block->group, block->key0, block->count, work->raw,
                       stride);
        rows_in = work->raw;
        in_stride = stride;
    }
    if (pipeline->plain_key && !block->natural) {
        heed_transpose(rows_in, in_stride, block->count, pipeline->row_dim, block->transposed,
                       HEED_KEY_STRIDE, block->cols);
        return;
    }
    if (rows_in != work->raw)
        for (int r = 0; r < block->count; r++)
            memcpy(work->raw + r * stride, rows_in + r * in_stride,
                   (size_t)plan->problem.dim * sizeof(float));
    heed_rows rows = {.count = block->count,
                      .dim = (int)plan->problem.dim,
                      .batch = block->batch,
                      .head = pipeline->keys_by_head ? head : block->group,
                      .pos = block->pos,
                      .contiguous = block->contiguous,
                      .in = work->raw,
                      .in_stride = stride};
    float *natural = block->natural ? block->natural : work->step[1];
    run_prepares(pipeline, true, rows, work, natural, stride, 1.0f, pipeline->row_dim);
    if (block->natural)
        for (int r = block->count; r < HEED_KEYS; r++)
            memset(natural + r * stride, 0, (size_t)stride * sizeof(float));
    heed_transpose(natural, stride, block->count, pipeline->row_dim, block->transposed, HEED_KEY_STRIDE,
                   block->cols);
}

heed_rows heed_prepared_keys(const heed_run *run, const heed_pipeline *pipeline, int batch, int group,
                             int64_t key0, int count, heed_row_work *work)
{
    const heed_plan *plan = run->plan;
    const int64_t stride = heed_row_stride(plan, pipeline);
    const int32_t *pos = heed_key_positions(run, batch, group) + key0;
    heed_will_read(run, batch, group, key0, count, HEED_READS_NOW);
    heed_load_rows(run, &run->k, plan->problem.with & HEED_WITH_PAGES, batch, group, key0, count, work->raw,
                   stride);
    heed_rows rows = {.count = count,
                      .dim = (int)plan->problem.dim,
                      .batch = batch,
                      .head = group,
                      .pos = pos,
                      .contiguous = run->default_positions || heed_runs_by_one(pos, count),
                      .in = work->raw,
                      .in_stride = stride};
    if (!pipeline->plain_key) {
        run_prepares(pipeline, true, rows, work, work->step[1], stride, 1.0f, pipeline->row_dim);
        rows.in = work->step[1];
    }
    rows.dim = pipeline->row_dim;
    return rows;
}

void heed_prepare_list(const heed_run *run, const heed_pipeline *pipeline, bool keys, int batch, int head,
                       const int32_t *index, int64_t first, int count, const int32_t *pos, float *to,
                       int64_t stride, heed_row_work *work)
{
    const heed_problem *p = &run->plan->problem;
    const heed_tensor *tensor = keys ? &run->k : &run->q;
    const bool paged = keys && p->with & HEED_WITH_PAGES;
    const int64_t own = heed_row_stride(run->plan, pipeline);
    const int64_t head_here = keys ? heed_kv_head_of(run->plan, head) : head;
    const bool plain = keys ? pipeline->plain_key : pipeline->plain_query;
    float *raw = plain ? to : work->raw;
    const int64_t raw_stride = plain ? stride : own;
    if (!index)
        heed_load_rows(run, tensor, paged, batch, head_here, first, count, raw, raw_stride);
    for (int r = 0; index && r < count; r++)
        heed_load_rows(run, tensor, paged, batch, head_here, index[r], 1, raw + r * raw_stride, raw_stride);
    const heed_rows rows = {.count = count,
                            .dim = (int)p->dim,
                            .batch = batch,
                            .head = (int)head_here,
                            .pos = pos,
                            .contiguous = heed_runs_by_one(pos, count),
                            .in = raw,
                            .in_stride = raw_stride};
    const float scale = !keys && pipeline->pair < 0 ? pipeline->scale : 1.0f;
    run_prepares(pipeline, keys, rows, work, to, stride, scale, pipeline->row_dim);
}

bool heed_rows_finite(const float *rows, int64_t stride, int count, int64_t dim)
{
    float sum = 0.0f; /* 0 times a finite number is 0; times inf or NaN it is NaN */
    for (int r = 0; r < count; r++) {
        const float *x = rows + r * stride;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < dim; i++)
            sum += x[i] * 0.0f;
    }
    return sum == 0.0f;
}

void heed_prefetch_keys(const heed_run *run, int64_t batch, int64_t group, int64_t first, int count)
{
    const heed_plan *plan = run->plan;
    const bool paged = plan->problem.with & HEED_WITH_PAGES;
    const heed_tensor *both[] = {&run->k, &run->v};
    const int64_t exist = heed_key_count(run, batch, group);
    const int64_t last = first + count < exist ? first + count : exist;
    for (int t = 0; t < 2; t++) {
        const int64_t bytes = heed_type_bytes(both[t]->type, both[t]->shape[3]);
        for (int64_t r = first; r < last; r++) {
            const char *row = heed_row_of(run, both[t], paged, batch, group, r);
            for (int64_t at = 0; at < bytes; at += 64)
                __builtin_prefetch(row + at, 0, 2);
        }
    }
}

/* Rows of whole vectors: copied and checked in one pass. */
static bool copy_finite(const char *from, int64_t from_bytes, int rows, int64_t dim, float *to,
                        int64_t stride)
{
    heed_vec sum[4] = {{0}};
    for (int r = 0; r < rows; r++)
        for (int64_t e = 0; e < dim; e += HEED_WIDTH) {
            const heed_vec x = heed_vec_load((const float *)(const void *)(from + r * from_bytes) + e);
            heed_vec_store(to + r * stride + e, x);
            sum[e / HEED_WIDTH % 4] += x * 0.0f;
        }
    const heed_vec all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    float total = 0.0f;
    for (int i = 0; i < HEED_WIDTH; i++)
        total += all[i];
    return total == 0.0f;
}

void heed_pack_values(const heed_run *run, heed_key_block *block)
{
    const heed_plan *plan = run->plan;
    const bool paged = plan->problem.with & HEED_WITH_PAGES;
    const int64_t dim = plan->problem.value_dim, stride = heed_value_stride(plan);
    const bool plain =
        run->v.type == HEED_F32 && run->v.stride[3] == sizeof(float) && !paged && dim % HEED_WIDTH == 0;
    heed_will_read(run, block->batch, block->group, block->key0, block->count, HEED_READS_NOW);
    if (plain) {
        const char *from = heed_row_of(run, &run->v, false, block->batch, block->group, block->key0);
        block->value_finite = copy_finite(from, run->v.stride[2], block->count, dim, block->value, stride);
    } else {
        heed_load_rows(run, &run->v, paged, block->batch, block->group, block->key0, block->count,
                       block->value, stride);
        block->value_finite = heed_rows_finite(block->value, stride, block->count, dim);
    }
    for (int r = 0; r < block->cols; r++) {
        const int64_t from = r < block->count ? dim : 0;
        if (from < stride)
            memset(block->value + r * stride + from, 0, (size_t)(stride - from) * sizeof(float));
    }
    if (block->value_transposed)
        heed_transpose(block->value, stride, block->count, (int)dim, block->value_transposed, HEED_KEY_STRIDE,
                       block->cols);
}
