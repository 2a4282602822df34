/* heed info --json */
#include "base/utf8.h"
#include "cli/info.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_size(cJSON *object, const char *name, int64_t size)
{
    if (size > 0)
        cJSON_AddNumberToObject(object, name, (double)size);
    else
        cJSON_AddNullToObject(object, name);
}

static cJSON *text_of(const char *text, size_t size)
{
    char *clean = heed_utf8_copy(text, size);
    cJSON *item = cJSON_CreateString(clean ? clean : "");
    free(clean);
    return item;
}

static void add_text(cJSON *object, const char *name, const char *text)
{
    if (text && *text)
        cJSON_AddItemToObject(object, name, text_of(text, strlen(text)));
    else
        cJSON_AddNullToObject(object, name);
}

static void add_shape(cJSON *root, const heed_model_summary *s)
{
    add_size(root, "layers", s->layers);
    add_size(root, "width", s->width);
    add_size(root, "heads", s->heads);
    add_size(root, "kv_heads", s->kv_heads);
    add_size(root, "key_dim", s->key_dim);
    add_size(root, "value_dim", s->value_dim);
    add_size(root, "feed_forward", s->feed_forward);
    add_size(root, "vocabulary", s->vocabulary);
    add_size(root, "context", s->context);
    add_size(root, "window", s->window);
    cJSON_AddBoolToObject(root, "causal", s->causal);
}

static void add_types(cJSON *root, const cli_info *info)
{
    cJSON *list = cJSON_AddArrayToObject(root, "types");
    for (int i = 0; i < info->type_count; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "type", info->types[i].dtype);
        cJSON_AddNumberToObject(item, "tensors", info->types[i].tensors);
        cJSON_AddNumberToObject(item, "values", info->types[i].values);
        cJSON_AddNumberToObject(item, "bytes", (double)info->types[i].bytes);
        cJSON_AddItemToArray(list, item);
    }
}

static void add_cache(cJSON *root, const cli_info *info)
{
    static const heed_type types[] = {HEED_F32, HEED_F16, HEED_BF16, HEED_Q8, HEED_Q4};
    cJSON *cache = info->summary.cache_values > 0.0 ? cJSON_AddObjectToObject(root, "cache_bytes_per_token")
                                                    : cJSON_AddNullToObject(root, "cache_bytes_per_token");
    for (int i = 0; i < 5 && info->summary.cache_values > 0.0; i++)
        cJSON_AddNumberToObject(cache, heed_type_name(types[i]), cli_info_cache(info, types[i]));
}

static cJSON *entry_of(const heed_meta *meta, int64_t i)
{
    if (meta->kind == HEED_META_INTS)
        return cJSON_CreateNumber((double)meta->wholes[i]);
    if (meta->kind == HEED_META_FLOATS)
        return cJSON_CreateNumber((double)meta->numbers[i]);
    return text_of(meta->texts[i], (size_t)meta->text_size[i]);
}

/* An array is an object: how many entries, and the first few. */
static cJSON *value_of(const heed_meta *meta)
{
    switch (meta->kind) {
    case HEED_META_INT:
    case HEED_META_FLOAT:
        return cJSON_CreateNumber(meta->number);
    case HEED_META_BOOL:
        return cJSON_CreateBool(meta->whole != 0);
    case HEED_META_TEXT:
        return text_of(meta->text, (size_t)meta->size);
    default:
        break;
    }
    cJSON *array = cJSON_CreateObject();
    cJSON_AddNumberToObject(array, "entries", (double)meta->size);
    cJSON *first = cJSON_AddArrayToObject(array, "first");
    for (int64_t i = 0; i < meta->size && i < CLI_MOST_ENTRIES && meta->kind != HEED_META_NONE; i++)
        cJSON_AddItemToArray(first, entry_of(meta, i));
    return array;
}

static void add_tensors(cJSON *root, const heed_model_file *file)
{
    cJSON *list = cJSON_AddArrayToObject(root, "tensors");
    for (int i = 0; i < heed_model_file_tensors(file); i++) {
        const heed_model_tensor *tensor = heed_model_file_tensor(file, i);
        cJSON *item = cJSON_CreateObject();
        cJSON_AddItemToObject(item, "name", text_of(tensor->name, strlen(tensor->name)));
        cJSON_AddStringToObject(item, "type", tensor->dtype);
        cJSON *shape = cJSON_AddArrayToObject(item, "shape");
        for (int d = 0; d < tensor->rank; d++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[d]));
        cJSON_AddNumberToObject(item, "bytes", (double)tensor->bytes);
        cJSON_AddItemToArray(list, item);
    }
}

void cli_info_json(const cli_info *info)
{
    const heed_model_file *file = info->file;
    cJSON *root = cJSON_CreateObject();
    add_text(root, "path", heed_model_file_path(file));
    cJSON_AddStringToObject(root, "format",
                            heed_model_file_format(file) == HEED_FORMAT_GGUF ? "gguf" : "safetensors");
    add_text(root, "architecture", info->summary.architecture);
    add_text(root, "refused", info->refusal);
    add_text(root, "name", info->summary.name);
    cJSON_AddNumberToObject(root, "parameters", info->summary.parameters);
    cJSON_AddNumberToObject(root, "bytes", (double)heed_model_file_bytes(file));
    add_shape(root, &info->summary);
    add_cache(root, info);
    add_types(root, info);
    cJSON *notes = cJSON_AddArrayToObject(root, "notes");
    for (int i = 0; i < heed_model_file_notes(file); i++)
        cJSON_AddItemToArray(notes, cJSON_CreateString(heed_model_file_note(file, i)));
    cJSON *metadata = cJSON_AddObjectToObject(root, "metadata");
    for (int i = 0; i < heed_model_file_metas(file); i++) {
        const heed_meta *meta = heed_model_file_meta_at(file, i);
        char *key = heed_utf8_copy(meta->key, strlen(meta->key));
        cJSON_AddItemToObject(metadata, key ? key : "", value_of(meta));
        free(key);
    }
    if (info->tensors)
        add_tensors(root, file);
    char *text = cJSON_Print(root);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(root);
}
