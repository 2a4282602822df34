/* Gated linear attention: each channel of the state fades at its own pace.
 *
 *     S_t = diag(alpha_t) S_{t-1} + k_t v_t^T,     out_t = S_t^T q_t
 *
 * gate = log alpha [batch, G, N, D]. Yang, Wang, Shen, Panda, Kim: Gated Linear Attention Transformers, 2023.
 */
#include "scan/forms/parts.h"

static const heed_arg args[] = {HEED_SCAN_SCALE_ARG, {0}};

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_READS_GATE,
    .look = heed_scan_look,
    .look_backward = heed_scan_look_back,
    .write = heed_scan_write,
    .write_backward = heed_scan_write_back,
};

const heed_form HEED_FORM(scan_gla) = {
    .name = "gla",
    .stage = HEED_SCAN,
    .summary = "a state whose channels fade each at its own pace",
    .formula = "S = diag(alpha) S + k v^T; out = S^T q",
    .source = "Yang, Wang, Shen, Panda, Kim: Gated Linear Attention Transformers with Hardware-Efficient "
              "Training, 2023",
    .args = args,
    .resolve = heed_scan_resolve_scale,
    .scan = &rule,
};
