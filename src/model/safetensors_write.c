/* Writing a safetensors file so that it appears whole or not at all. */
#include "model/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const file_types[HEED_TYPES] = {
    [HEED_F32] = "F32", [HEED_F16] = "F16", [HEED_BF16] = "BF16", [HEED_I32] = "I32", [HEED_U8] = "U8"};

static heed_status write_all(int descriptor, const char *path, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        const ssize_t put = write(descriptor, at, bytes < (1u << 30) ? bytes : 1u << 30);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return heed_fail(HEED_IO, "%s: cannot be written: %s", path, strerror(put < 0 ? errno : ENOSPC));
        at += put;
        bytes -= (size_t)put;
    }
    return HEED_OK;
}

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
    for (int64_t size = 4; size > 0; size /= 2)
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

static heed_status write_contents(int descriptor, const char *path, const heed_named_tensor *tensors,
                                  int count, const int *order, const char *header, size_t length)
{
    unsigned char start[8];
    for (int i = 0; i < 8; i++)
        start[i] = (unsigned char)((uint64_t)length >> 8 * i);
    heed_status status = write_all(descriptor, path, start, sizeof start);
    if (!status)
        status = write_all(descriptor, path, header, length);
    for (int i = 0; i < count && !status; i++) {
        const heed_tensor *tensor = &tensors[order[i]].tensor;
        size_t bytes = 0;
        status = heed_tensor_bytes(tensor->type, tensor->rank, tensor->shape, &bytes);
        if (!status)
            status = write_all(descriptor, path, tensor->data, bytes);
    }
    return status;
}

/* Creates a file that nobody else has, beside `path`. */
static int create_beside(const char *path, char *temporary, size_t size)
{
    int descriptor = -1;
    for (int attempt = 0; attempt < 100 && descriptor < 0; attempt++) {
        snprintf(temporary, size, "%s.%ld-%d.part", path, (long)getpid(), attempt);
        descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor < 0 && errno != EEXIST)
            break;
    }
    return descriptor;
}

/* The folder's own entry reaches the disk too; where a file system cannot do that, the rename stands all the
 * same. */
static void sync_folder(const char *path)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    const int descriptor = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        (void)!fsync(descriptor);
        close(descriptor);
    }
}

/* A device or a pipe cannot be replaced, so it is written to. */
static heed_status write_through(const char *path, const heed_named_tensor *tensors, int count,
                                 const int *order, const char *header, size_t length)
{
    const int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0)
        return heed_fail(HEED_IO, "%s: cannot be written: %s", path, strerror(errno));
    heed_status status = write_contents(descriptor, path, tensors, count, order, header, length);
    if (close(descriptor) && !status)
        status = heed_fail(HEED_IO, "%s: cannot be written: %s", path, strerror(errno));
    return status;
}

static heed_status write_and_rename(const char *path, const heed_named_tensor *tensors, int count,
                                    const int *order, const char *header, size_t length)
{
    char temporary[4096 + 64];
    const int descriptor = create_beside(path, temporary, sizeof temporary);
    if (descriptor < 0)
        return heed_fail(HEED_IO, "%s: cannot be written: %s", path, strerror(errno));
    heed_status status = write_contents(descriptor, path, tensors, count, order, header, length);
    if (!status && fsync(descriptor) && errno != EINVAL)
        status = heed_fail(HEED_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (close(descriptor) && !status)
        status = heed_fail(HEED_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (!status && rename(temporary, path))
        status = heed_fail(HEED_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (status)
        unlink(temporary);
    else
        sync_folder(path);
    return status;
}

static heed_status write_to(const char *path, const heed_named_tensor *tensors, int count, const int *order,
                            const char *header, size_t length)
{
    struct stat info;
    const bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        return heed_fail(HEED_IO, "%s: cannot be written: it is a directory", path);
    if (exists && !S_ISREG(info.st_mode))
        return write_through(path, tensors, count, order, header, length);
    /* Through symbolic links, so that what they point at is replaced and not the link. */
    char *real = exists ? realpath(path, NULL) : NULL;
    if (strlen(real ? real : path) >= 4096) {
        free(real);
        return heed_fail(HEED_IO, "the output path is longer than 4095 bytes");
    }
    const heed_status status = write_and_rename(real ? real : path, tensors, count, order, header, length);
    free(real);
    return status;
}

heed_status heed_safetensors_write(const char *path, const heed_named_tensor *tensors, int count,
                                   const char *const *metadata)
{
    char *header = NULL;
    size_t length = 0;
    int *order = malloc(((size_t)count + 1) * sizeof *order);
    if (!order)
        return heed_fail(HEED_NO_MEMORY, "no memory for a file's header");
    heed_status status = make_header(tensors, count, metadata, order, &header, &length);
    if (!status)
        status = write_to(path, tensors, count, order, header, length);
    free(header);
    free(order);
    return status;
}
