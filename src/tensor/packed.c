#include "tensor/packed.h"
#include "tensor/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 1, ROWS = 2, COLUMNS = 3, HEAD = 3 };

/* The parts of a page. */
typedef struct parts {
    uint16_t *head;                              /* way, keys, channels or outliers */
    uint16_t *channel, *minimum, *scale, *value; /* f16 but for the first */
    uint8_t *bits, *outliers, *data;
} parts;

/* `lines` are rows or columns. */
static parts parts_of(void *page, int64_t way, int64_t lines, int64_t count)
{
    parts p = {.head = page};
    uint16_t *at = p.head + HEAD;
    if (way == CHANNELS) {
        p.channel = at;
        p.data = (uint8_t *)(at + count);
        return p;
    }
    p.minimum = at;
    p.scale = at + lines;
    p.bits = (uint8_t *)(at + 2 * lines);
    p.outliers = p.bits + lines;
    p.channel = (uint16_t *)(void *)(p.outliers + lines);
    p.value = p.channel + count;
    p.data = (uint8_t *)(p.value + count);
    return p;
}

static parts open_page(const void *page, int64_t dim)
{
    const uint16_t *head = page;
    return parts_of((void *)(uintptr_t)page, head[0], head[0] == COLUMNS ? dim : head[1], head[2]);
}

size_t heed_packed_channels_bytes(int64_t keys, int64_t channels)
{
    return (size_t)(HEAD + channels + keys * channels) * sizeof(uint16_t);
}

void heed_pack_channels(const float *rows, int64_t keys, int64_t dim, const uint16_t *channel,
                        int64_t channels, void *to)
{
    const parts p = parts_of(to, CHANNELS, keys, channels);
    uint16_t *half = (uint16_t *)(void *)p.data;
    p.head[0] = CHANNELS;
    p.head[1] = (uint16_t)keys;
    p.head[2] = (uint16_t)channels;
    memcpy(p.channel, channel, (size_t)channels * sizeof *channel);
    for (int64_t j = 0; j < keys; j++)
        for (int64_t c = 0; c < channels; c++)
            half[j * channels + c] = heed_f16_from_float(rows[j * dim + channel[c]]);
}

static int64_t row_bytes(int64_t dim, int bits)
{
    return (dim * bits + 7) / 8;
}

size_t heed_packed_rows_bytes(int64_t keys, int64_t dim, int64_t bits, int64_t outliers)
{
    /* a row's last byte may be full in part only */
    const int64_t data = dim % 8 ? (dim * bits + 7 * keys) / 8 : dim / 8 * bits;
    return (size_t)(2 * HEAD + 6 * keys + 4 * outliers + data);
}

size_t heed_packed_columns_bytes(int64_t keys, int64_t dim, int64_t bits, int64_t outliers)
{
    return heed_packed_rows_bytes(dim, keys, bits, outliers);
}

/* A row of a page, or a column: value c is at[c * step]. */
typedef struct line {
    const float *at;
    const uint8_t *outlier; /* or NULL */
    int64_t step, length;
} line;

static bool is_out(const line *l, int64_t c)
{
    return l->outlier && l->outlier[c * l->step];
}

/* Least and greatest value that count, as f16 minimum and scale. */
static void fit(const line *l, int bits, uint16_t *minimum, uint16_t *scale)
{
    float low = INFINITY, high = -INFINITY, odd = 0.0f;
    for (int64_t c = 0; c < l->length; c++) {
        const float x = l->at[c * l->step];
        if (is_out(l, c))
            continue;
        low = x < low ? x : low;
        high = x > high ? x : high;
        odd += x * 0.0f;
    }
    low = low <= high ? low : 0.0f;
    high = low <= high ? high : low;
    *minimum = heed_f16_from_float(low);
    *scale = heed_f16_from_float((high - heed_float_from_f16(*minimum)) / (float)((1 << bits) - 1));
    const bool finite = odd == 0.0f && (*scale & 0x7c00u) != 0x7c00u && (*minimum & 0x7c00u) != 0x7c00u;
    *minimum = finite ? *minimum : 0x7e00u;
    *scale = finite ? *scale : 0x7e00u;
}

static void put_codes(const line *l, int bits, float low, float scale, uint8_t *to)
{
    const float most = (float)((1 << bits) - 1), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    memset(to, 0, (size_t)row_bytes(l->length, bits));
    for (int64_t c = 0; c < l->length; c++) {
        const float x = (l->at[c * l->step] - low) * inverse + 0.5f;
        const unsigned n = (unsigned)(x > 0.0f ? x < most ? x : most : 0.0f);
        const int64_t at = c * bits;
        to[at / 8] |= (uint8_t)(n << at % 8);
        if (at % 8 + bits > 8)
            to[at / 8 + 1] |= (uint8_t)(n >> (8 - at % 8));
    }
}

static void put_halves(const line *l, uint8_t *to)
{
    for (int64_t c = 0; c < l->length; c++) {
        const uint16_t half = heed_f16_from_float(l->at[c * l->step]);
        memcpy(to + 2 * c, &half, sizeof half);
    }
}

/* Line i: its outliers from number `done` on, and its codes. Returns the outliers there are by now. */
static int64_t put_line(const parts *p, int64_t i, const line *l, int bits, int64_t done, uint8_t *data)
{
    p->bits[i] = (uint8_t)bits;
    p->outliers[i] = 0;
    p->minimum[i] = p->scale[i] = 0;
    if (bits == 16) {
        put_halves(l, data);
        return done;
    }
    for (int64_t c = 0; c < l->length; c++) {
        if (!is_out(l, c))
            continue;
        p->channel[done] = (uint16_t)c;
        p->value[done++] = heed_f16_from_float(l->at[c * l->step]);
        p->outliers[i]++;
    }
    fit(l, bits, &p->minimum[i], &p->scale[i]);
    put_codes(l, bits, heed_float_from_f16(p->minimum[i]), heed_float_from_f16(p->scale[i]), data);
    return done;
}

static void put_lines(int way, const float *rows, int64_t keys, int64_t dim, const uint8_t *bits,
                      const uint8_t *outlier, void *to)
{
    const bool turned = way == COLUMNS;
    const int64_t lines = turned ? dim : keys, apart = turned ? 1 : dim;
    int64_t all = 0, done = 0;
    for (int64_t i = 0; outlier && i < keys * dim; i++)
        all += bits[turned ? i % dim : i / dim] < 16 && outlier[i];
    const parts p = parts_of(to, way, lines, all);
    p.head[0] = (uint16_t)way;
    p.head[1] = (uint16_t)keys;
    p.head[2] = (uint16_t)all;
    uint8_t *data = p.data;
    for (int64_t i = 0; i < lines; i++) {
        const line l = {rows + i * apart, outlier ? outlier + i * apart : NULL, turned ? dim : 1,
                        turned ? keys : dim};
        done = put_line(&p, i, &l, bits[i], done, data);
        data += row_bytes(l.length, bits[i]);
    }
}

void heed_pack_rows(const float *rows, int64_t keys, int64_t dim, const uint8_t *bits, const uint8_t *outlier,
                    void *to)
{
    put_lines(ROWS, rows, keys, dim, bits, outlier, to);
}

void heed_pack_columns(const float *rows, int64_t keys, int64_t dim, const uint8_t *bits,
                       const uint8_t *outlier, void *to)
{
    put_lines(COLUMNS, rows, keys, dim, bits, outlier, to);
}

static bool goes_first(const float *rows, float sign, int32_t a, int32_t b)
{
    const float x = sign * rows[a], y = sign * rows[b];
    return x < y || (x == y && a < b);
}

/* Puts the `count` smallest of sign * rows in front of `order`, by halving what is left to look at. */
static void bring_forward(const float *rows, float sign, int64_t values, int64_t count, int32_t *order)
{
    for (int64_t from = 0, end = values; end - from > 1;) {
        const int32_t middle = order[from + (end - from) / 2];
        int64_t i = from, j = end - 1;
        while (i <= j) {
            while (goes_first(rows, sign, order[i], middle))
                i++;
            while (goes_first(rows, sign, middle, order[j]))
                j--;
            if (i <= j) {
                const int32_t held = order[i];
                order[i++] = order[j];
                order[j--] = held;
            }
        }
        if (count <= j + 1)
            end = j + 1;
        else if (count > i)
            from = i;
        else
            return;
    }
}

void heed_mark_outliers(const float *rows, int64_t values, int64_t count, int32_t *order, uint8_t *outlier)
{
    memset(outlier, 0, (size_t)values);
    for (int side = 0; side < 2; side++) {
        const int64_t here = side ? count / 2 : count - count / 2;
        int64_t left = 0;
        for (int64_t i = 0; i < values; i++)
            if (!outlier[i] && rows[i] == rows[i])
                order[left++] = (int32_t)i;
        bring_forward(rows, side ? -1.0f : 1.0f, left, here < left ? here : left, order);
        for (int64_t i = 0; i < here && i < left; i++)
            outlier[order[i]] = 1;
    }
}

static void load_channels(const parts *p, int64_t first, int64_t count, int64_t dim, float *to,
                          int64_t stride)
{
    const int64_t channels = p->head[2];
    const uint16_t *half = (const uint16_t *)(const void *)p->data + first * channels;
    for (int64_t j = 0; j < count; j++, half += channels) {
        float *row = to + j * stride;
        memset(row, 0, (size_t)dim * sizeof *row);
        for (int64_t c = 0; c < channels; c++)
            row[p->channel[c]] = heed_float_from_f16(half[c]);
    }
}

/* Eight codes fill `bits` bytes, which are taken apart as one word. */
static inline void load_eights(const uint8_t *data, int64_t eights, const int bits, float low, float scale,
                               float *row)
{
    const uint64_t mask = (1u << bits) - 1;
    for (int64_t i = 0; i < eights; i++, data += bits, row += 8) {
        uint64_t word = 0;
        for (int b = 0; b < bits; b++)
            word |= (uint64_t)data[b] << 8 * b;
        for (int c = 0; c < 8; c++)
            row[c] = low + scale * (float)(int32_t)(word >> c * bits & mask);
    }
}

/* Each number of bits gets a copy of the loop, in which it is a constant. */
#define LOAD_EIGHTS(bits)                                                                                    \
    static void load_eights_##bits(const uint8_t *data, int64_t eights, float low, float scale, float *row)  \
    {                                                                                                        \
        load_eights(data, eights, bits, low, scale, row);                                                    \
    }
LOAD_EIGHTS(1)
LOAD_EIGHTS(2)
LOAD_EIGHTS(3)
LOAD_EIGHTS(4)
LOAD_EIGHTS(5)
LOAD_EIGHTS(6)
LOAD_EIGHTS(7)
LOAD_EIGHTS(8)

static void (*const eights_of[])(const uint8_t *, int64_t, float, float, float *) = {
    NULL,          load_eights_1, load_eights_2, load_eights_3, load_eights_4,
    load_eights_5, load_eights_6, load_eights_7, load_eights_8};

static void load_codes(const uint8_t *data, int64_t dim, int bits, float low, float scale, float *row)
{
    const unsigned mask = (1u << bits) - 1;
    eights_of[bits](data, dim / 8, low, scale, row);
    for (int64_t c = dim / 8 * 8; c < dim; c++) {
        const int64_t at = c * bits;
        unsigned n = (unsigned)data[at / 8] >> at % 8;
        if (at % 8 + bits > 8)
            n |= (unsigned)data[at / 8 + 1] << (8 - at % 8);
        row[c] = low + scale * (float)(n & mask);
    }
}

static void load_rows(const parts *p, int64_t first, int64_t count, int64_t dim, float *to, int64_t stride)
{
    int64_t bytes = 0, out = 0;
    for (int64_t j = 0; j < first; j++) {
        bytes += row_bytes(dim, p->bits[j]);
        out += p->outliers[j];
    }
    const uint8_t *data = p->data + bytes;
    for (int64_t j = first; j < first + count; j++) {
        float *row = to + (j - first) * stride;
        if (p->bits[j] == 16)
            for (int64_t c = 0; c < dim; c++) {
                uint16_t half;
                memcpy(&half, data + 2 * c, sizeof half);
                row[c] = heed_float_from_f16(half);
            }
        else
            load_codes(data, dim, p->bits[j], heed_float_from_f16(p->minimum[j]),
                       heed_float_from_f16(p->scale[j]), row);
        data += row_bytes(dim, p->bits[j]);
        for (int n = 0; n < p->outliers[j]; n++, out++)
            row[p->channel[out]] = heed_float_from_f16(p->value[out]);
    }
}

/* Keys first... of every column. */
static void load_columns(const parts *p, int64_t first, int64_t count, int64_t dim, float *to, int64_t stride)
{
    const uint8_t *data = p->data;
    int64_t out = 0;
    for (int64_t c = 0; c < dim; c++) {
        const int bits = p->bits[c];
        const unsigned mask = (1u << bits) - 1;
        const float low = heed_float_from_f16(p->minimum[c]), scale = heed_float_from_f16(p->scale[c]);
        for (int64_t j = 0; j < count; j++) {
            const int64_t at = (first + j) * bits;
            unsigned n = (unsigned)data[at / 8] >> at % 8;
            if (at % 8 + bits > 8)
                n |= (unsigned)data[at / 8 + 1] << (8 - at % 8);
            to[j * stride + c] = low + scale * (float)(n & mask);
        }
        data += row_bytes(p->head[1], bits);
        for (int n = 0; n < p->outliers[c]; n++, out++) {
            const int64_t j = p->channel[out] - first;
            if (j >= 0 && j < count)
                to[j * stride + c] = heed_float_from_f16(p->value[out]);
        }
    }
}

void heed_packed_load(const void *page, int64_t first, int64_t count, int64_t dim, float *to, int64_t stride)
{
    const parts p = open_page(page, dim);
    if (p.head[0] == CHANNELS)
        load_channels(&p, first, count, dim, to, stride);
    else if (p.head[0] == COLUMNS)
        load_columns(&p, first, count, dim, to, stride);
    else
        load_rows(&p, first, count, dim, to, stride);
}

static bool channels_hold(const uint16_t *channel, int64_t count, int64_t dim)
{
    bool hold = true;
    for (int64_t i = 0; i < count; i++)
        hold &= channel[i] < dim;
    return hold;
}

/* Rows or columns, whose tables lie within `bytes`. */
static bool lines_hold(const parts *p, const void *page, size_t bytes, int64_t lines, int64_t length)
{
    int64_t outliers = 0;
    size_t data = 0;
    bool sound = true;
    for (int64_t i = 0; i < lines; i++) {
        sound &= (p->bits[i] >= 1 && p->bits[i] <= 8) || (p->bits[i] == 16 && p->head[0] == ROWS);
        data += (size_t)row_bytes(length, p->bits[i]);
        outliers += p->outliers[i];
    }
    return sound && outliers == p->head[2] && channels_hold(p->channel, outliers, length) &&
           (size_t)(p->data - (const uint8_t *)page) + data <= bytes;
}

bool heed_packed_is_sound(const void *page, size_t bytes, int64_t keys, int64_t dim)
{
    const uint16_t *head = page;
    if (bytes < HEAD * sizeof *head || head[1] != keys || head[0] < CHANNELS || head[0] > COLUMNS)
        return false;
    const parts p = open_page(page, dim);
    if (head[0] == CHANNELS)
        return head[2] <= dim && heed_packed_channels_bytes(keys, head[2]) <= bytes &&
               channels_hold(p.channel, head[2], dim);
    const int64_t lines = head[0] == COLUMNS ? dim : keys, length = head[0] == COLUMNS ? keys : dim;
    return heed_packed_rows_bytes(lines, length, 0, head[2]) <= bytes &&
           lines_hold(&p, page, bytes, lines, length);
}
