/* Numbers drawn by a hash of a counter: the same on every machine. */
#ifndef HEED_ATTEND_SELECT_DRAW_H
#define HEED_ATTEND_SELECT_DRAW_H

#include <stdint.h>

/* 64 bits; splitmix64. */
static inline uint64_t heed_draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Even in [0, 1). */
static inline double heed_draw_unit(uint64_t *state)
{
    return (double)(heed_draw(state) >> 11) * 0x1p-53;
}

/* Sums of four even numbers, nearly normal. */
static inline void heed_draw_normal(uint64_t *state, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (float)(heed_draw(state) >> 40) * 0x1p-24f - 0.5f;
        to[i] = sum;
    }
}

#endif
