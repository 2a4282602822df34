/* Entmax: from softmax (alpha = 1, nothing is 0) to sparsemax (alpha = 2) and beyond.
 *
 *     w_j = [(alpha - 1) s_j - tau]_+^(1 / (alpha - 1)),     tau so that sum w = 1
 *
 * alpha is an argument here, not learnt. Peters, Niculae, Martins: Sparse Sequence-to-Sequence Models, 2019.
 */
#include "attend/normalise/exp_down.h"
#include "attend/normalise/projection.h"

/* Nearer to 1, entmax and softmax are the same to float. */
static bool is_softmax(double alpha)
{
    return alpha - 1.0 < 1e-7;
}

static void softmax(const heed_row *row)
{
    float *z = row->score;
    float max;
    if (!heed_row_max(row, &max))
        return;
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < row->cols; j++) {
        z[j] = heed_exp_down(z[j] - max);
        sum += (double)z[j];
    }
    const float scale = (float)(1.0 / sum);
    for (int j = 0; j < row->cols; j++)
        z[j] *= scale;
}

static const heed_alpha two = {.alpha = 2.0, .m = 1.0, .loops = HEED_ALPHA_2};
static const heed_alpha three_halves = {.alpha = 1.5, .m = 2.0, .loops = HEED_ALPHA_1_5};

static heed_alpha any(double alpha)
{
    return (heed_alpha){.alpha = alpha, .m = 1.0 / (alpha - 1.0), .loops = HEED_ALPHA_ANY};
}

static void whole_row(const heed_form_state *form, heed_row *row)
{
    const double alpha = form->arg[0].number;
    if (is_softmax(alpha))
        softmax(row);
    else if (alpha == 1.5)
        heed_project(row, three_halves);
    else if (alpha == 2.0)
        heed_project(row, two);
    else
        heed_project(row, any(alpha));
}

static void whole_row_backward(const heed_form_state *form, heed_row *row)
{
    const double alpha = form->arg[0].number;
    if (alpha == 1.5)
        heed_project_backward(row, three_halves);
    else if (alpha == 2.0)
        heed_project_backward(row, two);
    else
        heed_project_backward(row, any(is_softmax(alpha) ? 1.0 : alpha));
}

static const heed_arg args[] = {
    {.name = "alpha",
     .value = 1.5,
     .least = 1.0,
     .most = 1e6,
     .summary = "1 is softmax, 2 sparsemax; the larger, the fewer keys have weight"},
    {0},
};

const heed_form HEED_FORM(normalise_entmax) = {
    .name = "entmax",
    .stage = HEED_NORMALISE,
    .summary = "sparse weights: between softmax and sparsemax, alpha given",
    .formula = "w = [(alpha - 1) s - tau]_+^(1/(alpha - 1)), sum w = 1",
    .source = "Peters et al. 2019; Correia et al. 2019 (with alpha learnt)",
    .row = "001.107",
    .args = args,
    .whole_row = whole_row,
    .whole_row_backward = whole_row_backward,
};
