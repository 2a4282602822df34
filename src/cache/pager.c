#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sync_file_range, O_TMPFILE */
#endif
#include "cache/pager.h"
#include "base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif

enum {
    STEP_BYTES = 64 << 20, /* the file grows by so much at a time */
    AT_ONCE = 16,          /* pages that leave at a time */
};

int64_t heed_pager_least(int64_t recent)
{
    return 2 * recent + 8;
}

/* A file system in memory would give nothing back. */
static bool lies_in_memory(int file)
{
#ifdef __linux__
    enum { TMPFS = 0x01021994, RAMFS = (int)0x858458f6 };
    struct statfs system;
    if (fstatfs(file, &system) == 0)
        return (int)system.f_type == TMPFS || (int)system.f_type == RAMFS;
#endif
    (void)file;
    return false;
}

static int nameless_file(const char *folder)
{
#ifdef O_TMPFILE
    const int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return file;
#endif
    char *path = malloc(strlen(folder) + sizeof "/heed_pages_XXXXXX");
    if (!path)
        return -1;
    sprintf(path, "%s/heed_pages_XXXXXX", folder);
    const int named = mkstemp(path);
    if (named >= 0)
        unlink(path);
    free(path);
    return named;
}

static heed_status open_file(heed_pager *pager)
{
    pager->file = nameless_file(pager->folder);
    if (pager->file < 0)
        return heed_fail(HEED_IO, "%s: no file for pages of the cache can be made there: %s", pager->folder,
                         strerror(errno));
    if (lies_in_memory(pager->file))
        return heed_fail(
            HEED_INVALID,
            "%s lies in memory, so pages of the cache would gain nothing there: name a folder on "
            "a disk",
            pager->folder);
    return HEED_OK;
}

static heed_status map_file(heed_pager *pager)
{
    const size_t bytes = (size_t)pager->pages * pager->page_bytes, pages = (size_t)pager->pages;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pager->file, 0);
    if (memory == MAP_FAILED)
        return heed_fail(HEED_NO_MEMORY, "no address space for %zu bytes of cache in %s", bytes,
                         pager->folder);
    pager->memory = memory;
    madvise(memory, bytes, MADV_RANDOM); /* the pager says what will be read */
    pager->listed = malloc(pages * sizeof *pager->listed);
    pager->at = malloc(pages * sizeof *pager->at);
    pager->touched = calloc(pages, sizeof *pager->touched);
    if (!pager->listed || !pager->at || !pager->touched)
        return heed_fail(HEED_NO_MEMORY, "no memory for the table of %zu pages", pages);
    memset(pager->at, 0xff, pages * sizeof *pager->at);
    return HEED_OK;
}

heed_status heed_pager_open(heed_pager *pager, const char *folder, size_t page_bytes, int64_t pages,
                            int64_t most, int64_t recent)
{
    *pager = (heed_pager){.page_bytes = page_bytes,
                          .pages = pages,
                          .most = most,
                          .recent = recent,
                          .file = -1,
                          .folder = folder,
                          .dice = 0x9E3779B97F4A7C15u};
    pthread_mutex_init(&pager->lock, NULL);
    heed_status status = open_file(pager);
    status = status ? status : map_file(pager);
    if (status)
        heed_pager_close(pager);
    return status;
}

void heed_pager_close(heed_pager *pager)
{
    if (pager->memory)
        munmap(pager->memory, (size_t)pager->pages * pager->page_bytes);
    if (pager->file >= 0)
        close(pager->file);
    free(pager->listed);
    free(pager->at);
    free(pager->touched);
    pthread_mutex_destroy(&pager->lock);
    *pager = (heed_pager){.file = -1};
}

/* The system would end the process whose file grows beyond its limit. */
static bool is_allowed(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

heed_status heed_pager_back(heed_pager *pager, int64_t pages)
{
    if (pages <= pager->backed)
        return HEED_OK;
    const int64_t step = STEP_BYTES / (int64_t)pager->page_bytes + 1;
    const int64_t wanted[] = {pages > pager->pages - step ? pager->pages : pages + step, pages};
    int error = 0;
    for (int i = 0; i < 2; i++) { /* as much as goes ahead of use; where that is too much, what is needed */
        const uint64_t from = (uint64_t)pager->backed * pager->page_bytes,
                       to = (uint64_t)wanted[i] * pager->page_bytes;
        error = is_allowed(to) ? posix_fallocate(pager->file, (off_t)from, (off_t)(to - from)) : EFBIG;
        if (!error) {
            pager->backed = wanted[i];
            return HEED_OK;
        }
    }
    return heed_fail(HEED_IO, "%s: no space for %.1f MB of cache pages: %s", pager->folder,
                     (double)pages * (double)pager->page_bytes * 1e-6, strerror(error));
}

static char *address(const heed_pager *pager, int32_t page)
{
    return pager->memory + (size_t)page * pager->page_bytes;
}

static void write_out(const heed_pager *pager, int32_t page, bool wait)
{
#ifdef __linux__
    const off_t from = (off_t)page * (off_t)pager->page_bytes;
    sync_file_range(pager->file, from, (off_t)pager->page_bytes,
                    wait ? SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
                         : SYNC_FILE_RANGE_WRITE);
#else
    msync(address(pager, page), pager->page_bytes, wait ? MS_SYNC : MS_ASYNC);
#endif
}

/* Out of this process, onto the disk, and out of the system's own cache. */
static void take_out(const heed_pager *pager, const int32_t *page, int count)
{
    for (int i = 0; i < count; i++) {
        madvise(address(pager, page[i]), pager->page_bytes, MADV_DONTNEED);
        write_out(pager, page[i], false);
    }
    for (int i = 0; i < count; i++) {
        write_out(pager, page[i], true);
        posix_fadvise(pager->file, (off_t)page[i] * (off_t)pager->page_bytes, (off_t)pager->page_bytes,
                      POSIX_FADV_DONTNEED);
    }
}

static uint64_t throw_dice(heed_pager *pager)
{
    pager->dice ^= pager->dice << 13;
    pager->dice ^= pager->dice >> 7;
    pager->dice ^= pager->dice << 17;
    return pager->dice;
}

/* Of two pages by chance the one touched longer ago: what is read again and again stays, and of a sweep over
 * more than fits a part does. -1 where all were touched just now. */
static int32_t choose_one(heed_pager *pager)
{
    for (int tries = 0; tries < 8; tries++) {
        const int32_t a = pager->listed[throw_dice(pager) % (uint64_t)pager->resident],
                      b = pager->listed[throw_dice(pager) % (uint64_t)pager->resident];
        const int32_t older = pager->touched[a] < pager->touched[b] ? a : b;
        if (pager->touched[older] + (uint64_t)pager->recent < pager->clock)
            return older;
    }
    return -1;
}

static void unlist(heed_pager *pager, int32_t page)
{
    const int32_t last = pager->listed[--pager->resident];
    pager->listed[pager->at[page]] = last;
    pager->at[last] = pager->at[page];
    pager->at[page] = -1;
}

void heed_pager_touch(heed_pager *pager, int32_t page)
{
    int32_t leaving[AT_ONCE];
    int leave = 0;
    pthread_mutex_lock(&pager->lock);
    const bool comes = pager->at[page] < 0;
    if (comes || pager->touched[page] != pager->clock)
        pager->touched[page] = ++pager->clock;
    if (comes) {
        pager->listed[pager->resident] = page;
        pager->at[page] = (int32_t)pager->resident++;
        const int together = pager->most < 8 * AT_ONCE ? (int)(pager->most / 8) + 1 : AT_ONCE;
        const bool full = pager->resident > pager->most;
        for (int32_t one; full && leave < together && (one = choose_one(pager)) >= 0; leave++) {
            unlist(pager, one);
            leaving[leave] = one;
        }
        pager->fetched++;
    }
    pthread_mutex_unlock(&pager->lock);
    take_out(pager, leaving, leave);
    if (comes)
        madvise(address(pager, page), pager->page_bytes, MADV_WILLNEED);
}

void heed_pager_filled(heed_pager *pager, int32_t page)
{
    write_out(pager, page, false);
}
