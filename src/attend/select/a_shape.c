/* A-shape: the first keys and a window, in whole blocks.
 *
 * A row sees the blocks that hold the first `sinks` keys, its current block, which holds its last open key,
 * and the blocks before it that hold the `window` keys in front of the current block.
 *
 * As a `where`, causal & (window(w) | first(n)) means nearly the same; as a selector the form can be one
 * head's pattern among others, and keys behind the window stay in a cache. The same in decoding. Xiao et al.:
 * Efficient Streaming Language Models with Attention Sinks, 2023; A-shape in Jiang et al.: MInference 1.0,
 * 2024.
 */
#include "attend/select/block.h"

enum { SINKS, WINDOW, BLOCK };

static int64_t blocks_of(const heed_form_state *form, int argument)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    return (heed_arg_int(form, argument) + block - 1) / block;
}

static bool sees(const heed_form_state *form, int64_t block, int64_t current)
{
    return block < blocks_of(form, SINKS) || block >= current - blocks_of(form, WINDOW);
}

static void choose_blocks(const heed_form_state *form, heed_block_row *row)
{
    for (int b = 0; b < row->current; b++)
        if (!sees(form, b, row->current))
            row->value[b] = -INFINITY;
}

static void choose(const heed_form_state *form, heed_row *row)
{
    const int64_t block = heed_arg_int(form, BLOCK), current = heed_block_current(row, block);
    for (int64_t b = 0; b < current; b++)
        for (int64_t j = b * block; !sees(form, b, current) && j < heed_block_end(b, block, row->cols); j++)
            row->score[j] = -INFINITY;
}

static heed_block_rule block_rule(const heed_form_state *form)
{
    return (heed_block_rule){.keys = heed_arg_int(form, BLOCK)};
}

static const heed_arg args[] = {
    [SINKS] = {.name = "sinks",
               .kind = HEED_ARG_INT,
               .value = 64,
               .least = 0,
               .most = INFINITY,
               .summary = "first keys that all see"},
    [WINDOW] = {.name = "window",
                .kind = HEED_ARG_INT,
                .value = 1024,
                .least = 0,
                .most = INFINITY,
                .summary = "keys in front of the current block"},
    [BLOCK] = {.name = "block",
               .kind = HEED_ARG_INT,
               .value = 64,
               .least = 1,
               .most = INFINITY,
               .summary = "keys in a block"},
    {0},
};

const heed_form HEED_FORM(select_a_shape) = {
    .name = "a_shape",
    .stage = HEED_SELECT,
    .summary = "the first keys and a window, in whole blocks",
    .formula = "blocks below sinks, and those from window keys in front of the current one on",
    .source = "Jiang et al.: MInference 1.0, 2024",
    .args = args,
    .choose = choose,
    .block_rule = block_rule,
    .choose_blocks = choose_blocks,
};
