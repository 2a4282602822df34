/* Block-local attention: a query sees the keys of its own block of b positions.
 *
 *     open when floor(p(i) / b) = floor(k_pos(j) / b)
 *
 * Child et al.: Generating Long Sequences with Sparse Transformers, 2019; Qiu et al.: Blockwise
 * Self-Attention, 2019.
 */
#include "attend/where/where.h"

static heed_interval seen(const heed_form_state *form, int32_t p)
{
    const int64_t b = heed_whole(form, 0);
    const int64_t first = heed_floor_divide(p, (double)b) * b;
    return (heed_interval){first, first + b - 1};
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
    {.name = "b",
     HEED_WHOLE,
     .required = true,
     .summary = "positions in a block; block 0 begins at position 0"},
    {0},
};

const heed_form HEED_FORM(where_block) = {
    .name = "block",
    .stage = HEED_WHERE,
    .summary = "a query sees its own block of b positions",
    .formula = "floor(p(i) / b) = floor(k_pos(j) / b)",
    .source = "Qiu et al.: Blockwise Self-Attention for Long Document Understanding, 2019",
    .args = args,
    .blocks = blocks,
    .mask = mask,
};
