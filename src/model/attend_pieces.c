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

/* Rows of keys or values of `count` tokens become entries `first`... of a list, page by page. */
void heed_session_store_keys(const heed_session *session, int64_t layer, const heed_kept_keys *list,
                             int64_t first, int64_t count, const float *from, int64_t stride)
{
    const heed_pages_layer *stored = &session->pages.layer[layer];
    for (int64_t done = 0, part; done < count; done += part) {
        const int64_t room = HEED_PAGE - (first + done) % HEED_PAGE;
        part = count - done < room ? count - done : room;
        store_rows(session, stored->key_type, from + done * stride, stride, part,
                   heed_pages_key(&session->pages, layer, list, first + done), stored->layout[0].key_row);
    }
}

void heed_session_store_values(const heed_session *session, int64_t layer, const heed_kept_keys *list,
                               int64_t first, int64_t count, const float *from, int64_t stride)
{
    const heed_pages_layer *stored = &session->pages.layer[layer];
    for (int64_t done = 0, part; done < count; done += part) {
        const int64_t room = HEED_PAGE - (first + done) % HEED_PAGE;
        part = count - done < room ? count - done : room;
        store_rows(session, stored->value_type, from + done * stride, stride, part,
                   heed_pages_value(&session->pages, layer, list, first + done), stored->layout[0].value_row);
    }
}

/* Up to HEED_KEY_ROWS tokens of a piece: norms, then keys as the spec prepares them and values into the
 * cache, whose lists have room for the piece at their ends. */
static void take_in(const heed_session *session, int64_t layer, const heed_piece *piece, int64_t t0,
                    int64_t count, float *room)
{
    const heed_model *model = session->model;
    const heed_config *c = &model->config;
    const heed_session_kind *kind = &session->kind[session->layer[layer].kind];
    const int64_t stride = stride_of(session), row = piece->row + t0;
    float *query = session->work.qkv + row * stride, *key = query + c->heads * c->head_dim;
    const float *value = key + c->kv_heads * c->head_dim;
    norm_heads(session, &model->layer[layer].query_norm, query, c->heads, count);
    norm_heads(session, &model->layer[layer].key_norm, key, c->kv_heads, count);
    if (!session->cached)
        return;
    for (int64_t g = 0; g < c->kv_heads; g++) {
        const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, layer, g);
        const int64_t first = list->count - piece->count + t0;
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
        heed_session_store_keys(session, layer, list, first, count, from, from_stride);
        heed_session_store_values(session, layer, list, first, count, value + g * c->head_dim, stride);
    }
}

/* Room for the new keys of all pieces, and their positions at this layer. */
static heed_status make_room(heed_session *session, int64_t layer, const heed_step *step)
{
    const int64_t kv_heads = session->model->config.kv_heads;
    for (int64_t p = 0; p < step->pieces; p++) {
        const heed_piece *piece = &session->work.piece[p];
        const int64_t position = piece->first - heed_past_of(session, piece->sequence, layer)->offset;
        for (int64_t t = 0; t < piece->count; t++)
            session->work.position[piece->row + t] = piece->place ? piece->place[t] : (int32_t)(position + t);
        for (int64_t g = 0; g < kv_heads; g++) {
            TRY(heed_pages_append(&session->pages, piece->sequence, layer, g, piece->first, position,
                                  piece->count));
            const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, layer, g);
            for (int64_t t = 0; piece->place && t < piece->count; t++)
                list->place[list->count - piece->count + t] = piece->place[t];
        }
    }
    return HEED_OK;
}

static void take_in_all(const heed_session *session, int64_t layer, const heed_step *step)
{
    const int64_t room = 2 * HEED_KEY_ROWS * session->model->config.head_dim;
    for (int64_t p = 0; p < step->pieces; p++) {
        const heed_piece *piece = &session->work.piece[p];
        const int64_t runs = (piece->count + HEED_KEY_ROWS - 1) / HEED_KEY_ROWS;
#pragma omp parallel for schedule(static) num_threads(session->threads) if (runs > 1)
        for (int64_t run = 0; run < runs; run++) {
            const int64_t t0 = run * HEED_KEY_ROWS, left = piece->count - t0;
            take_in(session, layer, piece, t0, left < HEED_KEY_ROWS ? left : HEED_KEY_ROWS,
                    session->work.key + thread_index() * room);
        }
    }
}

/* One page's new keys go into its summary, from the stored rows. */
static void summarise_page(const heed_session *session, int64_t layer, int64_t g, const heed_kept_keys *list,
                           int64_t from, int64_t to)
{
    const heed_plan *plan = session->kind[session->layer[layer].kind].rung[0];
    const int64_t dim = session->model->config.head_dim;
    float *rows = session->work.key + thread_index() * 2 * HEED_KEY_ROWS * dim;
    for (int64_t i = from, n; i < to; i += n) {
        n = to - i < HEED_KEY_ROWS ? to - i : HEED_KEY_ROWS;
        heed_pages_load_keys(&session->pages, layer, list, i, n, rows);
        heed_plan_summarise(plan, session->layer[layer].param, (int)g, HEED_PAGE, i % HEED_PAGE, rows, dim, n,
                            heed_pages_summary(&session->pages, layer, list, i / HEED_PAGE));
    }
}

void heed_session_summarise(const heed_session *session, int64_t layer, int64_t sequence)
{
    const int64_t heads = session->model->config.kv_heads;
    const bool summed = session->kind[session->layer[layer].kind].summed;
    for (int64_t g = 0; summed && g < heads; g++) {
        heed_kept_keys *list = heed_pages_list(&session->pages, sequence, layer, g);
        const int64_t first = list->summed / HEED_PAGE, end = heed_pages_for(list->count);
#pragma omp parallel for schedule(static) num_threads(session->threads) if (end - first > 1)
        for (int64_t page = first; page < end; page++) {
            const int64_t from = page == first ? list->summed : page * HEED_PAGE,
                          to = (page + 1) * HEED_PAGE < list->count ? (page + 1) * HEED_PAGE : list->count;
            summarise_page(session, layer, g, list, from, to);
        }
        list->summed = list->count;
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

/* Keys that a piece meets: of the kv head that holds most. */
static int64_t most_held(const heed_session *session, int64_t layer, const heed_piece *piece)
{
    int64_t most = piece->count;
    for (int64_t g = 0; session->cached && g < session->model->config.kv_heads; g++) {
        const int64_t held = heed_pages_list(&session->pages, piece->sequence, layer, g)->count;
        most = held > most ? held : most;
    }
    return most;
}

static void pass_captures(const listener *l, int64_t b)
{
    const heed_capture *all = &l->session->work.capture;
    const heed_piece *piece = &l->piece[b];
    const int64_t heads = l->session->model->config.heads, top = l->session->top,
                  keys = most_held(l->session, l->layer, piece);
    const int64_t rows = b * heads * l->queries, columns = b * heads * l->keys;
    const unsigned with = l->session->with;
    heed_capture one = {.entropy = with & HEED_WITH_ENTROPY ? all->entropy + rows : NULL,
                        .key_sums = with & HEED_WITH_KEY_SUMS ? all->key_sums + columns : NULL,
                        .top_weight = with & HEED_WITH_TOP ? all->top_weight + rows * top : NULL,
                        .top_key = with & HEED_WITH_TOP ? all->top_key + rows * top : NULL};
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

/* A tensor [1, kv_heads, n] of arrays of 4-byte entries that the lists of a layer's kv heads have at equal
 * distances. */
static heed_tensor by_head(heed_type type, void *first, const void *second, int64_t heads, int64_t n)
{
    const int64_t size = 4, distance = heads > 1 ? (const char *)second - (char *)first : n * size;
    return (heed_tensor){.data = first,
                         .type = type,
                         .rank = 3,
                         .shape = {1, heads, n},
                         .stride = {heads * distance, distance, size}};
}

/* The page lists of several pieces, one after the other. */
static heed_tensor gather_tables(heed_session *session, int64_t layer, const heed_piece *piece,
                                 int64_t pieces, int64_t batch)
{
    const int64_t heads = session->model->config.kv_heads, each = session->pages.layer[layer].pages_each;
    for (int64_t b = 0; b < pieces; b++)
        for (int64_t g = 0; g < heads; g++) {
            const heed_kept_keys *from = heed_pages_list(&session->pages, piece[b].sequence, layer, g);
            memcpy(session->work.table + (b * heads + g) * each, from->page,
                   (size_t)heed_pages_for(from->count) * sizeof *from->page);
        }
    return heed_tensor_dense(session->work.table, HEED_I32, 3, (int64_t[]){batch, heads, each});
}

void heed_session_find_keys(heed_session *session, int64_t layer, const heed_piece *piece, int64_t pieces,
                            int64_t batch, heed_extra *extra)
{
    const heed_session_kind *kind = &session->kind[session->layer[layer].kind];
    const int64_t heads = session->model->config.kv_heads;
    heed_work *work = &session->work;
    const heed_kept_keys *list = NULL;
    for (int64_t b = 0; b < batch; b++) {
        list = b < pieces ? heed_pages_list(&session->pages, piece[b].sequence, layer, 0) : NULL;
        for (int64_t g = 0; g < heads; g++)
            work->seen[b * heads + g] = list ? (int32_t)list[g].count : 0;
        work->start[b] = list ? (int32_t)list->start : 0;
    }
    extra->seq = heed_tensor_dense(work->seen, HEED_I32, 2, (int64_t[]){batch, heads});
    if (kind->started)
        extra->start = heed_tensor_dense(work->start, HEED_I32, 1, &batch);
    if (kind->summed) { /* a page belongs to one kv head, so the step from head to head is 0 */
        extra->summaries = heed_pages_summaries(&session->pages, layer, 0);
        extra->summaries.shape[1] = heads;
        extra->summaries.stride[1] = 0;
    }
    for (int n = 0; n < kind->grades; n++) {
        heed_grade *grade = &work->grade[n];
        grade->k = heed_pages_keys(&session->pages, layer, n + 1);
        grade->v = heed_pages_values(&session->pages, layer, n + 1);
        grade->summaries = heed_pages_summaries(&session->pages, layer, n + 1);
        grade->summaries.shape[1] = heads;
        grade->summaries.stride[1] = 0;
    }
    extra->grade = work->grade;
    if (batch > 1) {
        extra->page_table = gather_tables(session, layer, piece, pieces, batch);
        return;
    }
    const heed_kept_keys *other = heads > 1 ? list + 1 : list;
    extra->page_table =
        by_head(HEED_I32, list->page, other->page, heads, session->pages.layer[layer].pages_each);
    if (kind->placed)
        extra->k_pos = by_head(HEED_I32, list->position, other->position, heads, kind->most);
    if (kind->mass)
        extra->mass = by_head(HEED_F32, list->mass, other->mass, heads, kind->most);
}

/* Pairs that were open if policies had dropped nothing: as far as `where` reaches back. */
static double open_pairs(const heed_session *session, int64_t layer, const heed_piece *piece)
{
    const heed_config *c = &session->model->config;
    double pairs = 0.0;
    for (int64_t g = 0; g < c->kv_heads; g++) {
        const heed_reach reach = session->layer[layer].reach[g];
        for (int64_t t = 0; t < piece->count; t++) {
            const int64_t before = piece->first + t + 1, most = reach.first + reach.span;
            pairs += (double)(most < before ? most : before);
        }
    }
    return pairs * (double)(c->heads / c->kv_heads);
}

static void bring_in(void *context, const heed_keys_read *keys)
{
    heed_session_reads *r = context;
    const heed_pages *pages = &r->session->pages;
    if (keys->when == HEED_READS_LATER && atomic_fetch_add(&r->later, keys->count) > r->most_later)
        return;
    const heed_kept_keys *list =
        heed_pages_list(pages, r->piece[keys->batch].sequence, r->layer, keys->kv_head);
    heed_pages_touch(pages, r->layer, list, keys->first, keys->count);
}

void heed_session_follow_reads(const heed_session *session, int64_t layer, const heed_piece *piece,
                               heed_session_reads *reads, heed_extra *extra)
{
    const heed_pages_layer *stored = &session->pages.layer[layer];
    const heed_pager *pager = session->pages.pool[stored->layout[0].pool].pager;
    if (!pager)
        return;
    *reads = (heed_session_reads){
        .session = session, .piece = piece, .layer = layer, .most_later = pager->most * HEED_PAGE / 4};
    extra->reads = bring_in;
    extra->reads_context = reads;
}

/* Runs `plan` for `pieces` pieces from `piece` on, which are the plan's batch; their rows follow one another.
 */
static heed_status run(heed_session *session, int64_t layer, const heed_plan *plan, const heed_piece *piece,
                       int64_t pieces, int64_t batch, int64_t queries, const heed_feed_wants *wants)
{
    const heed_config *c = &session->model->config;
    const heed_session_kind *kind = &session->kind[session->layer[layer].kind];
    heed_work *work = &session->work;
    const int64_t stride = stride_of(session), width = c->heads * c->head_dim;
    float *query = work->qkv + piece->row * stride, *key = query + width;
    heed_tensor k, v;
    for (int64_t b = 0; b < batch; b++)
        work->asked[b] = b < pieces ? (int32_t)piece[b].count : 0;
    const heed_tensor q = view(query, batch, c->heads, queries, c->head_dim, stride, stride);
    const heed_tensor out =
        view(work->attended + piece->row * width, batch, c->heads, queries, c->head_dim, width, width);
    heed_extra extra = {.q_seq = heed_tensor_dense(work->asked, HEED_I32, 1, &batch),
                        .params = session->layer[layer].param,
                        .scratch = work->attend};
    extra.capture.pairs = &session->usage.pairs_read;
    if (kind->recall && (plan == kind->step || kind->recall->flags & HEED_RECALL_GATHERS))
        extra.memory = heed_session_recalled(session, layer, piece, pieces, batch);
    if (session->cached) {
        heed_session_find_keys(session, layer, piece, pieces, batch, &extra);
        if (kind->placed)
            extra.q_pos = heed_tensor_dense(work->position + piece->row, HEED_I32, 1, &queries);
        k = heed_pages_keys(&session->pages, layer, 0);
        v = heed_pages_values(&session->pages, layer, 0);
    } else {
        work->seen[0] = work->asked[0];
        extra.seq = heed_tensor_dense(work->seen, HEED_I32, 1, &batch);
        k = view(key, 1, c->kv_heads, queries, c->head_dim, stride, stride);
        v = view(key + c->kv_heads * c->head_dim, 1, c->kv_heads, queries, c->head_dim, stride, stride);
    }
    listener l = {session, wants, piece, layer, batch, queries, session->cached ? kind->most : queries};
    if (wants->captured || kind->with) {
        extra.capture = work->capture;
        extra.capture.pairs = &session->usage.pairs_read;
    }
    const uint8_t *heads = wants->weight_heads ? wants->weight_heads + layer * c->heads : NULL;
    if (wants->weights && (!heads || memchr(heads, 1, (size_t)c->heads))) {
        extra.capture.sink = pass_weights;
        extra.capture.sink_context = &l;
        extra.capture.sink_heads = heads;
    }
    heed_session_reads reads;
    if (session->cached)
        heed_session_follow_reads(session, layer, piece, &reads, &extra);
    double pairs[2] = {0.0, 0.0};
    extra.capture.pairs = pairs;
    TRY(heed_attend(plan, &q, &k, &v, &out, &extra));
    session->usage.pairs_read += pairs[0];
    session->usage.pairs_open += session->layer[layer].chain ? open_pairs(session, layer, piece) : pairs[1];
    if (session->layer[layer].chain)
        heed_session_observe(session, layer, piece, queries);
    for (int64_t b = 0; wants->captured && b < pieces; b++)
        pass_captures(&l, b);
    return HEED_OK;
}

/* Pieces of one token go together where their keys stand in order; the others one by one. */
static heed_status attend_all(heed_session *session, int64_t layer, const heed_step *step)
{
    const heed_session_kind *kind = &session->kind[session->layer[layer].kind];
    int64_t done = 0;
    if (session->cached && step->singles > 0 && !kind->placed) {
        TRY(run(session, layer, kind->step, session->work.piece, step->singles, session->sequences, 1,
                step->wants));
        done = step->singles;
    }
    for (; done < step->pieces; done++) { /* in the order of rows: a plan clears those behind its own */
        const heed_piece *piece = &session->work.piece[done];
        if (kind->placed && piece->count == 1) {
            TRY(run(session, layer, kind->step, piece, 1, 1, 1, step->wants));
            continue;
        }
        int i = 0;
        while (session->queries[i] < piece->count)
            i++;
        TRY(run(session, layer, kind->rung[i], piece, 1, 1, session->queries[i], step->wants));
    }
    return HEED_OK;
}

heed_status heed_session_attend_again(heed_session *session, int64_t layer, const heed_piece *piece,
                                      int64_t row)
{
    static const heed_feed_wants none = {.logits = NULL};
    heed_work *work = &session->work;
    const int64_t stride = stride_of(session), beyond = session->rows; /* where no row of the step is */
    const heed_piece one = {
        .sequence = piece->sequence, .first = piece->first + row, .count = 1, .row = beyond, .prompt = true};
    memcpy(work->qkv + beyond * stride, work->qkv + (piece->row + row) * stride,
           (size_t)stride * sizeof(float));
    work->position[beyond] = work->position[piece->row + row];
    return run(session, layer, session->kind[session->layer[layer].kind].rung[0], &one, 1, 1,
               session->queries[0], &none);
}

heed_status heed_session_attend(heed_session *session, int64_t layer, const heed_step *step)
{
    if (session->cached)
        TRY(make_room(session, layer, step));
    take_in_all(session, layer, step);
    for (int64_t p = 0; p < step->pieces; p++) {
        heed_session_note_queries(session, layer, &session->work.piece[p]);
        heed_session_read_prompt(session, layer, &session->work.piece[p]);
        if (session->cached)
            heed_session_summarise(session, layer, session->work.piece[p].sequence);
    }
    if (session->onlooker.look)
        TRY(session->onlooker.look(session->onlooker.context, session, layer, step));
    TRY(attend_all(session, layer, step));
    for (int64_t p = 0; session->cached && p < step->pieces; p++) {
        const heed_piece *piece = &session->work.piece[p];
        heed_session_drop(session, layer, piece->sequence,
                          piece->place ? piece->place[piece->count - 1] + 1 : piece->first + piece->count);
        TRY(heed_session_settle(session, layer, piece));
        TRY(heed_session_age(session, layer, piece));
    }
    return HEED_OK;
}
