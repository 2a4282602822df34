/* Vertical and slash lines of a head's map, found from its last queries.
 *
 *     c_b = weight that the last queries give to the keys of block b
 *     s_d = weight that they give to blocks that lie d blocks before their current one
 *
 * with the weights of full attention. Of the columns of blocks those of largest c are open to all queries, of
 * the diagonals those of largest s; of equal ones the lower. A row sees block b if its column is chosen, or
 * the diagonal of the distance from its current block (which holds its last open key) to b; always its
 * current one.
 *
 * The queries of one execution are observed, so a query that comes alone is judged by itself, after it has
 * seen all keys. Jiang et al.: MInference 1.0, 2024.
 */
#include "attend/select/block.h"

enum { BLOCK, COLUMNS, SLASHES, LAST };

/* [2][blocks]: c, then s; after settling infinite where chosen. */
static int64_t estimate_floats(const heed_form_state *form, int64_t blocks)
{
    (void)form;
    return 2 * blocks;
}

static void observe(const heed_form_state *form, const heed_observed *seen)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    const int64_t all = (form->sizes.keys + block - 1) / block;
    for (int i = 0; i < seen->rows; i++)
        for (int64_t b = 0; b <= seen->current[i]; b++) {
            const int64_t end = heed_block_end(b, block, seen->keys);
            float sum = 0;
            for (int64_t j = b * block; j < end; j++)
                sum += seen->weight[i * seen->stride + j];
            seen->estimate[b] += sum;
            seen->estimate[all + seen->current[i] - b] += sum;
        }
}

static void settle(const heed_form_state *form, const heed_settled *seen)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    const int64_t all = (form->sizes.keys + block - 1) / block;
    for (int line = 0; line < 2; line++) {
        float *value = seen->estimate + line * all;
        for (int b = 0; b < seen->blocks; b++)
            value[b] = heed_block_value(value[b]);
        heed_keep_highest(value, seen->blocks, heed_arg_int(form, COLUMNS + line), seen->work);
    }
}

static void choose_blocks(const heed_form_state *form, heed_block_row *row)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    const float *column = row->estimate, *slash = column + (form->sizes.keys + block - 1) / block;
    for (int b = 0; b < row->current; b++)
        if (column[b] == -INFINITY && slash[row->current - b] == -INFINITY)
            row->value[b] = -INFINITY;
}

static heed_block_rule block_rule(const heed_form_state *form)
{
    return (heed_block_rule){.keys = heed_arg_int(form, BLOCK), .observes = heed_arg_int(form, LAST)};
}

static const heed_arg args[] = {
    [BLOCK] = {.name = "block",
               .kind = HEED_ARG_INT,
               .value = 64,
               .least = 1,
               .most = INFINITY,
               .summary = "keys in a block"},
    [COLUMNS] = {.name = "columns",
                 .kind = HEED_ARG_INT,
                 .value = 16,
                 .least = 0,
                 .most = INFINITY,
                 .summary = "blocks that all queries see"},
    [SLASHES] = {.name = "slashes",
                 .kind = HEED_ARG_INT,
                 .value = 96,
                 .least = 0,
                 .most = INFINITY,
                 .summary = "diagonals of blocks"},
    [LAST] = {.name = "last",
              .kind = HEED_ARG_INT,
              .value = 64,
              .least = 1,
              .most = 65536,
              .summary = "queries that are observed"},
    {0},
};

const heed_form HEED_FORM(select_vertical_slash) = {
    .name = "vertical_slash",
    .stage = HEED_SELECT,
    .summary = "columns and diagonals of blocks that the last queries attend to",
    .formula = "block b of a row if its column or its distance is among those of largest weight",
    .source = "Jiang et al.: MInference 1.0, 2024",
    .args = args,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .choose_blocks = choose_blocks,
    .estimate_floats = estimate_floats,
    .observe = observe,
    .settle = settle,
};
