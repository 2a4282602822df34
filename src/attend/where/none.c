/* No key is seen: every output is 0. `!none` is `all`. */
#include "attend/where/where.h"

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    (void)form, (void)range;
    memset(state, HEED_CLOSED, (size_t)keys->count);
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    (void)form;
    for (int i = 0; i < tile->rows; i++)
        memset(open + i * tile->stride, 0, (size_t)tile->cols);
}

const heed_form HEED_FORM(where_none) = {
    .name = "none",
    .stage = HEED_WHERE,
    .summary = "no query sees any key",
    .formula = "open never",
    .blocks = blocks,
    .mask = mask,
};
