/* Every key is seen: bidirectional attention. */
#include "attend/where/where.h"

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    (void)form, (void)range;
    memset(state, HEED_OPEN, (size_t)keys->count);
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    (void)form;
    for (int i = 0; i < tile->rows; i++)
        memset(open + i * tile->stride, 1, (size_t)tile->cols);
}

const heed_form HEED_FORM(where_all) = {
    .name = "all",
    .stage = HEED_WHERE,
    .summary = "every query sees every key",
    .formula = "open always",
    .source = "Vaswani et al.: Attention Is All You Need, 2017",
    .blocks = blocks,
    .mask = mask,
};
