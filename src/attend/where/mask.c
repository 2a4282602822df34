/* An arbitrary mask, given as bytes.
 *
 *     open when mask[i][j] != 0
 */
#include "attend/where/where.h"

/* Row of one query: [M] */
static const uint8_t *row_of(const heed_inputs *inputs, int64_t batch, int64_t head, int64_t query)
{
    return inputs->mask + batch * inputs->mask_batch_stride + head * inputs->mask_head_stride +
           query * inputs->mask_row_stride;
}

enum { SOME_OPEN = 1, SOME_CLOSED = 2 };

static uint8_t look(const uint8_t *restrict byte, int64_t n)
{
    uint8_t least = 255, most = 0;
#pragma omp simd reduction(min : least) reduction(max : most)
    for (int64_t j = 0; j < n; j++) {
        least = byte[j] < least ? byte[j] : least;
        most = byte[j] > most ? byte[j] : most;
    }
    return (uint8_t)((most ? SOME_OPEN : 0) | (least ? 0 : SOME_CLOSED));
}

/* Row after row, as the bytes lie in memory. */
static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    (void)form;
    memset(state, 0, (size_t)keys->count);
    for (int64_t i = range->first; i <= range->last; i++) {
        const uint8_t *row = row_of(range->inputs, range->batch, range->head, i);
        for (int b = 0; b < keys->count; b++) {
            const int64_t first = keys->first + (int64_t)b * keys->size;
            if (state[b] != (SOME_OPEN | SOME_CLOSED))
                state[b] |= look(row + first, heed_clamp(keys->keys - first, 0, keys->size));
        }
    }
    static const uint8_t meaning[] = {HEED_CLOSED, HEED_OPEN, HEED_CLOSED, HEED_PARTLY};
    for (int b = 0; b < keys->count; b++)
        state[b] = meaning[state[b]];
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const int rows = heed_real_rows(form, tile), cols = heed_real_cols(tile);
    for (int i = 0; i < tile->rows; i++) {
        uint8_t *restrict row = open + i * tile->stride;
        const int real = i < rows ? cols : 0;
        const uint8_t *restrict given =
            row_of(tile->inputs, tile->batch, tile->head, i < rows ? tile->query0 + i : 0) + tile->key0;
        for (int j = 0; j < real; j++)
            row[j] = given[j] != 0;
        memset(row + real, 0, (size_t)(tile->cols - real));
    }
}

const heed_form HEED_FORM(where_mask) = {
    .name = "mask",
    .stage = HEED_WHERE,
    .summary = "the pairs whose byte in the mask is not 0",
    .formula = "mask[i][j] != 0",
    .flags = HEED_NEEDS_MASK | HEED_SCATTERS,
    .blocks = blocks,
    .mask = mask,
};
