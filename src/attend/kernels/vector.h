/* Vectors of floats, as wide as the instruction set of this build. Plain operators work on them (GNU vector
 * extensions). */
#ifndef HEED_KERNELS_VECTOR_H
#define HEED_KERNELS_VECTOR_H

#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* A file that defines HEED_NARROW gets vectors of eight floats where the build has sixteen: sixteen halves
 * turn into floats in three times the time that eight take (Zen 4), while sums cost the same. */
#if defined(__AVX512F__)
#if defined(HEED_NARROW)
#define HEED_WIDTH 8
#else
#define HEED_WIDTH 16
#endif
#define HEED_STRIP 8
#define HEED_REGISTERS 32
#elif defined(__AVX2__)
#define HEED_WIDTH 8
#define HEED_STRIP 6 /* 12 sums in 16 registers */
#define HEED_REGISTERS 16
#elif defined(__aarch64__)
#define HEED_WIDTH 4
#define HEED_STRIP 8
#define HEED_REGISTERS 32
#else
#define HEED_WIDTH 4
#define HEED_STRIP 4
#define HEED_REGISTERS 16
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

/* The larger, lane by lane; y where either is NaN. */
static inline heed_vec heed_vec_max(heed_vec x, heed_vec y)
{
#if HEED_WIDTH == 16
    return (heed_vec)_mm512_max_ps((__m512)x, (__m512)y);
#elif HEED_WIDTH == 8
    return (heed_vec)_mm256_max_ps((__m256)x, (__m256)y);
#elif defined(__SSE2__)
    return (heed_vec)_mm_max_ps((__m128)x, (__m128)y);
#else
    const heed_ivec larger = (heed_ivec)(x > y);
    return (heed_vec)(((heed_ivec)x & larger) | ((heed_ivec)y & ~larger));
#endif
}

static inline heed_vec heed_vec_add(heed_vec x, heed_vec y)
{
    return x + y;
}

/* Lists of lanes as constants: f(lane, n) for each lane. */
#if HEED_WIDTH == 16
#define HEED_LANES(f, n)                                                                                     \
    ((heed_ivec){f(0, n), f(1, n), f(2, n), f(3, n), f(4, n), f(5, n), f(6, n), f(7, n), f(8, n), f(9, n),   \
                 f(10, n), f(11, n), f(12, n), f(13, n), f(14, n), f(15, n)})
#elif HEED_WIDTH == 8
#define HEED_LANES(f, n) ((heed_ivec){f(0, n), f(1, n), f(2, n), f(3, n), f(4, n), f(5, n), f(6, n), f(7, n)})
#else
#define HEED_LANES(f, n) ((heed_ivec){f(0, n), f(1, n), f(2, n), f(3, n)})
#endif

/* Four numbers in a vector: number r fills the lanes of the r-th quarter. */
#define HEED_QUARTER (HEED_WIDTH / 4)
#define HEED_LOW_HALVES(i, n) ((i) < HEED_WIDTH / 2 ? (i) : (i) + HEED_WIDTH / 2)
#define HEED_HIGH_HALVES(i, n) (HEED_LOW_HALVES(i, n) + HEED_WIDTH / 2)
#define HEED_EVEN_QUARTERS(i, n) ((i) / HEED_QUARTER * 2 * HEED_QUARTER + (i) % HEED_QUARTER)
#define HEED_ODD_QUARTERS(i, n) (HEED_EVEN_QUARTERS(i, n) + HEED_QUARTER)
#define HEED_APART(i, n) ((i) ^ (n))
#define HEED_QUARTER_OF(i, n) ((i) / HEED_QUARTER)
#define HEED_FIRST_OF(i, n) ((i) % 4 * HEED_QUARTER)
#define HEED_LANE_OF(i, n) ((n)*HEED_QUARTER)

/* Four vectors to four numbers by an operation on lanes: halves exchange places and are folded, then
 * quarters, then what is left of each quarter. */
static inline __attribute__((always_inline)) heed_vec heed_vec_fold(heed_vec (*fold)(heed_vec, heed_vec),
                                                                    const heed_vec x[4])
{
    const heed_ivec low = HEED_LANES(HEED_LOW_HALVES, 0), high = HEED_LANES(HEED_HIGH_HALVES, 0);
    const heed_vec ab = fold(heed_vec_shuffle(x[0], x[1], low), heed_vec_shuffle(x[0], x[1], high));
    const heed_vec cd = fold(heed_vec_shuffle(x[2], x[3], low), heed_vec_shuffle(x[2], x[3], high));
    const heed_ivec even = HEED_LANES(HEED_EVEN_QUARTERS, 0), odd = HEED_LANES(HEED_ODD_QUARTERS, 0);
    heed_vec all = fold(heed_vec_shuffle(ab, cd, even), heed_vec_shuffle(ab, cd, odd));
#if HEED_QUARTER >= 4
    all = fold(all, heed_vec_shuffle(all, all, HEED_LANES(HEED_APART, 2)));
#endif
#if HEED_QUARTER >= 2
    all = fold(all, heed_vec_shuffle(all, all, HEED_LANES(HEED_APART, 1)));
#endif
    return all;
}

typedef float heed_four_floats __attribute__((vector_size(16), aligned(4), may_alias));

/* Four numbers from memory into quarters, and back. */
static inline heed_vec heed_vec_spread(const float from[4])
{
    const heed_four_floats x = *(const heed_four_floats *)from;
#if HEED_WIDTH == 16
    const heed_vec wide = (heed_vec)_mm512_castps128_ps512((__m128)x);
#elif HEED_WIDTH == 8
    const heed_vec wide = (heed_vec)_mm256_castps128_ps256((__m128)x);
#else
    const heed_vec wide = (heed_vec)x;
#endif
    return heed_vec_shuffle(wide, wide, HEED_LANES(HEED_QUARTER_OF, 0));
}

static inline void heed_vec_collect(heed_vec x, float to[4])
{
    const heed_vec first = heed_vec_shuffle(x, x, HEED_LANES(HEED_FIRST_OF, 0));
    *(heed_four_floats *)to = (heed_four_floats){first[0], first[1], first[2], first[3]};
}

/* y where the mask is set, else x. */
static inline heed_vec heed_vec_select(heed_ivec mask, heed_vec y, heed_vec x)
{
    return (heed_vec)(((heed_ivec)y & mask) | ((heed_ivec)x & ~mask));
}

#endif
