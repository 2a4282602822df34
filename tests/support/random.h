/* Random numbers that are the same everywhere. */
#ifndef HEED_TEST_RANDOM_H
#define HEED_TEST_RANDOM_H

#include <math.h>
#include <stdint.h>

typedef struct test_random {
    uint64_t state;
} test_random;

static inline uint64_t random_bits(test_random *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* In [0, 1). */
static inline double random_uniform(test_random *r)
{
    return (double)(random_bits(r) >> 11) * 0x1p-53;
}

/* A whole number from low to high, both included. */
static inline int64_t random_whole(test_random *r, int64_t low, int64_t high)
{
    return low + (int64_t)(random_bits(r) % (uint64_t)(high - low + 1));
}

/* Of mean 0 and variance 1. */
static inline double random_normal(test_random *r)
{
    const double u = 1 - random_uniform(r), angle = 6.283185307179586 * random_uniform(r);
    return sqrt(-2 * log(u)) * cos(angle);
}

#endif
