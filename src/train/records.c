#include "train/records.h"
#include "attend/spec_reader.h"
#include "base/text.h"
#include "base/try.h"
#include "train/data.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the fields are called. */
static const struct {
    const char *name;
    int field;
} names[] = {
    {"text", HEED_FIELD_TEXT},     {"prompt", HEED_FIELD_TEXT},     {"query", HEED_FIELD_TEXT},
    {"anchor", HEED_FIELD_TEXT},   {"source", HEED_FIELD_TEXT},     {"completion", HEED_FIELD_ANSWER},
    {"answer", HEED_FIELD_ANSWER}, {"positive", HEED_FIELD_ANSWER}, {"chosen", HEED_FIELD_ANSWER},
    {"target", HEED_FIELD_ANSWER}, {"negative", HEED_FIELD_OTHER},  {"rejected", HEED_FIELD_OTHER},
    {"label", HEED_FIELD_LABEL},   {"class", HEED_FIELD_LABEL},     {"number", HEED_FIELD_NUMBER},
    {"score", HEED_FIELD_NUMBER},
};
static const char *const wanted[] = {"text (or prompt, query, anchor, source)",
                                     "completion (or answer, positive, chosen, target)",
                                     "negative (or rejected)", "label (or class)", "number (or score)"};

bool heed_is_records(const char *path)
{
    return heed_ends_with(path, ".jsonl") || heed_ends_with(path, ".csv");
}

static int field_of(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].name, name))
            return names[i].field;
    return -1;
}

/* One record on its way: texts of its fields, NULL where it has none. */
typedef struct entry {
    const char *text[HEED_FIELD_NUMBER + 1];
    size_t size[HEED_FIELD_NUMBER + 1];
} entry;

typedef struct reader {
    heed_records *records;
    const heed_tokenizer *tokenizer;
    const char *path;
    unsigned needs;
    long long line;
    int64_t bytes_room; /* of tokens, where they are bytes */
} reader;

static heed_status wrong(const reader *r, const char *sentence)
{
    return heed_fail(HEED_FORMAT, "%s line %lld: %s", r->path, r->line, sentence);
}

static heed_status add_text(reader *r, const char *text, size_t size)
{
    heed_tokens *tokens = &r->records->tokens;
    if (r->tokenizer)
        return heed_tokenize(r->tokenizer, text, size, 0, tokens);
    if (tokens->count + (int64_t)size > r->bytes_room) {
        const int64_t room = 2 * (tokens->count + (int64_t)size) + 4096;
        int32_t *id = realloc(tokens->id, (size_t)room * sizeof *id);
        if (!id)
            return heed_fail(HEED_NO_MEMORY, "%s: no memory for its tokens", r->path);
        tokens->id = id;
        r->bytes_room = room;
    }
    for (size_t i = 0; i < size; i++)
        tokens->id[tokens->count++] = (unsigned char)text[i];
    return HEED_OK;
}

static heed_status grow(reader *r)
{
    heed_records *all = r->records;
    if (all->count < all->room)
        return HEED_OK;
    const int64_t room = all->room ? 2 * all->room : 1024;
    void *end = realloc(all->end, (size_t)room * sizeof *all->end);
    all->end = end ? end : all->end;
    int32_t *label = realloc(all->label, (size_t)room * sizeof *label);
    all->label = label ? label : all->label;
    float *number = realloc(all->number, (size_t)room * sizeof *number);
    all->number = number ? number : all->number;
    if (!end || !label || !number)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory for its records", r->path);
    all->room = room;
    return HEED_OK;
}

/* A whole number is its class; other words are numbered as they come. */
static heed_status read_label(reader *r, const char *word, int32_t *label)
{
    heed_records *all = r->records;
    char *end;
    const long long number = strtoll(word, &end, 10);
    if (end != word && !*end) {
        if (number < 0 || number > 1 << 20)
            return wrong(r, "a class is a word, or a whole number from 0 to 1048576");
        *label = (int32_t)number;
        all->classes = number >= all->classes ? (int)number + 1 : all->classes;
        return HEED_OK;
    }
    for (int i = 0; i < all->class_room; i++)
        if (!strcmp(all->class_name[i], word)) {
            *label = i;
            return HEED_OK;
        }
    char **grown = realloc(all->class_name, (size_t)(all->class_room + 1) * sizeof *grown);
    all->class_name = grown ? grown : all->class_name;
    char *copy = grown ? strdup(word) : NULL;
    if (!copy)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory for its classes", r->path);
    *label = all->class_room;
    all->class_name[all->class_room++] = copy;
    all->classes = all->class_room > all->classes ? all->class_room : all->classes;
    return HEED_OK;
}

static heed_status add_entry(reader *r, const entry *e)
{
    heed_records *all = r->records;
    char sentence[160];
    for (int f = 0; f <= HEED_FIELD_NUMBER; f++)
        if (r->needs >> f & 1u && !e->text[f]) {
            snprintf(sentence, sizeof sentence, "it has no %s", wanted[f]);
            return wrong(r, sentence);
        }
    TRY(grow(r));
    const int64_t before = all->tokens.count;
    for (int f = 0; f < HEED_FIELDS; f++) {
        if (e->text[f])
            TRY(add_text(r, e->text[f], e->size[f]));
        all->end[all->count][f] = all->tokens.count;
    }
    all->label[all->count] = -1;
    all->number[all->count] = NAN;
    if (e->text[HEED_FIELD_LABEL] && r->needs >> HEED_FIELD_LABEL & 1u)
        TRY(read_label(r, e->text[HEED_FIELD_LABEL], &all->label[all->count]));
    if (e->text[HEED_FIELD_NUMBER] && r->needs >> HEED_FIELD_NUMBER & 1u) {
        char *end;
        const double number = strtod(e->text[HEED_FIELD_NUMBER], &end);
        if (end == e->text[HEED_FIELD_NUMBER] || *end || !isfinite(number))
            return wrong(r, "its number is none");
        all->number[all->count] = (float)number;
    }
    for (int f = 0; f <= HEED_FIELD_NUMBER; f++)
        all->fields |= e->text[f] ? 1u << f : 0u;
    all->most = all->tokens.count - before > all->most ? all->tokens.count - before : all->most;
    all->count++;
    return HEED_OK;
}

static heed_status read_object(reader *r, const char *line, size_t size, bool last)
{
    entry e = {.text = {NULL}};
    char number[2][40];
    cJSON *object = cJSON_ParseWithLength(line, size);
    heed_status status = HEED_OK;
    if (!cJSON_IsObject(object))
        status = wrong(r, last ? "this is no JSON object; the file may end early" : "this is no JSON object");
    for (const cJSON *item = status ? NULL : object->child; item && !status; item = item->next) {
        const int f = field_of(item->string);
        if (f < 0 || cJSON_IsNull(item))
            continue;
        char sentence[120];
        snprintf(sentence, sizeof sentence, "'%.40s' %s", item->string,
                 f < HEED_FIELDS ? "must be a text" : "must be a text or a number");
        if (cJSON_IsString(item)) {
            e.text[f] = item->valuestring;
        } else if (f >= HEED_FIELDS && cJSON_IsNumber(item)) {
            snprintf(number[f - HEED_FIELDS], sizeof *number, "%.17g", item->valuedouble);
            e.text[f] = number[f - HEED_FIELDS];
        } else {
            status = wrong(r, sentence);
        }
        e.size[f] = e.text[f] ? strlen(e.text[f]) : 0;
    }
    if (!status)
        status = add_entry(r, &e);
    cJSON_Delete(object);
    return status;
}

static heed_status read_lines(reader *r, const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t length = end ? (size_t)(end - text) - at : size - at;
        r->line++;
        const size_t blanks = strspn(text + at, " \t\r");
        if (blanks < length)
            TRY(read_object(r, text + at, length, !end));
        at += length + 1;
    }
    return HEED_OK;
}

enum { COLUMNS = 64 };

/* One row, taken apart in place: values become texts ended by 0. *next: behind it. */
static heed_status take_row(reader *r, char *text, char *to, char *value[COLUMNS], int *count, char **next)
{
    long long lines = 1;
    *count = 0;
    for (;;) {
        if (*count == COLUMNS)
            return wrong(r, "more than 64 values");
        char *out = text;
        value[(*count)++] = text;
        if (text < to && *text == '"') {
            for (text++;; text++) {
                if (text >= to)
                    return wrong(r, "a quote is not closed; the file may end early");
                lines += *text == '\n';
                if (*text != '"')
                    *out++ = *text;
                else if (text + 1 < to && text[1] == '"')
                    *out++ = *text++;
                else
                    break;
            }
            text++;
            if (text < to && *text != ',' && *text != '\n' && *text != '\r')
                return wrong(r, "something stands behind a closing quote");
        } else {
            text += strcspn(text, ",\r\n");
            out = text;
        }
        const char behind = text < to ? *text : '\n';
        *out = 0;
        if (behind == ',') {
            text++;
            continue;
        }
        *next = text + (behind == '\r' && text + 1 < to && text[1] == '\n') + 1;
        r->line += lines - 1;
        return HEED_OK;
    }
}

static heed_status read_table(reader *r, char *text, size_t size)
{
    char *value[COLUMNS], *to = text + size;
    int field[COLUMNS], columns, count;
    r->line = 1;
    TRY(take_row(r, text, to, value, &columns, &text));
    bool known = false;
    for (int i = 0; i < columns; i++) {
        field[i] = field_of(value[i]);
        known |= field[i] >= 0;
    }
    if (!known)
        return wrong(r, "the header names none of text, prompt, completion, label, number and the like");
    while (text < to) {
        entry e = {.text = {NULL}};
        char sentence[100];
        r->line++;
        if (*text == '\n' || *text == '\r') {
            text++;
            continue;
        }
        TRY(take_row(r, text, to, value, &count, &text));
        snprintf(sentence, sizeof sentence, "%d values, and the header has %d%s", count, columns,
                 text >= to ? "; the file may end early" : "");
        if (count != columns)
            return wrong(r, sentence);
        for (int i = 0; i < columns; i++)
            if (field[i] >= 0) {
                e.text[field[i]] = value[i];
                e.size[field[i]] = strlen(value[i]);
            }
        TRY(add_entry(r, &e));
    }
    return HEED_OK;
}

heed_status heed_records_read(heed_records *records, const char *path, const heed_tokenizer *tokenizer,
                              unsigned needs)
{
    char *text;
    size_t size;
    reader r = {.records = records, .tokenizer = tokenizer, .path = path, .needs = needs};
    *records = (heed_records){.count = 0};
    TRY(heed_read_file(path, &text, &size));
    heed_status status = strlen(text) < size ? heed_fail(HEED_FORMAT, "%s: it holds zero bytes", path)
                         : heed_ends_with(path, ".csv") ? read_table(&r, text, size)
                                                        : read_lines(&r, text, size);
    free(text);
    if (!status && records->count == 0)
        status = heed_fail(HEED_FORMAT, "%s: it has no records", path);
    if (status)
        heed_records_free(records);
    return status;
}

void heed_records_free(heed_records *records)
{
    for (int i = 0; i < records->class_room; i++)
        free(records->class_name[i]);
    free(records->class_name);
    free(records->end);
    free(records->label);
    free(records->number);
    heed_tokens_free(&records->tokens);
    *records = (heed_records){.count = 0};
}

const int32_t *heed_record_text(const heed_records *records, int64_t record, int field, int64_t *count)
{
    const int64_t from = field        ? records->end[record][field - 1]
                         : record > 0 ? records->end[record - 1][HEED_FIELDS - 1]
                                      : 0;
    *count = records->end[record][field] - from;
    return records->tokens.id + from;
}
