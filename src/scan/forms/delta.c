/* DeltaNet: a linear state that corrects itself instead of adding up.
 *
 *     S_t = (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T,     out_t = S_t^T q_t
 *
 * beta [batch, G, N] in 0..1 (to 2 for eigenvalues below 0). Schlag, Irie, Schmidhuber: Linear Transformers
 * Are Secretly Fast Weight Programmers, 2021; Yang et al. 2024.
 */
#include "scan/forms/delta.h"

static const heed_scan_rule rule = HEED_DELTA_RULE(0);

const heed_form HEED_FORM(scan_delta) = {
    .name = "delta",
    .stage = HEED_SCAN,
    .summary = "what stands under a key is replaced, by the share beta",
    .formula = "S = (I - beta k k^T) S + beta k v^T; out = S^T q",
    .source = "Schlag, Irie, Schmidhuber 2021; Yang, Wang, Zhang, Shen, Kim: Parallelizing Linear "
              "Transformers with the Delta Rule, 2024",
    .args = heed_delta_args,
    .resolve = heed_scan_resolve_scale,
    .scan = &rule,
};
