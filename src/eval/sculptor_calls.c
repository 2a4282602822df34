/* Calls of tools, as models write them. */
#include "base/try.h"
#include "eval/sculptor_parts.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FOUND = 8 };

static heed_status number_of(const cJSON *call, const char *name, int least, int *value)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(call, name);
    if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble) || item->valuedouble < least ||
        item->valuedouble > 1e9)
        return heed_fail(HEED_INVALID, "a call of this tool has a whole number \"%s\" of at least %d", name,
                         least);
    *value = (int)item->valuedouble;
    return HEED_OK;
}

static heed_status text_of(const cJSON *call, const char *name, const char **text)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(call, name);
    if (!cJSON_IsString(item))
        return heed_fail(HEED_INVALID, "a call of this tool has a text \"%s\"", name);
    *text = item->valuestring;
    return HEED_OK;
}

static heed_status hide(heed_sculptor *s, const cJSON *call, cJSON *answer)
{
    int id = 0;
    (void)answer;
    TRY(number_of(call, "id", 0, &id));
    return heed_sculptor_hide(s, id);
}

static heed_status restore(heed_sculptor *s, const cJSON *call, cJSON *answer)
{
    int id = 0;
    (void)answer;
    TRY(number_of(call, "id", 0, &id));
    return heed_sculptor_restore(s, id);
}

static heed_status summarise(heed_sculptor *s, const cJSON *call, cJSON *answer)
{
    int id = 0;
    const char *text = NULL;
    (void)answer;
    TRY(number_of(call, "id", 0, &id));
    TRY(text_of(call, "text", &text));
    return heed_sculptor_summarise(s, id, text);
}

static heed_status get(heed_sculptor *s, const cJSON *call, cJSON *answer)
{
    int id = 0;
    TRY(number_of(call, "id", 0, &id));
    char *text = heed_sculptor_get(s, id);
    if (!text)
        return heed_fail(HEED_INVALID, "there is no fragment %d, the text has %d", id, s->fragments);
    cJSON_AddStringToObject(answer, "text", text);
    free(text);
    return HEED_OK;
}

static heed_status search(heed_sculptor *s, const cJSON *call, cJSON *answer)
{
    const char *words = NULL;
    int found[FOUND];
    TRY(text_of(call, "words", &words));
    const int count = heed_sculptor_search(
        s, words, cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(call, "exact")), found, FOUND);
    cJSON *ids = cJSON_AddArrayToObject(answer, "ids");
    for (int i = 0; i < count; i++)
        cJSON_AddItemToArray(ids, cJSON_CreateNumber(found[i]));
    return HEED_OK;
}

static heed_status focus(heed_sculptor *s, const cJSON *call, cJSON *answer)
{
    const char *question = NULL;
    int keep = FOUND;
    (void)answer;
    TRY(text_of(call, "question", &question));
    if (cJSON_HasObjectItem(call, "keep"))
        TRY(number_of(call, "keep", 1, &keep));
    return heed_sculptor_focus(s, question, keep);
}

static heed_status latest(heed_sculptor *s, const cJSON *call, cJSON *answer)
{
    (void)call;
    (void)answer;
    return heed_sculptor_latest(s);
}

static const struct {
    const char *name;
    heed_status (*run)(heed_sculptor *s, const cJSON *call, cJSON *answer);
} tools[] = {{"hide", hide},     {"restore", restore}, {"summarise", summarise}, {"get", get},
             {"search", search}, {"focus", focus},     {"latest", latest}};

static heed_status run(heed_sculptor *s, const cJSON *call, cJSON *answer)
{
    const char *name = NULL;
    int hidden = 0;
    if (!cJSON_IsObject(call))
        return heed_fail(HEED_INVALID, "a call of a tool is a JSON object");
    TRY(text_of(call, "tool", &name));
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
        if (strcmp(tools[i].name, name) != 0)
            continue;
        TRY(tools[i].run(s, call, answer));
        for (int f = 0; f < s->fragments; f++)
            hidden += s->fragment[f].hidden;
        cJSON_AddNumberToObject(answer, "hidden", hidden);
        return HEED_OK;
    }
    return heed_fail(HEED_INVALID,
                     "there is no tool '%.40s': hide, restore, summarise, get, search, focus or latest",
                     name);
}

heed_status heed_sculptor_call(heed_sculptor *s, const char *text, char **answer)
{
    cJSON *call = cJSON_Parse(text), *said = cJSON_CreateObject();
    *answer = NULL;
    heed_status status = said ? run(s, call, said) : heed_fail(HEED_NO_MEMORY, "no memory for an answer");
    if (!status && !(*answer = cJSON_PrintUnformatted(said)))
        status = heed_fail(HEED_NO_MEMORY, "no memory for an answer");
    cJSON_Delete(call);
    cJSON_Delete(said);
    return status;
}
