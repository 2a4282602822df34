/* Folders of safetensors: model.safetensors, or several files with an index that says which tensor lies
 * where.
 *
 * No tensor of the index may be missing, and what the index does not name is not read.
 */
#include "model/file_folder.h"
#include "base/try.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INDEX "model.safetensors.index.json"

heed_status heed_folder_path(const char *folder, const char *name, char **path)
{
    const size_t size = strlen(folder) + strlen(name) + 2;
    *path = malloc(size);
    if (!*path)
        return heed_fail(HEED_NO_MEMORY, "no memory for the path of a file");
    snprintf(*path, size, "%s/%s", folder, name);
    return HEED_OK;
}

static heed_status open_named(heed_model_file **part, const char *folder, const char *name)
{
    char *path;
    TRY(heed_folder_path(folder, name, &path));
    heed_status status = heed_model_file_open_one(part, path);
    free(path);
    if (!status && (*part)->format != HEED_FORMAT_SAFETENSORS) {
        status = heed_fail(HEED_FORMAT, "%s: not a safetensors file", (*part)->shown);
        heed_model_file_close(*part);
        *part = NULL;
    }
    return status;
}

heed_status heed_folder_open_files(heed_model_file *file, const heed_file_names *names)
{
    heed_model_file **part = calloc((size_t)names->count + 1, sizeof(heed_model_file *));
    heed_status status =
        part ? HEED_OK : heed_fail(HEED_NO_MEMORY, "%s: no memory for its files", file->shown);
    int opened = 0;
    for (int i = 0; i < names->count && !status; i++) {
        status = open_named(&part[i], file->path, names->name[i]);
        opened += !status;
    }
    const heed_status joined = part ? heed_file_join(file, part, opened) : status;
    return status ? status : joined;
}

/* A name of a file in the same folder, and not a path to somewhere else. */
static bool is_plain_name(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/');
}

/* The files that the index names, each once; those that are not there are named together. */
static heed_status index_files(const heed_model_file *file, const cJSON *map, heed_file_names *names)
{
    heed_name_list missing = {0};
    const cJSON *item;
    cJSON_ArrayForEach(item, map)
    {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        if (!is_plain_name(name))
            return heed_fail(HEED_FORMAT,
                             "%s/" INDEX ": a tensor is said to lie in what is no name of a file",
                             file->shown);
        if (heed_names_contain(names, name))
            continue;
        TRY(heed_names_append(names, name));
        char *path;
        TRY(heed_folder_path(file->path, name, &path));
        if (access(path, F_OK))
            heed_list_add(&missing, name);
        free(path);
    }
    if (missing.count)
        return heed_fail(HEED_IO, "%s: its index names %d files that are not there: %s", file->shown,
                         missing.count, heed_list_text(&missing));
    return HEED_OK;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of the index, sorted, to look them up among many. */
static heed_status sorted_names(const cJSON *map, const char ***sorted, int *count)
{
    const cJSON *item;
    *count = 0;
    *sorted = malloc(((size_t)cJSON_GetArraySize(map) + 1) * sizeof **sorted);
    if (!*sorted)
        return heed_fail(HEED_NO_MEMORY, "no memory for the index of a model");
    cJSON_ArrayForEach(item, map)
    {
        (*sorted)[(*count)++] = item->string;
    }
    if (*count > 1)
        qsort(*sorted, (size_t)*count, sizeof **sorted, compare_text);
    return HEED_OK;
}

/* Drops the tensors of the files that the index does not name, with a note. */
static heed_status drop_others(heed_model_file *file, const cJSON *map)
{
    heed_name_list dropped = {0};
    const char **sorted;
    int count, kept = 0;
    TRY(sorted_names(map, &sorted, &count));
    heed_status status = HEED_OK;
    for (int i = 1; i < count && !status; i++)
        if (!strcmp(sorted[i - 1], sorted[i]))
            status =
                heed_fail(HEED_FORMAT, "%s/" INDEX ": tensor %s stands there twice", file->shown, sorted[i]);
    for (int i = 0; i < file->tensors; i++) {
        const heed_model_tensor *tensor = &file->tensor[i];
        if (count && bsearch(&tensor->name, sorted, (size_t)count, sizeof *sorted, compare_text))
            file->tensor[kept++] = *tensor;
        else
            heed_list_add(&dropped, tensor->name);
    }
    free(sorted);
    file->tensors = kept;
    if (!status && dropped.count)
        status = heed_file_note(file, "%s: tensors that the index does not name are left out: %s",
                                file->shown, heed_list_text(&dropped));
    return status ? status : heed_file_index(file);
}

/* Whether a tensor lies in the file that the index says. */
static bool lies_in(const heed_model_file *file, const heed_file_names *names, const cJSON *item)
{
    for (int i = 0; i < names->count; i++)
        if (!strcmp(names->name[i], item->valuestring))
            return heed_model_file_find(file->part[i], item->string) != NULL;
    return false;
}

static heed_status check_index(const heed_model_file *file, const heed_file_names *names, const cJSON *map)
{
    heed_name_list missing = {0};
    char entry[300];
    const cJSON *item;
    cJSON_ArrayForEach(item, map)
    {
        if (lies_in(file, names, item))
            continue;
        snprintf(entry, sizeof entry, "%s (in %s)", item->string, item->valuestring);
        heed_list_add(&missing, entry);
    }
    if (!missing.count)
        return HEED_OK;
    return heed_fail(HEED_FORMAT,
                     "%s: %d tensors of its index are not in the files where it says they are: %s",
                     file->shown, missing.count, heed_list_text(&missing));
}

static heed_status read_map(heed_model_file *file, const cJSON *map)
{
    heed_file_names names = {0};
    heed_status status = index_files(file, map, &names);
    if (!status)
        status = heed_folder_open_files(file, &names);
    if (!status)
        status = check_index(file, &names, map);
    if (!status)
        status = drop_others(file, map);
    if (!status)
        status = heed_folder_note_others(file, &names);
    heed_names_free(&names);
    return status;
}

heed_status heed_folder_read_index(heed_model_file *file)
{
    size_t size;
    const char *text = heed_model_file_text(file, INDEX, &size);
    cJSON *root = cJSON_ParseWithLength(text, size);
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
    const heed_status status =
        cJSON_IsObject(map) && cJSON_GetArraySize(map) > 0
            ? read_map(file, map)
            : heed_fail(HEED_FORMAT, "%s/" INDEX ": it is no JSON object with a weight_map", file->shown);
    cJSON_Delete(root);
    return status;
}
