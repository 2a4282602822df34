/* Global tokens: the first n positions see everything and are seen by everything.
 *
 *     open when p(i) < n  or  k_pos(j) < n
 *
 * Beltagy et al.: Longformer, 2020; Zaheer et al.: Big Bird, 2020.
 */
#include "attend/where/where.h"

static heed_interval seen(const heed_form_state *form, int64_t p)
{
    const int64_t n = heed_whole(form, 0);
    return (heed_interval){INT32_MIN, p < n ? INT32_MAX : n - 1};
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    /* a query sees no more than one that stands before it */
    heed_interval_blocks(seen(form, range->pos_max), seen(form, range->pos_min), keys, state);
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    for (int i = 0; i < tile->rows; i++)
        heed_interval_row(seen(form, tile->query_pos[i]), tile, open + i * tile->stride);
}

static const heed_arg args[] = {
    {.name = "n", HEED_WHOLE, .required = true, .summary = "positions below n see all and are seen by all"},
    {0},
};

const heed_form HEED_FORM(where_global) = {
    .name = "global",
    .stage = HEED_WHERE,
    .summary = "the first n positions see all and are seen by all",
    .formula = "p(i) < n or k_pos(j) < n",
    .source = "Beltagy et al.: Longformer, 2020; Zaheer et al.: Big Bird, 2020",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
