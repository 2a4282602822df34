/* Sum: the output is the weighted sum of the values, which every kernel makes by itself.
 *
 *     o_i = sum_j w(i, j) v_j
 */
#include "attend/form.h"

const heed_form HEED_FORM(read_sum) = {
    .name = "sum",
    .stage = HEED_READ,
    .summary = "weighted sum of the values",
    .formula = "o = sum w v",
    .source = "Vaswani et al. 2017",
};
