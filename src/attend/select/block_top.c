/* Block-sparse attention by pooled queries: the blocks of keys whose mean is nearest to the mean of a block
 * of queries.
 *
 *     g_b = mean of q over the block of queries · mean of the keys of block b
 *
 * Queries whose index falls into the same run of `block` are one block. A row's current block, which holds
 * its last open key, is always chosen, and with it the blocks of largest g, k in total, of equal ones the
 * lower. Blocks without an open key are no candidates. Keys and queries are those that are multiplied.
 *
 * Queries that come in different executions are not pooled: one that comes alone chooses by itself, as with
 * moba. Jiang et al.: MInference 1.0, 2024 (its block-sparse pattern).
 */
#include "attend/select/mean.h"

static heed_block_rule block_rule(const heed_form_state *form)
{
    return (heed_block_rule){.keys = heed_mean_block(form), .queries = (int)heed_mean_block(form)};
}

static const heed_arg args[] = {
    {.name = "block",
     .kind = HEED_ARG_INT,
     .value = 64,
     .least = 2,
     .most = 256,
     .summary = "queries, and keys, in a block"},
    {.name = "k",
     .kind = HEED_ARG_INT,
     .value = 100,
     .least = 1,
     .most = INFINITY,
     .summary = "blocks kept a row, the current one counted"},
    {0},
};

const heed_form HEED_FORM(select_block_top) = {
    .name = "block_top",
    .stage = HEED_SELECT,
    .summary = "for each block of queries the blocks of keys nearest to its mean",
    .formula = "k blocks of largest mean(q of the block) · mean(keys of the block), the current one always",
    .source = "Jiang et al.: MInference 1.0, 2024",
    .args = args,
    .summary_floats = heed_mean_summary_floats,
    .summarise = heed_mean_summarise,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .block_query = heed_mean_query,
    .choose_blocks = heed_mean_choose,
};
