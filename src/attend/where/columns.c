/* Columns (row 001.242): the last c positions of every stretch of l, as summaries that all see.
 *
 *     open when l - (at + 1) c <= k_pos(j) mod l < l - at c
 *
 * `causal & (block(l) | columns(l, c))` is the fixed pattern of Child et al.: Sparse Transformers, 2019;
 * heads may take other parts of the stretch by `at`.
 */
#include "attend/where/where.h"

enum { STRETCH, COUNT, AT };

/* Remainders that are open, both included. */
static heed_interval seen(const heed_form_state *form)
{
    const int64_t l = heed_whole(form, STRETCH), c = heed_whole(form, COUNT), at = heed_arg_int(form, AT);
    return (heed_interval){l - (at + 1) * c, l - at * c - 1};
}

static heed_status resolve(heed_form_state *form)
{
    const heed_interval open = seen(form);
    if (open.low >= 0)
        return HEED_OK;
    return heed_fail(HEED_INVALID, "where=columns: %lld columns at %d do not lie in a stretch of %lld",
                     (long long)heed_whole(form, COUNT), heed_arg_int(form, AT),
                     (long long)heed_whole(form, STRETCH));
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const int64_t l = heed_whole(form, STRETCH);
    const heed_interval open = seen(form);
    (void)range;
    for (int b = 0; b < keys->count; b++) {
        const int64_t low = keys->pos_min[b], high = keys->pos_max[b];
        const int64_t first = (int64_t)heed_floor_divide((double)low, (double)l) * l; /* of low's stretch */
        const bool here = low <= first + open.high && high >= first + open.low;
        const bool next = high >= first + l + open.low;
        const bool inside = low >= first + open.low && high <= first + open.high;
        state[b] = inside ? HEED_OPEN : here || next ? HEED_PARTLY : HEED_CLOSED;
    }
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const heed_interval seen_here = seen(form);
    const uint32_t low = (uint32_t)seen_here.low, high = (uint32_t)seen_here.high;
    uint32_t remainder[HEED_CHUNK];
    for (int col = 0, count; col < tile->cols; col += count) {
        count = heed_remainders(tile, col, heed_whole(form, STRETCH), remainder);
        for (int i = 0; i < tile->rows; i++) {
            uint8_t *restrict row = open + i * tile->stride + col;
            for (int j = 0; j < count; j++)
                row[j] = (remainder[j] >= low) & (remainder[j] <= high);
        }
    }
}

static const heed_arg args[] = {
    [STRETCH] = {.name = "l", HEED_WHOLE, .required = true, .summary = "positions of a stretch"},
    [COUNT] = {.name = "c", HEED_WHOLE, .value = 1, .summary = "columns of each stretch"},
    [AT] = {.name = "at",
            .kind = HEED_ARG_INT,
            .most = 1 << 20,
            .summary = "how many times c before its end they end"},
    {0},
};

const heed_form HEED_FORM(where_columns) = {
    .name = "columns",
    .stage = HEED_WHERE,
    .flags = HEED_SCATTERS,
    .summary = "every query sees the last c positions of every stretch of l",
    .formula = "l - (at + 1) c <= k_pos(j) mod l < l - at c",
    .source = "Child et al.: Generating Long Sequences with Sparse Transformers, 2019 (the fixed pattern)",
    .row = "001.242",
    .args = args,
    .resolve = resolve,
    .blocks = blocks,
    .mask = mask,
};
