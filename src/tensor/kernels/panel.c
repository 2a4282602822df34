/* A panel of a block format times tiles of whole numbers: which kernel, in which order. */
#include "tensor/kernels/parts.h"

whole_facts heed_whole_facts_of(const heed_block_format *format, bool signed_levels)
{
    const bool full = format->table || format->bits == 8;
    return (whole_facts){.zero = full ? (signed_levels ? 0 : 128) : format->zero,
                         .group = format->group,
                         .offsets = format->sub.most_offset > 0};
}

/* Columns first.. of a tile, with what its sums come to for this format. */
static whole_piece take_piece(const heed_whole_tile *tile, const whole_facts *facts, int64_t first,
                              int64_t cols, const heed_product_work *work)
{
    const int rows = tile->rows;
    const int32_t *sum = tile->sum + first / 16 * rows;
    const float *scale = tile->scale + first / HEED_WHOLE * rows;
    const int64_t blocks = cols / HEED_WHOLE;
    whole_piece piece = {.rows = rows,
                         .blocks = blocks,
                         .whole = tile->whole + first * rows,
                         .scale = scale,
                         .init = work->init,
                         .shift = work->shift};
    const int parts = HEED_WHOLE / facts->group;
    for (int64_t b = 0; b < blocks; b++)
        for (int g = 0; g < parts; g++)
            for (int r = 0; r < rows; r++) {
                const int32_t *from = sum + (2 * b + g) * rows + r;
                const int32_t total = parts == 2 ? *from : from[0] + from[rows];
                const int64_t to = (b * parts + g) * rows + r;
                work->init[to] = -facts->zero * total;
                work->shift[to] = scale[b * rows + r] * (float)total;
            }
    return piece;
}

/* Columns of a chunk: whole spans, as evenly as can be. */
static int64_t chunk_of(int64_t depth, int span)
{
    if (span > HEED_WHOLE)
        return HEED_CHUNK / span * span;
    const int64_t chunks = (depth + HEED_CHUNK - 1) / HEED_CHUNK, even = (depth + chunks - 1) / chunks;
    return (even + span - 1) / span * span;
}

void heed_finish_rows(const float *sum, int64_t first, int64_t rows, const heed_product_out *out)
{
    for (int64_t i = 0; i < rows; i++, sum += HEED_PANEL) {
        float *to = out->out + (first + i) * out->stride;
        for (int c = 0; c < out->count; c++) {
            float x = sum[c];
            if (out->bias)
                x += out->bias[c];
            to[c] = out->add ? x + to[c] : x;
        }
    }
}

void heed_whole_panel(const heed_segment *segment, const uint8_t *panel, int64_t depth,
                      const heed_whole_tile *tile, int64_t tiles, const heed_product_work *work,
                      const heed_product_out *out)
{
    const heed_panel_layout *layout = &segment->layout;
    const whole_facts facts = heed_whole_facts_of(layout->format, SIGNED_LEVELS);
    if (tiles == 1 && tile->rows == 1) {
        const whole_piece piece = take_piece(tile, &facts, 0, depth, work);
        heed_whole_few[segment->type](layout, panel, &piece, work->sum);
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
                const whole_piece piece = take_piece(&tile[t], &facts, c, cols, work);
                heed_whole_tile_sums[segment->type][tile[t].rows - 1](work, &piece, c == 0, sum);
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
