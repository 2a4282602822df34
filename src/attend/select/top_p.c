/* Top-p: the fewest keys whose weights sum to at least p, highest weight first; of equal weights the lower
 * index first.
 *
 *     w_j = exp(s_j) / sum_m exp(s_m) over the open keys
 *
 * At least one key; p=1 keeps all. Lin et al.: Twilight, 2025, after nucleus sampling (Holtzman et al. 2020).
 *
 * Weights and their sums are in double, and a sum that misses p by no more than their rounding has reached
 * it: of ten equal keys p=0.3 keeps three.
 */
#include "attend/select/cut.h"

#define ROUNDING 1e-12

/* exp(x) for x <= 0, to about 1e-14; 0 below -708. As heed_exp: x = n ln 2 + r, then 2^n exp(r) by a
 * polynomial. */
static inline double exp_double(double x)
{
    const double shift = 6755399441055744.0; /* 1.5 2^52: adding it rounds to a whole number */
    const double clamped = x < -708.0 ? -708.0 : x;
    const double scaled = clamped * 1.4426950408889634 + shift;
    const double n = scaled - shift;
    const double r = (clamped - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &scaled, sizeof bits);
    bits = (bits + 1023) << 52; /* the low bits of `scaled` are n; the rest is shifted out */
    double power;
    memcpy(&power, &bits, sizeof power);
    return x < -708.0 ? 0.0 : p * power;
}

/* Sum of exp(score - max) over the scores in question that are at least `value`. */
static double weight_above(const heed_contest *contest, float value, float max)
{
    const float *restrict score = contest->score;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < contest->count; j++) {
        const double weight = exp_double((double)score[j] - (double)max);
        sum += score[j] >= value ? weight : 0.0;
    }
    return sum;
}

static void choose(const heed_form_state *form, heed_row *row)
{
    const double p = form->arg[0].number;
    heed_contest contest = heed_contest_open(row->score, row->cols, row->work);
    if (contest.count == 0 || p >= 1)
        return;
    const float max = contest.most;
    double missing = p * weight_above(&contest, contest.least, max) * (1 - ROUNDING);
    while (contest.least < contest.most) {
        const float middle = heed_contest_middle(&contest);
        const double above = weight_above(&contest, middle, max);
        const bool in_upper = above >= missing;
        heed_contest_drop(&contest, middle, in_upper);
        missing -= in_upper ? 0 : above;
    }
    const double each = exp_double((double)contest.least - (double)max);
    const double ties = ceil(missing / each);
    heed_cut_row(row->score, row->cols, contest.least,
                 ties < 1               ? 1
                 : ties < contest.count ? (int)ties
                                        : contest.count);
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
