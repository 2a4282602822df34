/* Rows of floats times a panel: of floats where they lie, or of a chunk made into floats first (16-bit
 * floats, block formats).
 *
 * A sum goes along a chunk of 256 columns by multiply-adds, one after the other, starting from zero; chunks'
 * sums are added in order. So the rounding error grows with the root of the columns' number, not with itself,
 * and a row has the same bits in any company.
 */
#include "tensor/kernels/parts.h"

#define AHEAD 4096 /* values read ahead of their use */

INLINE void sums(const int rows, const float *panel, const float *x, int64_t cols, bool fresh, int pass,
                 float *to)
{
    floats sum[FLOAT_ROWS][FLOAT_VECTORS];
    panel += pass * FLOAT_VECTORS * LANES;
    to += pass * FLOAT_VECTORS * LANES;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int p = 0; p < FLOAT_VECTORS; p++)
            sum[r][p] = (floats){0};
    for (int64_t c = 0; c < cols; c += HEED_STEP, x += HEED_STEP * rows)
#pragma GCC unroll 4
        for (int i = 0; i < HEED_STEP; i++, panel += HEED_PANEL) {
            floats w[FLOAT_VECTORS];
#pragma GCC unroll 8
            for (int p = 0; p < FLOAT_VECTORS; p++)
                w[p] = *(const floats *)(const void *)(panel + LANES * p);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
                for (int p = 0; p < FLOAT_VECTORS; p++)
                    sum[r][p] = add_product(sum[r][p], w[p], all(x[HEED_STEP * r + i]));
        }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int p = 0; p < FLOAT_VECTORS; p++) {
            floats *at = (floats *)(void *)(to + r * HEED_PANEL + LANES * p);
            *at = fresh ? sum[r][p] : (floats)(*at + sum[r][p]);
        }
}

#define SUMS(rows)                                                                                           \
    static void sums_##rows(const float *panel, const float *x, int64_t cols, bool fresh, float *to)         \
    {                                                                                                        \
        for (int pass = 0; pass < PANEL_VECTORS / FLOAT_VECTORS; pass++)                                     \
            sums(rows, panel, x, cols, fresh, pass, to);                                                     \
    }

SUMS(1)
SUMS(2)
SUMS(3)
SUMS(4)
SUMS(5)
SUMS(6)
#if FLOAT_ROWS == 12
SUMS(7)
SUMS(8)
SUMS(9)
SUMS(10)
SUMS(11)
SUMS(12)
#endif

static void (*const tile_sums[FLOAT_ROWS])(const float *, const float *, int64_t, bool, float *) = {
    sums_1, sums_2, sums_3, sums_4,  sums_5,  sums_6,
#if FLOAT_ROWS == 12
    sums_7, sums_8, sums_9, sums_10, sums_11, sums_12,
#endif
};

/* Columns first.. of the panel as floats [cols][32]; where they lie if they are. */
static const float *chunk_of_floats(const heed_segment *segment, const uint8_t *panel, int64_t first,
                                    int64_t cols, const heed_product_work *work)
{
    const int64_t at = first * HEED_PANEL;
    if (segment->type == HEED_F32)
        return (const float *)(const void *)panel + at;
    const uint16_t *from = (const uint16_t *)(const void *)panel + at;
    for (int64_t i = 0; i < cols * HEED_PANEL; i += LANES)
        *(floats *)(void *)(work->panel + i) = from_halves(from + i, segment->type == HEED_BF16);
    return work->panel;
}

/* One row times columns of 16-bit floats where they lie: the same sums as after making floats of them, at the
 * pace of memory. */
INLINE void one_row(const int bf16, const uint16_t *panel, const float *x, int64_t cols, bool fresh,
                    float *to)
{
    floats sum[PANEL_VECTORS];
#pragma GCC unroll 8
    for (int p = 0; p < PANEL_VECTORS; p++)
        sum[p] = (floats){0};
    for (int64_t c = 0; c < cols; c++, panel += HEED_PANEL) {
        __builtin_prefetch(panel + AHEAD, 0, 3);
#pragma GCC unroll 8
        for (int p = 0; p < PANEL_VECTORS; p++)
            sum[p] = add_product(sum[p], from_halves(panel + LANES * p, bf16), all(x[c]));
    }
#pragma GCC unroll 8
    for (int p = 0; p < PANEL_VECTORS; p++) {
        floats *at = (floats *)(void *)(to + LANES * p);
        *at = fresh ? sum[p] : (floats)(*at + sum[p]);
    }
}

static void one_row_of_halves(const heed_segment *segment, const uint8_t *panel, int64_t cols, const float *x,
                              const heed_product_work *work)
{
    const uint16_t *from = (const uint16_t *)(const void *)panel;
    for (int64_t c = 0; c < cols; c += HEED_FLOAT_CHUNK, from += HEED_FLOAT_CHUNK * HEED_PANEL) {
        const int64_t wide = cols - c < HEED_FLOAT_CHUNK ? cols - c : HEED_FLOAT_CHUNK;
        if (segment->type == HEED_BF16)
            one_row(1, from, x + c, wide, c == 0, work->sum);
        else
            one_row(0, from, x + c, wide, c == 0, work->sum);
    }
}

static void add_chunk(const float *panel, const float *x, int64_t first, int64_t cols, int64_t all_cols,
                      int64_t rows, float *sum)
{
    for (int64_t r = 0; r < rows; r += FLOAT_ROWS) {
        const int here = (int)(rows - r < FLOAT_ROWS ? rows - r : FLOAT_ROWS);
        tile_sums[here - 1](panel, x + r * all_cols + first * here, cols, first == 0, sum + r * HEED_PANEL);
    }
}

void heed_float_panel(const heed_segment *segment, const uint8_t *panel, int64_t cols, const float *x,
                      int64_t rows, const heed_product_work *work, const heed_product_out *out)
{
    const heed_panel_layout *layout = &segment->layout;
    const bool blocks = layout->format != NULL;
    const whole_facts facts = blocks ? heed_whole_facts_of(layout->format, SIGNED_LEVELS) : (whole_facts){0};
    const int64_t batch = HEED_BATCH / FLOAT_ROWS * FLOAT_ROWS;
    const int64_t span = blocks && layout->span > HEED_FLOAT_CHUNK ? layout->span : HEED_FLOAT_CHUNK;
    if (rows == 1 && (segment->type == HEED_F16 || segment->type == HEED_BF16)) {
        one_row_of_halves(segment, panel, cols, x, work);
        heed_finish_rows(work->sum, 0, 1, out);
        return;
    }
    for (int64_t b = 0; b < rows; b += batch) {
        const int64_t here = rows - b < batch ? rows - b : batch;
        for (int64_t c = 0; c < cols; c += HEED_FLOAT_CHUNK) {
            const int64_t wide = cols - c < HEED_FLOAT_CHUNK ? cols - c : HEED_FLOAT_CHUNK;
            const float *chunk = work->panel;
            if (!blocks)
                chunk = chunk_of_floats(segment, panel, c, wide, work);
            else {
                const int64_t left = (cols + layout->span - 1) / layout->span * layout->span - c;
                if (c % span == 0)
                    heed_whole_unpack[segment->type](layout, panel, c, left < span ? left : span, work);
                heed_whole_floats(work, &facts, c % span, (wide + HEED_STEP - 1) / HEED_STEP * HEED_STEP);
            }
            add_chunk(chunk, x + b * cols, c, wide, cols, here, work->sum);
        }
        heed_finish_rows(work->sum, b, here, out);
    }
}
