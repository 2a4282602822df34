/* Putting rows into panels, and reading one back. */
#include "tensor/half.h"
#include "tensor/matrix.h"
#include <string.h>

enum { HALF = HEED_PANEL / 2 * HEED_STEP, STEPS = HEED_WHOLE / HEED_STEP, VECTOR = 2 * HALF };

heed_panel_layout heed_panel_layout_of(const heed_block_format *format)
{
    heed_panel_layout layout = {.format = format, .span = format->values};
    layout.groups = format->values / format->group;
    const bool offsets = format->sub.most_offset > 0, own = format->sub.most > 1;
    const size_t subs = own ? (size_t)layout.groups * HEED_PANEL : 0;
    layout.e = HEED_PANEL * sizeof(uint16_t);
    layout.sub_scale = layout.e * (offsets ? 2 : 1);
    layout.sub_offset = layout.sub_scale + subs;
    layout.levels = layout.sub_offset + (offsets ? subs : 0);
    layout.level_bytes = (size_t)format->bits * HEED_PANEL * HEED_WHOLE / 8;
    layout.bytes = layout.levels + layout.level_bytes * (size_t)(layout.span / HEED_WHOLE);
    return layout;
}

/* V[STEPS][VECTOR] into planes. */
static void put_nibbles(const uint8_t *v, uint8_t *to)
{
    for (int s = 0; s < STEPS; s++)
        for (int j = 0; j < HALF; j++)
            to[s * HALF + j] = (uint8_t)((v[s * VECTOR + j] & 15) | v[s * VECTOR + HALF + j] << 4);
}

static void put_pairs(const uint8_t *v, int from_bit, uint8_t *to)
{
    for (int h = 0; h < 2; h++)
        for (int s = 0; s < STEPS; s += 4)
            for (int j = 0; j < HALF; j++) {
                unsigned byte = 0;
                for (int b = 0; b < 4; b++)
                    byte |= (unsigned)(v[(s + b) * VECTOR + h * HALF + j] >> from_bit & 3) << 2 * b;
                to[(h * 2 + s / 4) * HALF + j] = (uint8_t)byte;
            }
}

static void put_singles(const uint8_t *v, int from_bit, uint8_t *to)
{
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < HALF; j++) {
            unsigned byte = 0;
            for (int s = 0; s < STEPS; s++)
                byte |= (unsigned)(v[s * VECTOR + h * HALF + j] >> from_bit & 1) << s;
            to[h * HALF + j] = (uint8_t)byte;
        }
}

static void put_levels(int bits, const uint8_t *v, uint8_t *to)
{
    if (bits == 8) {
        memcpy(to, v, STEPS * VECTOR);
        return;
    }
    if (bits >= 4)
        put_nibbles(v, to);
    else
        put_pairs(v, 0, to);
    if (bits == 6)
        put_pairs(v, 4, to + STEPS * HALF);
    else if (bits == 5)
        put_singles(v, 4, to + STEPS * HALF);
    else if (bits == 3)
        put_singles(v, 2, to + STEPS * HALF / 2);
}

/* The level of row r, column c of 32. */
static int level_at(int bits, const uint8_t *from, int r, int c)
{
    const int s = c / HEED_STEP, j = r % (HEED_PANEL / 2) * HEED_STEP + c % HEED_STEP,
              h = r / (HEED_PANEL / 2);
    if (bits == 8)
        return from[s * VECTOR + h * HALF + j];
    const int pair_at = (h * 2 + s / 4) * HALF + j, pair_bit = 2 * (s % 4);
    const uint8_t *more = from + (bits >= 4 ? STEPS * HALF : STEPS * HALF / 2);
    int level = bits >= 4 ? from[s * HALF + j] >> 4 * h & 15 : from[pair_at] >> pair_bit & 3;
    if (bits == 6)
        level |= (more[pair_at] >> pair_bit & 3) << 4;
    else if (bits == 5 || bits == 3)
        level |= (more[h * HALF + j] >> s & 1) << (bits - 1);
    return level;
}

static const uint8_t *row_of(const heed_tensor *weights, int64_t row)
{
    return (const uint8_t *)weights->data + row * weights->stride[0];
}

/* Row r of the span. */
static void put_row(const heed_panel_layout *layout, const heed_block_parts *parts, int r, uint8_t *span)
{
    const heed_block_format *format = layout->format;
    ((uint16_t *)(void *)span)[r] = parts->d;
    if (format->sub.most_offset > 0)
        ((uint16_t *)(void *)(span + layout->e))[r] = parts->e;
    for (int g = 0; g < layout->groups && format->sub.most > 1; g++) {
        span[layout->sub_scale + (size_t)(g * HEED_PANEL + r)] = (uint8_t)parts->sub_scale[g];
        if (format->sub.most_offset > 0)
            span[layout->sub_offset + (size_t)(g * HEED_PANEL + r)] = parts->sub_offset[g];
    }
}

void heed_panel_pack_blocks(const heed_segment *segment, const heed_tensor *weights, int64_t row,
                            int64_t depth, uint8_t *panel)
{
    const heed_panel_layout *layout = &segment->layout;
    const heed_block_format *format = layout->format;
    const int64_t blocks = (weights->shape[1] + layout->span - 1) / layout->span;
    const int rows = (int)(segment->rows - row < HEED_PANEL ? segment->rows - row : HEED_PANEL);
    uint32_t v[HEED_MOST_VALUES / HEED_STEP][HEED_PANEL]; /* 4 columns of a row each */
    for (int64_t b = 0; b < depth / layout->span; b++, panel += layout->bytes) {
        for (int r = 0; r < HEED_PANEL; r++) {
            heed_block_parts parts;
            if (r < rows && b < blocks) {
                const uint8_t *block = row_of(weights, row + r) + b * format->bytes;
                __builtin_prefetch(block +
                                   384); /* 32 rows side by side are too many streams for the processor */
                format->take(block, &parts);
            } else
                memset(&parts, 0, sizeof parts);
            put_row(layout, &parts, r, panel);
            for (int s = 0; s < layout->span / HEED_STEP; s++)
                memcpy(&v[s][r], parts.level + HEED_STEP * s, HEED_STEP);
        }
        for (int s = 0; s < layout->span / HEED_STEP; s += STEPS)
            put_levels(format->bits, (const uint8_t *)v[s],
                       panel + layout->levels + (size_t)(s / STEPS) * layout->level_bytes);
    }
}

void heed_panel_pack_floats(const heed_segment *segment, const heed_tensor *weights, int64_t row,
                            uint8_t *panel)
{
    enum { AT_ONCE = 256 };
    const int64_t cols = weights->shape[1], size = heed_type_bytes(weights->type, 1);
    const int rows = (int)(segment->rows - row < HEED_PANEL ? segment->rows - row : HEED_PANEL);
    float x[AT_ONCE];
    uint16_t half[AT_ONCE];
    memset(panel, 0, segment->panel_bytes);
    for (int r = 0; r < HEED_PANEL; r++)
        for (int64_t c = 0; c < cols; c += AT_ONCE) {
            const int n = (int)(cols - c < AT_ONCE ? cols - c : AT_ONCE);
            memset(x, 0, sizeof x);
            memset(half, 0, sizeof half);
            if (r < rows && segment->type == HEED_F32)
                heed_load(weights->type, row_of(weights, row + r) + c * size, x, n);
            else if (r < rows)
                memcpy(half, row_of(weights, row + r) + c * size, (size_t)n * sizeof *half);
            for (int i = 0; i < n; i++)
                if (segment->type == HEED_F32)
                    ((float *)(void *)panel)[(c + i) * HEED_PANEL + r] = x[i];
                else
                    ((uint16_t *)(void *)panel)[(c + i) * HEED_PANEL + r] = half[i];
        }
}

static void block_row(const heed_panel_layout *layout, const uint8_t *span, int r, float *x)
{
    const heed_block_format *format = layout->format;
    heed_block_parts parts = {
        .d = ((const uint16_t *)(const void *)span)[r], .sub_scale = {1}, .sub_offset = {1}};
    if (format->sub.most_offset > 0)
        parts.e = ((const uint16_t *)(const void *)(span + layout->e))[r];
    for (int g = 0; g < layout->groups && format->sub.most > 1; g++) {
        parts.sub_scale[g] = (int8_t)span[layout->sub_scale + (size_t)(g * HEED_PANEL + r)];
        parts.sub_offset[g] = span[layout->sub_offset + (size_t)(g * HEED_PANEL + r)];
    }
    for (int i = 0; i < layout->span; i++)
        parts.level[i] = (uint8_t)level_at(
            format->bits, span + layout->levels + (size_t)(i / HEED_WHOLE) * layout->level_bytes, r,
            i % HEED_WHOLE);
    heed_block_values(format, &parts, x);
}

void heed_panel_row(const heed_segment *segment, const uint8_t *panel, int r, int64_t cols, float *to)
{
    if (!segment->layout.format) {
        const float *floats = (const float *)(const void *)panel;
        const uint16_t *halves = (const uint16_t *)(const void *)panel;
        for (int64_t c = 0; c < cols; c++) {
            const int64_t at = c * HEED_PANEL + r;
            to[c] = segment->type == HEED_F32   ? floats[at]
                    : segment->type == HEED_F16 ? heed_float_from_f16(halves[at])
                                                : heed_float_from_bf16(halves[at]);
        }
        return;
    }
    float x[HEED_MOST_VALUES];
    const int span = segment->layout.span;
    for (int64_t c = 0; c < cols; c += span, panel += segment->layout.bytes) {
        block_row(&segment->layout, panel, r, x);
        memcpy(to + c, x, (size_t)(cols - c < span ? cols - c : span) * sizeof *x);
    }
}
