/* Applying policies to what a layer holds of a sequence, right after its attention. */
#include "model/session_keep.h"
#include "base/try.h"
#include "model/session.h"

#include <string.h>

static int64_t query_floats(const heed_session *session)
{
    return session->model->config.heads * session->model->config.head_dim;
}

float *heed_shown_query(const heed_session *session, const heed_session_layer *layer, int64_t sequence,
                        int64_t place)
{
    return layer->query + (sequence * layer->window + place % layer->window) * query_floats(session);
}

void heed_session_note_queries(heed_session *session, int64_t l, const heed_piece *piece)
{
    const heed_session_layer *layer = &session->layer[l];
    const heed_config *c = &session->model->config;
    if (!layer->window)
        return;
    heed_past *past = heed_past_of(session, piece->sequence, l);
    const int64_t stride = (c->heads + 2 * c->kv_heads) * c->head_dim;
    const int64_t from = piece->count > layer->window ? piece->count - layer->window : 0;
    for (int64_t t = from; t < piece->count; t++)
        memcpy(heed_shown_query(session, layer, piece->sequence, piece->first + t),
               session->work.qkv + (piece->row + t) * stride, (size_t)query_floats(session) * sizeof(float));
    past->shown += piece->count;
    past->shown = past->shown < layer->window ? past->shown : layer->window;
}

/* What a layer can see of `read` tokens. */
static int64_t visible_of(heed_reach reach, int64_t read)
{
    return heed_reach_ends(reach) && reach.first + reach.span < read ? reach.first + reach.span : read;
}

/* Keys that lie behind the window of the next query but still in its page. */
static int64_t out_of_reach(const heed_session *session, int64_t l, int64_t sequence, int64_t g, int64_t read,
                            int64_t *from)
{
    const heed_reach reach = session->layer[l].reach[g];
    const heed_kept_keys *list = heed_pages_list(&session->pages, sequence, l, g);
    const int64_t offset = heed_past_of(session, sequence, l)->offset;
    *from = 0;
    if (!heed_reach_ends(reach))
        return 0;
    *from = heed_keys_before(list, reach.first + offset);
    const int64_t to = heed_keys_before(list, read - reach.span + 1);
    return to > *from ? to - *from : 0;
}

/* to [count] = rows [heads][stride] summed, a stretch at a time that stays in the cache. */
static void add_heads(const float *rows, int64_t heads, int64_t stride, int64_t count, float *restrict to)
{
    enum { STRETCH = 1024 };
    for (int64_t j0 = 0; j0 < count; j0 += STRETCH) {
        const int64_t n = count - j0 < STRETCH ? count - j0 : STRETCH;
        memcpy(to + j0, rows + j0, (size_t)n * sizeof *to);
        for (int64_t h = 1; h < heads; h++)
            for (int64_t j = j0; j < j0 + n; j++)
                to[j] += rows[h * stride + j];
    }
}

void heed_session_observe(heed_session *session, int64_t l, const heed_piece *piece, int64_t queries)
{
    const heed_session_layer *layer = &session->layer[l];
    const heed_session_kind *kind = &session->kind[layer->kind];
    const heed_config *c = &session->model->config;
    const heed_keep_room *room = &session->work.keep;
    const heed_capture *capture = &session->work.capture;
    const int64_t group = c->heads / c->kv_heads, top = kind->top;
    for (int64_t g = 0; kind->with && g < c->kv_heads; g++) {
        const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
        heed_seen seen = {.group = (int)group,
                          .queries = piece->count,
                          .count = list->count,
                          .first = piece->first,
                          .pos = list->place,
                          .top = (int)top};
        for (int64_t h = 0; h < group; h++) {
            const int64_t head = g * group + h;
            if (!(kind->with & HEED_WITH_TOP))
                continue;
            const size_t bytes = (size_t)(piece->count * top) * sizeof(float);
            memcpy(room->top_weight + h * piece->count * top, capture->top_weight + head * queries * top,
                   bytes);
            memcpy(room->top_key + h * piece->count * top, capture->top_key + head * queries * top, bytes);
        }
        if (kind->with & HEED_WITH_KEY_SUMS) {
            add_heads(capture->key_sums + g * group * kind->most, group, kind->most, list->count, room->sum);
            seen.sum = room->sum;
        }
        if (kind->with & HEED_WITH_TOP) {
            seen.top_weight = room->top_weight;
            seen.top_key = room->top_key;
        }
        heed_chain_observe(&layer->chain[g], &seen, list->state);
    }
}

static heed_moment moment_of(const heed_piece *piece)
{
    return !piece->prompt ? HEED_DECODING : piece->ends ? HEED_PROMPT_ENDS : HEED_IN_PROMPT;
}

bool heed_session_is_due(const heed_session *session, int64_t l, const heed_piece *piece, int64_t kv_head)
{
    const heed_session_layer *layer = &session->layer[l];
    const heed_chain *chain = &layer->chain[kv_head];
    if (chain->repeats && !session->repeat.done)
        return false;
    const heed_past *past = heed_past_of(session, piece->sequence, l);
    const int64_t read = piece->first + piece->count;
    int64_t held = 0, alike = 0, from;
    for (int64_t g = 0; g < session->model->config.kv_heads; g++) {
        if (layer->team[g] != layer->team[kv_head])
            continue;
        held += heed_pages_list(&session->pages, piece->sequence, l, g)->count -
                out_of_reach(session, l, piece->sequence, g, read, &from);
        alike++;
    }
    return heed_chain_is_due(chain, visible_of(layer->reach[kv_head], read), held / alike,
                             read - past->looked, moment_of(piece));
}

/* Places queries for forms that ask where they would look from. */
typedef struct placing {
    heed_session *session;
    const heed_plan *plan;
    int64_t offset; /* of positions from places in the text */
} placing;

static void place_queries(void *context, int head, const float *in, const int32_t *pos, int64_t count,
                          float *out)
{
    const placing *p = context;
    const int64_t dim = p->session->model->config.head_dim;
    float *copy = p->session->work.keep.rows + 2 * HEED_KEY_ROWS * dim;
    for (int64_t i = 0, n; i < count; i += n) {
        n = count - i < HEED_KEY_ROWS ? count - i : HEED_KEY_ROWS;
        memcpy(copy, in + i * dim, (size_t)(n * dim) * sizeof *copy);
        int32_t *at = p->session->work.keep.moves;
        for (int64_t r = 0; r < n; r++)
            at[r] = (int32_t)(pos[i + r] - p->offset);
        heed_plan_prepare_queries(p->plan, &(heed_new_keys){.kv_head = head,
                                                            .count = n,
                                                            .pos = at,
                                                            .k = copy,
                                                            .k_stride = dim,
                                                            .out = out + i * dim,
                                                            .out_stride = dim}); /* tried before */
    }
}

/* The last queries that a layer's policies see, `most` at most, side by side for each head. */
static int64_t gather_queries(heed_session *session, int64_t l, const heed_piece *piece, int64_t most)
{
    const heed_session_layer *layer = &session->layer[l];
    const heed_past *past = heed_past_of(session, piece->sequence, l);
    const int64_t dim = session->model->config.head_dim, read = piece->first + piece->count;
    const heed_keep_room *room = &session->work.keep;
    const int64_t count = past->shown < most ? past->shown : most;
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = read - count + i;
        const float *from = heed_shown_query(session, layer, piece->sequence, place);
        room->place[i] = (int32_t)place;
        room->pos[i] = (int32_t)(place - past->offset);
        for (int64_t h = 0; h < session->model->config.heads; h++)
            memcpy(room->query + (h * count + i) * dim, from + h * dim, (size_t)dim * sizeof *from);
    }
    for (int64_t i = count; i < session->wants.window; i++)
        room->pos[i] = 0; /* a plan looks at the positions of queries that do not exist too */
    return count;
}

/* Where the weights of a head's last queries go. */
typedef struct watching {
    float *weight;
    const heed_kept_keys *list; /* [kv_heads] */
    int64_t group, queries, most;
} watching;

/* Of a head: [queries][count], those of a group one after the other. */
static float *weights_of(const watching *w, int64_t head)
{
    const int64_t g = head / w->group;
    return w->weight + w->queries * (g * w->group * w->most + head % w->group * w->list[g].count);
}

static void take_weights(void *context, const heed_weights_tile *tile)
{
    const watching *w = context;
    const int64_t count = w->list[tile->head / w->group].count;
    float *to = weights_of(w, tile->head);
    for (int r = 0; r < tile->rows; r++)
        for (int64_t j = 0; j < tile->cols && tile->key0 + j < count; j++)
            to[(tile->query0 + r) * count + tile->key0 + j] = tile->weight[r * tile->stride + j];
}

/* Runs the last queries once more, for their weights. */
static heed_status watch(heed_session *session, int64_t l, const heed_piece *piece, int64_t queries)
{
    const heed_session_kind *kind = &session->kind[session->layer[l].kind];
    const heed_config *c = &session->model->config;
    heed_keep_room *room = &session->work.keep;
    const int64_t dim = c->head_dim, size = sizeof(float), all = kind->window;
    heed_work *work = &session->work;
    const watching w = {.weight = room->weight,
                        .list = heed_pages_list(&session->pages, piece->sequence, l, 0),
                        .group = c->heads / c->kv_heads,
                        .queries = queries,
                        .most = session->wants.most};
    for (int64_t h = 0; h < c->heads; h++) /* pairs in no tile have weight 0 */
        memset(weights_of(&w, h), 0, (size_t)(queries * w.list[h / w.group].count) * sizeof *room->weight);
    heed_extra extra = {.params = session->layer[l].param, .scratch = work->attend};
    heed_session_summarise(session, l, piece->sequence);
    work->asked[0] = (int32_t)queries;
    extra.q_seq = heed_tensor_dense(work->asked, HEED_I32, 1, (int64_t[]){1});
    heed_session_find_keys(session, l, piece, 1, 1, &extra);
    extra.q_pos = heed_tensor_dense(room->pos, HEED_I32, 1, &all);
    heed_session_reads reads;
    heed_session_follow_reads(session, l, piece, &reads, &extra);
    extra.capture = (heed_capture){.sink = take_weights, .sink_context = (void *)(uintptr_t)&w};
    const heed_tensor q = {
        .data = room->query,
        .type = HEED_F32,
        .rank = 4,
        .shape = {1, c->heads, all, dim},
        .stride = {c->heads * queries * dim * size, queries * dim * size, dim * size, size}};
    const heed_tensor out = heed_tensor_dense(room->attended, HEED_F32, 4, q.shape);
    const heed_tensor k = heed_pages_keys(&session->pages, l, 0),
                      v = heed_pages_values(&session->pages, l, 0);
    return heed_attend(kind->watch, &q, &k, &v, &out, &extra);
}

/* The new tokens of the piece stand behind those that were read before. */
static int32_t token_at(const heed_session *session, const heed_piece *piece, int64_t place)
{
    return place < piece->first ? session->read[piece->sequence].token[place]
                                : piece->tokens[place - piece->first];
}

/* Keys of a list as they would stand at position 0. */
static void turn_back(heed_session *session, int64_t l, int64_t g, const heed_kept_keys *list, float *to)
{
    const heed_plan *plan = session->kind[session->layer[l].kind].rung[0];
    const int64_t dim = session->model->config.head_dim;
    heed_keep_room *room = &session->work.keep;
    for (int64_t i = 0, n; i < list->count; i += n) {
        n = list->count - i < HEED_KEY_ROWS ? list->count - i : HEED_KEY_ROWS;
        for (int64_t r = 0; r < n; r++)
            room->moves[r] = -list->position[i + r];
        heed_pages_load_keys(&session->pages, l, list, i, n, room->rows);
        heed_plan_move_keys(plan, &(heed_new_keys){.kv_head = g,
                                                   .count = n,
                                                   .pos = room->moves,
                                                   .k = room->rows,
                                                   .k_stride = dim,
                                                   .out = to + i * dim,
                                                   .out_stride = dim}); /* tried before */
    }
}

/* What kv head g holds, as policies see it. */
static void show(heed_session *session, int64_t l, const heed_piece *piece, int64_t g, int64_t queries,
                 const placing *from)
{
    const heed_session_layer *layer = &session->layer[l];
    const heed_config *c = &session->model->config;
    heed_keep_room *room = &session->work.keep;
    const int64_t most = session->wants.most, dim = c->head_dim, group = c->heads / c->kv_heads,
                  read = piece->first + piece->count;
    const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
    const unsigned observes = layer->chain[g].observes;
    room->keys[g] = observes & HEED_OBSERVES_KEYS ? room->key + g * most * dim : NULL;
    room->values[g] = observes & HEED_OBSERVES_VALUES ? room->value + g * most * dim : NULL;
    room->masses[g] = list->mass ? list->mass : room->ones;
    room->keeps[g] = room->keep + g * most;
    room->changed[g] = false;
    if (room->keys[g])
        heed_pages_load_keys(&session->pages, l, list, 0, list->count, room->keys[g]);
    if (room->values[g])
        heed_pages_load_values(&session->pages, l, list, 0, list->count, room->values[g]);
    if (observes & HEED_OBSERVES_BARE)
        turn_back(session, l, g, list, room->bare + g * most * dim);
    for (int64_t i = 0; observes & HEED_OBSERVES_TOKENS && i < list->count; i++) {
        const int32_t token = token_at(session, piece, list->place[i]);
        room->token[g * most + i] = token;
        room->token_kind[g * most + i] = session->token_kind[token];
    }
    const bool sees = observes & (HEED_OBSERVES_QUERIES | HEED_OBSERVES_WEIGHTS);
    room->held[g] = (heed_held){
        .layer = l,
        .layers = c->layers,
        .kv_head = (int)g,
        .kv_heads = (int)c->kv_heads,
        .group = (int)group,
        .dim = dim,
        .value_dim = dim,
        .read = read,
        .visible = visible_of(layer->reach[g], read),
        .count = list->count,
        .pos = list->place,
        .token = observes & HEED_OBSERVES_TOKENS ? room->token + g * most : NULL,
        .token_kind = observes & HEED_OBSERVES_TOKENS ? room->token_kind + g * most : NULL,
        .key = room->keys[g],
        .bare = observes & HEED_OBSERVES_BARE ? room->bare + g * most * dim : NULL,
        .value = room->values[g],
        .mass = room->masses[g],
        .state = list->state,
        .state_stride = session->pages.layer[l].states,
        .queries = sees ? queries : 0,
        .query_pos = sees ? room->place : NULL,
        .query = observes & HEED_OBSERVES_QUERIES ? room->query + g * group * queries * dim : NULL,
        .compared = observes & HEED_OBSERVES_QUERIES ? room->compared + g * group * queries * dim : NULL,
        .weight = observes & HEED_OBSERVES_WEIGHTS ? room->weight + g * group * queries * most : NULL,
        .place = observes & HEED_OBSERVES_QUERIES ? place_queries : NULL,
        .place_context = (void *)(uintptr_t)from};
}

/* Where forms merged, kept keys and values that differ from what is stored are stored again. */
static void store_changed(heed_session *session, int64_t l, const heed_piece *piece, int64_t g)
{
    const heed_keep_room *room = &session->work.keep;
    const int64_t dim = session->model->config.head_dim;
    const size_t bytes = (size_t)dim * sizeof(float);
    heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
    heed_pages_own(&session->pages, piece->sequence, l, g, 0);
    list->summed = 0;
    for (int64_t i = 0; i < list->count; i++) {
        if (!room->keeps[g][i])
            continue;
        heed_pages_load_keys(&session->pages, l, list, i, 1, room->rows);
        if (room->keys[g] && memcmp(room->rows, room->keys[g] + i * dim, bytes) != 0)
            heed_session_store_keys(session, l, list, i, 1, room->keys[g] + i * dim, dim);
        heed_pages_load_values(&session->pages, l, list, i, 1, room->rows);
        if (room->values[g] && memcmp(room->rows, room->values[g] + i * dim, bytes) != 0)
            heed_session_store_values(session, l, list, i, 1, room->values[g] + i * dim, dim);
    }
}

/* Keys move together so that the last of every kv head stands just before the next token. */
static void pack(heed_session *session, int64_t l, const heed_piece *piece)
{
    const heed_plan *plan = session->kind[session->layer[l].kind].rung[0];
    const int64_t dim = session->model->config.head_dim, heads = session->model->config.kv_heads;
    heed_keep_room *room = &session->work.keep;
    int64_t next = 0;
    for (int64_t g = 0; g < heads; g++) {
        const int64_t count = heed_pages_list(&session->pages, piece->sequence, l, g)->count;
        next = count > next ? count : next;
    }
    for (int64_t g = 0; g < heads; g++) {
        heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
        const int64_t shift = next - list->count;
        int64_t first = 0;
        while (first < list->count && list->position[first] == first + shift)
            first++;
        heed_pages_own(&session->pages, piece->sequence, l, g, first);
        if (list->summed > first)
            list->summed = first / HEED_PAGE * HEED_PAGE;
        for (int64_t i = first, n; i < list->count; i += n) {
            n = list->count - i < HEED_KEY_ROWS ? list->count - i : HEED_KEY_ROWS;
            for (int64_t r = 0; r < n; r++) {
                room->moves[r] = (int32_t)(i + r + shift) - list->position[i + r];
                list->position[i + r] = (int32_t)(i + r + shift);
            }
            heed_pages_load_keys(&session->pages, l, list, i, n, room->rows);
            float *moved = room->rows + HEED_KEY_ROWS * dim;
            heed_plan_move_keys(plan, &(heed_new_keys){.kv_head = g,
                                                       .count = n,
                                                       .pos = room->moves,
                                                       .k = room->rows,
                                                       .k_stride = dim,
                                                       .out = moved,
                                                       .out_stride = dim}); /* tried before */
            heed_session_store_keys(session, l, list, i, n, moved, dim);
        }
    }
    heed_past_of(session, piece->sequence, l)->offset = piece->first + piece->count - next;
}

static void drop_out_of_reach(heed_session *session, int64_t l, const heed_piece *piece)
{
    for (int64_t g = 0; g < session->model->config.kv_heads; g++) {
        uint8_t *keep = session->work.keep.keep;
        const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
        int64_t from;
        const int64_t count =
            out_of_reach(session, l, piece->sequence, g, piece->first + piece->count, &from);
        if (count == 0)
            continue;
        heed_past *past = heed_past_of(session, piece->sequence, l);
        const int64_t behind = list->place[from + count - 1] + 1;
        past->gone = behind > past->gone ? behind : past->gone;
        memset(keep, 1, (size_t)list->count);
        memset(keep + from, 0, (size_t)count);
        heed_pages_keep(&session->pages, piece->sequence, l, g, keep);
    }
}

heed_status heed_session_show_queries(heed_session *session, int64_t l, const heed_piece *piece, int64_t most,
                                      bool weights, heed_shown_queries *shown)
{
    const heed_session_kind *kind = &session->kind[session->layer[l].kind];
    const heed_config *c = &session->model->config;
    const heed_keep_room *room = &session->work.keep;
    const int64_t queries = gather_queries(session, l, piece, most);
    placing places = {session, kind->rung[0], heed_past_of(session, piece->sequence, l)->offset};
    for (int64_t h = 0; h < c->heads; h++)
        place_queries(&places, (int)h, room->query + h * queries * c->head_dim, room->place, queries,
                      room->compared + h * queries * c->head_dim);
    *shown = (heed_shown_queries){queries, room->compared, weights && queries > 0 ? room->weight : NULL};
    return shown->weight ? watch(session, l, piece, queries) : HEED_OK;
}

/* Last queries that a layer's policies want to see; its storage may want more. */
static int64_t window_of(const heed_session_layer *layer, int64_t kv_heads)
{
    int64_t window = 0;
    for (int64_t g = 0; g < kv_heads; g++)
        window = layer->chain[g].window > window ? layer->chain[g].window : window;
    return window;
}

static heed_status act(heed_session *session, int64_t l, const heed_piece *piece)
{
    static const heed_chain idle = {.forms = 0};
    const heed_session_layer *layer = &session->layer[l];
    const heed_session_kind *kind = &session->kind[layer->kind];
    const heed_config *c = &session->model->config;
    heed_keep_room *room = &session->work.keep;
    heed_past *past = heed_past_of(session, piece->sequence, l);
    for (int64_t g = 0; g < c->kv_heads; g++)
        room->chain[g] = heed_session_is_due(session, l, piece, g) ? &layer->chain[g] : &idle;
    drop_out_of_reach(session, l, piece);
    const int64_t queries = gather_queries(session, l, piece, window_of(layer, c->kv_heads)),
                  dim = c->head_dim;
    placing places = {session, kind->rung[0], past->offset};
    if (session->wants.observes & HEED_OBSERVES_QUERIES && kind->prepared)
        for (int64_t h = 0; h < c->heads; h++)
            place_queries(&places, (int)h, room->query + h * queries * dim, room->place, queries,
                          room->compared + h * queries * dim);
    if (kind->watch && queries > 0)
        TRY(watch(session, l, piece, queries));
    for (int64_t g = 0; g < c->kv_heads; g++)
        show(session, l, piece, g, queries, &places);
    heed_keep_apply(&(heed_keep){.chain = room->chain,
                                 .held = room->held,
                                 .kv_heads = (int)c->kv_heads,
                                 .key = room->keys,
                                 .value = room->values,
                                 .mass = room->masses,
                                 .keep = room->keeps,
                                 .changed = room->changed,
                                 .work = room->work});
    past->looked = piece->first + piece->count;
    for (int64_t g = 0; g < c->kv_heads; g++) {
        const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
        const int64_t before = list->count;
        if (room->changed[g])
            store_changed(session, l, piece, g);
        heed_pages_keep(&session->pages, piece->sequence, l, g, room->keeps[g]);
        session->usage.dropped += before - list->count;
        if (list->count < before || room->changed[g])
            past->acted = past->looked;
    }
    if (layer->packed)
        pack(session, l, piece);
    return HEED_OK;
}

heed_status heed_session_settle(heed_session *session, int64_t l, const heed_piece *piece)
{
    const heed_session_layer *layer = &session->layer[l];
    bool due = false;
    for (int64_t g = 0; layer->chain && g < session->model->config.kv_heads && !due; g++)
        due = layer->team[g] == g && heed_session_is_due(session, l, piece, g);
    return due ? act(session, l, piece) : HEED_OK;
}
