/* Writing what a sequence holds. */
#include "base/try.h"
#include "model/session_file.h"

#include <stdlib.h>
#include <string.h>

typedef struct writer {
    heed_output output;
    uint64_t sum;
} writer;

static heed_status put(writer *w, const void *data, size_t bytes)
{
    w->sum = heed_sum(w->sum, data, bytes);
    return heed_output_write(&w->output, data, bytes);
}

static heed_status put_number(writer *w, int64_t number)
{
    return put(w, &number, sizeof number);
}

static heed_status begin(writer *w, int section, uint64_t bytes)
{
    w->sum = HEED_SUM_START;
    TRY(put_number(w, section));
    return put_number(w, (int64_t)bytes);
}

static heed_status end(writer *w)
{
    const uint64_t sum = w->sum;
    return heed_output_write(&w->output, &sum, sizeof sum);
}

static uint64_t list_bytes(const heed_pages *pages, int64_t layer, const heed_kept_keys *list)
{
    const heed_pages_layer *stored = &pages->layer[layer];
    uint64_t bytes = 2 * sizeof(int64_t);
    if (stored->placed)
        bytes += (uint64_t)list->count * 4u * (uint64_t)(1 + stored->moved + stored->mass + stored->states);
    for (int64_t p = 0; p < heed_pages_for(list->count); p++) {
        size_t keys, values;
        heed_pages_stored(pages, layer, list, p, false, &keys);
        heed_pages_stored(pages, layer, list, p, true, &values);
        bytes += keys + values + (stored->grades ? sizeof(int32_t) : 0);
    }
    return bytes;
}

/* Keys or values of a list, page by page. */
static heed_status put_rows(writer *w, const heed_pages *pages, int64_t layer, const heed_kept_keys *list,
                            bool values)
{
    for (int64_t p = 0; p < heed_pages_for(list->count); p++) {
        size_t bytes;
        const char *data = heed_pages_stored(pages, layer, list, p, values, &bytes);
        TRY(put(w, data, bytes));
    }
    return HEED_OK;
}

static heed_status put_list(writer *w, const heed_pages *pages, int64_t layer, const heed_kept_keys *list)
{
    const heed_pages_layer *stored = &pages->layer[layer];
    const size_t count = (size_t)list->count;
    TRY(put_number(w, list->count));
    TRY(put_number(w, list->place ? 0 : list->start));
    if (list->place)
        TRY(put(w, list->place, count * sizeof *list->place));
    if (list->position != list->place)
        TRY(put(w, list->position, count * sizeof *list->position));
    if (list->mass)
        TRY(put(w, list->mass, count * sizeof *list->mass));
    if (list->state)
        TRY(put(w, list->state, count * (size_t)stored->states * sizeof *list->state));
    for (int64_t p = 0; stored->grades && p < heed_pages_for(list->count); p++) {
        const int32_t grade = heed_page_grade(list, p);
        TRY(put(w, &grade, sizeof grade));
    }
    TRY(put_rows(w, pages, layer, list, false));
    return put_rows(w, pages, layer, list, true);
}

static uint64_t memory_bytes(const heed_session *session, int64_t sequence, int64_t l)
{
    if (!heed_session_remembers(session, l))
        return 0;
    const heed_memory_size size = heed_session_memory_size(session, l);
    const bool some = heed_session_memory(session, sequence, l)->keys >= 0;
    return sizeof(int64_t) + (some ? 2 * sizeof(int64_t) + 4 * (uint64_t)(size.numbers + size.reals) : 0);
}

static heed_status put_memory(writer *w, const heed_session *session, int64_t sequence, int64_t l)
{
    if (!heed_session_remembers(session, l))
        return HEED_OK;
    const heed_memory_size size = heed_session_memory_size(session, l);
    const heed_memory *memory = heed_session_memory(session, sequence, l);
    TRY(put_number(w, memory->keys));
    if (memory->keys < 0)
        return HEED_OK;
    TRY(put_number(w, size.numbers));
    TRY(put_number(w, size.reals));
    TRY(put(w, memory->number, (size_t)size.numbers * sizeof *memory->number));
    return put(w, memory->real, (size_t)size.reals * sizeof *memory->real);
}

static heed_status put_carried(writer *w, const heed_session *session, int64_t sequence, int64_t l)
{
    const int64_t floats = heed_carry_floats(session, l, session->read[sequence].count);
    if (session->model->carries[l] == HEED_CARRIES_NOTHING)
        return HEED_OK;
    TRY(begin(w, HEED_SAVED_CARRIED, (uint64_t)floats * sizeof(float)));
    TRY(put(w, heed_carry_held(session, l, sequence), (size_t)floats * sizeof(float)));
    return end(w);
}

static heed_status put_layer(writer *w, const heed_session *session, int64_t sequence, int64_t l)
{
    const heed_config *c = &session->model->config;
    const heed_session_layer *layer = &session->layer[l];
    const heed_past *past = heed_past_of(session, sequence, l);
    const size_t row = (size_t)(c->heads * c->head_dim) * sizeof(float);
    uint64_t bytes = 5 * sizeof(int64_t) + (uint64_t)past->shown * row + memory_bytes(session, sequence, l);
    for (int64_t g = 0; g < c->kv_heads; g++)
        bytes += list_bytes(&session->pages, l, heed_pages_list(&session->pages, sequence, l, g));
    TRY(begin(w, HEED_SAVED_LAYER, bytes));
    const int64_t numbers[] = {past->offset, past->gone, past->acted, past->looked, past->shown};
    TRY(put(w, numbers, sizeof numbers));
    for (int64_t i = 0; i < past->shown; i++) {
        const int64_t place = session->read[sequence].count - past->shown + i;
        TRY(put(w, heed_shown_query(session, layer, sequence, place), row));
    }
    for (int64_t g = 0; g < c->kv_heads; g++)
        TRY(put_list(w, &session->pages, l, heed_pages_list(&session->pages, sequence, l, g)));
    TRY(put_memory(w, session, sequence, l));
    TRY(end(w));
    return put_carried(w, session, sequence, l);
}

static heed_status put_all(writer *w, const heed_session *session, int64_t sequence, const char *identity)
{
    const heed_read *read = &session->read[sequence];
    const int64_t version = heed_carry_any(session) ? HEED_SAVED_CARRYING : HEED_SAVED_VERSION;
    TRY(heed_output_write(&w->output, HEED_SAVED_MAGIC, strlen(HEED_SAVED_MAGIC)));
    TRY(heed_output_write(&w->output, &version, sizeof version));
    TRY(begin(w, HEED_SAVED_IDENTITY, strlen(identity)));
    TRY(put(w, identity, strlen(identity)));
    TRY(end(w));
    TRY(begin(w, HEED_SAVED_TOKENS, (uint64_t)read->count * sizeof *read->token));
    TRY(put(w, read->token, (size_t)read->count * sizeof *read->token));
    TRY(end(w));
    for (int64_t l = 0; l < session->model->config.layers; l++)
        TRY(put_layer(w, session, sequence, l));
    TRY(begin(w, HEED_SAVED_END, 0));
    return end(w);
}

heed_status heed_session_save(const heed_session *session, int64_t sequence, const char *path)
{
    if (!session || !path)
        return heed_fail(HEED_INVALID, "a session and a path are needed");
    if (sequence < 0 || sequence >= session->sequences)
        return heed_fail(HEED_INVALID, "there is no sequence %lld, the session has %lld", (long long)sequence,
                         (long long)session->sequences);
    if (!session->cached)
        return heed_fail(HEED_UNSUPPORTED, "this model reads both ways and keeps no cache to save");
    char *identity = heed_session_identity(session);
    if (!identity)
        return heed_fail(HEED_NO_MEMORY, "no memory for what a saved session belongs to");
    writer w = {.sum = 0};
    heed_status status = heed_output_open(&w.output, path);
    if (!status)
        status = heed_output_close(&w.output, put_all(&w, session, sequence, identity));
    free(identity);
    return status;
}
