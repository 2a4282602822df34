/* Vectors of floats, as wide as the instruction set of this build. Plain operators work on them (GNU vector extensions). */
#ifndef HEED_KERNELS_VECTOR_H
#define HEED_KERNELS_VECTOR_H

#include <stdint.h>

#if defined(__AVX512F__)
#define HEED_WIDTH 16
#define HEED_STRIP 8
#elif defined(__AVX2__)
#define HEED_WIDTH 8
#define HEED_STRIP 6 /* 12 sums in 16 registers */
#elif defined(__aarch64__)
#define HEED_WIDTH 4
#define HEED_STRIP 8
#else
#define HEED_WIDTH 4
#define HEED_STRIP 4
#endif

typedef float heed_vec __attribute__((vector_size(HEED_WIDTH * 4), may_alias));
typedef float heed_vec_any __attribute__((vector_size(HEED_WIDTH * 4), aligned(4), may_alias));
typedef int32_t heed_ivec __attribute__((vector_size(HEED_WIDTH * 4), may_alias));

static inline heed_vec heed_vec_load(const float *x)
{
    return *(const heed_vec_any *)x;
}

static inline void heed_vec_store(float *x, heed_vec v)
{
    *(heed_vec_any *)x = v;
}

/* Lanes of a and b by index: 0.. in a, HEED_WIDTH.. in b. */
static inline heed_vec heed_vec_shuffle(heed_vec a, heed_vec b, heed_ivec lanes)
{
#if defined(__clang__)
    heed_vec to;
    for (int i = 0; i < HEED_WIDTH; i++)
        to[i] = lanes[i] < HEED_WIDTH ? a[lanes[i]] : b[lanes[i] - HEED_WIDTH];
    return to;
#else
    return __builtin_shuffle(a, b, lanes);
#endif
}

#endif
