/* Causal attention: a query sees the keys up to its own position.
 *
 *     open when k_pos(j) <= p(i)
 *
 * Positions are aligned at the end, so that the last query sees the last key when a cache stands before the
 * new tokens. align=start counts queries from 0 instead: the diagonal starts in the upper left corner.
 * Vaswani et al. 2017.
 */
#include "attend/where/where.h"

static bool from_start(const heed_form_state *form)
{
    return form->arg[0].number == 1;
}

static heed_interval seen(int64_t p)
{
    return (heed_interval){INT32_MIN, p};
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    const bool start = from_start(form);
    heed_interval_blocks(seen(start ? range->first : range->pos_min),
                         seen(start ? range->last : range->pos_max), keys, state);
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    const bool start = from_start(form);
    for (int i = 0; i < tile->rows; i++)
        heed_interval_row(seen(start ? tile->query0 + i : tile->query_pos[i]), tile, open + i * tile->stride);
}

static const heed_option corners[] = {{.name = "end"}, {.name = "start"}, {0}};

static const heed_arg args[] = {
    {.name = "align",
     .kind = HEED_ARG_CHOICE,
     .options = corners,
     .summary = "end: the last query stands at the last key; start: query i stands at position i"},
    {0},
};

const heed_form HEED_FORM(where_causal) = {
    .name = "causal",
    .stage = HEED_WHERE,
    .summary = "a query sees the keys up to its own position",
    .formula = "k_pos(j) <= p(i)",
    .source = "Vaswani et al.: Attention Is All You Need, 2017",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
