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
#include "attend/select/block.h"

static int64_t block_of(const heed_form_state *form)
{
    return heed_arg_int(form, 0);
}

/* [blocks][dim]: sums of the keys. Blocks before the current one are full, so that their sums are in the
 * order of their means. */
static int64_t summary_floats(const heed_form_state *form, int dim, int64_t keys)
{
    return (keys + block_of(form) - 1) / block_of(form) * dim;
}

static void summarise(const heed_form_state *form, const heed_rows *keys, int64_t key0, float *summary)
{
    heed_sum_blocks(keys, key0, block_of(form), summary);
}

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
    return (heed_block_rule){.keys = block_of(form), .queries = (int)block_of(form)};
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
    .summary_floats = summary_floats,
    .summarise = summarise,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .block_query = block_query,
    .choose_blocks = choose_blocks,
};
