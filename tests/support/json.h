/* Reading what the program prints as JSON; what is not there fails the test. */
#ifndef HEED_TEST_JSON_H
#define HEED_TEST_JSON_H

#include "support/program.h"

#include <cjson/cJSON.h>
#include <string.h>

/* The n-th line of what the last run printed; the caller frees it. */
static inline cJSON *json_line(int n)
{
    const char *at = ran.out;
    for (; n > 0 && at; n--)
        at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    cJSON *root = at && *at ? cJSON_ParseWithOpts(at, NULL, 0) : NULL;
    if (!root)
        fail_msg("no line %d: %s%s", n, ran.out, ran.err);
    return root;
}

static inline double json_number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item))
        fail_msg("no number %s", name);
    return item->valuedouble;
}

#endif
