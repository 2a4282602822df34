/* Packed sequences, and phrases of a melody with the notes they rest on (row 000.000): a query sees the keys
 * of its own segment.
 *
 *     open when q_segment[i] = k_segment[j]
 *
 * Krell et al.: Efficient Sequence Packing without Cross-contamination, 2021.
 */
#include "attend/where/where.h"

/* Least and largest of n segments. */
static heed_interval span(const int32_t *restrict segment, int64_t n)
{
    int32_t least = INT32_MAX, most = INT32_MIN;
#pragma omp simd reduction(min : least) reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        least = segment[i] < least ? segment[i] : least;
        most = segment[i] > most ? segment[i] : most;
    }
    return (heed_interval){least, most};
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    (void)form;
    const int32_t *query = heed_query_segments(range->inputs, range->batch),
                  *key = heed_key_segments(range->inputs, range->batch);
    const heed_interval q = span(query + range->first, range->last - range->first + 1);
    for (int b = 0; b < keys->count; b++) {
        const int64_t first = keys->first + (int64_t)b * keys->size;
        const heed_interval k = span(key + first, heed_clamp(keys->keys - first, 0, keys->size));
        const bool apart = k.high < q.low || k.low > q.high;
        const bool same = q.low == q.high && k.low == k.high;
        state[b] = apart ? HEED_CLOSED : same ? HEED_OPEN : HEED_PARTLY;
    }
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const int rows = heed_real_rows(form, tile), cols = heed_real_cols(tile);
    const int32_t *query = heed_query_segments(tile->inputs, tile->batch) + tile->query0;
    const int32_t *restrict key = heed_key_segments(tile->inputs, tile->batch) + tile->key0;
    for (int i = 0; i < tile->rows; i++) {
        uint8_t *restrict row = open + i * tile->stride;
        const int real = i < rows ? cols : 0;
        const int32_t mine = i < rows ? query[i] : 0;
        for (int j = 0; j < real; j++)
            row[j] = key[j] == mine;
        memset(row + real, 0, (size_t)(tile->cols - real));
    }
}

const heed_form HEED_FORM(where_segments) = {
    .name = "segments",
    .stage = HEED_WHERE,
    .summary = "a query sees the keys of its own segment",
    .formula = "q_segment[i] = k_segment[j]",
    .source = "Krell et al.: Efficient Sequence Packing without Cross-contamination, 2021",
    .row = "000.000",
    .flags = HEED_NEEDS_SEGMENTS | HEED_SCATTERS,
    .blocks = blocks,
    .mask = mask,
};
