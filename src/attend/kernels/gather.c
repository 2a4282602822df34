#include "attend/kernels/gather.h"
#include "attend/kernels/pairs.h"

#include <heed/recall.h>

#include <string.h>

/* ---- keys ---- */

void heed_gather_place(heed_gather_work *work, const heed_meeting *meeting, int64_t key0)
{
    heed_key_block *keys = &work->keys;
    const int64_t left = meeting->keys - key0;
    keys->count = left < HEED_KEYS ? (int)left : HEED_KEYS;
    keys->cols = (int)heed_round_up(keys->count, HEED_SUB);
    keys->key0 = meeting->made_key || meeting->key ? 0 : meeting->first_key + key0;
    for (int j = 0; j < keys->count; j++) {
        const int64_t key = meeting->key ? meeting->key[key0 + j] : meeting->first_key + key0 + j;
        keys->pos[j] = meeting->made_key ? 0 : work->at.key_pos[key];
        work->logs[j] = meeting->log_mass ? meeting->log_mass[key0 + j] : 0.0f;
    }
    for (int j = keys->count; j < HEED_KEYS; j++)
        keys->pos[j] = keys->pos[j - 1] < HEED_POSITION_LIMIT ? keys->pos[j - 1] + 1 : keys->pos[j - 1];
    keys->contiguous = heed_runs_by_one(keys->pos, HEED_KEYS);
    for (int s = 0; s < keys->cols / HEED_SUB; s++) {
        const int end = (s + 1) * HEED_SUB < keys->count ? (s + 1) * HEED_SUB : keys->count;
        work->low[s] = work->high[s] = keys->pos[s * HEED_SUB];
        for (int j = s * HEED_SUB; j < end; j++) {
            work->low[s] = keys->pos[j] < work->low[s] ? keys->pos[j] : work->low[s];
            work->high[s] = keys->pos[j] > work->high[s] ? keys->pos[j] : work->high[s];
        }
    }
}

/* Says which keys a list will read, run by run. */
static void will_read(const heed_gather_work *work, const heed_meeting *meeting, int64_t key0, int count)
{
    const heed_gathering *at = &work->at;
    if (!work->run->extra->reads)
        return;
    for (int j = 0, n; j < count; j += n) {
        const int64_t first = meeting->key ? meeting->key[key0 + j] : meeting->first_key + key0 + j;
        for (n = 1; j + n < count && (!meeting->key || meeting->key[key0 + j + n] == first + n);)
            n++;
        heed_will_read(work->run, at->batch, at->kv_head, first, n, HEED_READS_NOW);
    }
}

static void copy_rows(const float *from, int64_t dim, int count, float *to, int64_t stride)
{
    for (int j = 0; j < count; j++)
        memcpy(to + j * stride, from + j * dim, (size_t)dim * sizeof *to);
}

void heed_gather_pack(heed_gather_work *work, const heed_meeting *meeting, int64_t key0)
{
    const heed_run *run = work->run;
    const heed_problem *p = &run->plan->problem;
    const heed_gathering *at = &work->at;
    heed_key_block *keys = &work->keys;
    const int64_t row = at->query_stride, value = heed_value_stride(run->plan), dim = p->value_dim;
    const bool paged = p->with & HEED_WITH_PAGES;
    if (meeting->made_key) {
        copy_rows(meeting->made_key + key0 * at->dim, at->dim, keys->count, keys->natural, row);
        copy_rows(meeting->made_value + key0 * dim, dim, keys->count, keys->value, value);
    } else {
        const int32_t *list = meeting->key ? meeting->key + key0 : NULL;
        const int64_t first = meeting->first_key + key0;
        will_read(work, meeting, key0, keys->count);
        heed_prepare_list(run, work->pipeline, true, at->batch, at->head, list, first, keys->count, keys->pos,
                          keys->natural, row, &work->rows);
        if (!list)
            heed_load_rows(run, &run->v, paged, at->batch, at->kv_head, first, keys->count, keys->value,
                           value);
        for (int j = 0; list && j < keys->count; j++)
            heed_load_rows(run, &run->v, paged, at->batch, at->kv_head, list[j], 1, keys->value + j * value,
                           value);
    }
    for (int j = 0; j < keys->count; j++) {
        memset(keys->natural + j * row + at->dim, 0, (size_t)(row - at->dim) * sizeof(float));
        memset(keys->value + j * value + dim, 0, (size_t)(value - dim) * sizeof(float));
    }
    memset(keys->natural + keys->count * row, 0, (size_t)((HEED_KEYS - keys->count) * row) * sizeof(float));
    memset(keys->value + keys->count * value, 0, (size_t)((HEED_KEYS - keys->count) * value) * sizeof(float));
    heed_transpose(keys->natural, row, keys->count, at->dim, keys->transposed, HEED_KEY_STRIDE, keys->cols);
    keys->value_finite = heed_rows_finite(keys->value, value, keys->count, dim);
    if (keys->value_transposed)
        heed_transpose(keys->value, value, keys->count, (int)dim, keys->value_transposed, HEED_KEY_STRIDE,
                       keys->cols);
}

/* ---- strips of queries ---- */

/* Columns of the block that a query's interval of the list holds. */
static void interval_of(const heed_meeting *meeting, int64_t query, int64_t key0, int count, int *low,
                        int *high)
{
    const int64_t from = meeting->from ? meeting->from[query] - key0 : 0;
    const int64_t until = meeting->until ? meeting->until[query] - key0 : count;
    *low = from < 0 ? 0 : from > count ? count : (int)from;
    *high = until < *low ? *low : until > count ? count : (int)until;
}

bool heed_gather_strip_of(heed_gather_work *work, const heed_meeting *meeting, int64_t first, int64_t key0,
                          heed_gather_strip *strip)
{
    const heed_key_block *keys = &work->keys;
    const int64_t left = meeting->queries - first;
    *strip = (heed_gather_strip){
        .first = first, .rows = left < HEED_STRIP ? (int)left : HEED_STRIP, .low = keys->count};
    int least = 0, most = keys->count; /* what all see */
    for (int i = 0; i < strip->rows; i++) {
        int low, high;
        interval_of(meeting, first + i, key0, keys->count, &low, &high);
        const bool whole = meeting->outside ? low == high : low == 0 && high == keys->count;
        least = low > least ? low : least;
        most = high < most ? high : most;
        low = meeting->outside ? 0 : low;
        high = meeting->outside ? keys->count : high;
        strip->partly |= !whole;
        if (low == high)
            continue;
        strip->low = low < strip->low ? low : strip->low;
        strip->high = high > strip->high ? high : strip->high;
    }
    if (meeting->outside && least == 0 && most == keys->count)
        return false;
    const int pos = meeting->query_pos != NULL;
    for (int i = 0; i < HEED_STRIP; i++) {
        const int64_t n = first + (i < strip->rows ? i : strip->rows - 1);
        strip->pos[i] = pos ? meeting->query_pos[n] : work->pos[heed_gather_query(meeting, n)];
    }
    if (strip->low >= strip->high)
        return false;
    int sub = strip->low / HEED_SUB, end = (strip->high + HEED_SUB - 1) / HEED_SUB;
    if (!meeting->open && work->pipeline->wheres > 0) {
        heed_query_range range = {.batch = work->at.batch,
                                  .head = work->at.head,
                                  .pos_min = strip->pos[0],
                                  .pos_max = strip->pos[0],
                                  .inputs = heed_inputs_of(work->run, work->at.kv_head)};
        for (int i = 1; i < strip->rows; i++) {
            range.pos_min = strip->pos[i] < range.pos_min ? strip->pos[i] : range.pos_min;
            range.pos_max = strip->pos[i] > range.pos_max ? strip->pos[i] : range.pos_max;
        }
        const heed_key_blocks runs = {.count = keys->cols / HEED_SUB,
                                      .size = HEED_SUB,
                                      .keys = keys->count,
                                      .pos_min = work->low,
                                      .pos_max = work->high};
        const uint8_t *state = heed_list_states(work->pipeline, &range, &runs, &work->sight);
        while (sub < end && state[sub] == HEED_CLOSED)
            sub++;
        while (end > sub && state[end - 1] == HEED_CLOSED)
            end--;
        for (int s = sub; s < end; s++)
            strip->partly |= state[s] != HEED_OPEN;
    }
    strip->low = sub * HEED_SUB;
    strip->high = end * HEED_SUB;
    strip->partly |= strip->high > keys->count;
    strip->contiguous = heed_runs_by_one(strip->pos, strip->rows);
    return sub < end;
}

void heed_gather_queries(heed_gather_work *work, const heed_meeting *meeting, heed_gather_strip *strip)
{
    const int64_t row = work->at.query_stride;
    if (meeting->query_pos) {
        int32_t index[HEED_STRIP];
        for (int i = 0; i < strip->rows; i++)
            index[i] = (int32_t)heed_gather_query(meeting, strip->first + i);
        heed_prepare_list(work->run, work->pipeline, false, work->at.batch, work->at.head, index, 0,
                          strip->rows, strip->pos, strip->query, row, &work->rows);
    } else {
        for (int i = 0; i < strip->rows; i++)
            memcpy(strip->query + i * row, work->query + heed_gather_query(meeting, strip->first + i) * row,
                   (size_t)row * sizeof(float));
    }
    memset(strip->query + strip->rows * row, 0, (size_t)((HEED_STRIP - strip->rows) * row) * sizeof(float));
}

static void close_outside(const heed_meeting *meeting, const heed_gather_strip *strip, int64_t key0,
                          int count, heed_tile *tile)
{
    for (int i = 0; i < tile->rows && (meeting->from || meeting->until); i++) {
        int low, high;
        interval_of(meeting, strip->first + i, key0, count, &low, &high);
        float *score = tile->score + i * tile->stride - strip->low;
        for (int j = strip->low; j < strip->high; j++) {
            const bool inside = j >= low && j < high;
            score[j] = inside == meeting->outside ? -INFINITY : score[j];
        }
    }
}

heed_tile heed_gather_tile(heed_gather_work *work, const heed_pipeline *pipeline, const heed_meeting *meeting,
                           int64_t key0, const heed_gather_strip *strip, float *score, heed_kept kept)
{
    const heed_key_block *keys = &work->keys;
    heed_tile tile = {.rows = strip->rows,
                      .cols = strip->high - strip->low,
                      .batch = work->at.batch,
                      .head = work->at.head,
                      .kv_head = work->at.kv_head,
                      .query_pos = strip->pos,
                      .key_pos = keys->pos + strip->low,
                      .contiguous = strip->contiguous && keys->contiguous,
                      .score = score + strip->low,
                      .stride = HEED_KEYS,
                      .query = strip->query,
                      .query_stride = work->at.query_stride,
                      .key = keys->transposed + strip->low,
                      .key_stride = HEED_KEY_STRIDE,
                      .dim = pipeline->row_dim,
                      .inputs = heed_inputs_of(work->run, keys->group)};
    if (kept.plane)
        kept.plane += strip->low;
    heed_scores(pipeline, &tile);
    if (!meeting->made_key)
        heed_adjust(pipeline, pipeline->adjust, pipeline->adjusts, &tile, NULL, 0, kept);
    if (strip->partly) {
        const bool asks = !meeting->open && pipeline->wheres > 0;
        const uint8_t *open = asks ? heed_mask_tile(work->run, pipeline, &tile, &work->sight) : NULL;
        heed_close(&tile, open, HEED_KEYS, keys->count - strip->low);
        close_outside(meeting, strip, key0, keys->count, &tile);
    }
    heed_adjust(pipeline, pipeline->modify, pipeline->modifies, &tile, NULL, 0, kept);
    for (int i = 0; meeting->log_mass && i < tile.rows; i++)
        for (int j = 0; j < keys->count - strip->low && j < tile.cols; j++)
            tile.score[i * tile.stride + j] += work->logs[strip->low + j];
    return tile;
}

/* ---- forward ---- */

static void note_open(const heed_run *run, const heed_tile *tile, bool count, uint8_t *open)
{
    int64_t seen = 0;
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++) {
            const bool here = tile->score[i * tile->stride + j] != -INFINITY;
            open[i * HEED_KEYS + j] = here;
            seen += here;
        }
    if (count)
        heed_note_read(run, seen);
}

/* sum += weights times values; where values are not finite, of open pairs only. */
static void add_values(heed_gather_work *work, const heed_tile *tile, int first)
{
    const int64_t stride = heed_value_stride(work->run->plan), cols = heed_value_cols(work->run->plan);
    const float *value = work->keys.value + first * stride;
    if (work->keys.value_finite) {
        heed_accumulate(tile->rows, tile->cols, tile->score, tile->stride, 1, value, stride, work->strip_sum,
                        stride, cols);
        return;
    }
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++)
            for (int64_t e = 0; work->was_open[i * HEED_KEYS + j] && e < work->at.value_dim; e++)
                work->strip_sum[i * stride + e] += tile->score[i * tile->stride + j] * value[j * stride + e];
}

static void meet_strip(heed_gather_work *work, const heed_meeting *meeting, int64_t key0,
                       heed_gather_strip *strip)
{
    const int64_t stride = heed_value_stride(work->run->plan);
    const heed_form_state *normalise = &work->pipeline->form[work->pipeline->normalise];
    float max[HEED_STRIP], sum[HEED_STRIP], rescale[HEED_STRIP];
    strip->query = work->strip_query;
    heed_gather_queries(work, meeting, strip);
    heed_tile tile =
        heed_gather_tile(work, work->pipeline, meeting, key0, strip, work->score, (heed_kept){0});
    const bool counts = work->run->extra->capture.pairs;
    if (counts || !work->keys.value_finite)
        note_open(work->run, &tile, counts, work->was_open);
    for (int i = 0; i < strip->rows; i++) {
        const int64_t n = heed_gather_query(meeting, strip->first + i);
        max[i] = work->max[n];
        sum[i] = work->norm_sum[n];
    }
    const heed_row_sums sums = {.max = max, .sum = sum, .rescale = rescale};
    normalise->form->online(normalise, &tile, (heed_row_sums *)&sums);
    for (int i = 0; i < strip->rows; i++) {
        const float *from = work->sum + heed_gather_query(meeting, strip->first + i) * stride;
        for (int64_t e = 0; e < stride; e++)
            work->strip_sum[i * stride + e] = rescale[i] * from[e];
    }
    add_values(work, &tile, strip->low);
    for (int i = 0; i < strip->rows; i++) {
        const int64_t n = heed_gather_query(meeting, strip->first + i);
        memcpy(work->sum + n * stride, work->strip_sum + i * stride, (size_t)stride * sizeof(float));
        work->max[n] = max[i];
        work->norm_sum[n] = sum[i];
    }
}

void heed_gather_sum(heed_gather_work *work, const heed_meeting *meeting)
{
    for (int64_t key0 = 0; key0 < meeting->keys; key0 += HEED_KEYS) {
        bool packed = false;
        heed_gather_place(work, meeting, key0);
        for (int64_t first = 0; first < meeting->queries; first += HEED_STRIP) {
            heed_gather_strip strip;
            if (!heed_gather_strip_of(work, meeting, first, key0, &strip))
                continue;
            if (!packed)
                heed_gather_pack(work, meeting, key0);
            packed = true;
            meet_strip(work, meeting, key0, &strip);
        }
    }
}

void heed_gather_finish(heed_gather_work *work, int64_t query0, int rows)
{
    const heed_form_state *normalise = &work->pipeline->form[work->pipeline->normalise];
    const int64_t stride = heed_value_stride(work->run->plan);
    const heed_row_sums sums = {.max = work->max + query0, .sum = work->norm_sum + query0};
    normalise->form->finish(normalise, work->at.head, rows, &sums, work->end);
    for (int i = 0; i < rows; i++) {
        float *sum = work->sum + (query0 + i) * stride;
        if (isnan(heed_log_of_sum(sums.max[i], sums.sum[i])))
            work->end[i].scale = work->end[i].norm = work->end[i].rest = NAN;
        for (int64_t e = 0; e < stride; e++)
            sum[e] *= work->end[i].scale;
    }
}

/* A meeting that is a softmax by itself goes into the totals. */
static void add_shares(heed_gather_work *work, const heed_meeting *meeting)
{
    const int64_t stride = heed_value_stride(work->run->plan);
    for (int64_t n = 0; n < meeting->queries; n++) {
        const int64_t i = heed_gather_query(meeting, n);
        const float max = work->max[i], most = work->own_max[i] > max ? work->own_max[i] : max;
        const float here = work->norm_sum[i], before = work->own_sum[i];
        heed_gather_finish(work, i, 1);
        for (int64_t e = 0; e < stride; e++)
            work->total[i * stride + e] += meeting->share[n] * work->sum[i * stride + e];
        if (here != 0.0f)
            work->own_sum[i] =
                here * expf(max - most) + (before == 0.0f ? 0.0f : before * expf(work->own_max[i] - most));
        work->own_max[i] = here != 0.0f ? most : work->own_max[i];
    }
    heed_gather_clear(work, meeting);
}

static void meet(const heed_gathering *at, const heed_meeting *meeting)
{
    heed_gather_work *work = at->kernel;
    heed_gather_sum(work, meeting);
    if (meeting->share)
        add_shares(work, meeting);
}

static void write_rows(heed_gather_work *work)
{
    const heed_form_state *form = &work->pipeline->form[work->pipeline->gathers];
    const heed_run *run = work->run;
    const heed_problem *p = &run->plan->problem;
    const heed_gathering *at = &work->at;
    const int64_t stride = heed_value_stride(run->plan);
    for (int64_t i0 = 0; i0 < at->queries; i0 += HEED_KEYS) {
        const int rows = at->queries - i0 < HEED_KEYS ? (int)(at->queries - i0) : HEED_KEYS;
        heed_gather_finish(work, i0, rows);
        for (int i = 0; i < rows; i++) {
            const int64_t n = i0 + i, row = ((int64_t)at->batch * p->heads + at->head) * p->queries + n;
            const float own = heed_log_of_sum(work->own_max[n], work->own_sum[n]);
            const float lse = heed_log_of_sum(work->max[n], work->norm_sum[n]);
            for (int64_t e = 0; e < stride; e++)
                work->sum[n * stride + e] += work->total[n * stride + e];
            heed_put_row_state(run, work->pipeline, row, work->max[n], &work->end[i]);
            heed_write_lse(run, at->batch, at->head, n, lse == -INFINITY ? own : lse);
            work->own_max[n] = lse == -INFINITY ? own : lse;
        }
        heed_write_output(run, work->pipeline, at->batch, at->head, i0, rows, work->sum + i0 * stride,
                          stride);
    }
    if (form->form->gathers->settle)
        form->form->gathers->settle(form, at, work->own_max);
}

void heed_gather_forward(const heed_run *run, const heed_pipeline *pipeline)
{
    const heed_problem *p = &run->plan->problem;
    const int64_t pieces = p->batch * pipeline->heads_here;
    const heed_form_state *form = &pipeline->form[pipeline->gathers];
    const heed_gather_rule *rule = form->form->gathers;
#pragma omp parallel num_threads(p->threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        heed_gather_work work = heed_take_gather_work(&arena, run->plan, pipeline);
        work.at.meet = meet;
        work.at.kernel = &work;
        if (rule->survey) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t n = 0; n < pieces; n++) {
                heed_gather_begin(&work, run, pipeline, (int)(n / pipeline->heads_here),
                                  pipeline->head[n % pipeline->heads_here]);
                if (work.at.queries > 0 && work.at.keys > 0)
                    rule->survey(form, &work.at);
            }
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t n = 0; n < pieces; n++) {
            heed_gather_begin(&work, run, pipeline, (int)(n / pipeline->heads_here),
                              pipeline->head[n % pipeline->heads_here]);
            heed_gather_ask(&work);
            write_rows(&work);
        }
    }
    for (int64_t b = 0; run->extra->memory && b < p->batch; b++)
        if (run->extra->memory[b] && run->query_count[b] > 0) {
            const int64_t keys = heed_key_count(run, b, 0);
            if (rule->close)
                rule->close(form, run->extra->memory[b], keys);
            run->extra->memory[b]->keys = keys;
        }
}
