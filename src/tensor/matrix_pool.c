/* Memory for packed weights in large pages. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* madvise */
#endif
#include "base/arena.h"
#include "tensor/matrix.h"
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE ((size_t)2 << 20)
#define CHUNK (8 * PAGE)

/* Chunks hang together in a list; the first is the one with room. */
typedef struct pool_chunk {
    struct pool_chunk *next;
    char *memory;
    size_t size, used;
} pool_chunk;

struct heed_matrix_pool {
    pool_chunk *first;
    heed_weights_taken *taken;
    void *context;
};

/* At a multiple of `align`, in large pages where there is enough of it. Not touched, so that it takes no room
 * yet. */
static void *allocate(size_t bytes, size_t align)
{
    if (bytes > SIZE_MAX - align)
        return NULL;
    const size_t padded = (bytes + align - 1) / align * align;
    void *memory = aligned_alloc(align, padded);
#ifdef MADV_HUGEPAGE
    if (memory && align == PAGE)
        (void)madvise(memory, padded, MADV_HUGEPAGE);
#endif
    return memory;
}

heed_status heed_matrix_pool_create(heed_matrix_pool **pool, heed_weights_taken *taken, void *context)
{
    *pool = calloc(1, sizeof **pool);
    if (!*pool)
        return heed_fail(HEED_NO_MEMORY, "no memory for a pool of weights");
    (*pool)->taken = taken;
    (*pool)->context = context;
    return HEED_OK;
}

void heed_matrix_pool_tell(const heed_matrix_pool *pool, const void *data, size_t bytes)
{
    if (pool && pool->taken)
        pool->taken(pool->context, data, bytes);
}

void heed_matrix_pool_free(heed_matrix_pool *pool)
{
    for (pool_chunk *chunk = pool ? pool->first : NULL, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk->memory);
        free(chunk);
    }
    free(pool);
}

static pool_chunk *add_chunk(heed_matrix_pool *pool, size_t bytes)
{
    pool_chunk *chunk = malloc(sizeof *chunk);
    const size_t size = bytes > CHUNK ? (bytes + PAGE - 1) / PAGE * PAGE : CHUNK;
    char *memory = chunk ? allocate(size, PAGE) : NULL;
    if (!memory) {
        free(chunk);
        return NULL;
    }
    *chunk = (pool_chunk){.memory = memory, .size = size};
    /* the chunk with more room left stays in front */
    pool_chunk *first = pool->first;
    if (first && first->size - first->used > size - bytes) {
        chunk->next = first->next;
        first->next = chunk;
    } else {
        chunk->next = first;
        pool->first = chunk;
    }
    return chunk;
}

void *heed_matrix_pool_take(heed_matrix_pool *pool, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    const size_t padded = (bytes + HEED_ALIGNMENT - 1) / HEED_ALIGNMENT * HEED_ALIGNMENT;
    if (!pool)
        return allocate(padded, padded >= 2 * PAGE ? PAGE : HEED_ALIGNMENT);
    pool_chunk *chunk = pool->first;
    if (!chunk || chunk->size - chunk->used < padded)
        chunk = add_chunk(pool, padded);
    if (!chunk)
        return NULL;
    void *memory = chunk->memory + chunk->used;
    chunk->used += padded;
    return memory;
}
