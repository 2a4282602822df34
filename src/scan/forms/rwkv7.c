/* RWKV-7: each channel fades at its own pace, and a direction of the token's choice is taken out, each
 * channel at its own rate.
 *
 *     S_t = diag(w_t) S_{t-1} - (a_t * u_t) (u_t^T S_{t-1}) + k_t v_t^T,     out_t = S_t^T q_t
 *
 * q = r, the receptance; gate = log w [batch, G, N, D]; erase = kappa, of which u = kappa / |kappa|;
 * rate = a in 0..1. Peng et al.: RWKV-7 "Goose" with Expressive Dynamic State Evolution, 2025.
 */
#include "scan/forms/parts.h"

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    heed_scan_write(form, rows);
    for (int t = 0; t < rows->count; t++) {
        const int64_t at = (int64_t)t * rows->dim;
        const float inverse = heed_scan_inverse_length(rows->erase + at, rows->dim);
        for (int c = 0; c < rows->dim; c++) {
            rows->probe[at + c] = inverse * rows->erase[at + c];
            rows->remove[at + c] = -rows->rate[at + c] * rows->probe[at + c];
        }
    }
}

static void write_backward(const heed_form_state *form, heed_scan_rows *rows)
{
    heed_scan_write_back(form, rows);
    for (int t = 0; t < rows->count; t++) {
        const int64_t at = (int64_t)t * rows->dim;
        const float inverse = heed_scan_inverse_length(rows->erase + at, rows->dim);
        float *du = rows->probe + at;
        for (int c = 0; c < rows->dim; c++) {
            rows->drate[at + c] -= rows->remove[at + c] * inverse * rows->erase[at + c];
            du[c] -= rows->rate[at + c] * rows->remove[at + c];
        }
        heed_scan_length_back(rows->erase + at, inverse, du, rows->dim, rows->derase + at);
    }
}

static const heed_arg args[] = {
    {.name = "scale", .value = 1, .summary = "what queries are multiplied by"},
    {0},
};

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_DELTA | HEED_SCAN_READS_GATE | HEED_SCAN_READS_ERASE | HEED_SCAN_READS_RATE,
    .look = heed_scan_look,
    .look_backward = heed_scan_look_back,
    .write = write,
    .write_backward = write_backward,
};

const heed_form HEED_FORM(scan_rwkv7) = {
    .name = "rwkv7",
    .stage = HEED_SCAN,
    .summary = "channels fade, and a direction of the token's choice is taken out",
    .formula = "S = diag(w) S - (a*u)(u^T S) + k v^T, u = kappa/|kappa|; out = S^T q",
    .source = "Peng et al.: RWKV-7 Goose with Expressive Dynamic State Evolution, 2025",
    .args = args,
    .scan = &rule,
};
