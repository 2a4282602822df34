/* Gated DeltaNet: the delta rule on a state that fades as a whole.
 *
 *     S_t = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T,     out_t = S_t^T q_t
 *
 * decay = log alpha [batch, G, N]; beta [batch, G, N]. Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024.
 */
#include "scan/forms/delta.h"

static const heed_scan_rule rule = HEED_DELTA_RULE(HEED_SCAN_READS_DECAY);

const heed_form HEED_FORM(scan_gated_delta) = {
    .name = "gated_delta",
    .stage = HEED_SCAN,
    .summary = "the delta rule on a state that fades",
    .formula = "S = alpha (I - beta k k^T) S + beta k v^T; out = S^T q",
    .source = "Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024",
    .args = heed_delta_args,
    .resolve = heed_scan_resolve_scale,
    .scan = &rule,
};
