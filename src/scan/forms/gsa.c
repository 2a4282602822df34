/* Gated slot attention: a memory of a few slots whose keys and values fade by a gate of each slot.
 *
 *     K_t = diag(a_t) K_{t-1} + (1 - a_t) k_t^T,     V_t = diag(a_t) V_{t-1} + (1 - a_t) v_t^T
 *     out_t = V_t^T softmax(K_t q_t),     gate = log a [batch, G, N, slots]
 *
 * Zhang et al.: Gated Slot Attention for Efficient Linear-Time Sequence Modeling, 2024.
 */
#include "scan/forms/parts.h"

enum { SCALE, SLOTS };

static int channels(const heed_form_state *form, int dim)
{
    (void)dim;
    return heed_arg_int(form, SLOTS);
}

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    (void)form;
    for (int64_t i = 0; i < (int64_t)rows->count * rows->channels; i++) {
        rows->keep[i] = heed_exp(rows->gate[i]);
        rows->key[i] = 1 - rows->keep[i];
    }
}

static void write_backward(const heed_form_state *form, heed_scan_rows *rows)
{
    (void)form;
    for (int64_t i = 0; i < (int64_t)rows->count * rows->channels; i++)
        rows->dgate[i] += heed_exp(rows->gate[i]) * (rows->keep[i] - rows->key[i]);
}

static const heed_arg args[] = {
    [SCALE] = {.name = "scale", .value = 1, .summary = "what queries are multiplied by"},
    [SLOTS] = {.name = "slots",
               .kind = HEED_ARG_INT,
               .value = 64,
               .least = 1,
               .most = 65536,
               .summary = "slots of a head"},
    {0},
};

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_READS_GATE | HEED_SCAN_SLOTS,
    .channels = channels,
    .look = heed_scan_look,
    .look_backward = heed_scan_look_back,
    .write = write,
    .write_backward = write_backward,
};

const heed_form HEED_FORM(scan_gsa) = {
    .name = "gsa",
    .stage = HEED_SCAN,
    .summary = "a few slots of keys and values that fade, read by softmax",
    .formula = "K = diag(a) K + (1-a) k^T, V alike; out = V^T softmax(K q)",
    .source = "Zhang et al.: Gated Slot Attention for Efficient Linear-Time Sequence Modeling, 2024",
    .row = "001.040",
    .args = args,
    .scan = &rule,
};
