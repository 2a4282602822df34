#include "model/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned char nothing;

static heed_status map_descriptor(heed_mapping *mapping, int descriptor, const char *shown)
{
    struct stat info;
    if (fstat(descriptor, &info))
        return heed_fail(HEED_IO, "%s: cannot be read: %s", shown, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return heed_fail(HEED_FORMAT, "%s: not a model file: it is a directory", shown);
    if (!S_ISREG(info.st_mode))
        return heed_fail(HEED_FORMAT,
                         "%s: not a model file: it is a device or a pipe, whose size is not known", shown);
    if ((uint64_t)info.st_size > SIZE_MAX)
        return heed_fail(HEED_NO_MEMORY, "%s: %lld bytes are more than this machine can map", shown,
                         (long long)info.st_size);
    *mapping = (heed_mapping){&nothing, (uint64_t)info.st_size};
    if (info.st_size == 0)
        return HEED_OK;
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED)
        return heed_fail(errno == ENOMEM ? HEED_NO_MEMORY : HEED_IO, "%s: cannot be mapped: %s", shown,
                         strerror(errno));
    mapping->data = data;
    return HEED_OK;
}

heed_status heed_map(heed_mapping *mapping, const char *path, const char *shown)
{
    *mapping = (heed_mapping){&nothing, 0};
    /* O_NONBLOCK: never waits for the other end of a pipe */
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return heed_fail(HEED_IO, "%s: cannot be opened: %s", shown, strerror(errno));
    const heed_status status = map_descriptor(mapping, descriptor, shown);
    close(descriptor);
    return status;
}

void heed_unmap(heed_mapping *mapping)
{
    if (mapping->data && mapping->data != &nothing)
        munmap((void *)(uintptr_t)mapping->data, (size_t)mapping->size);
    *mapping = (heed_mapping){0};
}
