/* Threshold: weights at least t times the largest of the row.
 *
 *     kept when exp(s(i, j) - max_m s(i, m)) >= t
 *
 * t=0 keeps all open keys, t=1 the keys that share the largest score. Decided by logarithms, so that no
 * weight is too small.
 */
#include "attend/select/cut.h"

static void choose(const heed_form_state *form, heed_row *row)
{
    float *restrict score = row->score;
    float max = -INFINITY;
#pragma omp simd reduction(heed_largest : max)
    for (int j = 0; j < row->cols; j++)
        max = score[j] > max ? score[j] : max;
    if (max == -INFINITY)
        return;
    const double least = log(form->arg[0].number); /* -inf for t=0 */
    for (int j = 0; j < row->cols; j++)
        score[j] = (double)score[j] - (double)max >= least ? score[j] : -INFINITY;
}

static const heed_arg args[] = {
    {.name = "t", .least = 0, .most = 1, .required = true, .summary = "share of the row's largest weight"},
    {0},
};

const heed_form HEED_FORM(select_threshold) = {
    .name = "threshold",
    .stage = HEED_SELECT,
    .summary = "weights of at least t times the row's largest",
    .formula = "exp(s(i, j) - max s(i, .)) >= t",
    .args = args,
    .choose = choose,
};
