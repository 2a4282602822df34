/* Dot product: the plain comparison.
 *
 *     s(i, j) = scale q_i . k_j,     scale = 1/sqrt(D) unless given
 *
 * Vaswani et al.: Attention Is All You Need, 2017.
 */
#include "attend/score/scaled.h"

static const heed_arg args[] = {
    {.name = "scale", .value = NAN, .computed = "1/sqrt(D)", .summary = "factor on the product"},
    {0},
};

const heed_form HEED_FORM(score_dot) = {
    .name = "dot",
    .stage = HEED_SCORE,
    .summary = "dot product of query and key",
    .formula = "s = scale q.k",
    .source = "Vaswani et al. 2017",
    .args = args,
    .resolve = resolve_scale,
    .flags = HEED_SHARES_SCALE,
    .scale = scale,
};
