/* Values of chat templates. Everything of one rendering lives in one pool and ends with it.
 *
 * Each byte of a string remembers whether a user wrote it: what a template writes may become control tokens,
 * what a user wrote may not.
 */
#ifndef HEED_MODEL_CHAT_VALUE_H
#define HEED_MODEL_CHAT_VALUE_H

#include "model/tokenizer/bytes.h"

/* Memory that is freed at once. */
typedef struct heed_chat_pool {
    struct heed_chat_pool_block *block;
    size_t bytes;
} heed_chat_pool;

void *heed_chat_pool_take(heed_chat_pool *pool, size_t count,
                          size_t size); /* zeroed; NULL with a message at the limit */
void heed_chat_pool_free(heed_chat_pool *pool);

typedef enum heed_value_kind {
    HEED_VALUE_UNDEFINED,
    HEED_VALUE_NONE,
    HEED_VALUE_BOOL,
    HEED_VALUE_INT,
    HEED_VALUE_FLOAT,
    HEED_VALUE_STRING,
    HEED_VALUE_LIST,
    HEED_VALUE_DICT, /* namespaces too */
    HEED_VALUE_MACRO,
    HEED_VALUE_GLOBAL, /* a function of the language: raise_exception, namespace, range, dict */
} heed_value_kind;

typedef struct heed_string {
    const char *text;
    const uint8_t *user; /* NULL: all bytes are as `whole` says */
    size_t size;
    bool whole;
} heed_string;

struct heed_value;
struct heed_entry;
struct heed_node;

typedef struct heed_list {
    struct heed_value *item;
    size_t count, capacity;
} heed_list;

typedef struct heed_dict {
    struct heed_entry *entry; /* in the order in which they came */
    size_t count, capacity;
} heed_dict;

typedef struct heed_value {
    heed_value_kind kind;
    union {
        bool truth;
        int64_t whole;
        double number;
        heed_string string;
        heed_list *list;
        heed_dict *dict;
        const struct heed_node *macro;
        const char *name; /* UNDEFINED: what was looked for; GLOBAL: of the function */
    };
} heed_value;

typedef struct heed_entry {
    heed_string key;
    heed_value value;
} heed_entry;

heed_value heed_value_bool(bool truth);
heed_value heed_value_int(int64_t whole);
heed_value heed_value_text(const char *text, size_t size, bool user); /* keeps the pointer */
heed_value heed_value_string(heed_string string);

heed_status heed_value_list_new(heed_chat_pool *pool, heed_value *list);
heed_status heed_value_list_add(heed_chat_pool *pool, heed_list *list, heed_value item);
heed_status heed_value_dict_new(heed_chat_pool *pool, heed_value *dict);
heed_status heed_value_dict_set(heed_chat_pool *pool, heed_dict *dict, heed_string key, heed_value value);
const heed_value *heed_value_dict_find(const heed_dict *dict, const char *key, size_t size);
static inline heed_string heed_plain(const char *text, size_t size)
{
    return (heed_string){.text = text, .size = size};
}

bool heed_value_truth(heed_value value);
bool heed_value_equal(heed_value a, heed_value b);
/* -1, 0, 1; HEED_UNSUPPORTED for values that have no order. */
heed_status heed_value_compare(heed_value a, heed_value b, int *order);
const char *heed_value_kind_name(heed_value value); /* "a list" */
bool heed_string_is(heed_string string, const char *text);

bool heed_string_user(heed_string string, size_t i);
heed_string heed_string_part(heed_string string, size_t start, size_t end);
heed_string heed_string_strip(heed_string string, bool left, bool right,
                              heed_string set); /* empty set: white space */

/* Strings in the making. Memory is the caller's to free; a failure shows in `text.failed`. */
typedef struct heed_builder {
    heed_bytes text, user;
} heed_builder;

void heed_builder_add(heed_builder *builder, heed_string string);
void heed_builder_add_text(heed_builder *builder, const char *text, bool user);
void heed_builder_free(heed_builder *builder);
/* The string, in the pool; frees the builder's own memory. */
heed_status heed_builder_take(heed_builder *builder, heed_chat_pool *pool, heed_string *string);

/* What {{ value }} writes. HEED_UNSUPPORTED for lists and the like. */
heed_status heed_value_write(heed_value value, heed_builder *out);
/* JSON with Python's separators; `indent` < 0: on one line. */
heed_status heed_value_json(heed_value value, int indent, int depth, heed_builder *out);

#endif
