/* Backward, online: keys outside, queries inside, weights made again tile by tile from the saved norms.
 *
 * A piece of work is a kv head with every copies.query-th block of keys. For each block of queries the tiles
 * of weights P and of score gradients dS are made strip by strip, then the three products run over the whole
 * block: dV += Pᵀ dO,     dK += dSᵀ Q,     dQ += dS K Each product skips what `where` closed: per strip the
 * columns, per run of HEED_SUB keys the rows.
 */
#include "attend/kernels/backward.h"
#include "base/vectors.h"
#include <string.h>

#define QUERY_COPIES 8 /* most copies of dquery */
#define ENOUGH_PIECES 16
/* Floats from one row of weights to the next: columns are read too, and rows a power of two apart would all
 * want the same few places of the cache. */
#define STRIDE (HEED_KEYS + 16)

struct heed_flash_back {
    heed_pipeline *own;
    heed_key_block keys;
    float *weight, *dscore; /* [HEED_BACK_BLOCK][STRIDE] */
    float *kept;            /* [planes][HEED_STRIP][STRIDE] scores that forms see again */
    float *dkey, *dvalue;   /* [HEED_KEYS][row_stride], [HEED_KEYS][value_stride] */
    float *dkey_transposed; /* [row_stride][HEED_KEY_STRIDE], for pair and position forms */
    uint8_t *open;          /* [HEED_BACK_BLOCK][HEED_KEYS], kept only for blocks that are not finite */
    bool careful; /* something in these blocks is not finite: nothing may pass through closed pairs */
    bool keys_finite;
    float *spare; /* [2][row_stride][HEED_KEY_STRIDE], for pair forms then */
    heed_row_work rows;
    heed_sight sight;
};

heed_flash_back *heed_take_flash_back(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline,
                                      heed_pipeline *own)
{
    const size_t row = (size_t)heed_row_stride(plan, pipeline) * HEED_KEY_STRIDE;
    const size_t value = (size_t)(heed_value_stride(plan) + 2 * HEED_WIDTH) * HEED_KEY_STRIDE;
    heed_flash_back w = {.own = own}, *kept = heed_arena_take(arena, 1, sizeof *kept);
    w.keys.pos = heed_arena_take(arena, HEED_KEYS, sizeof(int32_t));
    w.keys.transposed = heed_arena_take(arena, row, sizeof(float));
    w.keys.natural = heed_arena_take(arena, row, sizeof(float));
    w.keys.value = heed_arena_take(arena, value, sizeof(float));
    w.keys.value_transposed = heed_arena_take(arena, value, sizeof(float));
    w.weight = heed_arena_take(arena, HEED_BACK_BLOCK * STRIDE, sizeof(float));
    w.dscore = heed_arena_take(arena, HEED_BACK_BLOCK * STRIDE, sizeof(float));
    w.kept = heed_arena_take(arena, (size_t)pipeline->kept_planes * HEED_STRIP * STRIDE, sizeof(float));
    w.dkey = heed_arena_take(arena, row, sizeof(float));
    w.dvalue = heed_arena_take(arena, value, sizeof(float));
    w.dkey_transposed = heed_arena_take(arena, row, sizeof(float));
    w.open = heed_arena_take(arena, HEED_BACK_BLOCK * HEED_KEYS, 1);
    w.spare = heed_arena_take(arena, pipeline->pair >= 0 ? 2 * row : 1, sizeof(float));
    w.rows = heed_take_row_work(arena, plan, HEED_KEYS);
    w.sight = heed_take_sight(arena, plan);
    if (arena->base)
        *kept = w;
    return kept;
}

size_t heed_flash_backward_per_thread(const heed_plan *plan, const heed_pipeline *pipeline)
{
    heed_arena arena = {0};
    heed_take_flash_back(&arena, plan, pipeline, heed_arena_take(&arena, 1, sizeof(heed_pipeline)));
    return arena.used;
}

heed_copies heed_flash_copies(const heed_plan *plan, const heed_pipeline *pipeline)
{
    (void)pipeline;
    const heed_problem *p = &plan->problem;
    const int64_t heads = p->batch * p->kv_heads > 0 ? p->batch * p->kv_heads : 1;
    const int64_t blocks = (p->keys + HEED_KEYS - 1) / HEED_KEYS;
    int64_t copies = (ENOUGH_PIECES + heads - 1) / heads;
    copies = copies > QUERY_COPIES ? QUERY_COPIES : copies;
    copies = copies > blocks ? blocks : copies;
    copies = copies < 1 ? 1 : copies;
    int64_t lanes = heads * copies;
    if (plan->slot_floats > 0 && lanes > ENOUGH_PIECES)
        lanes = ENOUGH_PIECES;
    return (heed_copies){.query = (int)copies, .key = 1, .lanes = (int)lanes};
}

/* One block of queries against the packed keys: which columns each strip computed, which rows each run of
 * keys met. */
typedef struct extent {
    int first_col[HEED_BACK_BLOCK], last_col[HEED_BACK_BLOCK]; /* by strip */
    int first_row[HEED_KEYS / HEED_SUB], last_row[HEED_KEYS / HEED_SUB];
} extent;

static bool any_open(const uint8_t *state, int n)
{
    int seen = HEED_CLOSED;
    for (int s = 0; s < n; s++)
        seen |= state[s];
    return seen != HEED_CLOSED;
}

/* What no tile of the strip will write. */
static void clear_around(float *strip, int first, int last)
{
    for (int i = 0; i < HEED_STRIP; i++) {
        memset(strip + i * STRIDE, 0, (size_t)first * sizeof(float));
        memset(strip + i * STRIDE + last, 0, (size_t)(HEED_KEYS - last) * sizeof(float));
    }
}

/* Weights and score gradients of one strip. Returns whether anything in it is open. */
static bool strip_backward(const heed_backward_work *work, heed_flash_back *mine,
                           const heed_query_block *query, int strip0, int copy, int *first_col, int *last_col)
{
    const heed_run *run = work->run;
    const heed_pipeline *pipeline = mine->own;
    const heed_problem *p = &run->plan->problem;
    const heed_key_block *keys = &mine->keys;
    const int rows = query->rows - strip0 < HEED_STRIP ? query->rows - strip0 : HEED_STRIP;
    const int64_t query0 = query->query0 + strip0;
    const heed_query_range range = heed_range_of(run, query, strip0, rows);
    const uint8_t *sub = heed_sub_states(run, pipeline, &range, keys->key0, keys->cols, &mine->sight);
    int low = 0, high = keys->cols / HEED_SUB;
    while (low < high && sub[low] == HEED_CLOSED)
        low++;
    while (high > low && sub[high - 1] == HEED_CLOSED)
        high--;
    *first_col = low * HEED_SUB;
    *last_col = high * HEED_SUB;
    float *weight = mine->weight + strip0 * STRIDE, *dscore = mine->dscore + strip0 * STRIDE;
    clear_around(weight, *first_col, *last_col);
    clear_around(dscore, *first_col, *last_col);
    if (mine->careful)
        memset(mine->open + strip0 * HEED_KEYS, 0, HEED_STRIP * HEED_KEYS);
    if (low == high)
        return false;
    bool partly = *last_col > keys->count;
    for (int s = low; s < high; s++)
        partly |= sub[s] != HEED_OPEN;

    const int first = *first_col, cols = *last_col - first;
    heed_tile tile = heed_tile_of(run, pipeline, query, strip0, rows, keys, first, cols);
    tile.score = weight + first;
    tile.dscore = dscore + first;
    tile.stride = STRIDE;
    tile.dquery = heed_dquery(work, copy, query->batch, query->head, query0);
    tile.dkey = mine->dkey_transposed + first;
    const int64_t at = heed_state_row(work, query->batch, query->head, query0);
    tile.base = work->base + at;
    heed_scores(pipeline, &tile);
    const heed_kept kept = {mine->kept + first, HEED_STRIP * STRIDE};
    heed_adjust(pipeline, pipeline->adjust, pipeline->adjusts, &tile, query, strip0, kept);
    const uint8_t *open = partly ? heed_mask_tile(run, pipeline, &tile, &mine->sight) : NULL;
    if (partly)
        heed_close(&tile, open, HEED_KEYS, keys->count - first);
    heed_adjust(pipeline, pipeline->modify, pipeline->modifies, &tile, query, strip0, kept);

    const heed_form_state *normalise = &pipeline->form[pipeline->normalise];
    normalise->form->weights(normalise, &tile, work->norm + at);
    heed_product(p->value_dim, heed_dout(work, query->batch, query->head, query0), work->value_stride, 1,
                 keys->value_transposed + first, HEED_KEY_STRIDE, tile.dscore, STRIDE, cols);
    normalise->form->weights_backward(normalise, &tile, work->norm + at, work->delta + at);
    for (int i = 0; partly && i < rows; i++)
        for (int j = 0; j < cols; j++) {
            const bool closed = !open[i * HEED_KEYS + j] || first + j >= keys->count;
            tile.score[i * STRIDE + j] = closed ? 0.0f : tile.score[i * STRIDE + j];
            tile.dscore[i * STRIDE + j] = closed ? 0.0f : tile.dscore[i * STRIDE + j];
        }
    for (int i = 0; mine->careful && i < rows; i++)
        for (int j = 0; j < cols; j++)
            mine->open[(strip0 + i) * HEED_KEYS + first + j] =
                !partly || (open[i * HEED_KEYS + j] && first + j < keys->count);
    for (int i = rows; i < HEED_STRIP; i++) {
        memset(tile.score + i * STRIDE, 0, (size_t)cols * sizeof(float));
        memset(tile.dscore + i * STRIDE, 0, (size_t)cols * sizeof(float));
    }
    heed_adjust_back(pipeline, pipeline->modify, pipeline->modifies, &tile, query, strip0, kept);
    heed_adjust_back(pipeline, pipeline->adjust, pipeline->adjusts, &tile, query, strip0, kept);
    return true;
}

/* Score gradients through a pair hook, which adds to query rows and transposed keys by itself. */
static void pair_backward(const heed_backward_work *work, heed_flash_back *mine,
                          const heed_query_block *query, int strip0, int first, int last, int copy)
{
    const heed_pipeline *pipeline = mine->own;
    const heed_form_state *form = &pipeline->form[pipeline->pair];
    const int rows = query->rows - strip0 < HEED_STRIP ? query->rows - strip0 : HEED_STRIP;
    float *dscore = mine->dscore + strip0 * STRIDE;
    if (pipeline->scale != 1.0f)
        for (int i = 0; i < rows; i++)
            for (int j = first; j < last; j++)
                dscore[i * STRIDE + j] *= pipeline->scale;
    heed_tile tile = heed_tile_of(work->run, pipeline, query, strip0, rows, &mine->keys, first, last - first);
    tile.stride = STRIDE;
    tile.dscore = dscore + first;
    tile.dquery = heed_dquery(work, copy, query->batch, query->head, query->query0 + strip0);
    tile.dkey = mine->dkey_transposed + first;
    form->form->pair_backward(form, &tile);
}

/* A pair hook sees one row, with zeros for the keys that are closed to it, and its key gradients count where
 * open. */
static void careful_pair(const heed_backward_work *work, heed_flash_back *mine, const heed_query_block *query,
                         int row, int first, int last, int copy)
{
    const heed_pipeline *pipeline = mine->own;
    const heed_form_state *form = &pipeline->form[pipeline->pair];
    const size_t size = (size_t)work->row_stride * HEED_KEY_STRIDE;
    const uint8_t *open = mine->open + row * HEED_KEYS;
    float *key = mine->spare, *dkey = mine->spare + size, *dscore = mine->dscore + row * STRIDE;
    memset(dkey, 0, size * sizeof(float));
    for (int d = 0; d < pipeline->row_dim; d++)
        for (int j = first; j < last; j++)
            key[d * HEED_KEY_STRIDE + j] = open[j] ? mine->keys.transposed[d * HEED_KEY_STRIDE + j] : 0.0f;
    for (int j = first; j < last; j++)
        dscore[j] *= pipeline->scale;
    heed_tile tile = heed_tile_of(work->run, pipeline, query, row, 1, &mine->keys, first, last - first);
    tile.key = key + first;
    tile.stride = STRIDE;
    tile.dscore = dscore + first;
    tile.dquery = heed_dquery(work, copy, query->batch, query->head, query->query0 + row);
    tile.dkey = dkey + first;
    form->form->pair_backward(form, &tile);
    for (int d = 0; d < pipeline->row_dim; d++)
        for (int j = first; j < last; j++)
            if (open[j])
                mine->dkey_transposed[d * HEED_KEY_STRIDE + j] += dkey[d * HEED_KEY_STRIDE + j];
}

/* The products pair by pair, over open pairs only: 0 times what is not finite would be NaN. */
static void careful_products(const heed_backward_work *work, heed_flash_back *mine,
                             const heed_query_block *query, const extent *e, int copy)
{
    const int64_t row = work->row_stride, value = work->value_stride;
    for (int i = 0; i < query->rows; i++) {
        const int first = e->first_col[i / HEED_STRIP], last = e->last_col[i / HEED_STRIP];
        float *dquery = heed_dquery(work, copy, query->batch, query->head, query->query0 + i);
        const float *dout = heed_dout(work, query->batch, query->head, query->query0 + i);
        if (first == last)
            continue;
        for (int j = first; j < last; j++) {
            if (!mine->open[i * HEED_KEYS + j])
                continue;
            heed_row_add(mine->dvalue + j * value, mine->weight[i * STRIDE + j], dout, value);
            if (mine->own->pair >= 0)
                continue;
            heed_row_add(dquery, mine->dscore[i * STRIDE + j], mine->keys.natural + j * row, row);
            heed_row_add(mine->dkey + j * row, mine->dscore[i * STRIDE + j], query->prepared + i * row, row);
        }
        if (mine->own->pair >= 0)
            careful_pair(work, mine, query, i, first, last, copy);
    }
}

static void products(const heed_backward_work *work, heed_flash_back *mine, const heed_query_block *query,
                     const extent *e, int copy)
{
    const int64_t row = work->row_stride, value = work->value_stride;
    const bool pair = mine->own->pair >= 0;
    if (mine->careful) {
        careful_products(work, mine, query, e, copy);
        return;
    }
    for (int strip0 = 0; strip0 < query->rows; strip0 += HEED_STRIP) {
        const int first = e->first_col[strip0 / HEED_STRIP], last = e->last_col[strip0 / HEED_STRIP];
        if (first == last)
            continue;
        if (pair)
            pair_backward(work, mine, query, strip0, first, last, copy);
        else
            heed_accumulate(HEED_STRIP, last - first, mine->dscore + strip0 * STRIDE + first, STRIDE, 1,
                            mine->keys.natural + first * row, row,
                            heed_dquery(work, copy, query->batch, query->head, query->query0 + strip0), row,
                            row);
    }
    const float *dout = heed_dout(work, query->batch, query->head, query->query0);
    for (int key = 0; key < mine->keys.cols; key += HEED_STRIP) {
        const int keys = mine->keys.cols - key < HEED_STRIP ? mine->keys.cols - key : HEED_STRIP;
        const int s = key / HEED_SUB, t = (key + keys - 1) / HEED_SUB;
        const int first = e->first_row[s] < e->first_row[t] ? e->first_row[s] : e->first_row[t];
        const int last = e->last_row[s] > e->last_row[t] ? e->last_row[s] : e->last_row[t];
        if (first >= last)
            continue;
        heed_accumulate(keys, last - first, mine->weight + first * STRIDE + key, 1, STRIDE,
                        dout + first * value, value, mine->dvalue + key * value, value, value);
        if (!pair)
            heed_accumulate(keys, last - first, mine->dscore + first * STRIDE + key, 1, STRIDE,
                            query->prepared + first * row, row, mine->dkey + key * row, row, row);
    }
}

static void meet_queries(const heed_backward_work *work, heed_flash_back *mine, int head, int64_t query0,
                         int copy)
{
    const heed_run *run = work->run;
    const heed_problem *p = &run->plan->problem;
    const int64_t batch = mine->keys.batch, here = run->query_count[batch] - query0;
    const int rows = (int)(here < HEED_BACK_BLOCK ? here : HEED_BACK_BLOCK);
    const int64_t first = heed_padded_row(work, batch, head, query0);
    const int64_t aux = first * work->pipeline->aux_floats;
    const int32_t *pos = run->query_pos + batch * p->queries + query0;
    const heed_query_block query = {.batch = (int)batch,
                                    .head = head,
                                    .query0 = query0,
                                    .rows = rows,
                                    .pos = (int32_t *)pos,
                                    .contiguous = run->default_positions || heed_runs_by_one(pos, rows),
                                    .prepared = work->query + first * work->row_stride,
                                    .aux = work->aux + aux,
                                    .daux = heed_daux(work, copy, batch, head, query0)};
    const heed_query_range range = heed_range_of(run, &query, 0, rows);
    const uint8_t *sub =
        heed_sub_states(run, mine->own, &range, mine->keys.key0, mine->keys.cols, &mine->sight);
    if (!any_open(sub, mine->keys.cols / HEED_SUB))
        return;
    mine->careful = !mine->keys_finite || !mine->keys.value_finite || !work->finite[first / HEED_BACK_BLOCK];
    extent e;
    for (int s = 0; s < HEED_KEYS / HEED_SUB; s++) {
        e.first_row[s] = HEED_BACK_BLOCK;
        e.last_row[s] = 0;
    }
    bool any = false;
    for (int strip0 = 0; strip0 < rows; strip0 += HEED_STRIP) {
        int *low = &e.first_col[strip0 / HEED_STRIP], *high = &e.last_col[strip0 / HEED_STRIP];
        if (!strip_backward(work, mine, &query, strip0, copy, low, high)) {
            *low = *high = 0;
            continue;
        }
        any = true;
        for (int s = *low / HEED_SUB; s < *high / HEED_SUB; s++) {
            e.first_row[s] = strip0 < e.first_row[s] ? strip0 : e.first_row[s];
            e.last_row[s] = strip0 + HEED_STRIP;
        }
    }
    if (any)
        products(work, mine, &query, &e, copy);
}

static void add_into(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void store_keys(const heed_backward_work *work, heed_flash_back *mine, int64_t key_head)
{
    const heed_key_block *keys = &mine->keys;
    float *to = heed_dkey(work, 0, keys->batch, key_head, keys->key0);
    bool transposed = mine->own->pair >= 0;
    for (int n = 0; n < mine->own->adjusts; n++)
        transposed |= mine->own->form[mine->own->adjust[n]].form->adjust_backward != NULL;
    if (mine->own->pair < 0)
        add_into(to, mine->dkey, keys->count * work->row_stride);
    if (!transposed)
        return;
    for (int j = 0; j < keys->count; j++)
        for (int d = 0; d < mine->own->row_dim; d++)
            to[j * work->row_stride + d] += mine->dkey_transposed[d * HEED_KEY_STRIDE + j];
}

static void pack_keys(const heed_backward_work *work, heed_flash_back *mine, int head)
{
    heed_pack_keys(work->run, mine->own, head, &mine->keys, &mine->rows);
    mine->keys_finite =
        heed_rows_finite(mine->keys.natural, work->row_stride, mine->keys.count, mine->own->row_dim);
}

static void key_block_backward(const heed_backward_work *work, heed_flash_back *mine, int64_t batch,
                               int64_t group, int64_t block, int copy)
{
    const heed_run *run = work->run;
    const heed_pipeline *pipeline = mine->own;
    heed_key_block *keys = &mine->keys;
    const size_t row = (size_t)work->row_stride * HEED_KEY_STRIDE * sizeof(float);
    keys->batch = (int)batch;
    keys->group = (int)group;
    keys->key0 = block * HEED_KEYS;
    const int64_t here = run->key_count[batch] - keys->key0;
    if (here <= 0)
        return;
    keys->count = (int)(here < HEED_KEYS ? here : HEED_KEYS);
    keys->cols = (int)heed_round_up(keys->count, HEED_SUB);
    heed_pack_values(run, keys);
    memset(mine->dvalue, 0, (size_t)work->value_stride * HEED_KEYS * sizeof(float));
    if (!pipeline->keys_by_head) {
        pack_keys(work, mine, 0);
        memset(mine->dkey, 0, row);
        memset(mine->dkey_transposed, 0, row);
    }
    for (int n = pipeline->group_first[group]; n < pipeline->group_first[group + 1]; n++) {
        if (pipeline->keys_by_head) {
            pack_keys(work, mine, pipeline->head[n]);
            memset(mine->dkey, 0, row);
            memset(mine->dkey_transposed, 0, row);
        }
        for (int64_t query0 = 0; query0 < run->query_count[batch]; query0 += HEED_BACK_BLOCK)
            meet_queries(work, mine, pipeline->head[n], query0, copy);
        if (pipeline->keys_by_head)
            store_keys(work, mine, pipeline->head[n]);
    }
    if (!pipeline->keys_by_head)
        store_keys(work, mine, group);
    add_into(heed_dvalue(work, 0, batch, group, keys->key0), mine->dvalue, keys->count * work->value_stride);
}

void heed_flash_back_piece(const heed_backward_work *work, heed_flash_back *mine, int64_t batch,
                           int64_t group, int copy)
{
    const int64_t blocks = (work->run->plan->problem.keys + HEED_KEYS - 1) / HEED_KEYS;
    for (int64_t block = copy; block < blocks; block += work->copies.query)
        key_block_backward(work, mine, batch, group, block, copy);
}

void heed_flash_backward(const heed_backward_work *work)
{
    const heed_run *run = work->run;
    const heed_problem *p = &run->plan->problem;
    const int64_t pieces = p->batch * p->kv_heads * work->copies.query;
#pragma omp parallel num_threads(p->threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        heed_pipeline *own = heed_arena_take(&arena, 1, sizeof *own);
        heed_flash_back *mine = heed_take_flash_back(&arena, run->plan, work->pipeline, own);
        *own = *work->pipeline;
#pragma omp for schedule(dynamic, 1)
        for (int lane = 0; lane < work->copies.lanes; lane++) {
            heed_set_lane(work, own, lane);
            for (int64_t n = lane; n < pieces; n += work->copies.lanes) {
                const int64_t rest = n / work->copies.query;
                heed_flash_back_piece(work, mine, rest / p->kv_heads, rest % p->kv_heads,
                                      (int)(n % work->copies.query));
            }
        }
    }
}
