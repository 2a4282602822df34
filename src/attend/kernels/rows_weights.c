/* The rows kernel up to final weights: scores tile by tile, then the stages that see complete rows. */
#include "attend/form.h"
#include "attend/kernels/rows.h"

/* ---- scores ---- */

heed_adjust_parts heed_part_adjusts(const heed_pipeline *pipeline)
{
    heed_adjust_parts parts = {.whole = pipeline->adjusts, .after = pipeline->adjusts};
    for (int n = pipeline->adjusts - 1; n >= 0; n--)
        if (pipeline->form[pipeline->adjust[n]].form->flags & HEED_WHOLE_ROW) {
            parts.after = parts.whole == pipeline->adjusts ? n + 1 : parts.after;
            parts.whole = n;
        }
    for (int n = parts.after; n < pipeline->adjusts; n++)
        parts.keys_after |= !pipeline->form[pipeline->adjust[n]].form->bias;
    return parts;
}

heed_tile heed_rows_tile(const heed_run *run, const heed_pipeline *pipeline, const heed_rows_work *work,
                         const heed_row_head *head, int row, int rows, int64_t col, int cols)
{
    const int64_t row_stride = heed_row_stride(run->plan, pipeline), at = row * work->stride + col;
    return (heed_tile){.rows = rows,
                       .cols = cols,
                       .batch = work->batch,
                       .head = head->query.head,
                       .kv_head = head->group,
                       .query0 = head->query.query0 + work->row0 + row,
                       .key0 = col,
                       .query_pos = head->query.pos + work->row0 + row,
                       .key_pos = work->key_pos + col,
                       .contiguous = head->query.contiguous && work->contiguous,
                       .score = head->score + at,
                       .stride = work->stride,
                       .query = head->query.prepared + (work->row0 + row) * row_stride,
                       .query_stride = row_stride,
                       .dim = pipeline->row_dim,
                       .inputs = heed_inputs_of(run, head->group),
                       .dscore = head->dscore ? head->dscore + at : NULL};
}

/* Which blocks the rows at hand can see, and the columns between the first and the last of them. */
static void look(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work)
{
    const int64_t keys = heed_key_count(run, work->batch, work->head[0].group),
                  blocks = (keys + HEED_KEYS - 1) / HEED_KEYS;
    memset(work->visible, HEED_CLOSED, (size_t)blocks);
    for (int h = 0; h < work->heads && blocks > 0; h++) {
        heed_row_head *head = &work->head[h];
        const heed_query_range range = heed_range_of(run, &head->query, work->row0, work->count);
        memcpy(head->state, heed_block_states(run, pipeline, &range, &work->sight), (size_t)blocks);
        for (int64_t b = 0; b < blocks; b++)
            work->visible[b] |= head->state[b];
    }
    int64_t first = 0, last = blocks;
    while (first < last && work->visible[first] == HEED_CLOSED)
        first++;
    while (last > first && work->visible[last - 1] == HEED_CLOSED)
        last--;
    const int64_t end = last * HEED_KEYS, exist = heed_round_up(keys, HEED_SUB);
    work->last = first == last ? 0 : end < exist ? end : exist;
    work->first = first == last || pipeline->selects > 0 ? 0 : first * HEED_KEYS;
    work->keys_end = work->last < keys ? work->last : keys;
}

/* Pairs that no tile reaches. Where a later stage looks at closed scores they must be numbers. */
static void fill_closed(const heed_rows_work *work, heed_row_head *head, int planes, int row, int rows,
                        int64_t from, int64_t to)
{
    if (from >= to)
        return;
    const float closed = head->seen ? 0.0f : -INFINITY;
    for (int i = row; i < row + rows; i++) {
        const int64_t at = i * work->stride;
        for (int64_t j = from; j < to; j++)
            head->score[at + j] = closed;
        if (head->seen)
            memset(head->seen + at + from, 0, (size_t)(to - from));
        for (int p = 0; head->kept && p < planes; p++)
            memset(head->kept + p * work->block * work->stride + at + from, 0,
                   (size_t)(to - from) * sizeof(float));
    }
}

/* Columns of the packed block that rows may see, in runs of HEED_SUB; returns whether some pair between is
 * closed. */
static bool narrow(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                   const heed_row_head *head, int row, int rows, int *first, int *last)
{
    const heed_query_range range = heed_range_of(run, &head->query, work->row0 + row, rows);
    const uint8_t *sub =
        heed_sub_states(run, pipeline, &range, work->keys.key0, work->keys.cols, &work->sight);
    int low = 0, high = work->keys.cols / HEED_SUB;
    while (low < high && sub[low] == HEED_CLOSED)
        low++;
    while (high > low && sub[high - 1] == HEED_CLOSED)
        high--;
    bool partly = false;
    for (int s = low; s < high; s++)
        partly |= sub[s] != HEED_OPEN;
    *first = low * HEED_SUB;
    *last = high * HEED_SUB;
    return partly;
}

/* Scores of a strip of rows against the packed block, through the first part of the position forms. */
static void score_strip(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                        heed_row_head *head, int row, uint8_t state, int adjusts)
{
    const heed_key_block *keys = &work->keys;
    const int rows = work->count - row < HEED_STRIP ? work->count - row : HEED_STRIP;
    const bool mix = heed_rows_mix(pipeline); /* reads the scores of closed pairs too */
    int first = 0, last = keys->cols;
    bool partly = state != HEED_OPEN;
    if (state == HEED_PARTLY && !mix)
        partly = narrow(run, pipeline, work, head, row, rows, &first, &last);
    fill_closed(work, head, pipeline->kept_planes, row, rows, keys->key0, keys->key0 + first);
    fill_closed(work, head, pipeline->kept_planes, row, rows, keys->key0 + last, keys->key0 + keys->cols);
    if (first == last)
        return;
    const int64_t col = keys->key0 + first, at = row * work->stride + col;
    heed_tile tile = heed_rows_tile(run, pipeline, work, head, row, rows, col, last - first);
    tile.key = keys->transposed + first;
    tile.key_stride = HEED_KEY_STRIDE;
    heed_scores(pipeline, &tile);
    heed_adjust(pipeline, pipeline->adjust, adjusts, &tile, &head->query, work->row0 + row,
                heed_rows_kept(work, head, row, col));
    const uint8_t *pair =
        partly && state != HEED_CLOSED ? heed_mask_tile(run, pipeline, &tile, &work->sight) : NULL;
    const int exist = keys->count - first;
    if (!head->seen) {
        if (pair || exist < tile.cols)
            heed_close(&tile, pair, HEED_KEYS, exist);
        return;
    }
    for (int i = 0; i < rows; i++) {
        uint8_t *seen = head->seen + at + i * work->stride;
        memset(seen, state != HEED_CLOSED, (size_t)tile.cols);
        if (pair)
            memcpy(seen, pair + i * HEED_KEYS, (size_t)tile.cols);
        if (exist < tile.cols)
            memset(seen + (exist > 0 ? exist : 0), 0, (size_t)(tile.cols - (exist > 0 ? exist : 0)));
    }
}

static void score_blocks(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                         int adjusts)
{
    const bool mix = heed_rows_mix(pipeline);
    for (int64_t b = work->first / HEED_KEYS; b * HEED_KEYS < work->last; b++) {
        const int64_t key0 = b * HEED_KEYS,
                      end = key0 + HEED_KEYS < work->last ? key0 + HEED_KEYS : work->last;
        for (int h = 0; h < work->heads; h++) {
            heed_row_head *head = &work->head[h];
            if (work->visible[b] == HEED_CLOSED || (head->state[b] == HEED_CLOSED && !mix)) {
                fill_closed(work, head, pipeline->kept_planes, 0, work->count, key0, end);
                continue;
            }
            heed_rows_pack_keys(run, pipeline, work, head, b, false);
            for (int row = 0; row < work->count; row += HEED_STRIP)
                score_strip(run, pipeline, work, head, row, head->state[b], adjusts);
        }
    }
}

/* The second and third part of the position forms: whole rows, then tiles once more. */
static void adjust_rows(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                        const heed_adjust_parts *parts)
{
    const int *which = pipeline->adjust;
    for (int h = 0; h < work->heads && parts->whole < parts->after; h++) {
        heed_row_head *head = &work->head[h];
        heed_tile tile = heed_rows_tile(run, pipeline, work, head, 0, work->count, work->first,
                                        (int)(work->last - work->first));
        tile.open = head->seen + work->first;
        heed_adjust(pipeline, which + parts->whole, parts->after - parts->whole, &tile, &head->query,
                    work->row0, heed_rows_kept(work, head, 0, work->first));
    }
    if (parts->after == pipeline->adjusts)
        return;
    for (int64_t b = work->first / HEED_KEYS; b * HEED_KEYS < work->last; b++)
        for (int h = 0; h < work->heads && work->visible[b] != HEED_CLOSED; h++) {
            heed_row_head *head = &work->head[h];
            if (parts->keys_after)
                heed_rows_pack_keys(run, pipeline, work, head, b, false);
            const int64_t col = b * HEED_KEYS, left = work->last - col;
            const int cols = left < HEED_KEYS ? (int)left : HEED_KEYS;
            for (int row = 0; row < work->count; row += HEED_STRIP) {
                const int rows = work->count - row < HEED_STRIP ? work->count - row : HEED_STRIP;
                heed_tile tile = heed_rows_tile(run, pipeline, work, head, row, rows, col, cols);
                tile.key = parts->keys_after ? work->keys.transposed : NULL;
                tile.key_stride = HEED_KEY_STRIDE;
                heed_adjust(pipeline, which + parts->after, pipeline->adjusts - parts->after, &tile,
                            &head->query, work->row0 + row, heed_rows_kept(work, head, row, col));
            }
        }
}

static void copy_plane(const heed_rows_work *work, const float *from, float *to)
{
    for (int i = 0; i < work->count && to; i++)
        memcpy(to + i * work->stride + work->first, from + i * work->stride + work->first,
               (size_t)(work->last - work->first) * sizeof(float));
}

typedef void (*mix_hook)(const heed_form_state *, float *const *, int, int, int64_t, float *);

static void mix_heads(const heed_pipeline *pipeline, heed_rows_work *work, mix_hook mix)
{
    const heed_form_state *form = &pipeline->form[pipeline->heads];
    for (int64_t col = work->first; mix && col < work->last; col += HEED_KEYS) {
        const int64_t left = work->last - col;
        for (int row = 0; row < work->count; row += HEED_STRIP) {
            for (int h = 0; h < work->heads; h++)
                work->plane[0][h] = work->head[h].score + row * work->stride + col;
            mix(form, work->plane[0], work->count - row < HEED_STRIP ? work->count - row : HEED_STRIP,
                left < HEED_KEYS ? (int)left : HEED_KEYS, work->stride, work->mix);
        }
    }
}

static void close_rows(const heed_rows_work *work, heed_row_head *head)
{
    const int64_t cols = work->last - work->first;
    for (int i = 0; i < work->count && head->seen; i++) {
        float *restrict score = head->score + i * work->stride + work->first;
        const uint8_t *restrict seen = head->seen + i * work->stride + work->first;
        for (int64_t j = 0; j < cols; j++)
            score[j] = seen[j] ? score[j] : -INFINITY;
    }
}

/* ---- rows ---- */

static bool has_nan_or_inf(const float *score, int64_t n)
{
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t j = 0; j < n; j++)
        found |= !(score[j] < INFINITY);
    return found;
}

static void mark_open(const float *restrict score, uint8_t *restrict open, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        open[j] = score[j] != -INFINITY;
}

/* Queries of one index as a selector by blocks takes them: of the row's own head, or of all heads that share
 * its kv head. Returns how many. */
static int make_block_queries(const heed_run *run, const heed_pipeline *pipeline, const heed_rows_work *work,
                              const heed_form_state *form, const heed_row_head *head, int64_t query)
{
    const bool by_group = form->form->block_rule(form).by_group;
    int count = 0;
    for (int h = 0; h < work->heads; h++) {
        const heed_row_head *other = &work->head[h];
        if (by_group ? other->group == head->group : other == head)
            form->form->block_query(form, other->query.head,
                                    other->query.prepared + query * heed_row_stride(run->plan, pipeline),
                                    pipeline->row_dim, work->block_query[count++]);
    }
    return count;
}

static void select_row(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                       heed_row_head *head, int row)
{
    const float *summary = head->summary;
    const int64_t query = work->row0 + row;
    for (int n = 0; n < pipeline->selects; n++) {
        const heed_form_state *form = &pipeline->form[pipeline->select[n]];
        heed_row view = {.cols = (int)work->keys_end,
                         .batch = work->batch,
                         .head = head->query.head,
                         .query = head->query.query0 + query,
                         .pos = head->query.pos[query],
                         .key_pos = work->key_pos,
                         .score = head->score + row * work->stride,
                         .work = work->line[0],
                         .query_row = head->query.prepared + query * heed_row_stride(run->plan, pipeline),
                         .dim = pipeline->row_dim,
                         .summary = summary};
        if (form->form->block_query) {
            view.block_query = (const float *const *)work->block_query;
            view.block_queries = make_block_queries(run, pipeline, work, form, head, query);
        }
        if (form->form->choose)
            form->form->choose(form, &view);
        if (form->form->summary_floats)
            summary += form->form->summary_floats(form, pipeline->row_dim, form->sizes.keys);
    }
}

static void select_rows(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                        heed_row_head *head)
{
    const int64_t cols = work->last - work->first;
    for (int i = 0; i < work->count; i++) {
        const int64_t at = i * work->stride + work->first;
        head->broken[i] = has_nan_or_inf(head->score + at, cols);
        if (!head->broken[i])
            select_row(run, pipeline, work, head, i);
        mark_open(head->score + at, head->open + at, cols);
    }
}

static int64_t tile_begin(const heed_rows_work *work, int64_t tile)
{
    const int64_t col = tile * HEED_ROW_TILE;
    return col < work->first ? work->first : col < work->last ? col : work->last;
}

/* An online normaliser on a strip: tile after tile, then every tile by the rescalings that came after it.
 * Tiles end at multiples of HEED_ROW_TILE, so that a row's sums do not depend on which rows it shares its
 * first column with. */
static void normalise_online(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                             heed_row_head *head, int row, int rows)
{
    const heed_form_state *form = &pipeline->form[pipeline->normalise];
    heed_row_sums sums = {.max = head->max + row, .sum = head->sum + row, .count = head->count + row};
    for (int i = 0; i < rows; i++) {
        sums.max[i] = -INFINITY;
        sums.sum[i] = sums.count[i] = 0.0f;
    }
    const int64_t tile0 = work->first / HEED_ROW_TILE,
                  tiles = (work->last + HEED_ROW_TILE - 1) / HEED_ROW_TILE;
    for (int64_t t = tile0; t < tiles; t++) {
        const int64_t col = tile_begin(work, t);
        const int cols = (int)(tile_begin(work, t + 1) - col);
        heed_tile tile = heed_rows_tile(run, pipeline, work, head, row, rows, col, cols);
        for (int i = 0; i < rows && form->form->flags & HEED_COUNTS_OPEN; i++) {
            const uint8_t *open = head->open + (row + i) * work->stride + col;
            int count = 0;
            for (int j = 0; j < cols; j++)
                count += open[j];
            sums.count[i] += (float)count;
        }
        sums.rescale = work->rescale + t * HEED_STRIP;
        form->form->online(form, &tile, &sums);
    }
    form->form->finish(form, head->query.head, rows, &sums, head->end + row);
    for (int i = 0; i < rows; i++) {
        head->lse[row + i] = heed_log_of_sum(sums.max[i], sums.sum[i]);
        head->norm[row + i] = head->end[row + i].norm;
        float factor = head->end[row + i].scale;
        float *weight = head->score + (row + i) * work->stride;
        for (int64_t t = tiles - 1; t >= tile0; t--) {
            const int64_t end = tile_begin(work, t + 1);
            for (int64_t j = tile_begin(work, t); j < end && factor != 1.0f; j++)
                weight[j] *= factor;
            factor *= work->rescale[t * HEED_STRIP + i];
        }
    }
}

static float lse_of(const float *logit, int64_t n)
{
    float max = -INFINITY, sum = 0.0f;
#pragma omp simd reduction(heed_largest : max)
    for (int64_t j = 0; j < n; j++)
        max = logit[j] > max ? logit[j] : max;
    if (max == -INFINITY)
        return max;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += heed_exp(logit[j] - max);
    return heed_log_of_sum(max, sum);
}

static void normalise_whole(const heed_pipeline *pipeline, heed_rows_work *work, heed_row_head *head, int row)
{
    const heed_form_state *form = &pipeline->form[pipeline->normalise];
    float *score = head->score + row * work->stride + work->first;
    const int64_t cols = work->last - work->first, real = work->keys_end - work->first;
    head->norm[row] = 0.0f;
    head->lse[row] = lse_of(score, cols);
    memset(head->aux + 4 * row, 0, 4 * sizeof(float));
    if (head->lse[row] == -INFINITY) {
        memset(score, 0, (size_t)cols * sizeof(float));
        return;
    }
    if (head->broken[row])
        return;
    const int64_t query = work->row0 + row;
    heed_row view = {.cols = (int)real,
                     .batch = work->batch,
                     .head = head->query.head,
                     .query = head->query.query0 + query,
                     .pos = head->query.pos[query],
                     .key_pos = work->key_pos + work->first,
                     .score = score,
                     .work = work->line[0],
                     .aux = head->aux + 4 * row};
    form->form->whole_row(form, &view);
    memset(score + real, 0, (size_t)(cols - real) * sizeof(float));
}

static void normalise_rows(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work,
                           heed_row_head *head)
{
    const bool online = pipeline->form[pipeline->normalise].form->online != NULL;
    for (int row = 0; row < work->count; row += HEED_STRIP) {
        const int rows = work->count - row < HEED_STRIP ? work->count - row : HEED_STRIP;
        if (online)
            normalise_online(run, pipeline, work, head, row, rows);
        for (int i = row; i < row + rows && !online; i++)
            normalise_whole(pipeline, work, head, i);
    }
    for (int i = 0; i < work->count; i++) {
        head->broken[i] |= isnan(head->lse[i]);
        if (!head->broken[i])
            continue;
        head->norm[i] = head->lse[i] = NAN;
        for (int64_t j = i * work->stride + work->first; j < i * work->stride + work->last; j++)
            head->score[j] = head->open[j] ? NAN : 0.0f;
    }
}

void heed_rows_scores(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, int row0,
                      int count)
{
    const heed_adjust_parts parts = heed_part_adjusts(pipeline);
    work->row0 = row0;
    work->count = count;
    look(run, pipeline, work);
    score_blocks(run, pipeline, work, parts.whole);
    adjust_rows(run, pipeline, work, &parts);
    for (int h = 0; h < work->heads; h++)
        close_rows(work, &work->head[h]);
}

void heed_rows_weights(const heed_run *run, const heed_pipeline *pipeline, heed_rows_work *work, int row0,
                       int count)
{
    const heed_form *heads = pipeline->form[pipeline->heads].form;
    const heed_adjust_parts parts = heed_part_adjusts(pipeline);
    work->row0 = row0;
    work->count = count;
    look(run, pipeline, work);
    score_blocks(run, pipeline, work, parts.whole);
    adjust_rows(run, pipeline, work, &parts);
    for (int h = 0; h < work->heads; h++)
        copy_plane(work, work->head[h].score, work->head[h].scored);
    mix_heads(pipeline, work, heads->mix_scores);
    for (int h = 0; h < work->heads; h++)
        close_rows(work, &work->head[h]);
    if (pipeline->votes >= 0)
        heed_rows_take_votes(run, pipeline, work);
    for (int h = 0; h < work->heads; h++) {
        heed_row_head *head = &work->head[h];
        select_rows(run, pipeline, work, head);
        heed_tile tile =
            heed_rows_tile(run, pipeline, work, head, 0, count, work->first, (int)(work->last - work->first));
        heed_adjust(pipeline, pipeline->modify, pipeline->modifies, &tile, &head->query, row0,
                    heed_rows_kept(work, head, 0, work->first));
        heed_add_mass(run, &tile);
        normalise_rows(run, pipeline, work, head);
        copy_plane(work, head->score, head->weight);
    }
    mix_heads(pipeline, work, heads->mix_weights);
}

static int mark_row(const float *restrict weight, const uint8_t *restrict open, int cols,
                    uint8_t *restrict used)
{
    int count = 0;
    if (open)
        for (int j = 0; j < cols; j++)
            used[j] = (weight[j] != 0.0f) | open[j];
    else
        for (int j = 0; j < cols; j++)
            used[j] = weight[j] != 0.0f;
    for (int j = 0; j < cols; j++)
        count += used[j];
    return count;
}

int heed_mark_used(const float *weight, const uint8_t *open, int64_t stride, int rows, int cols,
                   uint8_t *used)
{
    int count = 0;
    for (int i = 0; i < rows; i++)
        count += mark_row(weight + i * stride, open ? open + i * stride : NULL, cols, used + i * HEED_KEYS);
    return count;
}
