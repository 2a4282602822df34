/* Scores of one strip of queries against packed keys, forward and backward. */
#include "attend/kernels/work.h"
#include <string.h>

#define PANEL(name, vectors, add)                                                                            \
    static __attribute__((noinline)) void name(int64_t depth, const float *a, int64_t a_row,                 \
                                               int64_t a_depth, const float *b, int64_t b_row, float *c,     \
                                               int64_t c_row)                                                \
    {                                                                                                        \
        heed_panel_of(HEED_STRIP, vectors, depth, a, a_row, a_depth, b, b_row, c, c_row, add);               \
    }

PANEL(set_two, 2, false)
PANEL(set_one, 1, false)
PANEL(add_two, 2, true)
PANEL(add_one, 1, true)

void heed_product(int64_t depth, const float *a, int64_t a_row, int64_t a_depth, const float *b,
                  int64_t b_row, float *c, int64_t c_row, int64_t cols)
{
    int64_t x = 0;
    for (; x + 2 * HEED_WIDTH <= cols; x += 2 * HEED_WIDTH)
        set_two(depth, a, a_row, a_depth, b + x, b_row, c + x, c_row);
    for (; x < cols; x += HEED_WIDTH)
        set_one(depth, a, a_row, a_depth, b + x, b_row, c + x, c_row);
}

void heed_accumulate(int rows, int64_t depth, const float *a, int64_t a_row, int64_t a_depth, const float *b,
                     int64_t b_row, float *c, int64_t c_row, int64_t cols)
{
    int64_t x = 0;
    if (rows == HEED_STRIP) {
        for (; x + 2 * HEED_WIDTH <= cols; x += 2 * HEED_WIDTH)
            add_two(depth, a, a_row, a_depth, b + x, b_row, c + x, c_row);
        for (; x < cols; x += HEED_WIDTH)
            add_one(depth, a, a_row, a_depth, b + x, b_row, c + x, c_row);
        return;
    }
    for (; x < cols; x += HEED_WIDTH)
        for (int r = 0; r < rows; r++) {
            heed_vec sum = heed_vec_load(c + r * c_row + x);
            for (int64_t k = 0; k < depth; k++)
                sum += a[r * a_row + k * a_depth] * heed_vec_load(b + k * b_row + x);
            heed_vec_store(c + r * c_row + x, sum);
        }
}

heed_tile heed_tile_of(const heed_run *run, const heed_pipeline *pipeline, const heed_query_block *query,
                       int row0, int rows, const heed_key_block *keys, int first, int cols)
{
    const int64_t stride = heed_row_stride(run->plan, pipeline);
    return (heed_tile){.rows = rows,
                       .cols = cols,
                       .batch = query->batch,
                       .head = query->head,
                       .kv_head = keys->group,
                       .query0 = query->query0 + row0,
                       .key0 = keys->key0 + first,
                       .query_pos = query->pos + row0,
                       .key_pos = keys->pos + first,
                       .contiguous = query->contiguous && keys->contiguous,
                       .stride = HEED_KEYS,
                       .query = query->prepared + row0 * stride,
                       .query_stride = stride,
                       .key = keys->transposed + first,
                       .key_stride = HEED_KEY_STRIDE,
                       .dim = pipeline->row_dim,
                       .inputs = heed_inputs_of(run, keys->group)};
}

void heed_scores(const heed_pipeline *pipeline, heed_tile *tile)
{
    if (pipeline->pair < 0) {
        heed_product(pipeline->row_dim, tile->query, tile->query_stride, 1, tile->key, tile->key_stride,
                     tile->score, tile->stride, tile->cols);
        return;
    }
    const heed_form_state *form = &pipeline->form[pipeline->pair];
    form->form->pair(form, tile);
    if (pipeline->scale != 1.0f)
        for (int i = 0; i < tile->rows; i++)
            for (int j = 0; j < tile->cols; j++)
                tile->score[i * tile->stride + j] *= pipeline->scale;
}

/* The distances in a tile whose positions run by one: distance of (i, j) stands at [i - j + cols - 1]. */
static int list_distances(const heed_tile *tile, int32_t *distance)
{
    const int32_t corner = tile->query_pos[0] - tile->key_pos[0];
    const int n = tile->rows + tile->cols - 1;
    for (int d = 0; d < n; d++)
        distance[d] = corner + d - (tile->cols - 1);
    return n;
}

#define MOST_DISTANCES (HEED_STRIP + HEED_KEYS)

static void add_bias(const heed_form_state *form, heed_tile *tile)
{
    int32_t distance[MOST_DISTANCES];
    float bias[MOST_DISTANCES], reversed[MOST_DISTANCES];
    if (tile->contiguous) {
        const int n = list_distances(tile, distance);
        form->form->bias(form, tile->head, distance, n, bias);
        for (int d = 0; d < n; d++)
            reversed[d] = bias[n - 1 - d];
        for (int i = 0; i < tile->rows; i++) {
            float *score = tile->score + i * tile->stride;
            const float *from = reversed + (tile->rows - 1 - i);
            for (int j = 0; j < tile->cols; j++)
                score[j] += from[j];
        }
        return;
    }
    for (int i = 0; i < tile->rows; i++) {
        float *score = tile->score + i * tile->stride;
        for (int j = 0; j < tile->cols; j++)
            distance[j] = tile->query_pos[i] - tile->key_pos[j];
        form->form->bias(form, tile->head, distance, tile->cols, bias);
        for (int j = 0; j < tile->cols; j++)
            score[j] += bias[j];
    }
}

static void add_bias_back(const heed_form_state *form, const heed_tile *tile)
{
    int32_t distance[MOST_DISTANCES];
    if (!form->form->bias_backward)
        return;
    if (tile->contiguous) {
        float dreversed[MOST_DISTANCES] = {0}, dbias[MOST_DISTANCES];
        const int n = list_distances(tile, distance);
        for (int i = 0; i < tile->rows; i++) {
            const float *dscore = tile->dscore + i * tile->stride;
            float *to = dreversed + (tile->rows - 1 - i);
            for (int j = 0; j < tile->cols; j++)
                to[j] += dscore[j];
        }
        for (int d = 0; d < n; d++)
            dbias[d] = dreversed[n - 1 - d];
        form->form->bias_backward(form, tile->head, distance, n, dbias);
        return;
    }
    for (int i = 0; i < tile->rows; i++) {
        for (int j = 0; j < tile->cols; j++)
            distance[j] = tile->query_pos[i] - tile->key_pos[j];
        form->form->bias_backward(form, tile->head, distance, tile->cols, tile->dscore + i * tile->stride);
    }
}

/* A tile may be a whole row wide; distance lists are made for at most HEED_KEYS columns at a time. */
static void by_columns(const heed_form_state *form, const heed_tile *tile,
                       void (*each)(const heed_form_state *, heed_tile *))
{
    for (int i = 0; i < tile->rows; i += HEED_STRIP)
        for (int j = 0; j < tile->cols; j += HEED_KEYS) {
            heed_tile part = *tile;
            part.rows = tile->rows - i < HEED_STRIP ? tile->rows - i : HEED_STRIP;
            part.cols = tile->cols - j < HEED_KEYS ? tile->cols - j : HEED_KEYS;
            part.query_pos += i;
            part.key_pos += j;
            if (part.score)
                part.score += i * tile->stride + j;
            if (part.dscore)
                part.dscore += i * tile->stride + j;
            each(form, &part);
        }
}

static void back_part(const heed_form_state *form, heed_tile *tile)
{
    add_bias_back(form, tile);
}

/* A tile's part of plane number `plane`; NULL where nothing is kept. */
static float *kept_plane(heed_kept kept, int plane)
{
    return kept.plane && plane >= 0 ? kept.plane + plane * kept.apart : NULL;
}

static void keep_scores(const heed_tile *tile, float *to)
{
    for (int i = 0; to && i < tile->rows; i++)
        memcpy(to + i * tile->stride, tile->score + i * tile->stride, (size_t)tile->cols * sizeof(float));
}

void heed_adjust(const heed_pipeline *pipeline, const int *which, int count, heed_tile *tile,
                 const heed_query_block *query, int row0, heed_kept kept)
{
    for (int n = 0; n < count; n++) {
        const heed_form_state *form = &pipeline->form[which[n]];
        if (form->form->bias) {
            by_columns(form, tile, add_bias);
            continue;
        }
        keep_scores(tile, kept_plane(kept, pipeline->kept_before[which[n]]));
        if (form->form->query_aux)
            tile->aux = heed_aux_of(pipeline, which[n], query, query->aux, row0);
        form->form->adjust(form, tile);
        keep_scores(tile, kept_plane(kept, pipeline->kept_after[which[n]]));
    }
}

void heed_adjust_back(const heed_pipeline *pipeline, const int *which, int count, heed_tile *tile,
                      const heed_query_block *query, int row0, heed_kept kept)
{
    for (int n = count - 1; n >= 0; n--) {
        const heed_form_state *form = &pipeline->form[which[n]];
        if (form->form->bias) {
            by_columns(form, tile, back_part);
        } else if (form->form->adjust_backward) {
            tile->before = kept_plane(kept, pipeline->kept_before[which[n]]);
            tile->score = kept_plane(kept, pipeline->kept_after[which[n]]);
            if (form->form->query_aux) {
                tile->aux = heed_aux_of(pipeline, which[n], query, query->aux, row0);
                tile->daux = heed_aux_of(pipeline, which[n], query, query->daux, row0);
            }
            form->form->adjust_backward(form, tile);
        }
    }
}

void heed_add_mass(const heed_run *run, heed_tile *tile)
{
    if (!run->mass)
        return;
    const float *mass = heed_masses(run, tile->batch, tile->kv_head) + tile->key0;
    const int64_t left = heed_key_count(run, tile->batch, tile->kv_head) - tile->key0;
    const int exist = left < tile->cols ? (int)left : tile->cols;
    for (int j0 = 0; j0 < exist; j0 += HEED_KEYS) {
        const int cols = exist - j0 < HEED_KEYS ? exist - j0 : HEED_KEYS;
        float logs[HEED_KEYS];
#pragma omp simd
        for (int j = 0; j < cols; j++)
            logs[j] = heed_log(mass[j0 + j]);
        for (int i = 0; i < tile->rows; i++) {
            float *restrict score = tile->score + i * tile->stride + j0;
            for (int j = 0; j < cols; j++)
                score[j] += logs[j];
        }
    }
}

bool heed_built_in(const heed_form *form)
{
    const heed_form *const *known = heed_form_table[form->stage];
    while (*known && *known != form)
        known++;
    return *known != NULL;
}

bool heed_outside_sees_tiles(const heed_pipeline *pipeline)
{
    bool sees = false;
    for (int f = 0; f < pipeline->forms; f++) {
        const heed_form *form = pipeline->form[f].form;
        sees |= (form->adjust || form->online) && !heed_built_in(form);
    }
    return sees;
}
