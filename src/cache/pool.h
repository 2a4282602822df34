/* Pages of one size: reserved as address space, taken from the system as they are written, counted while they
 * are shared, and given back when many lie idle. */
#ifndef HEED_CACHE_POOL_H
#define HEED_CACHE_POOL_H

#include <heed/base.h>

typedef struct heed_pool {
    size_t page_bytes, bytes; /* of a page; of all address space */
    int64_t pages, used;      /* of all; those that somebody holds */
    char *memory;
    int32_t *holders; /* [pages] lists that hold a page; 0: spare */
    int32_t *spare;   /* [pages] pages that were held once, those given back to the system first */
    int64_t spares, returned;
    int64_t fresh; /* pages from here on were never held */
} heed_pool;

/* `page_bytes` each, a multiple of the alignment of heed_allocate. HEED_NO_MEMORY when the address space is
 * not to be had. */
heed_status heed_pool_create(heed_pool *pool, size_t page_bytes, int64_t pages);
void heed_pool_free(heed_pool *pool);

/* A page with one holder, which holds anything. There must be one that nobody holds. */
int32_t heed_pool_take(heed_pool *pool);
void heed_pool_hold(heed_pool *pool, int32_t page);
/* One holder less; the last one makes it spare. */
void heed_pool_release(heed_pool *pool, int32_t page);

static inline char *heed_pool_page(const heed_pool *pool, int32_t page)
{
    return pool->memory + (size_t)page * pool->page_bytes;
}

#endif
