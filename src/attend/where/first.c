/* The first n positions, seen by all: the attention sinks of streaming attention.
 *
 *     open when k_pos(j) < n
 *
 * Xiao et al.: Efficient Streaming Language Models with Attention Sinks, 2023.
 */
#include "attend/where/where.h"

static heed_interval seen(const heed_form_state *form)
{
    return (heed_interval){INT32_MIN, heed_whole(form, 0) - 1};
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    (void)range;
    heed_interval_blocks(seen(form), seen(form), keys, state);
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    for (int i = 0; i < tile->rows; i++)
        heed_interval_row(seen(form), tile, open + i * tile->stride);
}

static const heed_arg args[] = {
    {.name = "n", HEED_WHOLE, .required = true, .summary = "positions below n are open"},
    {0},
};

const heed_form HEED_FORM(where_first) = {
    .name = "first",
    .stage = HEED_WHERE,
    .summary = "every query sees the first n positions",
    .formula = "k_pos(j) < n",
    .source = "Xiao et al.: Efficient Streaming Language Models with Attention Sinks, 2023",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
