/* Memories of selectors: one of each layer and sequence for choices that outlive a step, and one of each
 * sequence for those that layers hand on within a step. Only new tokens that are written one by one use them;
 * prompts are read in full. */
#include "attend/memory.h"
#include "base/try.h"
#include "model/session.h"

#include <stdlib.h>
#include <string.h>

static const heed_recall *recall_of(const heed_session *session, int64_t layer)
{
    return session->kind[session->layer[layer].kind].recall;
}

static bool gathers(const heed_recall *recall)
{
    return recall->flags & HEED_RECALL_GATHERS;
}

static bool hands_on(const heed_recall *recall)
{
    return recall->flags & (HEED_RECALL_FOR_LAYERS | HEED_RECALL_FROM_LAYERS);
}

bool heed_session_remembers(const heed_session *session, int64_t layer)
{
    const heed_recall *recall = recall_of(session, layer);
    return recall && !hands_on(recall);
}

heed_memory_size heed_session_memory_size(const heed_session *session, int64_t layer)
{
    const heed_session_kind *kind = &session->kind[session->layer[layer].kind];
    heed_memory_size size = {0, 0};
    heed_plan_memory(kind->step, kind->most, &size.numbers, &size.reals);
    return size;
}

heed_memory *heed_session_memory(const heed_session *session, int64_t sequence, int64_t layer)
{
    const heed_recall *recall = recall_of(session, layer);
    const int64_t layers = session->model->config.layers;
    return &session->memories[sequence * (layers + 1) + (recall && hands_on(recall) ? layers : layer)];
}

heed_status heed_session_check_recall(heed_session *session, int64_t layer)
{
    const heed_session_kind *kind = &session->kind[session->layer[layer].kind];
    if (!kind->recall)
        return HEED_OK;
    if (gathers(kind->recall) && !session->cached)
        return heed_fail(HEED_UNSUPPORTED,
                         "layer %lld: `%s` remembers, but this model reads both ways, at once",
                         (long long)layer, kind->spec);
    session->recalls = true;
    if (kind->placed || kind->started)
        return heed_fail(
            HEED_UNSUPPORTED,
            "layer %lld: `%s` remembers keys by their number, but the layer drops keys (a window, "
            "or a cache policy); give it to the other layers only",
            (long long)layer, kind->spec);
    const int64_t shows = heed_session_shows(session, layer);
    if (shows > 0) {
        float row[HEED_SHOWN_DIM] = {0};
        const int64_t dim = session->model->config.head_dim;
        if (dim > HEED_SHOWN_DIM)
            return heed_fail(HEED_UNSUPPORTED,
                             "layer %lld: `%s` looks at queries of at most %d entries, not %lld",
                             (long long)layer, kind->spec, (int)HEED_SHOWN_DIM, (long long)dim);
        TRY(heed_plan_prepare_queries(
            kind->rung[0],
            &(heed_new_keys){.pos = NULL, .k = row, .k_stride = dim, .out = row, .out_stride = dim}));
        session->layer[layer].window = (int)shows + 1;
    }
    if (kind->recall->flags & HEED_RECALL_FOR_LAYERS)
        session->chosen_unit = kind->unit;
    if (!(kind->recall->flags & HEED_RECALL_FROM_LAYERS) || session->chosen_unit == kind->unit)
        return HEED_OK;
    if (session->chosen_unit == 0)
        return heed_fail(HEED_INVALID,
                         "layer %lld: `%s` reads what a layer before it chose, but none does: give one the "
                         "selector delta",
                         (long long)layer, kind->spec);
    return heed_fail(HEED_INVALID,
                     "layer %lld: `%s` reads pages of %lld keys, but the layer before it that chooses has "
                     "pages of %lld",
                     (long long)layer, kind->spec, (long long)kind->unit, (long long)session->chosen_unit);
}

static void take(heed_arena *arena, heed_memory_size size, heed_memory *memory)
{
    int32_t *number = heed_arena_take(arena, (size_t)size.numbers, sizeof *number);
    float *real = heed_arena_take(arena, (size_t)size.reals, sizeof *real);
    *memory = (heed_memory){.keys = -1, .number = number, .real = real};
}

static void take_all(heed_session *session, heed_arena *arena)
{
    const int64_t layers = session->model->config.layers;
    heed_memory_size largest = {0, 0};
    session->showing = heed_arena_take(arena, (size_t)session->sequences, sizeof *session->showing);
    session->recalled = heed_arena_take(arena, (size_t)session->sequences, sizeof *session->recalled);
    for (int64_t l = 0; l < layers; l++) {
        if (!recall_of(session, l))
            continue;
        const heed_memory_size size = heed_session_memory_size(session, l);
        if (!heed_session_remembers(session, l)) {
            largest.numbers = size.numbers > largest.numbers ? size.numbers : largest.numbers;
            largest.reals = size.reals > largest.reals ? size.reals : largest.reals;
            continue;
        }
        for (int64_t s = 0; s < session->sequences; s++)
            take(arena, size, heed_session_memory(session, s, l));
    }
    for (int64_t s = 0; s < session->sequences; s++)
        take(arena, largest, &session->memories[s * (layers + 1) + layers]);
}

heed_status heed_session_take_memories(heed_session *session)
{
    heed_arena arena = {0};
    if (!session->recalls)
        return HEED_OK;
    take_all(session, &arena);
    if (!arena.overflow)
        session->memory_room = calloc(arena.used, 1);
    if (!session->memory_room)
        return heed_fail(HEED_NO_MEMORY, "no memory for what selectors remember: %zu bytes", arena.used);
    session->work_bytes += arena.used;
    arena = (heed_arena){.base = session->memory_room};
    take_all(session, &arena);
    return HEED_OK;
}

int64_t heed_session_shows(const heed_session *session, int64_t layer)
{
    const heed_session_kind *kind = &session->kind[session->layer[layer].kind];
    const heed_form_state *form = kind->recall ? heed_recaller(&kind->step->pipeline[0]) : NULL;
    return form && kind->recall->shown ? kind->recall->shown(form) : 0;
}

/* Queries of a sequence that stand before its new token, as they are compared. */
static int64_t show(const void *context, int head, float *to)
{
    const heed_showing *s = context;
    const heed_session *session = s->session;
    const heed_session_layer *layer = &session->layer[s->layer];
    const heed_past *past = heed_past_of(session, s->sequence, s->layer);
    const int64_t dim = session->model->config.head_dim, read = session->read[s->sequence].count;
    const int64_t count = past->shown - 1; /* the new token's is among them */
    float row[HEED_SHOWN_DIM];
    for (int64_t i = 0; i < count; i++) {
        const int32_t pos = (int32_t)(read - count + i);
        memcpy(row, heed_shown_query(session, layer, s->sequence, pos) + head * dim,
               (size_t)dim * sizeof *row);
        heed_plan_prepare_queries(session->kind[layer->kind].rung[0],
                                  &(heed_new_keys){.kv_head = head,
                                                   .count = 1,
                                                   .pos = &pos,
                                                   .k = row,
                                                   .k_stride = dim,
                                                   .out = to + i * dim,
                                                   .out_stride = dim}); /* tried when the session was made */
    }
    return count > 0 ? count : 0;
}

heed_memory *const *heed_session_recalled(heed_session *session, int64_t layer, const heed_piece *piece,
                                          int64_t pieces, int64_t batch)
{
    for (int64_t b = 0; b < batch; b++) {
        session->recalled[b] = NULL;
        if (b >= pieces || (piece[b].prompt && !gathers(recall_of(session, layer))))
            continue;
        heed_memory *memory = session->recalled[b] = heed_session_memory(session, piece[b].sequence, layer);
        session->showing[b] = (heed_showing){session, layer, piece[b].sequence};
        memory->show = session->layer[layer].window > 0 ? show : NULL;
        memory->show_context = &session->showing[b];
    }
    return session->recalled;
}

void heed_session_read_prompt(heed_session *session, int64_t layer, const heed_piece *piece)
{
    if (piece->prompt && heed_session_remembers(session, layer) && !gathers(recall_of(session, layer)))
        heed_session_memory(session, piece->sequence, layer)->keys = -1;
}

void heed_session_unlearn(heed_session *session, int64_t sequence, int64_t length)
{
    const int64_t layers = session->model->config.layers;
    for (int64_t l = 0; session->recalls && l <= layers; l++) {
        heed_memory *memory = &session->memories[sequence * (layers + 1) + l];
        const bool serves = l < layers && recall_of(session, l) && gathers(recall_of(session, l));
        if (memory->keys > length)
            memory->keys = serves ? length : -1;
    }
}

void heed_session_share_memories(heed_session *session, int64_t from, int64_t to)
{
    for (int64_t l = 0; session->recalls && l < session->model->config.layers; l++) {
        if (!heed_session_remembers(session, l))
            continue;
        const heed_memory_size size = heed_session_memory_size(session, l);
        const heed_memory *source = heed_session_memory(session, from, l);
        heed_memory *target = heed_session_memory(session, to, l);
        target->keys = source->keys;
        if (source->keys < 0)
            continue;
        if (size.numbers > 0)
            memcpy(target->number, source->number, (size_t)size.numbers * sizeof *target->number);
        if (size.reals > 0)
            memcpy(target->real, source->real, (size_t)size.reals * sizeof *target->real);
    }
}
