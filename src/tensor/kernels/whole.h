/* Vectors for products of whole numbers, as wide as the instruction set of this build. Plain operators work
 * on them (GNU vector extensions).
 *
 * A vector of bytes holds 4 columns of several output rows; heed_dot adds, row by row, their products with 4
 * activations. Levels are unsigned bytes; where they take all 8 bits, and the instruction set multiplies
 * signed bytes, they are signed.
 */
#ifndef HEED_TENSOR_KERNELS_WHOLE_H
#define HEED_TENSOR_KERNELS_WHOLE_H

#include "attend/kernels/isa.h"
#include "tensor/half.h"
#include "tensor/kernels/table.h"
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define BYTES 64
#define TILE_ROWS 6
#define TILE_VECTORS 2
#define FLOAT_ROWS 12
#define FLOAT_VECTORS 2
#define SIGNED_LEVELS 0
#define WHOLE __attribute__((target("avx512vnni")))
#elif defined(__AVX2__)
#define BYTES 32
#define TILE_ROWS 4
#define TILE_VECTORS 2
#define FLOAT_ROWS 6
#define FLOAT_VECTORS 2
#define SIGNED_LEVELS 1
#define WHOLE
#else
#define BYTES 16
#define TILE_ROWS 4
#define TILE_VECTORS 2
#define FLOAT_ROWS 6
#define FLOAT_VECTORS 2
#define SIGNED_LEVELS 1
#define WHOLE
#endif

#define INLINE static inline __attribute__((always_inline))
#define LANES (BYTES / 4)
#define PANEL_VECTORS (HEED_PANEL * HEED_STEP / BYTES) /* vectors of a step, 4 columns of all rows */
#define HALF_VECTORS (PANEL_VECTORS / 2)

typedef uint8_t bytes __attribute__((vector_size(BYTES), may_alias));
typedef int8_t signed_bytes __attribute__((vector_size(BYTES), may_alias));
typedef uint16_t shorts __attribute__((vector_size(BYTES), may_alias));
typedef int16_t signed_shorts __attribute__((vector_size(BYTES), may_alias));
typedef int32_t ints __attribute__((vector_size(BYTES), may_alias));
typedef float floats __attribute__((vector_size(BYTES), may_alias));
typedef floats floats_any __attribute__((aligned(4)));
typedef uint16_t lane_halves __attribute__((vector_size(2 * LANES), may_alias));

/* 4 bytes in all lanes. */
INLINE ints four(const void *from)
{
    int32_t x;
    memcpy(&x, from, sizeof x);
    return (ints){0} + x;
}

INLINE floats all(float x)
{
    return x - (floats){0}; /* adding would turn -0 into 0, and so cost an instruction */
}

/* sum + a b, rounded once where the instruction set can. */
INLINE floats add_product(floats sum, floats a, floats b)
{
#if defined(__AVX512F__)
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__AVX2__)
    return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#elif defined(__aarch64__)
    return (floats)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
#else
    return sum + a * b;
#endif
}

/* Products of bytes go through sums of two in 16 bits where there is no instruction for sums of four in 32.
 */
#if (defined(__AVX2__) && !defined(__AVX512F__)) || defined(__aarch64__)
#define BY_PAIRS 1
#else
#define BY_PAIRS 0
#endif

/* Levels times activations, summed two by two: none reaches 2^15. `small`: levels are below 128; else they
 * are signed. */
#if BY_PAIRS
INLINE signed_shorts pairs(bytes level, ints x, int small)
{
#if defined(__AVX2__)
    const __m256i w = (__m256i)level, a = (__m256i)x;
    return (signed_shorts)(small ? _mm256_maddubs_epi16(w, a)
                                 : _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w)));
#else
    (void)small;
    const int8x16_t w = (int8x16_t)level, a = (int8x16_t)x;
    return (signed_shorts)vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(a)), vmull_high_s8(w, a));
#endif
}

INLINE ints add_pairs(ints sum, signed_shorts x)
{
#if defined(__AVX2__)
    return sum + (ints)_mm256_madd_epi16((__m256i)x, _mm256_set1_epi16(1));
#else
    return (ints)vpadalq_s16((int32x4_t)sum, (int16x8_t)x);
#endif
}
#endif

/* sum += levels times activations, 4 by 4. `small`: levels are below 128; else they are signed where
 * SIGNED_LEVELS. */
WHOLE INLINE ints dot(ints sum, bytes level, ints x, int small)
{
#if defined(__AVX512F__)
    (void)small;
    return (ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)level, (__m512i)x);
#elif BY_PAIRS
    return add_pairs(sum, pairs(level, x, small));
#else
    const signed_shorts wide = (signed_shorts)level, other = (signed_shorts)x;
    const signed_shorts even =
        small ? (signed_shorts)((shorts)level & 0xff) : (signed_shorts)(wide << 8) >> 8;
    const signed_shorts odd = wide >> 8, even_x = (signed_shorts)(other << 8) >> 8, odd_x = other >> 8;
#if defined(__SSE2__)
    return sum + (ints)_mm_madd_epi16((__m128i)even, (__m128i)even_x) +
           (ints)_mm_madd_epi16((__m128i)odd, (__m128i)odd_x);
#else
    const ints a = (ints)(even * even_x), b = (ints)(odd * odd_x);
    return sum + ((a << 16) >> 16) + (a >> 16) + ((b << 16) >> 16) + (b >> 16);
#endif
#endif
}

/* table[level], level by level below 16. */
INLINE bytes look_up(bytes table, bytes level)
{
#if defined(__AVX512F__)
    return (bytes)_mm512_shuffle_epi8((__m512i)table, (__m512i)level);
#elif defined(__AVX2__)
    return (bytes)_mm256_shuffle_epi8((__m256i)table, (__m256i)level);
#elif defined(__aarch64__)
    return (bytes)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)level);
#else
    for (int i = 0; i < BYTES; i++)
        level[i] = table[level[i]];
    return level;
#endif
}

/* LANES 16-bit floats. */
INLINE floats from_halves(const uint16_t *from, int bf16)
{
    const lane_halves half = *(const lane_halves *)(const void *)from;
    if (bf16)
        return (floats)(__builtin_convertvector(half, ints) << 16);
#if defined(__AVX512F__)
    return (floats)_mm512_cvtph_ps((__m256i)half);
#elif defined(__AVX2__)
    return (floats)_mm256_cvtph_ps((__m128i)half);
#elif defined(__aarch64__)
    return (floats)vcvt_f32_f16((float16x4_t)half);
#else
    floats x;
    for (int i = 0; i < LANES; i++)
        x[i] = heed_float_from_f16(half[i]);
    return x;
#endif
}

/* LANES bytes as floats. */
INLINE floats from_signed_bytes(const uint8_t *from)
{
#if defined(__AVX512F__)
    return (floats)_mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from)));
#elif defined(__AVX2__)
    return (floats)_mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from)));
#else
    floats x;
    for (int i = 0; i < LANES; i++)
        x[i] = (float)(int8_t)from[i];
    return x;
#endif
}

INLINE floats from_bytes(const uint8_t *from)
{
#if defined(__AVX512F__)
    return (floats)_mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from)));
#elif defined(__AVX2__)
    return (floats)_mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from)));
#else
    floats x;
    for (int i = 0; i < LANES; i++)
        x[i] = (float)from[i];
    return x;
#endif
}

/* What a kernel knows of a format while it is compiled. */
typedef struct whole_kind {
    int bits, group, zero;
    bool offsets, own; /* groups have sub-scales of their own */
    bool table, bf16;
} whole_kind;

/* The layout of a panel, as heed_panel_layout_of has it, in constants. */
INLINE heed_panel_layout kind_layout(whole_kind kind, const heed_block_format *format)
{
    const int span = kind.own ? HEED_MOST_VALUES : HEED_WHOLE, groups = span / kind.group;
    const size_t subs = kind.own ? (size_t)groups * HEED_PANEL : 0, halves = HEED_PANEL * sizeof(uint16_t);
    heed_panel_layout layout = {.format = format, .span = span, .groups = groups, .e = halves};
    layout.sub_scale = kind.offsets ? 2 * halves : halves;
    layout.sub_offset = layout.sub_scale + subs;
    layout.levels = layout.sub_offset + (kind.offsets ? subs : 0);
    layout.level_bytes = (size_t)kind.bits * HEED_PANEL * HEED_WHOLE / 8;
    layout.bytes = layout.levels + layout.level_bytes * (size_t)(span / HEED_WHOLE);
    return layout;
}

/* What a level stands for 0, as bytes have it here. */
INLINE int kind_zero(whole_kind kind)
{
    return kind.table || kind.bits == 8 ? (SIGNED_LEVELS ? 0 : 128) : kind.zero;
}

INLINE int kind_small(whole_kind kind)
{
    return !kind.table && kind.bits < 8;
}

/* Steps whose sums of two still fit into 16 bits when added up: 2 steps levels 127 < 2^15. MXFP4's reach 12.
 */
INLINE int kind_run(whole_kind kind)
{
    const int most = kind.bf16 ? 12 : kind.table || kind.bits == 8 ? 128 : (1 << kind.bits) - 1;
    return most <= 15 ? 8 : most <= 31 ? 4 : most <= 63 ? 2 : 1;
}

/* What a block of second bytes starts with, group by group: as `init` and `shift` of a piece. */
INLINE void deep_sums(whole_kind kind, const heed_deep_block *deep, int32_t init[2], float shift[2])
{
    for (int g = 0; g < HEED_WHOLE / kind.group; g++) {
        const int32_t sum = kind.group == HEED_WHOLE ? deep->sum[0] + deep->sum[1] : deep->sum[g];
        init[g] = -kind_zero(kind) * sum;
        shift[g] = deep->scale * (float)sum;
    }
}

/* The table in every 16 bytes of a vector, unsigned or signed as levels are. */
INLINE bytes table_vector(const heed_block_format *format)
{
    bytes to = {0};
    if (format->table)
        for (int i = 0; i < BYTES; i++)
            to[i] = (uint8_t)(format->table[i % 16] + (SIGNED_LEVELS ? 0 : 128));
    return to;
}

INLINE bytes load_bytes(const uint8_t *from)
{
    return *(const bytes *)(const void *)from;
}

/* Bits of x from bit `from` on, moved to bit `to`; others are cut off by `mask`. */
INLINE bytes move_bits(bytes x, int from, int to, int mask)
{
    const shorts moved = to > from ? (shorts)x << (to - from) : (shorts)x >> (from - to);
    return (bytes)moved & (uint8_t)mask;
}

/* Vector p of step s of the levels of 32 columns (matrix.h has the layout). */
INLINE bytes level_vector(whole_kind kind, const uint8_t *from, int s, int p, bytes table)
{
    const int half = p / HALF_VECTORS, at = p % HALF_VECTORS * BYTES;
    if (kind.bits == 8) {
        const bytes level = load_bytes(from + 128 * s + BYTES * p);
        return SIGNED_LEVELS ? (bytes)(level ^ 0x80) : level;
    }
    if (kind.bits <= 3) {
        bytes level = move_bits(load_bytes(from + 64 * (2 * half + s / 4) + at), 2 * (s % 4), 0, 3);
        if (kind.bits == 3)
            level |= move_bits(load_bytes(from + 256 + 64 * half + at), s, 2, 4);
        return level;
    }
    bytes level = move_bits(load_bytes(from + 64 * s + at), 4 * half, 0, 15);
    if (kind.bits == 5)
        level |= move_bits(load_bytes(from + 512 + 64 * half + at), s, 4, 16);
    if (kind.bits == 6)
        level |= move_bits(load_bytes(from + 512 + 64 * (2 * half + s / 4) + at), 2 * (s % 4), 4, 48);
    return kind.table ? look_up(table, level) : level;
}

/* Scales of group g of a span, lanes of vector p. */
INLINE floats scale_vector(whole_kind kind, const heed_panel_layout *layout, const uint8_t *span, int g,
                           int p)
{
    const floats d = from_halves((const uint16_t *)(const void *)span + LANES * p, kind.bf16);
    if (!kind.own)
        return d;
    const uint8_t *sub = span + layout->sub_scale + (size_t)(HEED_PANEL * g + LANES * p);
    return d * from_signed_bytes(sub);
}

INLINE floats offset_vector(whole_kind kind, const heed_panel_layout *layout, const uint8_t *span, int g,
                            int p)
{
    const floats e = from_halves((const uint16_t *)(const void *)(span + layout->e) + LANES * p, 0);
    if (!kind.own)
        return e;
    const uint8_t *sub = span + layout->sub_offset + (size_t)(HEED_PANEL * g + LANES * p);
    return e * from_bytes(sub);
}

/* The formats, as kinds: type, bits, group, zero, offsets, own, table, bf16. */
#define WHOLE_KINDS(each)                                                                                    \
    each(Q8, 8, 32, 128, 0, 0, 0, 0) each(Q4, 4, 32, 8, 0, 0, 0, 0) each(Q4_1, 4, 32, 0, 1, 0, 0, 0)         \
        each(Q5_0, 5, 32, 16, 0, 0, 0, 0) each(Q5_1, 5, 32, 0, 1, 0, 0, 0) each(Q2_K, 2, 16, 0, 1, 1, 0, 0)  \
            each(Q3_K, 3, 16, 4, 0, 1, 0, 0) each(Q4_K, 4, 32, 0, 1, 1, 0, 0)                                \
                each(Q5_K, 5, 32, 0, 1, 1, 0, 0) each(Q6_K, 6, 16, 32, 0, 1, 0, 0)                           \
                    each(IQ4_NL, 4, 32, 0, 0, 0, 1, 0) each(IQ4_XS, 4, 32, 0, 0, 1, 1, 0)                    \
                        each(MXFP4, 4, 32, 0, 0, 0, 1, 1)

#endif
