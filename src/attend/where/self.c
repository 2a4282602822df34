/* A query sees the key at its own position; `!self` leaves it out.
 *
 *     open when p(i) = k_pos(j)
 */
#include "attend/where/where.h"

static heed_interval seen(int64_t p)
{
    return (heed_interval){p, p};
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    (void)form;
    heed_interval_blocks(seen(range->pos_min), seen(range->pos_max), keys, state);
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    (void)form;
    for (int i = 0; i < tile->rows; i++)
        heed_interval_row(seen(tile->query_pos[i]), tile, open + i * tile->stride);
}

const heed_form HEED_FORM(where_self) = {
    .name = "self",
    .stage = HEED_WHERE,
    .summary = "a query sees the key at its own position",
    .formula = "p(i) = k_pos(j)",
    .blocks = blocks,
    .mask = mask,
};
