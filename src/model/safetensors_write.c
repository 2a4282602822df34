/* Writing a safetensors file so that it appears whole or not at all. */
#include "model/safetensors.h"

#include "base/output.h"
#include "base/try.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const file_types[HEED_TYPES] = {
    [HEED_F32] = "F32", [HEED_F16] = "F16", [HEED_BF16] = "BF16", [HEED_I32] = "I32", [HEED_U8] = "U8",
    [HEED_F64] = "F64", [HEED_I8] = "I8",   [HEED_I16] = "I16",   [HEED_I64] = "I64"};

static heed_status check_type(const heed_named_tensor *item)
{
    const unsigned type = (unsigned)item->tensor.type;
    if (type < HEED_TYPES && file_types[type])
        return HEED_OK;
    return heed_fail(HEED_INVALID, "tensor %s: type %s has no place in a safetensors file", item->name,
                     type < HEED_TYPES ? heed_type_name((heed_type)type) : "?");
}

/* Adds one tensor's entry; `offset` goes from its first byte to the one after its last. */
static heed_status add_entry(cJSON *root, const heed_named_tensor *item, uint64_t *offset)
{
    const heed_tensor *tensor = &item->tensor;
    size_t bytes;
    if (cJSON_GetObjectItemCaseSensitive(root, item->name))
        return heed_fail(HEED_INVALID, "tensor %s: a file holds each name once", item->name);
    const heed_status status = heed_tensor_bytes(tensor->type, tensor->rank, tensor->shape, &bytes);
    if (status)
        return status;
    cJSON *entry = cJSON_AddObjectToObject(root, item->name), *shape, *offsets;
    cJSON_AddStringToObject(entry, "dtype", file_types[tensor->type]);
    shape = cJSON_AddArrayToObject(entry, "shape");
    for (int i = 0; i < tensor->rank; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[i]));
    offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*offset));
    *offset += bytes;
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*offset));
    return cJSON_GetArraySize(offsets) == 2 ? HEED_OK
                                            : heed_fail(HEED_NO_MEMORY, "no memory for a file's header");
}

/* The header, padded with spaces so that the data begins at a multiple of 8 bytes; the caller frees. Larger
 * elements come first (`order`), so that every tensor lies at a multiple of the size of its elements. */
static heed_status make_header(const heed_named_tensor *tensors, int count, const char *const *metadata,
                               int *order, char **header, size_t *length)
{
    cJSON *root = cJSON_CreateObject();
    heed_status status = root ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a file's header");
    uint64_t offset = 0;
    int next = 0;
    if (metadata && metadata[0]) {
        cJSON *pairs = cJSON_AddObjectToObject(root, "__metadata__");
        for (; metadata[0] && metadata[1]; metadata += 2)
            cJSON_AddStringToObject(pairs, metadata[0], metadata[1]);
    }
    for (int i = 0; i < count && !status; i++)
        status = check_type(&tensors[i]);
    for (int64_t size = 8; size > 0; size /= 2)
        for (int i = 0; i < count && !status; i++)
            if (heed_type_bytes(tensors[i].tensor.type, 1) == size) {
                status = add_entry(root, &tensors[i], &offset);
                order[next++] = i;
            }
    char *text = status ? NULL : cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    if (status)
        return status;
    *length = text ? (strlen(text) + 7) / 8 * 8 : 0;
    *header = text ? malloc(*length + 1) : NULL;
    if (*header)
        snprintf(*header, *length + 1, "%-*s", (int)*length, text);
    free(text);
    return *header ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a file's header");
}

static heed_status write_contents(heed_output *output, const heed_named_tensor *tensors, int count,
                                  const int *order, const char *header, size_t length,
                                  heed_tensor_source source, void *context)
{
    unsigned char start[8];
    for (int i = 0; i < 8; i++)
        start[i] = (unsigned char)((uint64_t)length >> 8 * i);
    TRY(heed_output_write(output, start, sizeof start));
    TRY(heed_output_write(output, header, length));
    for (int i = 0; i < count; i++) {
        const heed_tensor *tensor = &tensors[order[i]].tensor;
        const uint64_t before = output->written;
        size_t bytes = 0;
        TRY(heed_tensor_bytes(tensor->type, tensor->rank, tensor->shape, &bytes));
        if (source)
            TRY(source(context, order[i], output));
        else
            TRY(heed_output_write(output, tensor->data, bytes));
        if (output->written - before != bytes)
            return heed_fail(HEED_INVALID, "tensor %s: %llu bytes were written: its shape takes %zu",
                             tensors[order[i]].name, (unsigned long long)(output->written - before), bytes);
    }
    return HEED_OK;
}

heed_status heed_safetensors_stream(const char *path, const heed_named_tensor *tensors, int count,
                                    const char *const *metadata, heed_tensor_source source, void *context)
{
    char *header = NULL;
    size_t length = 0;
    heed_output output = {.descriptor = -1};
    int *order = malloc(((size_t)count + 1) * sizeof *order);
    if (!order)
        return heed_fail(HEED_NO_MEMORY, "no memory for a file's header");
    heed_status status = make_header(tensors, count, metadata, order, &header, &length);
    if (!status)
        status = heed_output_open(&output, path);
    if (!status)
        status = write_contents(&output, tensors, count, order, header, length, source, context);
    status = heed_output_close(&output, status);
    free(header);
    free(order);
    return status;
}

heed_status heed_safetensors_write(const char *path, const heed_named_tensor *tensors, int count,
                                   const char *const *metadata)
{
    return heed_safetensors_stream(path, tensors, count, metadata, NULL, NULL);
}
