#include "cache/pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Spare memory is given back when it is more than this and more than what is held. */
enum { IDLE_BYTES = 8 << 20 };

/* Address space; the system gives memory page by page as it is touched, filled with zeros. */
static void *reserve(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void unreserve(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

static heed_status make_memory(heed_pool *pool, const heed_pool_offload *offload)
{
    if (!offload) {
        pool->memory = reserve(pool->bytes);
        return HEED_OK;
    }
    pool->pager = malloc(sizeof *pool->pager);
    if (!pool->pager)
        return heed_fail(HEED_NO_MEMORY, "no memory for a cache in a file");
    const heed_status status = heed_pager_open(pool->pager, offload->folder, pool->page_bytes, pool->pages,
                                               offload->most, offload->recent);
    if (status) {
        free(pool->pager);
        pool->pager = NULL;
        return status;
    }
    pool->memory = pool->pager->memory;
    return HEED_OK;
}

heed_status heed_pool_create(heed_pool *pool, size_t page_bytes, size_t side_bytes, int64_t pages,
                             const heed_pool_offload *offload)
{
    *pool = (heed_pool){.page_bytes = page_bytes, .side_bytes = side_bytes, .pages = pages};
    if (pages < 1 || pages > INT32_MAX || __builtin_mul_overflow(page_bytes, (size_t)pages, &pool->bytes) ||
        pool->bytes > SIZE_MAX / 4 || side_bytes > SIZE_MAX / 4 / (size_t)pages)
        return heed_fail(HEED_NO_MEMORY, "no memory for a cache of %lld pages of %zu bytes", (long long)pages,
                         page_bytes);
    const heed_status status = make_memory(pool, offload);
    if (status)
        return status;
    pool->holders = reserve((size_t)pages * sizeof *pool->holders);
    pool->spare = reserve((size_t)pages * sizeof *pool->spare);
    pool->side = side_bytes ? reserve((size_t)pages * side_bytes) : NULL;
    if (!pool->memory || !pool->holders || !pool->spare || (side_bytes && !pool->side)) {
        heed_pool_free(pool);
        return heed_fail(HEED_NO_MEMORY, "no memory for a cache of %lld pages of %zu bytes", (long long)pages,
                         page_bytes);
    }
#ifdef MADV_HUGEPAGE
    if (!pool->pager)
        madvise(pool->memory, pool->bytes, MADV_HUGEPAGE);
#endif
    return HEED_OK;
}

void heed_pool_free(heed_pool *pool)
{
    if (pool->pager)
        heed_pager_close(pool->pager);
    else
        unreserve(pool->memory, pool->bytes);
    free(pool->pager);
    unreserve(pool->side, (size_t)pool->pages * pool->side_bytes);
    unreserve(pool->holders, (size_t)pool->pages * sizeof *pool->holders);
    unreserve(pool->spare, (size_t)pool->pages * sizeof *pool->spare);
    *pool = (heed_pool){.pages = 0};
}

heed_status heed_pool_promise(heed_pool *pool, int64_t count)
{
    if (pool->pager && count > 0) {
        const heed_status status = heed_pager_back(pool->pager, pool->promised + count);
        if (status)
            return status;
    }
    pool->promised += count;
    return HEED_OK;
}

int32_t heed_pool_take(heed_pool *pool)
{
    const int32_t page = pool->spares > 0 ? pool->spare[--pool->spares] : (int32_t)pool->fresh++;
    if (pool->returned > pool->spares)
        pool->returned = pool->spares;
    pool->holders[page] = 1;
    pool->used++;
    return page;
}

void heed_pool_hold(heed_pool *pool, int32_t page)
{
    pool->holders[page]++;
}

/* Memory goes back to the system, as far as it fills whole pages of the system's. */
static void give_back_bytes(char *memory, size_t bytes)
{
    const uintptr_t unit = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)memory;
    const uintptr_t first = (from + unit - 1) / unit * unit, end = (from + bytes) / unit * unit;
    if (first < end)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

/* That of spare pages; a pager takes its own out when it needs room. */
static void give_back(heed_pool *pool)
{
    for (int64_t i = pool->returned; i < pool->spares; i++) {
        if (!pool->pager)
            give_back_bytes(heed_pool_page(pool, pool->spare[i]), pool->page_bytes);
        if (pool->side)
            give_back_bytes(heed_pool_side(pool, pool->spare[i]), pool->side_bytes);
    }
    pool->returned = pool->spares;
}

void heed_pool_release(heed_pool *pool, int32_t page)
{
    if (--pool->holders[page] > 0)
        return;
    pool->spare[pool->spares++] = page;
    pool->used--;
    const int64_t idle = pool->spares - pool->returned;
    if (idle > pool->used && (size_t)idle > IDLE_BYTES / pool->page_bytes)
        give_back(pool);
}
