/* Mixture of block attention: the blocks of keys whose mean is nearest to the query.
 *
 *     g_b = q · mean of the keys of block b
 *
 * The row's current block, which holds its last open key, is always chosen, and with it the blocks of largest
 * g, k in total, of equal ones the lower. Blocks without an open key are no candidates. Keys and queries are
 * those that are multiplied: after rope, say.
 *
 * share=group: the query heads of a kv head choose together, by the largest of their g.
 *
 * The mean is of all keys of a block, also of those that the row does not see; under `causal` only the
 * current block has such keys. Lu et al.: MoBA, 2025.
 */
#include "attend/select/mean.h"

static heed_block_rule block_rule(const heed_form_state *form)
{
    return (heed_block_rule){.keys = heed_mean_block(form), .by_group = form->arg[2].number == 1};
}

static const heed_arg args[] = {
    {.name = "block",
     .kind = HEED_ARG_INT,
     .value = 512,
     .least = 1,
     .most = INFINITY,
     .summary = "keys in a block"},
    {.name = "k",
     .kind = HEED_ARG_INT,
     .value = 3,
     .least = 1,
     .most = INFINITY,
     .summary = "blocks kept a row, the current one counted"},
    HEED_SHARE_ARG,
    {0},
};

const heed_form HEED_FORM(select_moba) = {
    .name = "moba",
    .stage = HEED_SELECT,
    .summary = "the current block of keys, and those whose mean is nearest to the query",
    .formula = "k blocks of largest q · mean(keys of the block), the current one always",
    .source = "Lu et al.: MoBA, 2025",
    .row = "001.126",
    .args = args,
    .summary_floats = heed_mean_summary_floats,
    .summarise = heed_mean_summarise,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .block_query = heed_mean_query,
    .choose_blocks = heed_mean_choose,
};
