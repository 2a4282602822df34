/* Aligned memory whose sizes are products checked for overflow, and one block carved into many pieces. */
#ifndef HEED_BASE_ARENA_H
#define HEED_BASE_ARENA_H

#include <heed/base.h>

#define HEED_ALIGNMENT 64 /* bytes: a cache line, and the widest vector */

/* count * size bytes, rounded up to whole cache lines, at a multiple of HEED_ALIGNMENT and zeroed; NULL on
 * overflow or when memory is short. Freed with free(). */
void *heed_allocate(size_t count, size_t size);

/* Pieces of one block. With base == NULL nothing is carved and only `used` grows: run the same calls twice,
 * first to measure and then, in heed_allocate(1, used) bytes, to carve. */
typedef struct heed_arena {
    char *base;
    size_t used;
    bool overflow; /* sizes multiplied or added up to more than size_t holds; `used` means nothing then */
} heed_arena;

/* The next count * size bytes, aligned; NULL while measuring or after an overflow. */
void *heed_arena_take(heed_arena *arena, size_t count, size_t size);

#endif
