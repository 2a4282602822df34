#include "base/output.h"
#include "base/try.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18 };

static heed_status failed(const heed_output *output, int error)
{
    if (error == EFAULT) /* the system itself met a page that is no longer there */
        return heed_fail(HEED_IO, "%s: a file became shorter while it was being copied from", output->path);
    return heed_fail(HEED_IO, "%s: cannot be written: %s", output->path, strerror(error));
}

/* Creates a file that nobody else has, beside `path`. */
static heed_status create_beside(heed_output *output, const char *path)
{
    const size_t size = strlen(path) + 64;
    output->temporary = malloc(size);
    if (!output->temporary)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory to write it", output->path);
    for (int attempt = 0; attempt < 100 && output->descriptor < 0; attempt++) {
        snprintf(output->temporary, size, "%s.%ld-%d.part", path, (long)getpid(), attempt);
        output->descriptor = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (output->descriptor < 0 && errno != EEXIST)
            break;
    }
    return output->descriptor < 0 ? failed(output, errno) : HEED_OK;
}

static heed_status open_descriptor(heed_output *output)
{
    struct stat info;
    const bool exists = stat(output->path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        return heed_fail(HEED_IO, "%s: cannot be written: it is a directory", output->path);
    if (exists && !S_ISREG(info.st_mode)) {
        output->descriptor = open(output->path, O_WRONLY | O_CLOEXEC);
        return output->descriptor < 0 ? failed(output, errno) : HEED_OK;
    }
    output->real = exists ? realpath(output->path, NULL) : NULL;
    return create_beside(output, output->real ? output->real : output->path);
}

static void release(heed_output *output)
{
    free(output->real);
    free(output->temporary);
    free(output->buffer);
    *output = (heed_output){.descriptor = -1};
}

heed_status heed_output_open(heed_output *output, const char *path)
{
    *output = (heed_output){.path = path, .descriptor = -1, .buffer = malloc(BUFFER_BYTES)};
    heed_status status = output->buffer ? open_descriptor(output)
                                        : heed_fail(HEED_NO_MEMORY, "%s: no memory to write it", path);
    if (status)
        release(output);
    return status;
}

static heed_status write_all(heed_output *output, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        const ssize_t put = write(output->descriptor, at, bytes < (1u << 30) ? bytes : 1u << 30);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return failed(output, put < 0 ? errno : ENOSPC);
        at += put;
        bytes -= (size_t)put;
    }
    return HEED_OK;
}

static heed_status flush(heed_output *output)
{
    const size_t bytes = output->buffered;
    output->buffered = 0;
    return write_all(output, output->buffer, bytes);
}

heed_status heed_output_write(heed_output *output, const void *data, size_t bytes)
{
    if (bytes == 0)
        return HEED_OK;
    output->written += bytes;
    if (bytes > BUFFER_BYTES - output->buffered)
        TRY(flush(output));
    if (bytes > BUFFER_BYTES)
        return write_all(output, data, bytes);
    memcpy(output->buffer + output->buffered, data, bytes);
    output->buffered += bytes;
    return HEED_OK;
}

heed_status heed_output_pad(heed_output *output, uint64_t alignment)
{
    static const char zeros[64];
    uint64_t left = (alignment - output->written % alignment) % alignment;
    while (left > 0) {
        const size_t part = left < sizeof zeros ? (size_t)left : sizeof zeros;
        TRY(heed_output_write(output, zeros, part));
        left -= part;
    }
    return HEED_OK;
}

/* The folder's own entry reaches the disk too; where a file system cannot do that, the rename stands all the
 * same. */
static void sync_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = 0;
    const int descriptor = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        (void)!fsync(descriptor);
        close(descriptor);
    }
}

heed_status heed_output_close(heed_output *output, heed_status status)
{
    if (output->descriptor < 0)
        return status;
    if (!status)
        status = flush(output);
    if (!status && output->temporary && fsync(output->descriptor) && errno != EINVAL)
        status = failed(output, errno);
    if (close(output->descriptor) && !status)
        status = failed(output, errno);
    if (!status && output->temporary && rename(output->temporary, output->real ? output->real : output->path))
        status = failed(output, errno);
    if (output->temporary) {
        if (status)
            unlink(output->temporary);
        else
            sync_folder(output->temporary); /* lies in the same folder */
    }
    release(output);
    return status;
}
