/* SampleAttention: a window, and the columns to which a sample of the queries gives a share of its weight.
 *
 *     c_b = weight that the sampled queries give to the keys of block b, with the weights of full attention
 *
 * A share of the queries is sampled, evenly, the last one among them. The fewest columns of blocks whose c
 * sum to alpha of all are open to every query, highest c first, of equal ones the lower; with alpha=1 all
 * are. A row sees these and its last blocks, a share `window` of all, the current one always.
 *
 * Columns are blocks here, single keys in the paper. The queries of one execution are sampled, so a query
 * that comes alone is judged by itself. Zhu et al.: SampleAttention, 2024.
 */
#include "attend/select/block.h"

enum { ALPHA, ROWS, WINDOW, BLOCK };

static int64_t blocks_of(const heed_form_state *form)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    return (form->sizes.keys + block - 1) / block;
}

/* [blocks], and how many of them hold keys that exist */
static int64_t estimate_floats(const heed_form_state *form, int64_t blocks)
{
    (void)form;
    return blocks + 1;
}

static void observe(const heed_form_state *form, const heed_observed *seen)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    for (int i = 0; i < seen->rows; i++)
        for (int64_t b = 0; b <= seen->current[i]; b++)
            for (int64_t j = b * block; j < heed_block_end(b, block, seen->keys); j++)
                seen->estimate[b] += seen->weight[i * seen->stride + j];
}

static void settle(const heed_form_state *form, const heed_settled *seen)
{
    for (int b = 0; b < seen->blocks; b++)
        seen->estimate[b] = heed_block_value(seen->estimate[b]);
    seen->estimate[blocks_of(form)] = (float)seen->blocks;
    if (form->arg[ALPHA].number < 1)
        heed_keep_mass(seen->estimate, seen->blocks, form->arg[ALPHA].number, seen->work);
}

static void choose_blocks(const heed_form_state *form, heed_block_row *row)
{
    const double all = (double)row->estimate[blocks_of(form)];
    const int64_t window = (int64_t)ceil(form->arg[WINDOW].number * all);
    for (int b = 0; b < row->current && b <= row->current - window; b++)
        if (row->estimate[b] == -INFINITY)
            row->value[b] = -INFINITY;
}

static heed_block_rule block_rule(const heed_form_state *form)
{
    return (heed_block_rule){
        .keys = heed_arg_int(form, BLOCK), .observes = 1, .observes_share = form->arg[ROWS].number};
}

static const heed_arg args[] = {
    [ALPHA] = {.name = "alpha",
               .value = 0.95,
               .least = 0,
               .most = 1,
               .above = true,
               .summary = "share of the sampled weight whose columns are kept"},
    [ROWS] = {.name = "rows",
              .value = 0.05,
              .least = 0,
              .most = 1,
              .above = true,
              .summary = "share of the queries that is sampled"},
    [WINDOW] = {.name = "window",
                .value = 0.08,
                .least = 0,
                .most = 1,
                .summary = "share of the blocks that are the last ones of a row"},
    [BLOCK] = {.name = "block",
               .kind = HEED_ARG_INT,
               .value = 64,
               .least = 1,
               .most = INFINITY,
               .summary = "keys in a block"},
    {0},
};

const heed_form HEED_FORM(select_sample) = {
    .name = "sample",
    .stage = HEED_SELECT,
    .summary = "a window, and the columns that hold a share of the weight of sampled queries",
    .formula = "the last blocks, and the fewest columns whose sampled weight sums to alpha",
    .source = "Zhu et al.: SampleAttention, 2024",
    .row = "001.021",
    .args = args,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .choose_blocks = choose_blocks,
    .estimate_floats = estimate_floats,
    .observe = observe,
    .settle = settle,
};
