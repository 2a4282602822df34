/* Between floats and the stored types.
 *
 * Blocks of q8 and q4 are made for caches, so their scale is found quickly; the other block types are those
 * of block.h. A block of q8 or q4 stands for 32 values by one f16 scale d and a small whole number each: q8:
 * d = max|x| / 127,   x = d n,          n = -127..127 q4:  d = x_max / -8,     x = d (n - 8),    n = 0..15,
 * x_max the (first) entry of largest magnitude n is the nearest level of the scale as stored, which is
 * rounded. A block that holds a NaN, or values beyond the range of the scale, reads back as NaN throughout:
 * such a block has no levels, and the fault must not vanish in the cache.
 */
#include "tensor/block.h"
#include "tensor/half.h"
#include "tensor/range.h"
#include "tensor/rotate.h"

enum { Q8_BYTES = 2 + HEED_BLOCK, Q4_BYTES = 2 + HEED_BLOCK / 2 };

/* The whole number nearest to x / d within least..most. */
static inline int level(float x, float d, float least, float most)
{
    const float n = d != 0.0f ? rintf(x / d) : 0.0f;
    return (int)(n < least ? least : n > most ? most : n);
}

/* The scale as f16, NaN when the block has no levels. */
static uint16_t block_scale(float scale)
{
    const uint16_t h = heed_f16_from_float(scale);
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
    const float d = h == 0x7e00u ? 0.0f : heed_float_from_f16(h);
    memcpy(block, &h, sizeof h);
    for (int i = 0; i < HEED_BLOCK; i++)
        block[2 + i] = (uint8_t)(int8_t)level(x[i], d, -127.0f, 127.0f);
}

static void load_q8(const uint8_t *block, float x[HEED_BLOCK])
{
    uint16_t h;
    memcpy(&h, block, sizeof h);
    const float d = heed_float_from_f16(h);
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
    const float d = h == 0x7e00u ? 0.0f : heed_float_from_f16(h);
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
    const float d = heed_float_from_f16(h);
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

static void store_other_blocks(heed_type type, const float *from, uint8_t *to, int64_t n)
{
    const heed_block_format *format = heed_block_format_of(type);
    int64_t i = 0;
    for (; format && i + format->values <= n; i += format->values, to += format->bytes)
        heed_block_store(format, from + i, to);
    if (format && i < n) {
        float last[HEED_MOST_VALUES] = {0};
        memcpy(last, from + i, (size_t)(n - i) * sizeof *last);
        heed_block_store(format, last, to);
    }
}

static void load_other_blocks(heed_type type, const uint8_t *from, float *to, int64_t n)
{
    const heed_block_format *format = heed_block_format_of(type);
    int64_t i = 0;
    for (; format && i + format->values <= n; i += format->values, from += format->bytes)
        heed_block_load(format, from, to + i);
    if (format && i < n) {
        float last[HEED_MOST_VALUES];
        heed_block_load(format, from, last);
        memcpy(to + i, last, (size_t)(n - i) * sizeof *last);
    }
}

/* Row by row, a run of the rotation at a time; runs are whole blocks, or there is one run. */
static void store_rotated(heed_type type, const float *from, uint8_t *to, int64_t n)
{
    float run[HEED_ROTATE_MOST];
    const int64_t step = n <= HEED_ROTATE_MOST ? n : HEED_ROTATE_MOST;
    for (int64_t i = 0, part; i < n; i += part) {
        part = n - i < step ? n - i : step;
        memcpy(run, from + i, (size_t)part * sizeof *run);
        for (int64_t r = 0, length = heed_rotated_run(n); r < part && length > 1; r += length)
            heed_rotate_run(run + r, (int)length);
        heed_store(type, run, to, part);
        to += heed_type_bytes(type, part);
    }
}

static void load_rotated(heed_type type, const void *from, float *to, int64_t n)
{
    heed_load(type, from, to, n);
    heed_rotate_row(to, n);
}

/* Nearest whole number within least..most, 0 for NaN. The limits themselves are powers of two, or that
 * minus 1. */
static int64_t whole(float x, int64_t least, int64_t most)
{
    if (x != x)
        return 0;
    return x >= (float)most ? most : x <= (float)least ? least : (int64_t)rintf(x);
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
        EACH(uint16_t *, heed_f16_from_float(from[i]));
        break;
    case HEED_BF16:
        EACH(uint16_t *, heed_bf16_from_float(from[i]));
        break;
    case HEED_Q8:
        store_blocks(store_q8, Q8_BYTES, from, to, n);
        break;
    case HEED_Q4:
        store_blocks(store_q4, Q4_BYTES, from, to, n);
        break;
    case HEED_Q3:
        store_blocks(heed_store_q3, HEED_Q3_BYTES, from, to, n);
        break;
    case HEED_Q2:
        store_blocks(heed_store_q2, HEED_Q2_BYTES, from, to, n);
        break;
    case HEED_ROTATED_Q8:
    case HEED_ROTATED_Q4:
    case HEED_ROTATED_Q3:
    case HEED_ROTATED_Q2:
    case HEED_ROTATED_F16:
        store_rotated(heed_type_unrotated(type), from, to, n);
        break;
    case HEED_I32:
        EACH(int32_t *, (int32_t)whole(from[i], INT32_MIN, INT32_MAX));
        break;
    case HEED_U8:
        EACH(uint8_t *, (uint8_t)whole(from[i], 0, UINT8_MAX));
        break;
    case HEED_F64:
        EACH(double *, from[i]);
        break;
    case HEED_I8:
        EACH(int8_t *, (int8_t)whole(from[i], INT8_MIN, INT8_MAX));
        break;
    case HEED_I16:
        EACH(int16_t *, (int16_t)whole(from[i], INT16_MIN, INT16_MAX));
        break;
    case HEED_I64:
        EACH(int64_t *, whole(from[i], INT64_MIN, INT64_MAX));
        break;
    default:
        store_other_blocks(type, from, to, n);
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
        EACH(float *, heed_float_from_f16(((const uint16_t *)from)[i]));
        break;
    case HEED_BF16:
        EACH(float *, heed_float_from_bf16(((const uint16_t *)from)[i]));
        break;
    case HEED_Q8:
        load_blocks(load_q8, Q8_BYTES, from, to, n);
        break;
    case HEED_Q4:
        load_blocks(load_q4, Q4_BYTES, from, to, n);
        break;
    case HEED_Q3:
        load_blocks(heed_load_q3, HEED_Q3_BYTES, from, to, n);
        break;
    case HEED_Q2:
        load_blocks(heed_load_q2, HEED_Q2_BYTES, from, to, n);
        break;
    case HEED_ROTATED_Q8:
    case HEED_ROTATED_Q4:
    case HEED_ROTATED_Q3:
    case HEED_ROTATED_Q2:
    case HEED_ROTATED_F16:
        load_rotated(heed_type_unrotated(type), from, to, n);
        break;
    case HEED_I32:
        EACH(float *, (float)((const int32_t *)from)[i]);
        break;
    case HEED_U8:
        EACH(float *, (float)((const uint8_t *)from)[i]);
        break;
    case HEED_F64:
        EACH(float *, (float)((const double *)from)[i]);
        break;
    case HEED_I8:
        EACH(float *, (float)((const int8_t *)from)[i]);
        break;
    case HEED_I16:
        EACH(float *, (float)((const int16_t *)from)[i]);
        break;
    case HEED_I64:
        EACH(float *, (float)((const int64_t *)from)[i]);
        break;
    default:
        load_other_blocks(type, from, to, n);
        break;
    }
}
