/* Reading back what a sequence held. The file is looked through once, and believed and taken over in a second
 * pass only if all of it is right. */
#include "base/try.h"
#include "model/mapping.h"
#include "model/session_file.h"
#include "tensor/packed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *path;
    const unsigned char *at, *end; /* of the file, */
    const unsigned char *section;  /* the end of the section at hand */
    heed_session *session;
    int64_t sequence, length; /* tokens that were read */
    bool take;                /* the second pass */
} reader;

static heed_status broken(const reader *r, const char *what)
{
    return heed_fail(HEED_FORMAT, "%s: not a whole saved session: %s", r->path, what);
}

static heed_status get(reader *r, const void **data, uint64_t bytes)
{
    *data = r->at;
    if (bytes > (uint64_t)(r->section - r->at))
        return broken(r, "a part is longer than its section");
    r->at += bytes;
    return HEED_OK;
}

static heed_status get_number(reader *r, int64_t *number)
{
    const void *data;
    TRY(get(r, &data, sizeof *number));
    memcpy(number, data, sizeof *number);
    return HEED_OK;
}

/* Enters the next section, whose checksum must be right. */
static heed_status enter(reader *r, int section)
{
    int64_t kind, bytes;
    const unsigned char *start = r->at;
    r->section = r->end;
    if (r->end - r->at < 24)
        return broken(r, "it ends early");
    TRY(get_number(r, &kind));
    TRY(get_number(r, &bytes));
    if (bytes < 0 || (uint64_t)bytes > (uint64_t)(r->end - r->at) - sizeof(uint64_t))
        return broken(r, "it ends early");
    r->section = r->at + bytes;
    uint64_t sum;
    memcpy(&sum, r->section, sizeof sum);
    if (!r->take && sum != heed_sum(HEED_SUM_START, start, (size_t)(r->section - start)))
        return broken(r, "its checksum differs from what was written");
    return kind == section ? HEED_OK : broken(r, "its sections are not in order");
}

static heed_status leave(reader *r)
{
    if (r->at != r->section)
        return broken(r, "a section is longer than its parts");
    r->at += sizeof(uint64_t);
    return HEED_OK;
}

static int line_length(const char *text, const char *end)
{
    const char *line = memchr(text, '\n', (size_t)(end - text));
    const int64_t length = (line ? line : end) - text;
    return length > 200 ? 200 : (int)length;
}

/* The first line that differs is named. */
static heed_status check_identity(reader *r)
{
    const void *data;
    TRY(enter(r, HEED_SAVED_IDENTITY));
    const uint64_t bytes = (uint64_t)(r->section - r->at);
    TRY(get(r, &data, bytes));
    if (r->take)
        return leave(r);
    char *own = heed_session_identity(r->session);
    if (!own)
        return heed_fail(HEED_NO_MEMORY, "no memory for what a saved session belongs to");
    const char *saved = data, *saved_end = saved + bytes, *now = own, *now_end = own + strlen(own);
    while (saved < saved_end && now < now_end && *saved == *now) {
        saved++;
        now++;
    }
    heed_status status = HEED_OK;
    if (saved < saved_end || now < now_end) {
        while (now > own && now[-1] != '\n') {
            now--;
            saved--;
        }
        status = heed_fail(HEED_INVALID, "%s: saved for `%.*s`, but this session has `%.*s`", r->path,
                           line_length(saved, saved_end), saved, line_length(now, now_end), now);
    }
    free(own);
    return status ? status : leave(r);
}

static heed_status read_tokens(reader *r)
{
    const void *data;
    TRY(enter(r, HEED_SAVED_TOKENS));
    const uint64_t bytes = (uint64_t)(r->section - r->at);
    TRY(get(r, &data, bytes));
    r->length = (int64_t)(bytes / sizeof(int32_t));
    if (bytes % sizeof(int32_t))
        return broken(r, "half a token");
    if (r->length > r->session->limit)
        return heed_fail(HEED_INVALID, "%s: %lld tokens were saved, this session has room for %lld", r->path,
                         (long long)r->length, (long long)r->session->limit);
    if (r->take) {
        heed_read *read = &r->session->read[r->sequence];
        if (bytes)
            memcpy(read->token, data, bytes);
        read->count = r->length;
        return leave(r);
    }
    for (int64_t t = 0; t < r->length; t++) {
        int32_t token;
        memcpy(&token, (const char *)data + t * (int64_t)sizeof token, sizeof token);
        if (token < 0 || token >= r->session->model->config.vocabulary)
            return broken(r, "a token is none of the vocabulary");
    }
    return leave(r);
}

/* Rising from 0 or more to below `end`. */
static bool rises(const void *places, int64_t count, int64_t end)
{
    int64_t before = -1;
    for (int64_t i = 0; i < count; i++) {
        int32_t place;
        memcpy(&place, (const char *)places + i * (int64_t)sizeof place, sizeof place);
        if (place <= before || place >= end)
            return false;
        before = place;
    }
    return true;
}

static bool all_positive(const void *masses, int64_t count)
{
    bool positive = true;
    for (int64_t i = 0; i < count; i++) {
        float mass;
        memcpy(&mass, (const char *)masses + i * (int64_t)sizeof mass, sizeof mass);
        positive &= mass > 0.0f && mass < 1e30f;
    }
    return positive;
}

/* A packed page says itself where its parts lie. */
static heed_status check_packed(const reader *r, const void *data, size_t bytes, int64_t keys)
{
    void *page = malloc(bytes); /* in a file it may lie anywhere */
    if (!page)
        return heed_fail(HEED_NO_MEMORY, "no memory for a page of a saved session");
    memcpy(page, data, bytes);
    const bool sound = heed_packed_is_sound(page, bytes, keys, r->session->model->config.head_dim);
    free(page);
    return sound ? HEED_OK : broken(r, "the parts of a packed page are not where it says");
}

/* Keys or values of a list, page by page; `grades` as in the file. */
static heed_status read_rows(reader *r, int64_t l, const heed_kept_keys *list, int64_t count,
                             const void *grades, bool values)
{
    const heed_pages_layer *stored = &r->session->pages.layer[l];
    for (int64_t p = 0; p < heed_pages_for(count); p++) {
        int32_t grade = 0;
        if (grades)
            memcpy(&grade, (const char *)grades + p * (int64_t)sizeof grade, sizeof grade);
        const int64_t left = count - p * HEED_PAGE, keys = left < HEED_PAGE ? left : HEED_PAGE;
        size_t bytes = heed_page_bytes(&stored->layout[grade], keys, values);
        const void *data;
        TRY(get(r, &data, bytes));
        const heed_page_layout *layout = &stored->layout[grade];
        if ((values ? layout->value_type : layout->key_type) == HEED_PACKED)
            TRY(check_packed(r, data, bytes, keys));
        if (r->take)
            memcpy(heed_pages_stored(&r->session->pages, l, list, p, values, &bytes), data, bytes);
    }
    return HEED_OK;
}

/* Grades of pages: full pages only have one above 0. */
static heed_status read_grades(reader *r, int64_t l, int64_t g, int64_t count, const void **grades)
{
    const heed_pages_layer *stored = &r->session->pages.layer[l];
    *grades = NULL;
    if (stored->grades == 0)
        return HEED_OK;
    TRY(get(r, grades, (uint64_t)heed_pages_for(count) * sizeof(int32_t)));
    for (int64_t p = 0; p < heed_pages_for(count); p++) {
        int32_t grade;
        memcpy(&grade, (const char *)*grades + p * (int64_t)sizeof grade, sizeof grade);
        if (grade < 0 || grade > stored->grades || (grade > 0 && (p + 1) * HEED_PAGE > count))
            return broken(r, "a page is stored in a way that the session does not know");
        if (r->take && grade > 0)
            heed_pages_set_grade(&r->session->pages, r->sequence, l, g, p, grade);
    }
    return HEED_OK;
}

/* An array of 4-byte entries that goes with the keys; `to` NULL: there is none. */
static heed_status read_array(reader *r, void *to, int64_t entries, const void **data)
{
    *data = NULL;
    if (!to)
        return HEED_OK;
    TRY(get(r, data, (uint64_t)entries * 4));
    if (r->take && entries > 0)
        memcpy(to, *data, (size_t)entries * 4);
    return HEED_OK;
}

static heed_status read_list(reader *r, int64_t l, int64_t g, int64_t offset)
{
    heed_pages *pages = &r->session->pages;
    const heed_pages_layer *stored = &pages->layer[l];
    heed_kept_keys *list = heed_pages_list(pages, r->sequence, l, g);
    int64_t count, start;
    const void *places, *positions, *masses, *states;
    TRY(get_number(r, &count));
    TRY(get_number(r, &start));
    if (count < 0 || count > r->length || start < 0 ||
        (!stored->placed && start + count != (stored->empty ? 0 : r->length)))
        return broken(r, "a list of keys is longer than the text");
    if (count > stored->most)
        return heed_fail(HEED_INVALID, "%s: a layer holds %lld keys, this session has room for %lld", r->path,
                         (long long)count, (long long)stored->most);
    if (r->take)
        TRY(heed_pages_append(pages, r->sequence, l, g, start, start, count));
    TRY(read_array(r, list->place, count, &places));
    TRY(read_array(r, stored->moved ? list->position : NULL, count, &positions));
    TRY(read_array(r, list->mass, count, &masses));
    TRY(read_array(r, list->state, count * stored->states, &states));
    if (!r->take && ((places && !rises(places, count, r->length)) ||
                     (positions && !rises(positions, count, r->length - offset)) ||
                     (masses && !all_positive(masses, count))))
        return broken(r, "keys do not stand in order");
    const void *grades;
    TRY(read_grades(r, l, g, count, &grades));
    TRY(read_rows(r, l, list, count, grades, false));
    return read_rows(r, l, list, count, grades, true);
}

/* Selectors take nothing that their memories say for granted. */
static heed_status read_memory(reader *r, int64_t l)
{
    if (!heed_session_remembers(r->session, l))
        return HEED_OK;
    const heed_memory_size size = heed_session_memory_size(r->session, l);
    heed_memory *memory = heed_session_memory(r->session, r->sequence, l);
    const void *numbers, *reals;
    int64_t keys;
    TRY(get_number(r, &keys));
    if (keys < -1 || keys > r->length)
        return broken(r, "a memory is of more keys than there are");
    if (r->take)
        memory->keys = keys;
    if (keys < 0)
        return HEED_OK;
    int64_t saved_numbers, saved_reals;
    TRY(get_number(r, &saved_numbers));
    TRY(get_number(r, &saved_reals));
    if (saved_numbers != size.numbers || saved_reals != size.reals)
        return heed_fail(HEED_INVALID,
                         "%s: what the selector of layer %lld remembered was saved by a session of another "
                         "context, for which it has another size",
                         r->path, (long long)l);
    TRY(read_array(r, memory->number, size.numbers, &numbers));
    return read_array(r, memory->real, size.reals, &reals);
}

/* A state, or inputs of all tokens: finite numbers, as many as the session would hold. */
static heed_status read_carried(reader *r, int64_t l)
{
    const heed_session *session = r->session;
    const int64_t floats = heed_carry_floats(session, l, r->length);
    const void *data;
    if (session->model->carries[l] == HEED_CARRIES_NOTHING)
        return HEED_OK;
    TRY(enter(r, HEED_SAVED_CARRIED));
    TRY(get(r, &data, (uint64_t)floats * sizeof(float)));
    for (int64_t i = 0; !r->take && i < floats; i++) {
        float number;
        memcpy(&number, (const char *)data + i * (int64_t)sizeof number, sizeof number);
        if (!isfinite(number))
            return broken(r, "what a layer carries along holds what is no number");
    }
    if (r->take && floats > 0)
        memcpy(heed_carry_held(session, l, r->sequence), data, (size_t)floats * sizeof(float));
    return leave(r);
}

static heed_status read_layer(reader *r, int64_t l)
{
    const heed_session *session = r->session;
    const heed_session_layer *layer = &session->layer[l];
    const size_t row =
        (size_t)(session->model->config.heads * session->model->config.head_dim) * sizeof(float);
    heed_past past;
    TRY(enter(r, HEED_SAVED_LAYER));
    int64_t *const numbers[] = {&past.offset, &past.gone, &past.acted, &past.looked, &past.shown};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        TRY(get_number(r, numbers[i]));
        if (*numbers[i] < 0 || *numbers[i] > r->length)
            return broken(r, "a place lies behind the end of the text");
    }
    if (past.shown > layer->window || (past.offset > 0 && !layer->packed))
        return broken(r, "more was kept than the policies of a layer ask for");
    for (int64_t i = 0; i < past.shown; i++) {
        const void *query;
        TRY(get(r, &query, row));
        if (r->take)
            memcpy(heed_shown_query(session, layer, r->sequence, r->length - past.shown + i), query, row);
    }
    for (int64_t g = 0; g < session->model->config.kv_heads; g++)
        TRY(read_list(r, l, g, past.offset));
    TRY(read_memory(r, l));
    if (r->take)
        *heed_past_of(session, r->sequence, l) = past;
    TRY(leave(r));
    return read_carried(r, l);
}

static heed_status read_all(reader *r, const heed_mapping *mapping)
{
    const size_t magic = strlen(HEED_SAVED_MAGIC);
    const int own = heed_carry_any(r->session) ? HEED_SAVED_CARRYING : HEED_SAVED_VERSION;
    int64_t version;
    r->at = r->section = mapping->data;
    r->end = r->section += mapping->size;
    if (mapping->size < magic + sizeof version || memcmp(r->at, HEED_SAVED_MAGIC, magic) != 0)
        return heed_fail(HEED_FORMAT, "%s: not a saved session", r->path);
    r->at += magic;
    TRY(get_number(r, &version));
    if (version != own)
        return heed_fail(HEED_UNSUPPORTED,
                         "%s: saved in version %lld of the format, this session has version %d", r->path,
                         (long long)version, own);
    TRY(check_identity(r));
    TRY(read_tokens(r));
    for (int64_t l = 0; l < r->session->model->config.layers; l++)
        TRY(read_layer(r, l));
    TRY(enter(r, HEED_SAVED_END));
    TRY(leave(r));
    return r->at == r->end ? HEED_OK : broken(r, "something stands behind its end");
}

heed_status heed_session_load(heed_session *session, int64_t sequence, const char *path)
{
    if (!session || !path)
        return heed_fail(HEED_INVALID, "a session and a path are needed");
    if (sequence < 0 || sequence >= session->sequences)
        return heed_fail(HEED_INVALID, "there is no sequence %lld, the session has %lld", (long long)sequence,
                         (long long)session->sequences);
    if (!session->cached)
        return heed_fail(HEED_UNSUPPORTED, "this model reads both ways and keeps no cache");
    if (heed_session_length(session, sequence) > 0)
        return heed_fail(HEED_INVALID, "sequence %lld holds %lld tokens: cut it to none first",
                         (long long)sequence, (long long)heed_session_length(session, sequence));
    heed_mapping mapping;
    TRY(heed_map(&mapping, path, path));
    reader r = {.path = path, .session = session, .sequence = sequence};
    heed_status status = read_all(&r, &mapping);
    if (!status)
        status = heed_session_grow_tokens(session, sequence, r.length);
    if (!status) {
        r.take = true;
        status = read_all(&r, &mapping);
        if (status) /* only a file that was changed meanwhile */
            heed_session_forget(session, sequence, 0);
    }
    heed_unmap(&mapping);
    return status;
}
