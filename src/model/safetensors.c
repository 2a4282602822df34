/* Opening, finding and reading; safetensors_header.c checks the header. */
#include "model/looks_like.h"
#include "model/safetensors_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_HEADER_BYTES 100000000u /* the format's own limit */

/* Reads `bytes` from `offset` of the file. */
static heed_status read_at(const heed_safetensors *file, uint64_t offset, void *to, uint64_t bytes)
{
    if (file->data) {
        memcpy(to, file->data + offset, (size_t)bytes);
        return HEED_OK;
    }
    for (char *at = to; bytes > 0;) {
        const size_t part = bytes < (1u << 30) ? (size_t)bytes : 1u << 30;
        const ssize_t got = pread(file->descriptor, at, part, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return heed_fail(HEED_IO, "%s: cannot be read: %s", file->path, strerror(errno));
        if (got == 0)
            return heed_fail(HEED_IO, "%s: has become shorter while being read", file->path);
        at += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return HEED_OK;
}

/* `file->size` and the source of bytes are set. */
static heed_status read_file(heed_safetensors *file)
{
    unsigned char start[HEED_LOOKS_LIKE_BYTES] = {0};
    const size_t known = file->size < sizeof start ? (size_t)file->size : sizeof start;
    heed_status status = read_at(file, 0, start, known);
    if (status)
        return status;
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | start[i];
    const bool plausible = known > 8 && length >= 2 && start[8] == '{';
    const char *other = plausible ? NULL : heed_looks_like(start, known);
    if (other)
        return heed_fail(HEED_FORMAT, "%s: not a safetensors file: it looks like %s", file->path, other);
    if (file->size < 8)
        return heed_fail(HEED_FORMAT,
                         "%s: not a safetensors file: it has %llu bytes and the header length alone takes 8",
                         file->path, (unsigned long long)file->size);
    if (length > file->size - 8)
        return heed_fail(HEED_FORMAT,
                         "%s: %s: its first 8 bytes announce a header of %llu bytes, but the file has %llu",
                         file->path, plausible ? "truncated" : "not a safetensors file",
                         (unsigned long long)length, (unsigned long long)file->size);
    if (length > MOST_HEADER_BYTES)
        return heed_fail(HEED_FORMAT, "%s: a header of %llu bytes: at most %u", file->path,
                         (unsigned long long)length, MOST_HEADER_BYTES);
    if (!plausible)
        return heed_fail(HEED_FORMAT, "%s: not a safetensors file: its header must be a JSON object",
                         file->path);
    file->data_begin = 8 + length;
    char *header = malloc((size_t)length + 1);
    if (!header)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory for its header of %llu bytes", file->path,
                         (unsigned long long)length);
    header[length] = 0;
    status = read_at(file, 8, header, length);
    if (!status)
        status = heed_safetensors_header(file, header, (size_t)length);
    free(header);
    return status;
}

static heed_safetensors *new_file(const char *path)
{
    heed_safetensors *file = calloc(1, sizeof *file);
    char text[200];
    if (file)
        file->path = strdup(heed_printable(path, text, sizeof text));
    if (file && file->path) {
        file->descriptor = -1;
        return file;
    }
    free(file);
    heed_fail(HEED_NO_MEMORY, "no memory to open a file");
    return NULL;
}

heed_status heed_safetensors_parse(heed_safetensors **file, const void *data, size_t size, const char *name)
{
    static const unsigned char nothing;
    heed_safetensors *made = new_file(name);
    *file = NULL;
    if (!made)
        return HEED_NO_MEMORY;
    made->data = data ? data : &nothing;
    made->size = size;
    const heed_status status = read_file(made);
    if (status)
        heed_safetensors_close(made);
    else
        *file = made;
    return status;
}

static heed_status open_descriptor(heed_safetensors *file, const char *path)
{
    struct stat info;
    file->descriptor =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never waits for the other end of a pipe */
    if (file->descriptor < 0)
        return heed_fail(HEED_IO, "%s: cannot be opened: %s", file->path, strerror(errno));
    if (fstat(file->descriptor, &info))
        return heed_fail(HEED_IO, "%s: cannot be read: %s", file->path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return heed_fail(HEED_FORMAT, "%s: not a safetensors file: it is a directory", file->path);
    if (!S_ISREG(info.st_mode))
        return heed_fail(HEED_FORMAT,
                         "%s: not a safetensors file: it is a device or a pipe, whose size is not known",
                         file->path);
    file->size = (uint64_t)info.st_size;
    return HEED_OK;
}

heed_status heed_safetensors_open(heed_safetensors **file, const char *path)
{
    heed_safetensors *made = new_file(path);
    *file = NULL;
    if (!made)
        return HEED_NO_MEMORY;
    heed_status status = open_descriptor(made, path);
    if (!status)
        status = read_file(made);
    if (status)
        heed_safetensors_close(made);
    else
        *file = made;
    return status;
}

void heed_safetensors_close(heed_safetensors *file)
{
    if (!file)
        return;
    for (int i = 0; i < file->count; i++)
        free(file->tensor[i].name);
    if (file->descriptor >= 0)
        close(file->descriptor);
    free(file->tensor);
    free(file->by_name);
    free(file->path);
    free(file);
}

int heed_safetensors_count(const heed_safetensors *file)
{
    return file->count;
}

const heed_file_tensor *heed_safetensors_tensor(const heed_safetensors *file, int i)
{
    return i >= 0 && i < file->count ? &file->tensor[i] : NULL;
}

const heed_file_tensor *heed_safetensors_find(const heed_safetensors *file, const char *name)
{
    int low = 0, high = file->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const heed_file_tensor *tensor = &file->tensor[file->by_name[middle]];
        const int order = strcmp(name, tensor->name);
        if (order == 0)
            return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

heed_status heed_safetensors_read(const heed_safetensors *file, const heed_file_tensor *tensor, void *to)
{
    return read_at(file, file->data_begin + tensor->begin, to, tensor->bytes);
}
