/* Sliding window: a query sees the keys near it.
 *
 *     open when |p(i) - k_pos(j)| < w
 *
 * w=1 is itself only; `causal & window(w)` is the last w tokens, itself counted. Beltagy, Peters, Cohan:
 * Longformer, 2020.
 */
#include "attend/where/where.h"

static heed_interval seen(const heed_form_state *form, int64_t p)
{
    const int64_t w = heed_whole(form, 0);
    return (heed_interval){p - w + 1, p + w - 1};
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    heed_interval_blocks(seen(form, range->pos_min), seen(form, range->pos_max), keys, state);
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    for (int i = 0; i < tile->rows; i++)
        heed_interval_row(seen(form, tile->query_pos[i]), tile, open + i * tile->stride);
}

static const heed_arg args[] = {
    {.name = "w", HEED_WHOLE, .required = true, .summary = "distances below w are open, to both sides"},
    {0},
};

const heed_form HEED_FORM(where_window) = {
    .name = "window",
    .stage = HEED_WHERE,
    .summary = "a query sees keys at a distance below w",
    .formula = "|p(i) - k_pos(j)| < w",
    .source = "Beltagy et al.: Longformer, 2020",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
