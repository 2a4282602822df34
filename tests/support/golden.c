#include "support/golden.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    if (fread(bytes, 1, *size, file) != *size) {
        free(bytes);
        bytes = NULL;
    }
    fclose(file);
    return bytes;
}

static void read_entry(golden *g, const cJSON *entry, const char *data)
{
    golden_tensor *t = &g->tensor[g->tensors++];
    snprintf(t->name, sizeof t->name, "%s", entry->string);
    snprintf(t->type, sizeof t->type, "%s", cJSON_GetObjectItem(entry, "dtype")->valuestring);
    t->count = 1;
    const cJSON *size;
    cJSON_ArrayForEach(size, cJSON_GetObjectItem(entry, "shape"))
    {
        t->shape[t->rank++] = (int64_t)size->valuedouble;
        t->count *= (int64_t)size->valuedouble;
    }
    t->data = data + (size_t)cJSON_GetArrayItem(cJSON_GetObjectItem(entry, "data_offsets"), 0)->valuedouble;
}

bool golden_read(golden *g, const char *path)
{
    *g = (golden){0};
    size_t size;
    uint64_t header;
    g->bytes = read_file(path, &size);
    if (!g->bytes || size < sizeof header)
        return false;
    memcpy(&header, g->bytes, sizeof header);
    if (header > size - sizeof header)
        return false;
    cJSON *json = cJSON_ParseWithLength(g->bytes + sizeof header, (size_t)header);
    if (!json)
        return false;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, json)
    {
        if (strcmp(entry->string, "__metadata__") != 0)
            read_entry(g, entry, g->bytes + sizeof header + header);
        else if (cJSON_GetObjectItem(entry, "spec"))
            snprintf(g->spec, sizeof g->spec, "%s", cJSON_GetObjectItem(entry, "spec")->valuestring);
    }
    cJSON_Delete(json);
    return true;
}

void golden_free(golden *g)
{
    free(g->bytes);
}

const golden_tensor *golden_find(const golden *g, const char *name)
{
    for (int i = 0; i < g->tensors; i++)
        if (strcmp(g->tensor[i].name, name) == 0)
            return &g->tensor[i];
    return NULL;
}

double *golden_numbers(const golden *g, const char *name)
{
    const golden_tensor *t = golden_find(g, name);
    if (!t)
        return NULL;
    double *x = malloc((size_t)(t->count + 1) * sizeof *x);
    for (int64_t i = 0; i < t->count; i++) {
        float single;
        if (strcmp(t->type, "F64") == 0)
            memcpy(&x[i], (const char *)t->data + i * 8, 8);
        else {
            memcpy(&single, (const char *)t->data + i * 4, 4);
            x[i] = single;
        }
    }
    return x;
}
