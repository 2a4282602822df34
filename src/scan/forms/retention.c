/* Retention: a state that fades by a constant of the head.
 *
 *     S_t = gamma S_{t-1} + k_t v_t^T,     out_t = S_t^T q_t,     gamma = 1 - 2^-(first + h)
 *
 * h counts kv heads from 0. Sun et al.: Retentive Network, 2023.
 */
#include "scan/forms/parts.h"

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    const float gamma = 1 - exp2f(-heed_arg_float(form, 1) - (float)rows->head);
    const int64_t floats = (int64_t)rows->count * rows->dim;
    memcpy(rows->key, rows->k, (size_t)floats * sizeof *rows->key);
    for (int64_t i = 0; i < floats; i++)
        rows->keep[i] = gamma;
}

static const heed_arg args[] = {
    HEED_SCAN_SCALE_ARG,
    {.name = "first",
     .value = 5,
     .least = 0,
     .most = 100,
     .above = true,
     .summary = "head 0 keeps 1 - 2^-first a token"},
    {0},
};

static const heed_scan_rule rule = {
    .look = heed_scan_look,
    .look_backward = heed_scan_look_back,
    .write = write,
    .write_backward = heed_scan_write_back,
};

const heed_form HEED_FORM(scan_retention) = {
    .name = "retention",
    .stage = HEED_SCAN,
    .summary = "a state that fades by a constant of the head",
    .formula = "S = gamma S + k v^T, gamma = 1 - 2^-(5+h); out = S^T q",
    .source = "Sun et al.: Retentive Network: A Successor to Transformer for Large Language Models, 2023",
    .args = args,
    .resolve = heed_scan_resolve_scale,
    .scan = &rule,
};
