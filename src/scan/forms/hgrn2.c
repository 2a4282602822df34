/* HGRN2: gated linear attention whose keys are what the gate lets go.
 *
 *     S_t = diag(f_t) S_{t-1} + (1 - f_t) v_t^T,     out_t = S_t^T q_t,     gate = log f [batch, G, N, D]
 *
 * There is no k. Qin et al.: HGRN2: Gated Linear RNNs with State Expansion, 2024.
 */
#include "scan/forms/parts.h"

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    (void)form;
    heed_scan_keep(rows);
    for (int64_t i = 0; i < (int64_t)rows->count * rows->dim; i++)
        rows->key[i] = 1 - rows->keep[i];
}

static void write_backward(const heed_form_state *form, heed_scan_rows *rows)
{
    (void)form;
    for (int64_t i = 0; i < (int64_t)rows->count * rows->dim; i++)
        rows->dgate[i] += heed_exp(rows->gate[i]) * (rows->keep[i] - rows->key[i]);
}

static const heed_arg args[] = {
    {.name = "scale", .value = 1, .summary = "what queries are multiplied by"},
    {0},
};

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_READS_GATE | HEED_SCAN_NO_KEYS,
    .look = heed_scan_look,
    .look_backward = heed_scan_look_back,
    .write = write,
    .write_backward = write_backward,
};

const heed_form HEED_FORM(scan_hgrn2) = {
    .name = "hgrn2",
    .stage = HEED_SCAN,
    .summary = "gated linear attention whose keys are what the gate lets go",
    .formula = "S = diag(f) S + (1 - f) v^T; out = S^T q",
    .source = "Qin et al.: HGRN2: Gated Linear RNNs with State Expansion, 2024",
    .args = args,
    .scan = &rule,
};
