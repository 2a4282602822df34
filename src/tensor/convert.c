/* Between floats and the stored types. 16-bit types round to nearest, ties to even, as the processor's own
 * conversions do.
 *
 * A block of q8 or q4 stands for 32 values by one f16 scale d and a small whole number each:
 *     q8:  d = max|x| / 127,   x = d n,          n = -127..127
 *     q4:  d = x_max / -8,     x = d (n - 8),    n = 0..15,   x_max the (first) entry of largest magnitude
 * n is the nearest level of the scale as stored, which is rounded. A block that holds a NaN, or values beyond
 * the range of the scale, reads back as NaN throughout: such a block has no levels, and the fault must not
 * vanish in the cache.
 */
#include <heed/maths.h>
#include <heed/tensor.h>

enum { Q8_BYTES = 2 + HEED_BLOCK, Q4_BYTES = 2 + HEED_BLOCK / 2 };

static inline uint16_t f16_from_float(float x)
{
    const uint32_t bits = heed_bits_of_float(x);
    const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    /* Adding 1/2 leaves multiples of 2^-24, the step of f16 below 2^-14, in the lowest bits of the sum. */
    const uint32_t small = heed_bits_of_float(heed_float_from_bits(size) + 0.5f) - heed_bits_of_float(0.5f);
    const uint32_t normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    const uint32_t finite = size < 0x38800000u ? small : normal;
    const uint32_t bounded = size < 0x47800000u ? finite : 0x7c00u;
    const uint32_t nan = 0x7e00u | (size >> 13 & 0x3ffu);
    return (uint16_t)(sign | (size > 0x7f800000u ? nan : bounded));
}

static inline float float_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h & 0x7c00u, fraction = h & 0x3ffu;
    const uint32_t small = heed_bits_of_float((float)(int32_t)fraction * 0x1p-24f);
    const uint32_t normal = ((exponent | fraction) << 13) + 0x38000000u;
    const uint32_t special = 0x7f800000u | fraction << 13;
    const uint32_t finite = exponent ? normal : small;
    return heed_float_from_bits(sign | (exponent == 0x7c00u ? special : finite));
}

static inline uint16_t bf16_from_float(float x)
{
    const uint32_t bits = heed_bits_of_float(x);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const uint32_t nan = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float float_from_bf16(uint16_t b)
{
    return heed_float_from_bits((uint32_t)b << 16);
}

/* The whole number nearest to x / d within least..most. */
static inline int level(float x, float d, float least, float most)
{
    const float n = d != 0.0f ? rintf(x / d) : 0.0f;
    return (int)(n < least ? least : n > most ? most : n);
}

/* The scale as f16, NaN when the block has no levels. */
static uint16_t block_scale(float scale)
{
    const uint16_t h = f16_from_float(scale);
    return (h & 0x7c00u) == 0x7c00u ? 0x7e00u : h;
}

static void store_q8(const float x[HEED_BLOCK], uint8_t *block)
{
    float most = 0.0f;
    bool nan = false;
    for (int i = 0; i < HEED_BLOCK; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        nan |= x[i] != x[i];
    }
    const uint16_t h = block_scale(nan ? NAN : most / 127.0f);
    const float d = h == 0x7e00u ? 0.0f : float_from_f16(h);
    memcpy(block, &h, sizeof h);
    for (int i = 0; i < HEED_BLOCK; i++)
        block[2 + i] = (uint8_t)(int8_t)level(x[i], d, -127.0f, 127.0f);
}

static void load_q8(const uint8_t *block, float x[HEED_BLOCK])
{
    uint16_t h;
    memcpy(&h, block, sizeof h);
    const float d = float_from_f16(h);
    for (int i = 0; i < HEED_BLOCK; i++)
        x[i] = d * (float)(int8_t)block[2 + i];
}

static void store_q4(const float x[HEED_BLOCK], uint8_t *block)
{
    float most = 0.0f;
    bool nan = false;
    for (int i = 0; i < HEED_BLOCK; i++) {
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
        nan |= x[i] != x[i];
    }
    const uint16_t h = block_scale(nan ? NAN : most / -8.0f);
    const float d = h == 0x7e00u ? 0.0f : float_from_f16(h);
    memcpy(block, &h, sizeof h);
    for (int i = 0; i < HEED_BLOCK / 2; i++) {
        const int low = level(x[i], d, -8.0f, 7.0f) + 8;
        const int high = level(x[i + HEED_BLOCK / 2], d, -8.0f, 7.0f) + 8;
        block[2 + i] = (uint8_t)(low | high << 4);
    }
}

static void load_q4(const uint8_t *block, float x[HEED_BLOCK])
{
    uint16_t h;
    memcpy(&h, block, sizeof h);
    const float d = float_from_f16(h);
    for (int i = 0; i < HEED_BLOCK / 2; i++) {
        x[i] = d * (float)((block[2 + i] & 15) - 8);
        x[i + HEED_BLOCK / 2] = d * (float)((block[2 + i] >> 4) - 8);
    }
}

static void store_blocks(void (*store)(const float *, uint8_t *), int bytes, const float *from, uint8_t *to,
                         int64_t n)
{
    int64_t i = 0;
    for (; i + HEED_BLOCK <= n; i += HEED_BLOCK, to += bytes)
        store(from + i, to);
    if (i < n) {
        float last[HEED_BLOCK] = {0};
        memcpy(last, from + i, (size_t)(n - i) * sizeof *last);
        store(last, to);
    }
}

static void load_blocks(void (*load)(const uint8_t *, float *), int bytes, const uint8_t *from, float *to,
                        int64_t n)
{
    int64_t i = 0;
    for (; i + HEED_BLOCK <= n; i += HEED_BLOCK, from += bytes)
        load(from, to + i);
    if (i < n) {
        float last[HEED_BLOCK];
        load(from, last);
        memcpy(to + i, last, (size_t)(n - i) * sizeof *last);
    }
}

static int32_t i32_from_float(float x)
{
    if (x != x)
        return 0;
    return x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int32_t)rintf(x);
}

static uint8_t u8_from_float(float x)
{
    return (uint8_t)(x > 255.0f ? 255.0f : x > 0.0f ? rintf(x) : 0.0f);
}

#define EACH(type, expression)                                                                               \
    for (int64_t i = 0; i < n; i++)                                                                          \
    ((type)to)[i] = (expression)

void heed_store(heed_type type, const float *from, void *to, int64_t n)
{
    switch (type) {
    case HEED_F32:
        memcpy(to, from, (size_t)n * sizeof *from);
        break;
    case HEED_F16:
        EACH(uint16_t *, f16_from_float(from[i]));
        break;
    case HEED_BF16:
        EACH(uint16_t *, bf16_from_float(from[i]));
        break;
    case HEED_Q8:
        store_blocks(store_q8, Q8_BYTES, from, to, n);
        break;
    case HEED_Q4:
        store_blocks(store_q4, Q4_BYTES, from, to, n);
        break;
    case HEED_I32:
        EACH(int32_t *, i32_from_float(from[i]));
        break;
    case HEED_U8:
        EACH(uint8_t *, u8_from_float(from[i]));
        break;
    case HEED_TYPES:
        break;
    }
}

void heed_load(heed_type type, const void *from, float *to, int64_t n)
{
    switch (type) {
    case HEED_F32:
        memcpy(to, from, (size_t)n * sizeof *to);
        break;
    case HEED_F16:
        EACH(float *, float_from_f16(((const uint16_t *)from)[i]));
        break;
    case HEED_BF16:
        EACH(float *, float_from_bf16(((const uint16_t *)from)[i]));
        break;
    case HEED_Q8:
        load_blocks(load_q8, Q8_BYTES, from, to, n);
        break;
    case HEED_Q4:
        load_blocks(load_q4, Q4_BYTES, from, to, n);
        break;
    case HEED_I32:
        EACH(float *, (float)((const int32_t *)from)[i]);
        break;
    case HEED_U8:
        EACH(float *, (float)((const uint8_t *)from)[i]);
        break;
    case HEED_TYPES:
        break;
    }
}
