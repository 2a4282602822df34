#include "tensor/range.h"
#include "tensor/half.h"
#include <string.h>

/* Scale and minimum as they are stored. */
typedef struct line {
    uint16_t scale_bits, minimum_bits;
    float scale, minimum;
} line;

static line line_of(float minimum, float scale)
{
    line l = {.scale_bits = heed_f16_from_float(scale), .minimum_bits = heed_f16_from_float(minimum)};
    l.scale = heed_float_from_f16(l.scale_bits);
    l.minimum = heed_float_from_f16(l.minimum_bits);
    return l;
}

static int level(float x, const line *l, int most)
{
    const float n = l->scale != 0.0f ? (x - l->minimum) / l->scale : 0.0f;
    return n > 0.0f ? n < (float)most ? (int)(n + 0.5f) : most : 0;
}

static float error_of(const float *x, const line *l, int most)
{
    float error = 0.0f;
    for (int i = 0; i < HEED_BLOCK; i++) {
        const float off = x[i] - (l->minimum + l->scale * (float)level(x[i], l, most));
        error += off * off;
    }
    return error;
}

/* Levels from the least to the greatest value, or over a part of that range about its middle, whichever
 * leaves least squared error: with few levels a far value costs all others more than it gains. */
static line fit(const float *x, int most)
{
    static const float parts[] = {1.0f, 0.9f, 0.8f, 0.7f};
    float low = x[0], high = x[0], nan = 0.0f;
    for (int i = 0; i < HEED_BLOCK; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        nan += x[i] * 0.0f;
    }
    const float middle = 0.5f * low + 0.5f * high, half = 0.5f * high - 0.5f * low;
    line best = line_of(low, 2.0f * half / (float)most);
    if (nan != 0.0f || !(best.scale < INFINITY) || !(fabsf(best.minimum) < INFINITY))
        return (line){.scale_bits = 0x7e00u, .minimum_bits = 0x7e00u, .scale = NAN, .minimum = NAN};
    float least = error_of(x, &best, most);
    for (int p = 1; p < (int)(sizeof parts / sizeof *parts); p++) {
        const line l = line_of(middle - half * parts[p], 2.0f * half * parts[p] / (float)most);
        const float error = error_of(x, &l, most);
        if (error < least) {
            least = error;
            best = l;
        }
    }
    return best;
}

static void put_line(const line *l, uint8_t *block)
{
    memcpy(block, &l->scale_bits, 2);
    memcpy(block + 2, &l->minimum_bits, 2);
}

static line take_line(const uint8_t *block)
{
    line l;
    memcpy(&l.scale_bits, block, 2);
    memcpy(&l.minimum_bits, block + 2, 2);
    l.scale = heed_float_from_f16(l.scale_bits);
    l.minimum = heed_float_from_f16(l.minimum_bits);
    return l;
}

static void put_low_bits(const int *n, uint8_t *to)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)((n[i] & 3) | (n[i + 8] & 3) << 2 | (n[i + 16] & 3) << 4 | (n[i + 24] & 3) << 6);
}

static void take_low_bits(const uint8_t *from, int *n)
{
    for (int i = 0; i < HEED_BLOCK; i++)
        n[i] = from[i % 8] >> (i / 8 * 2) & 3;
}

static void levels(const float *x, const line *l, int most, int *n)
{
    for (int i = 0; i < HEED_BLOCK; i++)
        n[i] = level(x[i], l, most);
}

static void values(const line *l, const int *n, float *x)
{
    for (int i = 0; i < HEED_BLOCK; i++)
        x[i] = l->minimum + l->scale * (float)n[i];
}

void heed_store_q2(const float x[HEED_BLOCK], uint8_t *block)
{
    int n[HEED_BLOCK];
    const line l = fit(x, 3);
    levels(x, &l, 3, n);
    put_line(&l, block);
    put_low_bits(n, block + 4);
}

void heed_store_q3(const float x[HEED_BLOCK], uint8_t *block)
{
    int n[HEED_BLOCK];
    const line l = fit(x, 7);
    levels(x, &l, 7, n);
    put_line(&l, block);
    put_low_bits(n, block + 4);
    memset(block + 12, 0, 4);
    for (int i = 0; i < HEED_BLOCK; i++)
        block[12 + i / 8] |= (uint8_t)((n[i] >> 2 & 1) << i % 8);
}

void heed_load_q2(const uint8_t *block, float x[HEED_BLOCK])
{
    int n[HEED_BLOCK];
    const line l = take_line(block);
    take_low_bits(block + 4, n);
    values(&l, n, x);
}

void heed_load_q3(const uint8_t *block, float x[HEED_BLOCK])
{
    int n[HEED_BLOCK];
    const line l = take_line(block);
    take_low_bits(block + 4, n);
    for (int i = 0; i < HEED_BLOCK; i++)
        n[i] |= (block[12 + i / 8] >> i % 8 & 1) << 2;
    values(&l, n, x);
}
