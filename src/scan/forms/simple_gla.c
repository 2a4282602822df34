/* Gated linear attention with one gate a head.
 *
 *     S_t = alpha_t S_{t-1} + k_t v_t^T,     out_t = S_t^T q_t
 *
 * decay = log alpha [batch, G, N]. Yang et al.: Gated Linear Attention Transformers, 2023; Sun et al.: You
 * Only Cache Once, 2024 (gated retention).
 */
#include "scan/forms/parts.h"

static const heed_arg args[] = {HEED_SCAN_SCALE_ARG, {0}};

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_READS_DECAY,
    .look = heed_scan_look,
    .look_backward = heed_scan_look_back,
    .write = heed_scan_write,
    .write_backward = heed_scan_write_back,
};

const heed_form HEED_FORM(scan_simple_gla) = {
    .name = "simple_gla",
    .stage = HEED_SCAN,
    .summary = "a state that fades by a number a token",
    .formula = "S = alpha S + k v^T; out = S^T q",
    .source = "Sun et al.: You Only Cache Once (gated retention), 2024",
    .args = args,
    .resolve = heed_scan_resolve_scale,
    .scan = &rule,
};
