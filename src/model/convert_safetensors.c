/* To safetensors: tensors under the names that they have, metadata as texts. Blocks have no place in that
 * format, so quantised tensors become floats. */
#include "base/try.h"
#include "base/utf8.h"
#include "model/convert_rows.h"
#include "model/file_own.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Texts of the metadata, "key", "value", ..., NULL; freed by free_pairs. */
static void free_pairs(char **pairs)
{
    for (char **at = pairs; at && *at; at++)
        free(*at);
    free(pairs);
}

static cJSON *entry(const heed_meta *meta, int64_t i)
{
    if (meta->kind == HEED_META_INTS)
        return cJSON_CreateNumber((double)meta->wholes[i]);
    if (meta->kind == HEED_META_FLOATS)
        return cJSON_CreateNumber((double)meta->numbers[i]);
    char *clean = heed_utf8_copy(meta->texts[i], (size_t)meta->text_size[i]);
    cJSON *item = cJSON_CreateString(clean ? clean : "");
    free(clean);
    return item;
}

/* A value as text: numbers as they are, arrays as JSON. NULL when there is no memory. */
static char *value_text(const heed_meta *meta)
{
    char text[64];
    if (meta->kind == HEED_META_TEXT)
        return heed_utf8_copy(meta->text, (size_t)meta->size);
    if (meta->kind == HEED_META_BOOL)
        return strdup(meta->whole ? "true" : "false");
    if (meta->kind == HEED_META_INT || meta->kind == HEED_META_FLOAT) {
        if (meta->kind == HEED_META_INT)
            snprintf(text, sizeof text, "%lld", (long long)meta->whole);
        else
            snprintf(text, sizeof text, "%.17g", meta->number);
        return strdup(text);
    }
    cJSON *list = cJSON_CreateArray();
    for (int64_t i = 0; i < meta->size && meta->kind != HEED_META_NONE; i++)
        cJSON_AddItemToArray(list, entry(meta, i));
    char *made = cJSON_PrintUnformatted(list);
    cJSON_Delete(list);
    return made;
}

static heed_status make_pairs(const heed_model_file *file, char ***pairs)
{
    *pairs = calloc(2 * (size_t)file->metas + 1, sizeof **pairs);
    bool whole = *pairs != NULL;
    for (int i = 0; i < file->metas && whole; i++) {
        (*pairs)[2 * i] = heed_utf8_copy(file->meta[i].key, strlen(file->meta[i].key));
        (*pairs)[2 * i + 1] = (*pairs)[2 * i] ? value_text(&file->meta[i]) : NULL;
        whole = (*pairs)[2 * i + 1] != NULL;
    }
    return whole ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the metadata");
}

/* The type asked for, for every tensor of numbers; without one, floats stay and blocks become f32. */
static heed_status choose(const heed_model_tensor *tensor, const heed_convert_options *options,
                          heed_convert_report *report, heed_type *type)
{
    const heed_type from = tensor->tensor.type;
    if (from == HEED_TYPES)
        return heed_fail(HEED_UNSUPPORTED, "tensor %s has type %s and %d dimensions, which heed cannot read",
                         tensor->name, tensor->dtype, tensor->rank);
    const bool blocks = heed_type_bytes(from, 2) != 2 * heed_type_bytes(from, 1);
    const bool matrix =
        tensor->rank >= 2 && (blocks || from == HEED_F32 || from == HEED_F16 || from == HEED_BF16);
    *type = blocks && options->type == HEED_TYPES ? HEED_F32 : matrix ? options->type : HEED_TYPES;
    if (*type == from)
        *type = HEED_TYPES;
    report->tensors++;
    report->changed += *type != HEED_TYPES;
    report->bytes_before += tensor->bytes;
    return HEED_OK;
}

static heed_status convert(const heed_model_file *file, const char *path, const heed_convert_options *options,
                           heed_convert_report *report, heed_convert_work *work, heed_named_tensor *tensors)
{
    for (int i = 0; i < file->tensors; i++) {
        const heed_model_tensor *from = &file->tensor[i];
        heed_conversion *conversion = &work->each[i];
        size_t bytes;
        conversion->from = from;
        work->total += from->bytes;
        TRY(choose(from, options, report, &conversion->type));
        const heed_type type = conversion->type == HEED_TYPES ? from->tensor.type : conversion->type;
        tensors[i] = (heed_named_tensor){from->name, heed_tensor_dense(NULL, type, from->rank, from->shape)};
        TRY(heed_tensor_bytes(type, from->rank, from->shape, &bytes));
        report->bytes += bytes;
    }
    char **pairs;
    heed_status status = make_pairs(file, &pairs);
    if (!status)
        status = heed_safetensors_stream(path, tensors, file->tensors, (const char *const *)pairs,
                                         heed_convert_source, work);
    free_pairs(pairs);
    return status;
}

heed_status heed_convert_to_safetensors(const heed_model_file *file, const char *path,
                                        const heed_convert_options *options, heed_convert_report *report)
{
    heed_convert_work work = {.options = options, .count = file->tensors};
    heed_named_tensor *tensors = calloc((size_t)file->tensors + 1, sizeof *tensors);
    work.each = calloc((size_t)file->tensors + 1, sizeof *work.each);
    if (options->type != HEED_TYPES && options->type != HEED_F32 && options->type != HEED_F16 &&
        options->type != HEED_BF16) {
        free(tensors);
        free(work.each);
        return heed_fail(HEED_UNSUPPORTED,
                         "%s has no place in a safetensors file: f32, f16 or bf16 is needed",
                         heed_type_name(options->type));
    }
    const heed_status status = tensors && work.each
                                   ? convert(file, path, options, report, &work, tensors)
                                   : heed_fail(HEED_NO_MEMORY, "no memory for %d tensors", file->tensors);
    free(tensors);
    free(work.each);
    return status;
}
