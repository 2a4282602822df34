/* A panel of a block format times tiles of whole numbers: which kernel, in which order. */
#include "tensor/kernels/parts.h"

whole_facts heed_whole_facts_of(const heed_block_format *format, bool signed_levels)
{
    const bool full = format->table || format->bits == 8;
    return (whole_facts){.zero = full ? (signed_levels ? 0 : 128) : format->zero,
                         .group = format->group,
                         .offsets = format->sub.most_offset > 0};
}

/* Columns first.. of a tile. */
static whole_piece take_piece(const heed_whole_tile *tile, const whole_facts *facts, int64_t first,
                              int64_t cols)
{
    const int64_t rows = tile->rows, at = first / facts->group * rows;
    const heed_whole_sums *sums = facts->group == HEED_WHOLE ? &tile->by32 : &tile->by16;
    return (whole_piece){.rows = tile->rows,
                         .blocks = cols / HEED_WHOLE,
                         .whole = tile->whole + first * rows,
                         .scale = tile->scale + first / HEED_WHOLE * rows,
                         .sum = sums->sum + at,
                         .shift = sums->shift + at};
}

/* The whole sums of a piece start at what the level that stands for 0 takes away. */
static void begin_piece(whole_piece *piece, const whole_facts *facts, int32_t *init)
{
    const int64_t numbers = piece->blocks * HEED_WHOLE / facts->group * piece->rows;
    for (int64_t i = 0; i < numbers; i++)
        init[i] = -facts->zero * piece->sum[i];
    piece->init = init;
}

/* Columns of a chunk: whole spans, as evenly as can be. */
static int64_t chunk_of(int64_t depth, int span)
{
    if (span > HEED_WHOLE)
        return HEED_CHUNK / span * span;
    const int64_t chunks = (depth + HEED_CHUNK - 1) / HEED_CHUNK, even = (depth + chunks - 1) / chunks;
    return (even + span - 1) / span * span;
}

INLINE void finish(const float *sum, int64_t rows, float *to, int64_t stride, const float *bias, bool add)
{
    for (int64_t i = 0; i < rows; i++, sum += HEED_PANEL, to += stride)
#pragma GCC unroll 8
        for (int c = 0; c < HEED_PANEL; c += LANES) {
            floats x = *(const floats *)(const void *)(sum + c);
            floats_any *at = (floats_any *)(void *)(to + c);
            if (bias)
                x += *(const floats_any *)(const void *)(bias + c);
            *at = add ? (floats)(x + *at) : x;
        }
}

void heed_finish_rows(const float *sum, int64_t first, int64_t rows, const heed_product_out *out)
{
    float *to = out->out + first * out->stride;
    if (out->count == HEED_PANEL && !out->bias && !out->add) {
        finish(sum, rows, to, out->stride, NULL, false);
        return;
    }
    if (out->count == HEED_PANEL) {
        finish(sum, rows, to, out->stride, out->bias, out->add);
        return;
    }
    for (int64_t i = 0; i < rows; i++, sum += HEED_PANEL, to += out->stride)
        for (int c = 0; c < out->count; c++) {
            const float x = out->bias ? sum[c] + out->bias[c] : sum[c];
            to[c] = out->add ? x + to[c] : x;
        }
}

/* Adds the sums of second bytes to rows that have some, and to no others: -0 + 0 has other bits than -0. */
static void add_low(const heed_whole_tile *tile, const float *low, float *sum)
{
    int last = -1;
    for (int64_t i = 0; i < tile->deeps; i++) {
        const int row = tile->deep[i].row;
        for (int c = row * HEED_PANEL; c < (row + 1) * HEED_PANEL && row != last; c++)
            sum[c] += low[c];
        last = row;
    }
}

/* Fetches the lines that sums will be written to while these are worked out. */
static void ask_for_rows(int64_t first, int rows, const heed_product_out *out)
{
    const float *to = out->out + first * out->stride;
    for (int r = 0; r < rows; r++, to += out->stride)
        for (int c = 0; c < out->count; c += 16)
            __builtin_prefetch(to + c, 1, 3);
}

void heed_whole_panel(const heed_segment *segment, const uint8_t *panel, int64_t depth,
                      const heed_whole_tile *tile, int64_t tiles, const heed_product_work *work,
                      const heed_product_out *out)
{
    const heed_panel_layout *layout = &segment->layout;
    const whole_facts facts = heed_whole_facts_of(layout->format, SIGNED_LEVELS);
    if (tiles == 1 && tile->rows == 1) {
        const whole_piece piece = take_piece(tile, &facts, 0, depth);
        heed_whole_few[segment->type](layout, panel, &piece, work->sum);
        if (tile->deeps > 0) {
            memset(work->low, 0, HEED_PANEL * sizeof *work->low);
            heed_whole_few_low[segment->type](layout, panel, tile->deep, tile->deeps, work->low);
            add_low(tile, work->low, work->sum);
        }
        heed_finish_rows(work->sum, 0, 1, out);
        return;
    }
    const int64_t chunk = chunk_of(depth, layout->span), batch = HEED_BATCH / TILE_ROWS;
    for (int64_t first = 0; first < tiles; first += batch) {
        const int64_t last = first + batch < tiles ? first + batch : tiles;
        for (int64_t c = 0; c < depth; c += chunk) {
            const int64_t cols = depth - c < chunk ? depth - c : chunk;
            heed_whole_unpack[segment->type](layout, panel, c, cols, work);
            for (int64_t t = first; t < last; t++) {
                float *sum = work->sum + (t - first) * TILE_ROWS * HEED_PANEL;
                whole_piece piece = take_piece(&tile[t], &facts, c, cols);
                begin_piece(&piece, &facts, work->init);
                if (c + cols == depth)
                    ask_for_rows(t * TILE_ROWS, tile[t].rows, out);
                heed_whole_tile_sums[segment->type][tile[t].rows - 1](work, &piece, c == 0, sum);
                if (tile[t].deeps > 0) {
                    float *low = work->low + (sum - work->sum);
                    if (c == 0)
                        memset(low, 0, TILE_ROWS * HEED_PANEL * sizeof *low);
                    heed_whole_tile_low[segment->type](work, &tile[t], c / HEED_WHOLE, cols / HEED_WHOLE,
                                                       low);
                    if (c + cols == depth)
                        add_low(&tile[t], low, sum);
                }
                if (c + cols == depth)
                    heed_finish_rows(sum, t * TILE_ROWS, tile[t].rows, out);
            }
        }
    }
}

const heed_product_kernels heed_product_kernel_table = {
#if defined(__AVX512F__)
    .name = "avx512-vnni",
#elif defined(__AVX2__)
    .name = "avx2",
#elif defined(__aarch64__)
    .name = "neon",
#else
    .name = "portable",
#endif
    .whole_rows = TILE_ROWS,
    .float_rows = FLOAT_ROWS,
    .to_whole = heed_to_whole,
    .to_floats = heed_to_floats,
    .whole_panel = heed_whole_panel,
    .float_panel = heed_float_panel,
};
