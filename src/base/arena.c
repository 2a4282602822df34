#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* count * size rounded up to the alignment; false on overflow. */
static bool padded_product(size_t count, size_t size, size_t *bytes)
{
    size_t product;
    if (__builtin_mul_overflow(count, size, &product) ||
        __builtin_add_overflow(product, (size_t)(HEED_ALIGNMENT - 1), &product))
        return false;
    *bytes = product & ~(size_t)(HEED_ALIGNMENT - 1);
    return true;
}

void *heed_allocate(size_t count, size_t size)
{
    size_t bytes;
    if (!padded_product(count, size, &bytes))
        return NULL;
    void *memory = aligned_alloc(HEED_ALIGNMENT, bytes ? bytes : HEED_ALIGNMENT);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void *heed_arena_take(heed_arena *arena, size_t count, size_t size)
{
    size_t bytes = 0, end = 0;
    if (!padded_product(count, size, &bytes) || __builtin_add_overflow(arena->used, bytes, &end))
        arena->overflow = true;
    if (arena->overflow)
        return NULL;
    void *piece = arena->base ? arena->base + arena->used : NULL;
    arena->used = end;
    return piece;
}
