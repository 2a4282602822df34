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
#include "attend/select/block.h"

static int64_t block_of(const heed_form_state *form)
{
    return heed_arg_int(form, 0);
}

/* [blocks][dim]: sums of the keys. A block before the current one is full, so that of two such blocks the one
 * with the larger sum along the query has the larger mean. */
static int64_t summary_floats(const heed_form_state *form, int dim, int64_t keys)
{
    return (keys + block_of(form) - 1) / block_of(form) * dim;
}

static void summarise(const heed_form_state *form, const heed_rows *keys, int64_t key0, float *summary)
{
    heed_sum_blocks(keys, key0, block_of(form), summary);
}

/* The product with the sum of a full block is g times its size. */
static void block_query(const heed_form_state *form, const float *query, int dim, float *out)
{
    (void)form;
    memcpy(out, query, (size_t)dim * sizeof *out);
}

static void choose_blocks(const heed_form_state *form, heed_block_row *row)
{
    heed_keep_blocks(row, heed_arg_int(form, 1) - 1);
}

static heed_block_rule block_rule(const heed_form_state *form)
{
    return (heed_block_rule){.keys = block_of(form), .by_group = form->arg[2].number == 1};
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
    .summary_floats = summary_floats,
    .summarise = summarise,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .block_query = block_query,
    .choose_blocks = choose_blocks,
};
