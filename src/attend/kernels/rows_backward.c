/* Backward by complete rows: the forward pass once more for a few rows, keeping what the gradients ask for,
 * and then the stages in reverse on the same planes.
 *
 * A piece of work is a kv head with every copies.key-th block of queries, or all heads where these mix. A
 * query belongs to one piece, so its gradient has one copy; keys and values have one for each of the pieces
 * that meet them.
 *
 * Closed pairs carry gradients of exactly 0 and nothing is multiplied with them that could be NaN: in tiles
 * where keys or queries hold NaN or infinities, and where few pairs are left, pairs are gone through one by
 * one.
 */
#include "attend/kernels/backward.h"
#include "attend/kernels/rows.h"
#include <string.h>

#define KEY_COPIES 8 /* most copies of dkey and dvalue */
#define ENOUGH_PIECES 16
#define EXACT_COLS 512 /* products added in float before they join a sum in double */

typedef struct back_work {
    heed_pipeline *own;
    heed_rows_work rows;
    uint8_t *used;          /* [block][HEED_KEYS] */
    uint8_t *any;           /* [block][stride] open for some head, where heads mix */
    float *delta;           /* [block] */
    float *dkey_transposed; /* [row_stride][HEED_KEY_STRIDE], for hooks that see keys so */
} back_work;

static back_work take_work(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline)
{
    back_work work = {.own = heed_arena_take(arena, 1, sizeof *work.own)};
    work.rows = heed_take_rows(arena, plan, pipeline, HEED_BACK_BLOCK, true);
    const size_t block = (size_t)work.rows.block;
    work.used = heed_arena_take(arena, block * HEED_KEYS, 1);
    if (heed_rows_mix(pipeline))
        work.any = heed_arena_take(arena, block * (size_t)work.rows.stride, 1);
    work.delta = heed_arena_take(arena, block, sizeof(float));
    work.dkey_transposed =
        heed_arena_take(arena, (size_t)heed_row_stride(plan, pipeline) * HEED_KEY_STRIDE, sizeof(float));
    return work;
}

size_t heed_rows_backward_per_thread(const heed_plan *plan, const heed_pipeline *pipeline)
{
    heed_arena arena = {0};
    take_work(&arena, plan, pipeline);
    return arena.used;
}

static int64_t clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

heed_copies heed_rows_copies(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_problem *p = &plan->problem;
    const int64_t units = clamp(p->batch * (heed_rows_mix(pipeline) ? 1 : p->kv_heads), 1, INT32_MAX);
    const int64_t blocks = clamp((p->queries + HEED_BACK_BLOCK - 1) / HEED_BACK_BLOCK, 1, KEY_COPIES);
    const int64_t copies = clamp((ENOUGH_PIECES + units - 1) / units, 1, blocks);
    const int64_t lanes = clamp(units * copies, 1, plan->slot_floats > 0 ? ENOUGH_PIECES : INT32_MAX);
    return (heed_copies){.query = 1, .key = (int)copies, .lanes = (int)lanes};
}

/* ---- values and weights ---- */

/* Where heads mix weights, a pair counts as open to all as soon as it is open to one. */
static void mark_any(back_work *work)
{
    const heed_rows_work *w = &work->rows;
    for (int i = 0; i < w->count; i++) {
        const int64_t at = i * w->stride + w->first, cols = w->last - w->first;
        uint8_t *restrict any = work->any + at;
        memcpy(any, w->head[0].open + at, (size_t)cols);
        for (int h = 1; h < w->heads; h++) {
            const uint8_t *restrict open = w->head[h].open + at;
            for (int64_t j = 0; j < cols; j++)
                any[j] |= open[j];
        }
    }
}

/* Keeps x where a pair is open, or `also` (unless NULL) says so. */
static void zero_closed(const heed_rows_work *w, const uint8_t *open, const uint8_t *also, float *x)
{
    const int64_t cols = w->last - w->first;
    for (int i = 0; i < w->count; i++) {
        const int64_t at = i * w->stride + w->first;
        const uint8_t *restrict one = open + at, *restrict other = (also ? also : open) + at;
        float *restrict row = x + at;
        for (int64_t j = 0; j < cols; j++)
            row[j] = one[j] | other[j] ? row[j] : 0.0f;
    }
}

static void zero_tile(float *x, int64_t stride, int rows, int cols)
{
    for (int i = 0; i < rows; i++)
        memset(x + i * stride, 0, (size_t)cols * sizeof(float));
}

/* dweight = dout . value for the pairs that are open */
static void weights_of_block(const heed_backward_work *back, back_work *work, heed_row_head *head,
                             int64_t block)
{
    heed_rows_work *w = &work->rows;
    const int64_t col = block * HEED_KEYS, left = w->last - col, stride = heed_value_stride(back->run->plan);
    const int cols = left < HEED_KEYS ? (int)left : HEED_KEYS;
    const int64_t dim = back->run->plan->problem.value_dim;
    for (int row = 0; row < w->count; row += HEED_STRIP) {
        const int rows = w->count - row < HEED_STRIP ? w->count - row : HEED_STRIP;
        const int64_t at = row * w->stride + col;
        const uint8_t *open = (heed_rows_mix(work->own) ? work->any : head->open) + at;
        float *dweight = head->dscore + at;
        int used = 0;
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++)
                used += open[i * w->stride + j];
        if (used > 0)
            heed_rows_pack_values(back->run, w, head, block);
        const float *dout = heed_dout(back, w->batch, head->query.head, head->query.query0 + w->row0 + row);
        if (!heed_few(used, rows * cols)) {
            heed_product(dim, dout, back->value_stride, 1, w->keys.value_transposed, HEED_KEY_STRIDE, dweight,
                         w->stride, cols);
            continue;
        }
        zero_tile(dweight, w->stride, rows, cols);
        for (int i = 0; i < rows; i++)
            HEED_FOR_USED(j, open + i * w->stride, cols)
            {
                const float *value = w->keys.value + j * stride, *d = dout + i * back->value_stride;
                float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                for (int64_t e = 0; e < dim; e++)
                    sum += d[e] * value[e];
                dweight[i * w->stride + j] = sum;
            }
    }
}

/* dkey, or dvalue: to[j] += sum_i x[i][j] from[i], rows of `from` and `to` stride apart */
static void add_transposed(const back_work *work, const float *x, bool one_by_one, const float *from,
                           float *to, int64_t stride)
{
    const heed_rows_work *w = &work->rows;
    if (!one_by_one) {
        for (int key = 0; key < w->keys.count; key += HEED_STRIP) {
            const int keys = w->keys.count - key < HEED_STRIP ? w->keys.count - key : HEED_STRIP;
            heed_accumulate(keys, w->count, x + key, 1, w->stride, from, stride, to + key * stride, stride,
                            stride);
        }
        return;
    }
    for (int i = 0; i < w->count; i++)
        HEED_FOR_USED(j, work->used + i * HEED_KEYS, w->keys.cols)
        {
            const float factor = x[i * w->stride + j], *restrict row = from + i * stride;
            float *restrict sum = to + j * stride;
            for (int64_t e = 0; e < stride; e++)
                sum[e] += factor * row[e];
        }
}

static void values_backward(const heed_backward_work *back, back_work *work, int copy)
{
    heed_rows_work *w = &work->rows;
    const bool mix = heed_rows_mix(work->own);
    if (mix)
        mark_any(work);
    for (int64_t b = w->first / HEED_KEYS; b * HEED_KEYS < w->last; b++)
        for (int h = 0; h < w->heads; h++) {
            heed_row_head *head = &w->head[h];
            const int64_t col = b * HEED_KEYS, left = w->last - col;
            const int cols = left < HEED_KEYS ? (int)left : HEED_KEYS;
            if (w->visible[b] == HEED_CLOSED || (head->state[b] == HEED_CLOSED && !mix)) {
                zero_tile(head->dscore + col, w->stride, w->count, cols);
                continue;
            }
            weights_of_block(back, work, head, b);
            const float *weight = head->score + col;
            const int used = heed_mark_used(weight, NULL, w->stride, w->count, cols, work->used);
            if (used == 0 || copy < 0)
                continue;
            heed_rows_pack_values(back->run, w, head, b);
            add_transposed(work, weight, heed_few(used, w->count * cols),
                           heed_dout(back, w->batch, head->query.head, head->query.query0 + w->row0),
                           heed_dvalue(back, copy, w->batch, w->keys.group, col), back->value_stride);
        }
    for (int h = 0; h < w->heads; h++)
        zero_closed(w, mix ? work->any : w->head[h].open, NULL, w->head[h].dscore);
}

typedef void (*mix_hook)(const heed_form_state *, const float *const *, float *const *, int, int, int64_t,
                         float *);

/* Gradients back through a mixing of weights, or of scores, of which the planes of the heads were kept. */
static void mix_backward(back_work *work, mix_hook mix, bool weights)
{
    heed_rows_work *w = &work->rows;
    const heed_form_state *form = &work->own->form[work->own->heads];
    for (int64_t col = w->first; mix && col < w->last; col += HEED_KEYS) {
        const int64_t left = w->last - col;
        const int cols = left < HEED_KEYS ? (int)left : HEED_KEYS;
        for (int row = 0; row < w->count; row += HEED_STRIP) {
            const int rows = w->count - row < HEED_STRIP ? w->count - row : HEED_STRIP;
            for (int h = 0; h < w->heads; h++) {
                const heed_row_head *head = &w->head[h];
                w->plane[0][h] = (weights ? head->weight : head->scored) + row * w->stride + col;
                w->plane[1][h] = head->dscore + row * w->stride + col;
            }
            mix(form, (const float *const *)w->plane[0], w->plane[1], rows, cols, w->stride, w->mix);
        }
    }
}

/* ---- rows ---- */

static float sum_of_products(const float *a, const float *b, int64_t n)
{
    double total = 0.0;
    for (int64_t j0 = 0; j0 < n; j0 += EXACT_COLS) {
        const int64_t here = n - j0 < EXACT_COLS ? n - j0 : EXACT_COLS;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < here; j++)
            sum += a[j0 + j] * b[j0 + j];
        total += (double)sum;
    }
    return (float)total;
}

static void whole_row_backward(back_work *work, const heed_row_head *head, const float *weight, int row)
{
    heed_rows_work *w = &work->rows;
    const heed_form_state *form = &work->own->form[work->own->normalise];
    const int64_t at = row * w->stride + w->first, query = w->row0 + row;
    heed_row view = {.cols = (int)(w->keys_end - w->first),
                     .batch = w->batch,
                     .head = head->query.head,
                     .query = head->query.query0 + query,
                     .pos = head->query.pos[query],
                     .key_pos = w->key_pos + w->first,
                     .score = (float *)weight + at,
                     .work = w->line[0],
                     .dweight = head->dscore + at,
                     .dscore = w->line[2],
                     .aux = head->aux + 4 * row};
    if (head->lse[row] == -INFINITY || head->broken[row])
        return;
    form->form->whole_row_backward(form, &view);
    memcpy(head->dscore + at, w->line[2], (size_t)view.cols * sizeof(float));
}

static void normalise_backward(const heed_backward_work *back, back_work *work, heed_row_head *head)
{
    heed_rows_work *w = &work->rows;
    const heed_form_state *form = &work->own->form[work->own->normalise];
    float *weight = head->weight ? head->weight : head->score;
    const int cols = (int)(w->last - w->first);
    for (int i = 0; i < w->count; i++) {
        const int64_t at = i * w->stride + w->first;
        work->delta[i] = head->broken[i] ? NAN : sum_of_products(weight + at, head->dscore + at, cols);
    }
    for (int row = 0; row < w->count; row += HEED_STRIP) {
        const int rows = w->count - row < HEED_STRIP ? w->count - row : HEED_STRIP;
        heed_tile tile = heed_rows_tile(back->run, work->own, w, head, row, rows, w->first, cols);
        tile.score = weight + row * w->stride + w->first;
        if (form->form->weights_backward)
            form->form->weights_backward(form, &tile, head->norm + row, work->delta + row);
        for (int i = row; i < row + rows && !form->form->weights_backward; i++)
            whole_row_backward(work, head, weight, i);
    }
    if (form->form->norm_backward)
        form->form->norm_backward(form, head->query.head, w->count, head->norm, work->delta);
    for (int i = 0; i < w->count; i++)
        for (int64_t j = i * w->stride + w->first; head->broken[i] && j < i * w->stride + w->last; j++)
            head->dscore[j] = NAN;
}

static void modify_backward(const heed_backward_work *back, back_work *work, heed_row_head *head)
{
    heed_rows_work *w = &work->rows;
    heed_tile tile =
        heed_rows_tile(back->run, work->own, w, head, 0, w->count, w->first, (int)(w->last - w->first));
    heed_adjust_back(work->own, work->own->modify, work->own->modifies, &tile, &head->query, w->row0,
                     heed_rows_kept(w, head, 0, w->first));
}

/* ---- scores ---- */

/* The part of the position forms from `from` to `to` on a tile, or on whole rows. */
static void adjust_backward(back_work *work, heed_row_head *head, heed_tile tile, int row, int64_t col,
                            int from, int to)
{
    heed_adjust_back(work->own, work->own->adjust + from, to - from, &tile, &head->query,
                     work->rows.row0 + row, heed_rows_kept(&work->rows, head, row, col));
}

/* A tile with the packed keys, and where its gradients go. */
static heed_tile tile_with_keys(const heed_backward_work *back, back_work *work, heed_row_head *head, int row)
{
    heed_rows_work *w = &work->rows;
    const int rows = w->count - row < HEED_STRIP ? w->count - row : HEED_STRIP;
    heed_tile tile = heed_rows_tile(back->run, work->own, w, head, row, rows, w->keys.key0, w->keys.cols);
    tile.key = w->keys.transposed;
    tile.key_stride = HEED_KEY_STRIDE;
    tile.dquery = heed_dquery(back, 0, w->batch, head->query.head, tile.query0);
    tile.dkey = work->dkey_transposed;
    return tile;
}

static void clear_transposed(const heed_backward_work *back, back_work *work)
{
    memset(work->dkey_transposed, 0, (size_t)(back->row_stride * HEED_KEY_STRIDE) * sizeof(float));
}

static float *dkey_of(const heed_backward_work *back, const back_work *work, const heed_row_head *head,
                      int copy)
{
    const heed_rows_work *w = &work->rows;
    return heed_dkey(back, copy, w->batch, work->own->keys_by_head ? head->query.head : w->keys.group,
                     w->keys.key0);
}

static void add_dkey_transposed(const heed_backward_work *back, back_work *work, const heed_row_head *head,
                                int copy)
{
    float *to = dkey_of(back, work, head, copy);
    for (int j = 0; j < work->rows.keys.count; j++)
        for (int d = 0; d < work->own->row_dim; d++)
            to[j * back->row_stride + d] += work->dkey_transposed[d * HEED_KEY_STRIDE + j];
}

/* The third part of the position forms, then the second. */
static void adjust_rows_backward(const heed_backward_work *back, back_work *work,
                                 const heed_adjust_parts *parts, int copy)
{
    heed_rows_work *w = &work->rows;
    const int all = work->own->adjusts;
    for (int64_t col = w->first; col < w->last && parts->after < all; col += HEED_KEYS)
        for (int h = 0; h < w->heads && w->visible[col / HEED_KEYS] != HEED_CLOSED; h++) {
            heed_row_head *head = &w->head[h];
            heed_rows_pack_keys(back->run, work->own, w, head, col / HEED_KEYS, false);
            clear_transposed(back, work);
            for (int row = 0; row < w->count; row += HEED_STRIP)
                adjust_backward(work, head, tile_with_keys(back, work, head, row), row, col, parts->after,
                                all);
            if (parts->keys_after)
                add_dkey_transposed(back, work, head, copy);
        }
    for (int h = 0; h < w->heads && parts->whole < parts->after; h++) {
        heed_tile tile = heed_rows_tile(back->run, work->own, w, &w->head[h], 0, w->count, w->first,
                                        (int)(w->last - w->first));
        tile.open = w->head[h].seen + w->first;
        tile.dquery = heed_dquery(back, 0, w->batch, tile.head, tile.query0);
        adjust_backward(work, &w->head[h], tile, 0, w->first, parts->whole, parts->after);
        zero_closed(w, w->head[h].seen, work->any, w->head[h].dscore); /* sums over the row reach all of it */
    }
}

/* dquery[i] += sum_j dscore[i][j] key[j] */
static void add_queries(const heed_backward_work *back, back_work *work, heed_row_head *head, bool one_by_one)
{
    heed_rows_work *w = &work->rows;
    const int64_t stride = back->row_stride;
    const float *dscore = head->dscore + w->keys.key0;
    float *to = heed_dquery(back, 0, w->batch, head->query.head, head->query.query0 + w->row0);
    for (int row = 0; row < w->count && !one_by_one; row += HEED_STRIP)
        heed_accumulate(w->count - row < HEED_STRIP ? w->count - row : HEED_STRIP, w->keys.count,
                        dscore + row * w->stride, w->stride, 1, w->keys.natural, stride, to + row * stride,
                        stride, stride);
    for (int i = 0; i < w->count && one_by_one; i++)
        HEED_FOR_USED(j, work->used + i * HEED_KEYS, w->keys.cols)
        {
            const float factor = dscore[i * w->stride + j], *restrict key = w->keys.natural + j * stride;
            float *restrict sum = to + i * stride;
            for (int64_t d = 0; d < stride; d++)
                sum[d] += factor * key[d];
        }
}

static void pair_backward(const heed_backward_work *back, back_work *work, heed_row_head *head)
{
    heed_rows_work *w = &work->rows;
    const heed_form_state *form = &work->own->form[work->own->pair];
    for (int row = 0; row < w->count; row += HEED_STRIP) {
        heed_tile tile = tile_with_keys(back, work, head, row);
        const uint8_t *used = work->used + row * HEED_KEYS;
        if (!memchr(used, 1, (size_t)(tile.rows * HEED_KEYS)))
            continue;
        for (int i = 0; i < tile.rows && work->own->scale != 1.0f; i++)
            for (int j = 0; j < tile.cols; j++)
                tile.dscore[i * tile.stride + j] *= work->own->scale;
        form->form->pair_backward(form, &tile);
    }
}

/* The first part of the position forms, then the product or pair hook, on one block of keys. */
static void scores_of_block(const heed_backward_work *back, back_work *work, heed_row_head *head,
                            int64_t block, int first_adjusts, int copy)
{
    heed_rows_work *w = &work->rows;
    const heed_pipeline *own = work->own;
    bool transposed = own->pair >= 0;
    for (int n = 0; n < first_adjusts; n++)
        transposed |= own->form[own->adjust[n]].form->adjust_backward != NULL;
    heed_rows_pack_keys(back->run, own, w, head, block, true);
    if (transposed)
        clear_transposed(back, work);
    for (int row = 0; row < w->count && first_adjusts > 0; row += HEED_STRIP)
        adjust_backward(work, head, tile_with_keys(back, work, head, row), row, w->keys.key0, 0,
                        first_adjusts);
    const int pairs = w->count * w->keys.cols;
    const int used =
        heed_mark_used(head->dscore + w->keys.key0, NULL, w->stride, w->count, w->keys.cols, work->used);
    if (used > 0 && own->pair >= 0) {
        pair_backward(back, work, head);
    } else if (used > 0) {
        const float *prepared = head->query.prepared + w->row0 * back->row_stride;
        const bool finite = heed_rows_finite(prepared, back->row_stride, w->count, own->row_dim) &&
                            heed_rows_finite(w->keys.natural, back->row_stride, w->keys.count, own->row_dim);
        const bool one_by_one = !finite || heed_few(used, pairs);
        add_queries(back, work, head, one_by_one);
        add_transposed(work, head->dscore + w->keys.key0, one_by_one, prepared,
                       dkey_of(back, work, head, copy), back->row_stride);
    }
    if (transposed)
        add_dkey_transposed(back, work, head, copy);
}

static void scores_backward(const heed_backward_work *back, back_work *work, int first_adjusts, int copy)
{
    heed_rows_work *w = &work->rows;
    const bool mix = heed_rows_mix(work->own);
    for (int64_t b = w->first / HEED_KEYS; b * HEED_KEYS < w->last; b++)
        for (int h = 0; h < w->heads && w->visible[b] != HEED_CLOSED; h++) {
            heed_row_head *head = &w->head[h];
            if (head->state[b] == HEED_CLOSED && !mix)
                continue;
            scores_of_block(back, work, head, b, first_adjusts, copy);
        }
}

/* ---- pieces ---- */

/* The step of votes that begins at a row. */
static int64_t step_of(const heed_backward_work *back, const heed_rows_work *w, int64_t query0, int row0)
{
    const int64_t each = (HEED_BACK_BLOCK + w->block - 1) / w->block;
    return w->batch * back->steps + query0 / HEED_BACK_BLOCK * each + row0 / w->block;
}

/* From prepared rows to the gradient of the scores as the normaliser meets them. copy -1: nothing is added to
 * the gradients of values. */
static void weights_backward(const heed_backward_work *back, back_work *work, int row0, int count, int copy)
{
    heed_rows_work *w = &work->rows;
    const heed_pipeline *own = work->own;
    const heed_form *heads = own->form[own->heads].form;
    const int64_t keys = back->run->plan->problem.keys;
    if (own->votes >= 0)
        memcpy(w->carried, back->votes + step_of(back, w, w->head[0].query.query0, row0) * keys,
               (size_t)keys * sizeof(float));
    heed_rows_weights(back->run, own, w, row0, count);
    if (w->first == w->last)
        return;
    values_backward(back, work, copy);
    mix_backward(work, heads->mix_weights_backward, true);
    for (int h = 0; h < w->heads; h++) {
        heed_row_head *head = &w->head[h];
        zero_closed(w, head->open, NULL, head->dscore);
        normalise_backward(back, work, head);
        modify_backward(back, work, head);
        zero_closed(w, head->open, NULL, head->dscore);
    }
}

static void rows_backward(const heed_backward_work *back, back_work *work, int row0, int count, int copy)
{
    heed_rows_work *w = &work->rows;
    const heed_pipeline *own = work->own;
    const heed_form *heads = own->form[own->heads].form;
    const heed_adjust_parts parts = heed_part_adjusts(own);
    const int64_t keys = back->run->plan->problem.keys;
    weights_backward(back, work, row0, count, copy);
    if (w->first == w->last)
        return;
    if (own->votes >= 0) {
        memcpy(w->blame, back->blame + step_of(back, w, w->head[0].query.query0, row0) * keys,
               (size_t)keys * sizeof(float));
        heed_rows_votes_backward(back->run, own, w);
    }
    for (int h = 0; h < w->heads && heed_rows_mix(own); h++)
        zero_closed(w, work->any, NULL, w->head[h].scored); /* what they hold elsewhere may be NaN */
    mix_backward(work, heads->mix_scores_backward, false);
    adjust_rows_backward(back, work, &parts, copy);
    scores_backward(back, work, parts.whole, copy);
}

static void piece_backward(const heed_backward_work *back, back_work *work, int64_t piece)
{
    const heed_run *run = back->run;
    const heed_problem *p = &run->plan->problem;
    const heed_pipeline *own = work->own;
    heed_rows_work *w = &work->rows;
    const int64_t units = heed_rows_mix(own) ? 1 : p->kv_heads, copies = back->copies.key;
    const int64_t unit = piece / copies, copy = piece % copies;
    const int batch = (int)(unit / units), group = (int)(unit % units);
    const int first = units == 1 ? 0 : own->group_first[group];
    const int last = units == 1 ? own->heads_here : own->group_first[group + 1];
    const int64_t queries = run->query_count[batch];
    for (int64_t query0 = copy * HEED_BACK_BLOCK; query0 < queries; query0 += copies * HEED_BACK_BLOCK) {
        const int rows = (int)clamp(queries - query0, 0, HEED_BACK_BLOCK);
        for (int n = first; n < last; n += w->most_heads) {
            heed_rows_begin(run, own, w, batch, n, (int)clamp(last - n, 1, w->most_heads), query0, rows);
            for (int h = 0; h < w->heads; h++)
                w->head[h].query.daux = heed_daux(back, 0, batch, w->head[h].query.head, query0);
            for (int row0 = 0; row0 < rows; row0 += w->block)
                rows_backward(back, work, row0, (int)clamp(rows - row0, 0, w->block), (int)copy);
        }
    }
}

int64_t heed_rows_steps(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const int block = heed_rows_at_once(plan, pipeline, true);
    return (plan->problem.queries + HEED_BACK_BLOCK - 1) / HEED_BACK_BLOCK *
           ((HEED_BACK_BLOCK + block - 1) / block);
}

/* Fills back->votes, or back->blame. All threads call it together. */
static void carry_votes(const heed_backward_work *back, back_work *work, bool blame)
{
    const heed_run *run = back->run;
    const heed_problem *p = &run->plan->problem;
    heed_rows_work *w = &work->rows;
    float *sums = blame ? back->blame : back->votes;
    const int64_t each = (HEED_BACK_BLOCK + w->block - 1) / w->block;
    for (int f = 0; f < work->own->forms; f++)
        memset(work->own->form[f].grad, 0, sizeof work->own->form[f].grad);
#pragma omp for schedule(dynamic, 1)
    for (int64_t n = 0; n < p->batch * back->steps; n++) {
        const int batch = (int)(n / back->steps), row0 = (int)(n % back->steps % each * w->block);
        const int64_t query0 = n % back->steps / each * HEED_BACK_BLOCK;
        const int rows = (int)clamp(run->query_count[batch] - query0, 0, HEED_BACK_BLOCK);
        const int count = (int)clamp(rows - row0, 0, w->block);
        memset(sums + n * p->keys, 0, (size_t)p->keys * sizeof *sums);
        if (count == 0)
            continue;
        heed_rows_begin(run, work->own, w, batch, blame ? 0 : heed_voter_of(work->own),
                        blame ? work->own->heads_here : 1, query0, rows);
        if (blame) {
            weights_backward(back, work, row0, count, -1);
            if (w->first < w->last)
                heed_rows_blame(run, w, sums + n * p->keys);
        } else {
            heed_rows_scores(run, work->own, w, row0, count);
            heed_rows_sum_votes(run, work->own, w, sums + n * p->keys);
        }
    }
    heed_carry_sums(sums, p->batch, back->steps, p->keys, blame);
}

void heed_rows_backward(const heed_backward_work *back)
{
    const heed_run *run = back->run;
    const heed_problem *p = &run->plan->problem;
    const int64_t units = p->batch * (heed_rows_mix(back->pipeline) ? 1 : p->kv_heads);
    const int64_t pieces = units * back->copies.key;
#pragma omp parallel num_threads(p->threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        back_work work = take_work(&arena, run->plan, back->pipeline);
        *work.own = *back->pipeline;
        for (int blame = 0; blame < 2 && back->votes; blame++)
            carry_votes(back, &work, blame);
#pragma omp for schedule(dynamic, 1)
        for (int lane = 0; lane < back->copies.lanes; lane++) {
            heed_set_lane(back, work.own, lane);
            for (int64_t n = lane; n < pieces; n += back->copies.lanes)
                piece_backward(back, &work, n);
        }
    }
}
