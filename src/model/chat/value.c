#include "model/chat/value.h"

#include "model/tokenizer/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POOL_BLOCK = 1 << 16 };
static const size_t pool_limit = (size_t)1 << 28;

struct heed_chat_pool_block {
    struct heed_chat_pool_block *next;
    size_t used, size;
    max_align_t data[];
};

void *heed_chat_pool_take(heed_chat_pool *pool, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > pool_limit ||
        pool->bytes + bytes > pool_limit) {
        heed_fail(HEED_NO_MEMORY, "the chat template needs more than %zu MiB", pool_limit >> 20);
        return NULL;
    }
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    struct heed_chat_pool_block *block = pool->block;
    if (!block || block->size - block->used < bytes) {
        const size_t wanted = bytes > POOL_BLOCK ? bytes : POOL_BLOCK;
        block = calloc(1, sizeof *block + wanted);
        if (!block) {
            heed_fail(HEED_NO_MEMORY, "no memory for the chat template");
            return NULL;
        }
        block->size = wanted;
        block->next = pool->block;
        pool->block = block;
    }
    void *taken = (char *)block->data + block->used;
    block->used += bytes;
    pool->bytes += bytes;
    return taken;
}

void heed_chat_pool_free(heed_chat_pool *pool)
{
    while (pool->block) {
        struct heed_chat_pool_block *next = pool->block->next;
        free(pool->block);
        pool->block = next;
    }
}

heed_value heed_value_bool(bool truth)
{
    return (heed_value){.kind = HEED_VALUE_BOOL, .truth = truth};
}

heed_value heed_value_int(int64_t whole)
{
    return (heed_value){.kind = HEED_VALUE_INT, .whole = whole};
}

heed_value heed_value_string(heed_string string)
{
    return (heed_value){.kind = HEED_VALUE_STRING, .string = string};
}

heed_value heed_value_text(const char *text, size_t size, bool user)
{
    return heed_value_string((heed_string){.text = text, .size = size, .whole = user});
}

/* Room for one more entry of `size` bytes; the old array stays in the pool. */
static void *room(heed_chat_pool *pool, void *entries, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return entries;
    const size_t wanted = *capacity ? *capacity * 2 : 4;
    void *wider = heed_chat_pool_take(pool, wanted, size);
    if (wider && count)
        memcpy(wider, entries, count * size);
    if (wider)
        *capacity = wanted;
    return wider;
}

heed_status heed_value_list_new(heed_chat_pool *pool, heed_value *list)
{
    *list = (heed_value){.kind = HEED_VALUE_LIST, .list = heed_chat_pool_take(pool, 1, sizeof(heed_list))};
    return list->list ? HEED_OK : HEED_NO_MEMORY;
}

heed_status heed_value_list_add(heed_chat_pool *pool, heed_list *list, heed_value item)
{
    heed_value *items = room(pool, list->item, list->count, &list->capacity, sizeof *items);
    if (!items)
        return HEED_NO_MEMORY;
    list->item = items;
    list->item[list->count++] = item;
    return HEED_OK;
}

heed_status heed_value_dict_new(heed_chat_pool *pool, heed_value *dict)
{
    *dict = (heed_value){.kind = HEED_VALUE_DICT, .dict = heed_chat_pool_take(pool, 1, sizeof(heed_dict))};
    return dict->dict ? HEED_OK : HEED_NO_MEMORY;
}

const heed_value *heed_value_dict_find(const heed_dict *dict, const char *key, size_t size)
{
    for (size_t i = 0; i < dict->count; i++)
        if (dict->entry[i].key.size == size && !memcmp(dict->entry[i].key.text, key, size))
            return &dict->entry[i].value;
    return NULL;
}

heed_status heed_value_dict_set(heed_chat_pool *pool, heed_dict *dict, heed_string key, heed_value value)
{
    for (size_t i = 0; i < dict->count; i++)
        if (dict->entry[i].key.size == key.size && !memcmp(dict->entry[i].key.text, key.text, key.size)) {
            dict->entry[i].value = value;
            return HEED_OK;
        }
    heed_entry *entries = room(pool, dict->entry, dict->count, &dict->capacity, sizeof *entries);
    if (!entries)
        return HEED_NO_MEMORY;
    dict->entry = entries;
    dict->entry[dict->count++] = (heed_entry){key, value};
    return HEED_OK;
}

bool heed_value_truth(heed_value value)
{
    switch (value.kind) {
    case HEED_VALUE_BOOL:
        return value.truth;
    case HEED_VALUE_INT:
        return value.whole != 0;
    case HEED_VALUE_FLOAT:
        return value.number != 0;
    case HEED_VALUE_STRING:
        return value.string.size != 0;
    case HEED_VALUE_LIST:
        return value.list->count != 0;
    case HEED_VALUE_DICT:
        return value.dict->count != 0;
    default:
        return value.kind == HEED_VALUE_MACRO || value.kind == HEED_VALUE_GLOBAL;
    }
}

static bool is_number(heed_value value)
{
    return value.kind == HEED_VALUE_BOOL || value.kind == HEED_VALUE_INT || value.kind == HEED_VALUE_FLOAT;
}

static double number_of(heed_value value)
{
    return value.kind == HEED_VALUE_FLOAT ? value.number
           : value.kind == HEED_VALUE_INT ? (double)value.whole
                                          : (double)value.truth;
}

static bool same_string(heed_string a, heed_string b)
{
    return a.size == b.size && (!a.size || !memcmp(a.text, b.text, a.size));
}

static bool equal(heed_value a, heed_value b, int depth)
{
    if (is_number(a) && is_number(b))
        return number_of(a) == number_of(b);
    if (a.kind != b.kind || depth > 100)
        return false;
    switch (a.kind) {
    case HEED_VALUE_STRING:
        return same_string(a.string, b.string);
    case HEED_VALUE_LIST:
        for (size_t i = 0; a.list->count == b.list->count && i < a.list->count; i++)
            if (!equal(a.list->item[i], b.list->item[i], depth + 1))
                return false;
        return a.list->count == b.list->count;
    case HEED_VALUE_DICT:
        for (size_t i = 0; a.dict->count == b.dict->count && i < a.dict->count; i++) {
            const heed_value *other =
                heed_value_dict_find(b.dict, a.dict->entry[i].key.text, a.dict->entry[i].key.size);
            if (!other || !equal(a.dict->entry[i].value, *other, depth + 1))
                return false;
        }
        return a.dict->count == b.dict->count;
    case HEED_VALUE_MACRO:
        return a.macro == b.macro;
    case HEED_VALUE_GLOBAL:
        return !strcmp(a.name, b.name);
    default:
        return true;
    }
}

bool heed_value_equal(heed_value a, heed_value b)
{
    return equal(a, b, 0);
}

heed_status heed_value_compare(heed_value a, heed_value b, int *order)
{
    if (is_number(a) && is_number(b)) {
        *order = (number_of(a) > number_of(b)) - (number_of(a) < number_of(b));
        return HEED_OK;
    }
    if (a.kind == HEED_VALUE_STRING && b.kind == HEED_VALUE_STRING) {
        const size_t common = a.string.size < b.string.size ? a.string.size : b.string.size;
        const int bytes = common ? memcmp(a.string.text, b.string.text, common) : 0;
        *order = bytes ? (bytes > 0) - (bytes < 0)
                       : (a.string.size > b.string.size) - (a.string.size < b.string.size);
        return HEED_OK;
    }
    return heed_fail(HEED_UNSUPPORTED, "the chat template compares %s with %s", heed_value_kind_name(a),
                     heed_value_kind_name(b));
}

const char *heed_value_kind_name(heed_value value)
{
    static const char *const names[] = {
        "an undefined value", "none",    "a truth value", "a whole number", "a number", "a text", "a list",
        "a mapping",          "a macro", "a function"};
    return names[value.kind];
}

bool heed_string_is(heed_string string, const char *text)
{
    return string.size == strlen(text) && !memcmp(string.text, text, string.size);
}

bool heed_string_user(heed_string string, size_t i)
{
    return string.user ? string.user[i] != 0 : string.whole;
}

heed_string heed_string_part(heed_string string, size_t start, size_t end)
{
    return (heed_string){string.text + start, string.user ? string.user + start : NULL, end - start,
                         string.whole};
}

static bool in_set(heed_string set, const char *at, size_t size)
{
    if (!set.size)
        return heed_is_space(heed_utf8_character(at));
    for (size_t i = 0; i < set.size; i += (size_t)heed_utf8_size(set.text[i]))
        if ((size_t)heed_utf8_size(set.text[i]) == size && !memcmp(set.text + i, at, size))
            return true;
    return false;
}

heed_string heed_string_strip(heed_string string, bool left, bool right, heed_string set)
{
    size_t start = 0, end = string.size;
    while (left && start < end) {
        const size_t size = (size_t)heed_utf8_size(string.text[start]);
        if (!in_set(set, string.text + start, size))
            break;
        start += size;
    }
    while (right && end > start) {
        size_t before = end - 1;
        while (before > start && (string.text[before] & 0xc0) == 0x80)
            before--;
        if (!in_set(set, string.text + before, end - before))
            break;
        end = before;
    }
    return heed_string_part(string, start, end);
}

void heed_builder_add(heed_builder *builder, heed_string string)
{
    heed_bytes_add(&builder->text, string.text, string.size);
    if (string.user) {
        heed_bytes_add(&builder->user, string.user, string.size);
    } else if (heed_bytes_reserve(&builder->user, string.size) && string.size) {
        memset(builder->user.data + builder->user.size, string.whole, string.size);
        builder->user.size += string.size;
    }
}

void heed_builder_add_text(heed_builder *builder, const char *text, bool user)
{
    heed_builder_add(builder, (heed_string){.text = text, .size = strlen(text), .whole = user});
}

void heed_builder_free(heed_builder *builder)
{
    free(builder->text.data);
    free(builder->user.data);
    *builder = (heed_builder){0};
}

heed_status heed_builder_take(heed_builder *builder, heed_chat_pool *pool, heed_string *string)
{
    heed_status status = HEED_OK;
    const size_t size = builder->text.size;
    char *text = NULL;
    if (builder->text.failed || builder->user.failed)
        status = heed_fail(HEED_NO_MEMORY, "no memory for the chat template");
    else if (!(text = heed_chat_pool_take(pool, 2, size + 1)))
        status = HEED_NO_MEMORY;
    if (!status) {
        if (size) {
            memcpy(text, builder->text.data, size);
            memcpy(text + size, builder->user.data, size);
        }
        *string = (heed_string){.text = text, .user = (const uint8_t *)text + size, .size = size};
    }
    heed_builder_free(builder);
    return status;
}

static void write_number(double number, heed_builder *out)
{
    char text[40];
    for (int digits = 1; digits <= 17;
         digits++) { /* the shortest text that is the number, as Python writes it */
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    if (!strpbrk(text, ".en"))
        strcat(text, ".0");
    heed_builder_add_text(out, text, false);
}

heed_status heed_value_write(heed_value value, heed_builder *out)
{
    char text[32];
    switch (value.kind) {
    case HEED_VALUE_UNDEFINED:
        return HEED_OK;
    case HEED_VALUE_NONE:
        heed_builder_add_text(out, "None", false);
        return HEED_OK;
    case HEED_VALUE_BOOL:
        heed_builder_add_text(out, value.truth ? "True" : "False", false);
        return HEED_OK;
    case HEED_VALUE_INT:
        snprintf(text, sizeof text, "%lld", (long long)value.whole);
        heed_builder_add_text(out, text, false);
        return HEED_OK;
    case HEED_VALUE_FLOAT:
        write_number(value.number, out);
        return HEED_OK;
    case HEED_VALUE_STRING:
        heed_builder_add(out, value.string);
        return HEED_OK;
    default:
        return heed_fail(HEED_UNSUPPORTED, "the chat template writes %s as it is, which has no agreed form",
                         heed_value_kind_name(value));
    }
}

static void json_string(heed_string string, heed_builder *out)
{
    static const char names[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    heed_builder_add_text(out, "\"", false);
    for (size_t i = 0; i < string.size; i++) {
        const char c = string.text[i];
        const char *name = c ? strchr(names, c) : NULL;
        char escape[8] = {'\\', name ? letters[name - names] : 0, 0};
        if (!name && (unsigned char)c < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
        if (name || (unsigned char)c < 0x20)
            heed_builder_add_text(out, escape, heed_string_user(string, i));
        else
            heed_builder_add(out, heed_string_part(string, i, i + 1));
    }
    heed_builder_add_text(out, "\"", false);
}

static void json_line(int indent, int depth, heed_builder *out)
{
    if (indent < 0)
        return;
    heed_builder_add_text(out, "\n", false);
    for (int i = 0; i < indent * depth; i++)
        heed_builder_add_text(out, " ", false);
}

heed_status heed_value_json(heed_value value, int indent, int depth, heed_builder *out)
{
    const bool list = value.kind == HEED_VALUE_LIST;
    if (value.kind == HEED_VALUE_STRING) {
        json_string(value.string, out);
        return HEED_OK;
    }
    if (value.kind == HEED_VALUE_NONE || value.kind == HEED_VALUE_BOOL) {
        heed_builder_add_text(out,
                              value.kind == HEED_VALUE_NONE ? "null"
                              : value.truth                 ? "true"
                                                            : "false",
                              false);
        return HEED_OK;
    }
    if (value.kind == HEED_VALUE_INT || value.kind == HEED_VALUE_FLOAT)
        return heed_value_write(value, out);
    if (depth > 100 || (!list && value.kind != HEED_VALUE_DICT))
        return heed_fail(HEED_UNSUPPORTED, "the chat template makes JSON of %s", heed_value_kind_name(value));
    const size_t count = list ? value.list->count : value.dict->count;
    heed_builder_add_text(out, list ? "[" : "{", false);
    for (size_t i = 0; i < count; i++) {
        if (i)
            heed_builder_add_text(out, indent < 0 ? ", " : ",", false);
        json_line(indent, depth + 1, out);
        if (!list) {
            json_string(value.dict->entry[i].key, out);
            heed_builder_add_text(out, ": ", false);
        }
        const heed_status status =
            heed_value_json(list ? value.list->item[i] : value.dict->entry[i].value, indent, depth + 1, out);
        if (status)
            return status;
    }
    if (count)
        json_line(indent, depth, out);
    heed_builder_add_text(out, list ? "]" : "}", false);
    return HEED_OK;
}
