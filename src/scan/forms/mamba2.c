/* The state space of Mamba-2: one fading number a head, steps of a length that the token chooses.
 *
 *     S_t = exp(decay_t) S_{t-1} + dt_t B_t x_t^T,     out_t = S_t^T C_t
 *
 * q = C, k = B, v = x; decay = dt A [batch, G, N], A < 0; beta = dt [batch, G, N]. What is added of x (D x),
 * the convolution before and the gate behind are the layer's. Dao, Gu: Transformers are SSMs, 2024.
 */
#include "scan/forms/parts.h"

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    (void)form;
    heed_scan_keep(rows);
    for (int t = 0; t < rows->count; t++)
        heed_scan_scale(rows->k + (int64_t)t * rows->dim, rows->dim, rows->beta[t],
                        rows->key + (int64_t)t * rows->dim);
}

static void write_backward(const heed_form_state *form, heed_scan_rows *rows)
{
    (void)form;
    heed_scan_keep_back(rows);
    for (int t = 0; t < rows->count; t++) {
        const int64_t at = (int64_t)t * rows->dim;
        for (int c = 0; c < rows->dim; c++)
            rows->dbeta[t] += rows->key[at + c] * rows->k[at + c];
        heed_scan_scale_back(rows->key + at, rows->dim, rows->beta[t], rows->dk + at);
    }
}

static const heed_arg args[] = {
    {.name = "scale", .value = 1, .summary = "what queries are multiplied by"},
    {0},
};

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_READS_DECAY | HEED_SCAN_READS_BETA,
    .look = heed_scan_look,
    .look_backward = heed_scan_look_back,
    .write = write,
    .write_backward = write_backward,
};

const heed_form HEED_FORM(scan_mamba2) = {
    .name = "mamba2",
    .stage = HEED_SCAN,
    .summary = "a state space with one decay a head and steps that tokens choose",
    .formula = "S = exp(dt A) S + dt B x^T; out = S^T C",
    .source = "Dao, Gu: Transformers are SSMs (Mamba-2), 2024",
    .args = args,
    .scan = &rule,
};
