/* Pages of one size: reserved as address space, taken from the system as they are written, counted while they
 * are shared, and given back when many lie idle; or in a file, in memory as far as a pager lets them. What is
 * small and always looked at, `side_bytes` a page, lies apart and in memory. */
#ifndef HEED_CACHE_POOL_H
#define HEED_CACHE_POOL_H

#include "cache/pager.h"

typedef struct heed_pool {
    size_t page_bytes, side_bytes; /* of a page */
    size_t bytes;                  /* of all address space */
    int64_t pages, used;           /* of all; those that somebody holds */
    int64_t promised;              /* pages that lists may come to hold: shared ones count for each of them */
    char *memory, *side;
    heed_pager *pager; /* NULL: all pages are in memory */
    int32_t *holders;  /* [pages] lists that hold a page; 0: spare */
    int32_t *spare;    /* [pages] pages that were held once, those given back to the system first */
    int64_t spares, returned;
    int64_t fresh; /* pages from here on were never held */
} heed_pool;

/* Where pages of a pool go beyond those in memory. */
typedef struct heed_pool_offload {
    const char *folder;   /* must outlive the pool */
    int64_t most, recent; /* as heed_pager has them */
} heed_pool_offload;

/* `page_bytes` and `side_bytes` each, multiples of the alignment of heed_allocate; `offload` may be NULL.
 * HEED_NO_MEMORY when the address space is not to be had, or as heed_pager_open. */
heed_status heed_pool_create(heed_pool *pool, size_t page_bytes, size_t side_bytes, int64_t pages,
                             const heed_pool_offload *offload);
void heed_pool_free(heed_pool *pool);

/* Lists will hold `count` pages more than they do (a shared page counts for each): there must be place for
 * them. HEED_IO, with nothing changed, where a disk is full. Given back with a negative number. */
heed_status heed_pool_promise(heed_pool *pool, int64_t count);

/* A page with one holder, which holds anything. It must have been promised. */
int32_t heed_pool_take(heed_pool *pool);
void heed_pool_hold(heed_pool *pool, int32_t page);
/* One holder less; the last one makes it spare. */
void heed_pool_release(heed_pool *pool, int32_t page);

/* A page that is about to be read or written. */
static inline char *heed_pool_page(const heed_pool *pool, int32_t page)
{
    if (pool->pager)
        heed_pager_touch(pool->pager, page);
    return pool->memory + (size_t)page * pool->page_bytes;
}

static inline char *heed_pool_side(const heed_pool *pool, int32_t page)
{
    return pool->side + (size_t)page * pool->side_bytes;
}

#endif
