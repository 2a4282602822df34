#include "cli/shape.h"

#include "attend/spec_reader.h"
#include "cli/cli.h"

#include <string.h>

#define LARGEST (1 << 30)

typedef struct size_name {
    const char *name;
    size_t offset;
} size_name;

static const size_name sizes[] = {
    {"batch", offsetof(heed_problem, batch)},         {"heads", offsetof(heed_problem, heads)},
    {"kv_heads", offsetof(heed_problem, kv_heads)},   {"queries", offsetof(heed_problem, queries)},
    {"keys", offsetof(heed_problem, keys)},           {"dim", offsetof(heed_problem, dim)},
    {"value_dim", offsetof(heed_problem, value_dim)},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static const char *size_word(int i)
{
    return i < SIZES ? sizes[i].name : NULL;
}

/* One "name=value". */
static heed_status set_size(char *part, int64_t *value, bool *given)
{
    char *equals = strchr(part, '=');
    if (!equals)
        return heed_fail(HEED_INVALID, "--shape: '%s' must be name=size",
                         heed_quoted(part, (int)strlen(part)).text);
    *equals = 0;
    for (int i = 0; i < SIZES; i++) {
        if (strcmp(part, sizes[i].name))
            continue;
        if (given[i])
            return heed_fail(HEED_INVALID, "--shape: %s stands there twice", part);
        given[i] = true;
        if (cli_whole(equals + 1, 0, LARGEST, &value[i]))
            return HEED_OK;
        return heed_fail(HEED_INVALID, "--shape: %s=%s: a whole number from 0 to %d is needed", part,
                         heed_quoted(equals + 1, (int)strlen(equals + 1)).text, LARGEST);
    }
    return heed_fail(HEED_INVALID, "--shape: unknown size '%s'%s", heed_quoted(part, (int)strlen(part)).text,
                     cli_nearest(part, size_word).text);
}

heed_status cli_parse_shape(const char *text, heed_problem *problem)
{
    enum { BATCH, HEADS, KV_HEADS, QUERIES, KEYS, DIM, VALUE_DIM };
    int64_t value[SIZES] = {[BATCH] = 1, [HEADS] = 8, [QUERIES] = 1024, [DIM] = 64};
    bool given[SIZES] = {false};
    char copy[512];
    if (text && strlen(text) >= sizeof copy)
        return heed_fail(HEED_INVALID, "--shape: more than %zu characters", sizeof copy - 1);
    strcpy(copy, text ? text : "");
    for (char *part = copy; part && *copy;) {
        char *comma = strchr(part, ',');
        if (comma)
            *comma = 0;
        const heed_status status = set_size(part, value, given);
        if (status)
            return status;
        part = comma ? comma + 1 : NULL;
    }
    value[KV_HEADS] = given[KV_HEADS] ? value[KV_HEADS] : value[HEADS];
    value[QUERIES] = !given[QUERIES] && given[KEYS] ? value[KEYS] : value[QUERIES];
    value[KEYS] = given[KEYS] ? value[KEYS] : value[QUERIES];
    value[VALUE_DIM] = given[VALUE_DIM] ? value[VALUE_DIM] : value[DIM];
    for (int i = 0; i < SIZES; i++)
        *(int64_t *)((char *)problem + sizes[i].offset) = value[i];
    return HEED_OK;
}
