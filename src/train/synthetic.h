/* Tasks whose sequences are made up, with answers that are right by construction: what the field compares
 * forms of attention with. A family a file in synthetic/, a task a line in its table.
 *
 * A sequence is `context` tokens and as many targets: the token that is right at a place, -1 where none is
 * asked for. Sequence `which` of a seed is always the same.
 */
#ifndef HEED_TRAIN_TASK_H
#define HEED_TRAIN_TASK_H

#include "base/philox.h"

#include <heed/base.h>
#include <math.h>

enum { HEED_SYNTHETIC_ARGS = 4 };

typedef struct heed_synthetic_arg {
    const char *name, *summary;
    int64_t usual, least, most;
} heed_synthetic_arg;

/* Random numbers of one sequence. */
typedef struct heed_draw {
    uint64_t seed, which, place;
} heed_draw;

typedef struct heed_synthetic heed_synthetic;
struct heed_synthetic {
    const char *name, *summary;
    heed_synthetic_arg arg[HEED_SYNTHETIC_ARGS];
    double ceiling; /* share of targets that can be known */
    int64_t (*vocabulary)(const int64_t *arg);
    int64_t (*length)(const int64_t *arg);
    void (*make)(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target);
    /* Which part of the sequence a place is of, for `where=segments` and the like; NULL: all are of one. */
    int32_t (*part)(const int64_t *arg, int64_t place);
    const char *(*wrong)(const int64_t *arg); /* why arguments do not go together; NULL: they do */
    int64_t (*yes)(const int64_t *arg); /* of answers that are no or yes: the token of yes; NULL: of others */
};

/* NULL beyond the last. */
const heed_synthetic *heed_synthetic_at(int i);

/* A whole number from 0 to below - 1. */
static inline int64_t heed_draw_below(heed_draw *draw, int64_t below)
{
    uint32_t bits[4];
    heed_philox_at(draw->seed, draw->which, draw->place++, bits);
    return (int64_t)(((uint64_t)bits[1] << 32 | bits[0]) % (uint64_t)below);
}

/* A number of the normal distribution, by its place (Box and Muller). */
static inline float heed_normal_at(uint64_t seed, uint64_t stream, uint64_t place)
{
    uint32_t bits[4];
    heed_philox_at(seed, stream, place, bits);
    const double u = ((double)bits[0] + 0.5) * 0x1p-32, angle = (double)bits[1] * 0x1p-32 * 6.283185307179586;
    return (float)(sqrt(-2.0 * log(u)) * cos(angle));
}

/* `count` different numbers below `below`, in random order: each number of the first `count` places of a
 * shuffled list. `list` has room for `below`. */
static inline void heed_draw_different(heed_draw *draw, int64_t below, int64_t count, int32_t *list)
{
    for (int64_t i = 0; i < below; i++)
        list[i] = (int32_t)i;
    for (int64_t i = 0; i < count; i++) {
        const int64_t j = i + heed_draw_below(draw, below - i);
        const int32_t swap = list[i];
        list[i] = list[j];
        list[j] = swap;
    }
}

enum { HEED_SYNTHETIC_SYMBOLS = 4096 }; /* at most, of a task that draws different ones */

#endif
