/* Kimi Delta Attention: the delta rule on a state whose channels fade each at its own pace.
 *
 *     S_t = (I - beta_t k_t k_t^T) diag(alpha_t) S_{t-1} + beta_t k_t v_t^T,     out_t = S_t^T q_t
 *
 * gate = log alpha [batch, G, N, D]; beta [batch, G, N]. Kimi Team: Kimi Linear, 2025.
 */
#include "scan/forms/delta.h"

static const heed_scan_rule rule = HEED_DELTA_RULE(HEED_SCAN_READS_GATE);

const heed_form HEED_FORM(scan_kda) = {
    .name = "kda",
    .stage = HEED_SCAN,
    .summary = "the delta rule on a state whose channels fade each at its own pace",
    .formula = "S = (I - beta k k^T) diag(alpha) S + beta k v^T; out = S^T q",
    .source = "Kimi Team: Kimi Linear, 2025",
    .args = heed_delta_args,
    .resolve = heed_scan_resolve_scale,
    .scan = &rule,
};
