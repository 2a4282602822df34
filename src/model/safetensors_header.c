/* The JSON header of a safetensors file: every number in it is checked before it is believed. */
#include "base/utf8.h"
#include "model/safetensors_file.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_WHOLE 9007199254740992.0 /* 2^53: JSON numbers beyond it lose digits */

typedef struct dtype_info {
    const char *name;
    int bits;
    heed_type type;
} dtype_info;

static const dtype_info dtypes[] = {
    {"F32", 32, HEED_F32},      {"F16", 16, HEED_F16},      {"BF16", 16, HEED_BF16},
    {"I32", 32, HEED_I32},      {"U8", 8, HEED_U8},         {"F64", 64, HEED_F64},
    {"I64", 64, HEED_I64},      {"U64", 64, HEED_TYPES},    {"U32", 32, HEED_TYPES},
    {"I16", 16, HEED_I16},      {"U16", 16, HEED_TYPES},    {"I8", 8, HEED_I8},
    {"BOOL", 8, HEED_TYPES},    {"C64", 64, HEED_TYPES},    {"F8_E4M3", 8, HEED_TYPES},
    {"F8_E5M2", 8, HEED_TYPES}, {"F8_E8M0", 8, HEED_TYPES}, {"F6_E2M3", 6, HEED_TYPES},
    {"F6_E3M2", 6, HEED_TYPES}, {"F4", 4, HEED_TYPES},
};

static const dtype_info *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(name, dtypes[i].name))
            return &dtypes[i];
    return NULL;
}

const char *heed_printable(const char *name, char *text, size_t size)
{
    size_t i = 0;
    for (; name[i] && i + 1 < size; i++)
        text[i] = (unsigned char)name[i] < 32 || name[i] == 127 ? '?' : name[i];
    text[i] = 0;
    if (name[i] && size > 4) {
        size_t cut = size - 4; /* between characters of UTF-8 */
        while (cut > 0 && ((unsigned char)name[cut] & 0xc0) == 0x80)
            cut--;
        memcpy(text + cut, "...", 4);
    }
    return text;
}

/* A whole number from 0 to 2^53. */
static bool whole(const cJSON *item, uint64_t *value)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.0 && item->valuedouble <= LARGEST_WHOLE) ||
        item->valuedouble != floor(item->valuedouble))
        return false;
    *value = (uint64_t)item->valuedouble;
    return true;
}

static heed_status bad_tensor(const heed_safetensors *file, const char *name, const char *what)
{
    char text[80];
    return heed_fail(HEED_FORMAT, "%s: tensor %s: %s", file->path, heed_printable(name, text, sizeof text),
                     what);
}

/* The field of an object, by exact name; false when it stands there twice. */
static bool field(const cJSON *object, const char *name, const cJSON **found)
{
    const cJSON *item;
    *found = NULL;
    cJSON_ArrayForEach(item, object)
    {
        if (strcmp(item->string, name))
            continue;
        if (*found)
            return false;
        *found = item;
    }
    return true;
}

static heed_status read_shape(const heed_safetensors *file, const cJSON *shape, heed_file_tensor *tensor)
{
    if (!cJSON_IsArray(shape))
        return bad_tensor(file, tensor->name, "its shape is missing or is no list");
    const cJSON *item;
    cJSON_ArrayForEach(item, shape)
    {
        uint64_t size;
        if (tensor->rank == HEED_FILE_RANK)
            return bad_tensor(file, tensor->name, "it has more than 8 dimensions");
        if (!whole(item, &size))
            return bad_tensor(file, tensor->name, "its shape must hold whole numbers from 0 to 2^53");
        tensor->shape[tensor->rank++] = (int64_t)size;
    }
    return HEED_OK;
}

/* Bytes of the shape; false when they overflow or are no whole number of bytes. */
static bool shape_bytes(const heed_file_tensor *tensor, int bits, uint64_t *bytes)
{
    uint64_t total = (uint64_t)bits;
    for (int i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(total, (uint64_t)tensor->shape[i], &total))
            return false;
    *bytes = total / 8;
    return total % 8 == 0;
}

static heed_status read_entry(const heed_safetensors *file, const cJSON *item, heed_file_tensor *tensor)
{
    const cJSON *dtype, *shape, *offsets;
    uint64_t end, expected;
    tensor->name = strdup(item->string);
    if (!tensor->name)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory for its header", file->path);
    if (!cJSON_IsObject(item))
        return bad_tensor(file, tensor->name, "its entry in the header is no object");
    if (!field(item, "dtype", &dtype) || !field(item, "shape", &shape) ||
        !field(item, "data_offsets", &offsets))
        return bad_tensor(file, tensor->name, "a field of its entry in the header stands there twice");
    if (!cJSON_IsString(dtype))
        return bad_tensor(file, tensor->name, "its dtype is missing or is no text");
    const dtype_info *info = find_dtype(dtype->valuestring);
    if (!info) {
        char name[80], type[40];
        return heed_fail(HEED_FORMAT, "%s: tensor %s: unknown dtype %s", file->path,
                         heed_printable(tensor->name, name, sizeof name),
                         heed_printable(dtype->valuestring, type, sizeof type));
    }
    tensor->dtype = info->name;
    tensor->type = info->type;
    const heed_status status = read_shape(file, shape, tensor);
    if (status)
        return status;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !whole(cJSON_GetArrayItem(offsets, 0), &tensor->begin) ||
        !whole(cJSON_GetArrayItem(offsets, 1), &end) || end < tensor->begin)
        return bad_tensor(file, tensor->name,
                          "its data_offsets must be two whole numbers, the second not smaller");
    tensor->bytes = end - tensor->begin;
    if (!shape_bytes(tensor, info->bits, &expected))
        return bad_tensor(file, tensor->name,
                          "the sizes in its shape multiply to more than 64 bits can count");
    if (tensor->bytes != expected) {
        char name[80];
        return heed_fail(HEED_FORMAT,
                         "%s: tensor %s: its shape takes %llu bytes, but its data_offsets span %llu",
                         file->path, heed_printable(tensor->name, name, sizeof name),
                         (unsigned long long)expected, (unsigned long long)tensor->bytes);
    }
    return HEED_OK;
}

static int compare_begin(const void *a, const void *b)
{
    const heed_file_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

/* The data must be covered by the tensors without holes or overlaps, as the format demands. */
static heed_status check_layout(heed_safetensors *file)
{
    const uint64_t available = file->size - file->data_begin;
    uint64_t end = 0;
    char name[80], before[80];
    if (file->count > 1)
        qsort(file->tensor, (size_t)file->count, sizeof *file->tensor, compare_begin);
    for (int i = 0; i < file->count; i++) {
        const heed_file_tensor *tensor = &file->tensor[i];
        heed_printable(tensor->name, name, sizeof name);
        if (tensor->begin + tensor->bytes > available)
            return heed_fail(
                HEED_FORMAT, "%s: truncated: tensor %s ends at byte %llu, but the file has %llu bytes",
                file->path, name, (unsigned long long)(file->data_begin + tensor->begin + tensor->bytes),
                (unsigned long long)file->size);
        if (tensor->begin < end)
            return heed_fail(HEED_FORMAT, "%s: tensor %s overlaps tensor %s", file->path, name,
                             heed_printable(file->tensor[i - 1].name, before, sizeof before));
        if (tensor->begin > end)
            return heed_fail(HEED_FORMAT, "%s: %llu bytes before tensor %s belong to no tensor", file->path,
                             (unsigned long long)(tensor->begin - end), name);
        end += tensor->bytes;
    }
    if (end < available)
        return heed_fail(HEED_FORMAT, "%s: %llu bytes after the last tensor belong to no tensor", file->path,
                         (unsigned long long)(available - end));
    return HEED_OK;
}

static int compare_name(const void *a, const void *b)
{
    return strcmp((*(heed_file_tensor *const *)a)->name, (*(heed_file_tensor *const *)b)->name);
}

static heed_status sort_names(heed_safetensors *file)
{
    if (file->count == 0)
        return HEED_OK;
    file->by_name = malloc((size_t)file->count * sizeof *file->by_name);
    heed_file_tensor **sorted = malloc((size_t)file->count * sizeof(heed_file_tensor *));
    heed_status status = HEED_OK;
    if (!file->by_name || !sorted) {
        free(sorted);
        return heed_fail(HEED_NO_MEMORY, "%s: no memory for its header", file->path);
    }
    for (int i = 0; i < file->count; i++)
        sorted[i] = &file->tensor[i];
    qsort(sorted, (size_t)file->count, sizeof *sorted, compare_name);
    for (int i = 0; i < file->count; i++) {
        if (i > 0 && !status && !strcmp(sorted[i - 1]->name, sorted[i]->name))
            status = bad_tensor(file, sorted[i]->name, "the header has two entries of this name");
        file->by_name[i] = (int)(sorted[i] - file->tensor);
    }
    free(sorted);
    return status;
}

static heed_status check_metadata(const heed_safetensors *file, const cJSON *metadata)
{
    const cJSON *item;
    if (!cJSON_IsObject(metadata))
        return heed_fail(HEED_FORMAT, "%s: its __metadata__ is no object", file->path);
    cJSON_ArrayForEach(item, metadata)
    {
        if (!cJSON_IsString(item))
            return heed_fail(HEED_FORMAT, "%s: its __metadata__ holds something else than text", file->path);
    }
    return HEED_OK;
}

static heed_status read_entries(heed_safetensors *file, const cJSON *root)
{
    const cJSON *item;
    heed_status status = HEED_OK;
    const int most = cJSON_GetArraySize(root);
    file->tensor = calloc((size_t)most + 1, sizeof *file->tensor);
    if (!file->tensor)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory for its header", file->path);
    cJSON_ArrayForEach(item, root)
    {
        if (!strcmp(item->string, "__metadata__"))
            status = check_metadata(file, item);
        else
            status = read_entry(file, item, &file->tensor[file->count++]);
        if (status)
            return status;
    }
    return HEED_OK;
}

heed_status heed_safetensors_header(heed_safetensors *file, const char *header, size_t size)
{
    const char *end = NULL;
    if (memchr(header, 0, size) || !heed_utf8_valid(header, size))
        return heed_fail(HEED_FORMAT, "%s: its header is not UTF-8 text", file->path);
    if (strstr(header, "\\u0000"))
        return heed_fail(HEED_FORMAT, "%s: its header holds a zero character", file->path);
    cJSON *root = cJSON_ParseWithLengthOpts(header, size, &end, 0);
    if (!root)
        return heed_fail(HEED_FORMAT, "%s: its header is not valid JSON at byte %lld", file->path,
                         end ? (long long)(end - header) + 8 : 8LL);
    heed_status status = HEED_OK;
    for (; end < header + size; end++)
        if (*end != ' ')
            status = heed_fail(HEED_FORMAT, "%s: its header goes on after the JSON object", file->path);
    if (!status && !cJSON_IsObject(root))
        status = heed_fail(HEED_FORMAT, "%s: its header is no JSON object", file->path);
    if (!status)
        status = read_entries(file, root);
    cJSON_Delete(root);
    if (!status)
        status = check_layout(file);
    return status ? status : sort_names(file);
}
