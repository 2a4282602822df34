/* Top-k: the k highest scores of a row; of equal scores the lower index first.
 *
 * Gupta, Dar, Goodman, Ciprut, Berant: Memory-efficient Transformers via Top-k Attention, 2021.
 */
#include "attend/select/cut.h"

static void choose(const heed_form_state *form, heed_row *row)
{
    heed_keep_highest(row->score, row->cols, heed_arg_int(form, 0), row->work);
}

static const heed_arg args[] = {
    {.name = "k",
     .kind = HEED_ARG_INT,
     .least = 1,
     .most = INFINITY,
     .required = true,
     .summary = "keys kept a row"},
    {0},
};

const heed_form HEED_FORM(select_top_k) = {
    .name = "top_k",
    .stage = HEED_SELECT,
    .summary = "the k highest scores of a row",
    .formula = "the k highest s(i, j); of equal ones the lower j",
    .source = "Gupta et al.: Memory-efficient Transformers via Top-k Attention, 2021",
    .args = args,
    .choose = choose,
};
