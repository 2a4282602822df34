/* Sparsemax: the point of the simplex nearest to the scores; low scores weigh exactly 0.
 *
 *     w_j = max(0, s_j - tau),     tau so that sum w = 1
 *
 * This is entmax(alpha=2). Martins, Astudillo: From Softmax to Sparsemax, 2016.
 */
#include "attend/normalise/projection.h"

static const heed_alpha two = {.alpha = 2.0, .m = 1.0, .loops = HEED_ALPHA_2};

static void whole_row(const heed_form_state *form, heed_row *row)
{
    (void)form;
    heed_project(row, two);
}

static void whole_row_backward(const heed_form_state *form, heed_row *row)
{
    (void)form;
    heed_project_backward(row, two);
}

const heed_form HEED_FORM(normalise_sparsemax) = {
    .name = "sparsemax",
    .stage = HEED_NORMALISE,
    .summary = "nearest point of the simplex: low scores weigh exactly 0",
    .formula = "w = max(0, s - tau), sum w = 1",
    .source = "Martins and Astudillo 2016",
    .row = "001.107",
    .whole_row = whole_row,
    .whole_row_backward = whole_row_backward,
};
