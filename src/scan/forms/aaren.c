/* Aaren (row 001.101): softmax attention of one query that does not change, as a prefix scan.
 *
 *     out_t = sum_{i<=t} exp(s_i) v_i / sum_{i<=t} exp(s_i),     s_i = q·k_i, given as beta
 *
 * The state is (u, w) relative to the largest score m so far, which is carried: keep = exp(m_{t-1} - m_t),
 * key = exp(s_t - m_t), so no score overflows. The output does not depend on m. Feng et al.: Attention as an
 * RNN, 2024.
 */
#include "scan/forms/parts.h"

enum { BEGUN, LARGEST, CARRIED };

static int channels(const heed_form_state *form, int dim)
{
    (void)form, (void)dim;
    return 1;
}

static void look(const heed_form_state *form, const float *x, int count, int dim, float *query)
{
    (void)form, (void)x, (void)dim;
    for (int t = 0; t < count; t++)
        query[t] = 1;
}

static void look_backward(const heed_form_state *form, const float *x, int count, int dim,
                          const float *dquery, float *dx)
{
    (void)form, (void)x, (void)count, (void)dim, (void)dquery, (void)dx;
}

/* The largest score so far, `was` before token t. */
static float largest(const heed_scan_rows *rows, int t, bool begun, float was)
{
    return begun && was >= rows->beta[t] ? was : rows->beta[t];
}

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    float *carry = rows->carry;
    (void)form;
    for (int t = 0; t < rows->count; t++) {
        const bool begun = carry[BEGUN] > 0;
        const float m = largest(rows, t, begun, carry[LARGEST]);
        rows->keep[t] = begun ? heed_exp(carry[LARGEST] - m) : 0;
        rows->key[t] = heed_exp(rows->beta[t] - m);
        carry[BEGUN] = 1;
        carry[LARGEST] = m;
    }
}

static void write_backward(const heed_form_state *form, heed_scan_rows *rows)
{
    float m = 0;
    (void)form;
    for (int t = 0; t < rows->count; t++) {
        m = largest(rows, t, t > 0, m);
        rows->dbeta[t] += heed_exp(rows->beta[t] - m) * rows->key[t];
    }
}

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_NORMALISES | HEED_SCAN_NO_KEYS | HEED_SCAN_NO_QUERIES | HEED_SCAN_READS_BETA |
             HEED_SCAN_SCORES,
    .channels = channels,
    .look = look,
    .look_backward = look_backward,
    .write = write,
    .write_backward = write_backward,
    .carried = CARRIED,
};

const heed_form HEED_FORM(scan_aaren) = {
    .name = "aaren",
    .stage = HEED_SCAN,
    .summary = "softmax over all tokens so far, of scores that need no query of the token",
    .formula = "out_t = sum exp(s_i) v_i / sum exp(s_i) over i <= t, s given as beta",
    .source = "Feng et al.: Attention as an RNN, 2024",
    .row = "001.101",
    .scan = &rule,
};
