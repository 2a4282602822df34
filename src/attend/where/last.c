/* The last n positions, seen by all.
 *
 *     open when k_pos(j) >= P - n,     P = 1 + the largest position of the keys that exist
 */
#include "attend/where/where.h"

static heed_interval seen(const heed_form_state *form, const heed_inputs *inputs, int batch)
{
    return (heed_interval){inputs->key_end[batch] - heed_whole(form, 0), INT32_MAX};
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const heed_interval last = seen(form, range->inputs, range->batch);
    heed_interval_blocks(last, last, keys, state);
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    for (int i = 0; i < tile->rows; i++)
        heed_interval_row(seen(form, tile->inputs, tile->batch), tile, open + i * tile->stride);
}

static const heed_arg args[] = {
    {.name = "n", HEED_WHOLE, .required = true, .summary = "the last n positions are open"},
    {0},
};

const heed_form HEED_FORM(where_last) = {
    .name = "last",
    .stage = HEED_WHERE,
    .summary = "every query sees the last n positions of its batch entry",
    .formula = "k_pos(j) >= P - n, P = 1 + the largest k_pos of the keys that exist",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
