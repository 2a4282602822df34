/* Attention inside a session: new keys and values go into the cache, then each piece meets what its sequence
 * holds. */
#include "base/try.h"
#include "model/session.h"

#include <string.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

static int thread_index(void)
{
#if defined(_OPENMP)
    return omp_get_thread_num();
#else
    return 0;
#endif
}

static int64_t stride_of(const heed_session *session)
{
    const heed_config *c = &session->model->config;
    return (c->heads + 2 * c->kv_heads) * c->head_dim;
}

static void store_rows(const heed_session *session, heed_type type, const float *from, int64_t from_stride,
                       int64_t count, char *to, size_t row_bytes)
{
    const int64_t dim = session->model->config.head_dim;
    for (int64_t t = 0; t < count; t++) {
        void *row = to + (size_t)t * row_bytes;
        if (type == HEED_F16)
            session->model->rows->to_f16(from + t * from_stride, row, dim);
        else
            heed_store(type, from + t * from_stride, row, dim);
    }
}

/* The norms of heads, in place. */
static void norm_heads(const heed_session *session, const heed_norm_weights *weights, float *x, int64_t heads,
                       int64_t rows)
{
    if (!weights->weight)
        return;
    const heed_config *c = &session->model->config;
    const int64_t stride = stride_of(session);
    const heed_norm norm = {.kind = c->norm,
                            .eps = (float)c->eps,
                            .n = c->head_dim,
                            .weight = weights->weight,
                            .bias = weights->bias};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++)
            session->model->rows->norm(&norm, x + r * stride + h * c->head_dim,
                                       x + r * stride + h * c->head_dim);
}

/* Up to HEED_KEY_ROWS tokens of a piece, which all lie in one page: norms, then keys as the spec prepares
 * them and values into the cache. */
static void take_in(const heed_session *session, int64_t layer, const heed_piece *piece, int64_t t0,
                    int64_t count, float *room)
{
    const heed_model *model = session->model;
    const heed_config *c = &model->config;
    const heed_session_kind *kind = &session->kind[session->layer_kind[layer]];
    const int64_t stride = stride_of(session), row = piece->row + t0, position = piece->first + t0;
    float *query = session->work.qkv + row * stride, *key = query + c->heads * c->head_dim;
    const float *value = key + c->kv_heads * c->head_dim;
    norm_heads(session, &model->layer[layer].query_norm, query, c->heads, count);
    norm_heads(session, &model->layer[layer].key_norm, key, c->kv_heads, count);
    if (!session->cached)
        return;
    const size_t bytes = session->pages.layer[layer].row;
    for (int64_t g = 0; g < c->kv_heads; g++) {
        const float *from = key + g * c->head_dim;
        int64_t from_stride = stride;
        if (kind->prepared) {
            const heed_new_keys keys = {.kv_head = g,
                                        .count = count,
                                        .pos = session->work.position + row,
                                        .k = key + g * c->head_dim,
                                        .k_stride = stride,
                                        .out = room,
                                        .out_stride = c->head_dim};
            heed_plan_prepare_keys(kind->rung[0],
                                   &keys); /* the plan was made for such keys: it cannot fail */
            from = room;
            from_stride = c->head_dim;
        }
        store_rows(session, kind->type, from, from_stride, count,
                   heed_pages_key(&session->pages, layer, piece->sequence, g, position), bytes);
        store_rows(session, kind->type, value + g * c->head_dim, stride, count,
                   heed_pages_value(&session->pages, layer, piece->sequence, g, position), bytes);
    }
}

/* Runs of tokens of a piece end where a page ends. */
static int64_t runs_of(const heed_piece *piece)
{
    return (piece->first % HEED_KEY_ROWS + piece->count + HEED_KEY_ROWS - 1) / HEED_KEY_ROWS;
}

static void take_in_all(const heed_session *session, int64_t layer, const heed_step *step)
{
    const int64_t room = 2 * HEED_KEY_ROWS * session->model->config.head_dim;
    for (int64_t p = 0; p < step->pieces; p++) {
        const heed_piece *piece = &session->work.piece[p];
        const int64_t runs = runs_of(piece), shift = piece->first % HEED_KEY_ROWS;
#pragma omp parallel for schedule(static) num_threads(session->threads) if (runs > 1)
        for (int64_t run = 0; run < runs; run++) {
            const int64_t begin = run * HEED_KEY_ROWS - shift, end = begin + HEED_KEY_ROWS;
            const int64_t t0 = begin > 0 ? begin : 0, t1 = end < piece->count ? end : piece->count;
            take_in(session, layer, piece, t0, t1 - t0, session->work.key + thread_index() * room);
        }
    }
}

/* What the callbacks of one execution know. */
typedef struct listener {
    const heed_session *session;
    const heed_feed_wants *wants;
    const heed_piece *piece;             /* [batch] */
    int64_t layer, batch, queries, keys; /* as the plan has them */
} listener;

static void pass_weights(void *context, const heed_weights_tile *tile)
{
    const listener *l = context;
    const heed_piece *piece = &l->piece[tile->batch];
    heed_weights_tile moved = *tile;
    moved.batch = 0;
    moved.query0 += piece->first;
    l->wants->weights(l->wants->context, l->layer, piece->sequence, &moved);
}

/* Brings the statistics of one batch entry together: [heads, queries] and [heads, keys] without gaps, in
 * place. */
static void compact(float *x, int64_t heads, int64_t stride, int64_t n)
{
    for (int64_t h = 1; x && h < heads; h++)
        memmove(x + h * n, x + h * stride, (size_t)n * sizeof *x);
}

static void pass_captures(const listener *l, int64_t b)
{
    const heed_capture *all = &l->session->work.capture;
    const heed_piece *piece = &l->piece[b];
    const int64_t heads = l->session->model->config.heads, top = l->session->top,
                  keys = piece->first + piece->count;
    const int64_t rows = b * heads * l->queries, columns = b * heads * l->keys;
    heed_capture one = {.entropy = all->entropy ? all->entropy + rows : NULL,
                        .key_sums = all->key_sums ? all->key_sums + columns : NULL,
                        .top_weight = all->top_weight ? all->top_weight + rows * top : NULL,
                        .top_key = all->top_key ? all->top_key + rows * top : NULL};
    compact(one.entropy, heads, l->queries, piece->count);
    compact(one.key_sums, heads, l->keys, keys);
    compact(one.top_weight, heads, l->queries * top, piece->count * top);
    compact((float *)one.top_key, heads, l->queries * top, piece->count * top);
    l->wants->captured(l->wants->context, l->layer, piece->sequence, piece->first, piece->count, keys, &one);
}

static heed_tensor view(float *data, int64_t batch, int64_t heads, int64_t rows, int64_t dim,
                        int64_t batch_stride, int64_t row_stride)
{
    const int64_t size = sizeof(float);
    return (heed_tensor){.data = data,
                         .type = HEED_F32,
                         .rank = 4,
                         .shape = {batch, heads, rows, dim},
                         .stride = {batch_stride * size, dim * size, row_stride * size, size}};
}

static heed_tensor list(int32_t *data, int64_t n)
{
    return heed_tensor_dense(data, HEED_I32, 1, &n);
}

/* Runs `plan` for `pieces` pieces from `piece` on, which are the plan's batch; their rows follow one another.
 */
static heed_status run(heed_session *session, int64_t layer, const heed_plan *plan, const heed_piece *piece,
                       int64_t pieces, int64_t batch, int64_t queries, const heed_feed_wants *wants)
{
    const heed_config *c = &session->model->config;
    heed_work *work = &session->work;
    const int64_t stride = stride_of(session), width = c->heads * c->head_dim;
    float *query = work->qkv + piece->row * stride, *key = query + width;
    heed_tensor k, v;
    for (int64_t b = 0; b < batch; b++) {
        work->seen[b] =
            b < pieces ? (int32_t)(session->cached ? piece[b].first + piece[b].count : piece[b].count) : 0;
        work->asked[b] = b < pieces ? (int32_t)piece[b].count : 0;
    }
    const heed_tensor q = view(query, batch, c->heads, queries, c->head_dim, stride, stride);
    const heed_tensor out =
        view(work->attended + piece->row * width, batch, c->heads, queries, c->head_dim, width, width);
    heed_extra extra = {
        .seq = list(work->seen, batch), .q_seq = list(work->asked, batch), .scratch = work->attend};
    if (session->cached) {
        int32_t *table =
            batch == 1 ? session->pages.table + piece->sequence * session->pages.pages_each : work->table;
        extra.page_table =
            heed_tensor_dense(table, HEED_I32, 2, (int64_t[]){batch, session->pages.pages_each});
        k = heed_pages_keys(&session->pages, layer);
        v = heed_pages_values(&session->pages, layer);
    } else {
        k = view(key, 1, c->kv_heads, queries, c->head_dim, stride, stride);
        v = view(key + c->kv_heads * c->head_dim, 1, c->kv_heads, queries, c->head_dim, stride, stride);
    }
    listener l = {session, wants, piece, layer, batch, queries, session->cached ? session->context : queries};
    if (wants->captured)
        extra.capture = work->capture;
    const uint8_t *heads = wants->weight_heads ? wants->weight_heads + layer * c->heads : NULL;
    if (wants->weights && (!heads || memchr(heads, 1, (size_t)c->heads))) {
        extra.capture.sink = pass_weights;
        extra.capture.sink_context = &l;
        extra.capture.sink_heads = heads;
    }
    TRY(heed_attend(plan, &q, &k, &v, &out, &extra));
    for (int64_t b = 0; wants->captured && b < pieces; b++)
        pass_captures(&l, b);
    return HEED_OK;
}

/* Page lists in the order of the pieces that go through the step plan together. */
static void gather_tables(heed_session *session, int64_t pieces)
{
    const heed_pages *pages = &session->pages;
    for (int64_t p = 0; p < pieces; p++) {
        const heed_piece *piece = &session->work.piece[p];
        const int64_t used = (piece->first + piece->count + HEED_PAGE - 1) / HEED_PAGE;
        memcpy(session->work.table + p * pages->pages_each,
               pages->table + piece->sequence * pages->pages_each, (size_t)used * sizeof(int32_t));
    }
}

heed_status heed_session_attend(heed_session *session, int64_t layer, const heed_step *step)
{
    const heed_session_kind *kind = &session->kind[session->layer_kind[layer]];
    take_in_all(session, layer, step);
    int64_t done = 0;
    if (session->cached && step->singles > 0) {
        if (layer == 0 && session->sequences > 1)
            gather_tables(session, step->singles);
        TRY(run(session, layer, kind->step, session->work.piece, step->singles, session->sequences, 1,
                step->wants));
        done = step->singles;
    }
    for (; done < step->pieces; done++) { /* in the order of rows: a plan clears those behind its own */
        const heed_piece *piece = &session->work.piece[done];
        int i = 0;
        while (session->queries[i] < piece->count)
            i++;
        TRY(run(session, layer, kind->rung[i], piece, 1, 1, session->queries[i], step->wants));
    }
    return HEED_OK;
}
