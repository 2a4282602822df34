/* Top-p: the fewest keys whose weights sum to at least p, highest weight first; of equal weights the lower
 * index first.
 *
 *     w_j = exp(s_j) / sum_m exp(s_m) over the open keys
 *
 * At least one key; p=1 keeps all. Lin et al.: Twilight, 2025, after nucleus sampling (Holtzman et al. 2020).
 */
#include "attend/select/share.h"

static void choose(const heed_form_state *form, heed_row *row)
{
    heed_keep_share(row->score, row->cols, form->arg[0].number, row->work);
}

static const heed_arg args[] = {
    {.name = "p",
     .least = 0,
     .above = true,
     .most = 1,
     .required = true,
     .summary = "share of the weights that is kept"},
    {0},
};

const heed_form HEED_FORM(select_top_p) = {
    .name = "top_p",
    .stage = HEED_SELECT,
    .summary = "the fewest keys whose weights sum to at least p",
    .formula = "highest weight first until they sum to p; of equal ones the lower j",
    .source = "Lin et al.: Twilight, 2025",
    .args = args,
    .choose = choose,
};
