/* Memories of selectors: one of each layer and sequence for choices that outlive a step, and one of each
 * sequence for those that layers hand on within a step. Only new tokens that are written one by one use them;
 * prompts are read in full. */
#include "model/session.h"

#include <string.h>

static const heed_recall *recall_of(const heed_session *session, int64_t layer)
{
    return session->kind[session->layer[layer].kind].recall;
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
    session->recalls = true;
    if (kind->placed || kind->started)
        return heed_fail(
            HEED_UNSUPPORTED,
            "layer %lld: `%s` remembers keys by their number, but the layer drops keys (a window, "
            "or a cache policy); give it to the other layers only",
            (long long)layer, kind->spec);
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
    if (number && size.numbers > 0)
        memset(number, 0, (size_t)size.numbers * sizeof *number);
    if (real && size.reals > 0)
        memset(real, 0, (size_t)size.reals * sizeof *real);
}

void heed_session_take_memories(heed_session *session, heed_arena *arena)
{
    const int64_t layers = session->model->config.layers;
    heed_memory_size largest = {0, 0};
    if (!session->recalls)
        return;
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

heed_memory *const *heed_session_recalled(heed_session *session, int64_t layer, const heed_piece *piece,
                                          int64_t pieces, int64_t batch)
{
    for (int64_t b = 0; b < batch; b++)
        session->recalled[b] =
            b < pieces && !piece[b].prompt ? heed_session_memory(session, piece[b].sequence, layer) : NULL;
    return session->recalled;
}

void heed_session_read_prompt(heed_session *session, int64_t layer, const heed_piece *piece)
{
    if (piece->prompt && heed_session_remembers(session, layer))
        heed_session_memory(session, piece->sequence, layer)->keys = -1;
}

void heed_session_unlearn(heed_session *session, int64_t sequence, int64_t length)
{
    const int64_t layers = session->model->config.layers;
    for (int64_t l = 0; session->recalls && l <= layers; l++) {
        heed_memory *memory = &session->memories[sequence * (layers + 1) + l];
        memory->keys = memory->keys > length ? -1 : memory->keys;
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
