/* The delta rule: what the state holds under a key is taken out before the new value is written.
 *
 *     S_t = (I - beta k k^T) diag(alpha) S_{t-1} + beta k v^T
 *
 * alpha is 1 (delta), one number a token (gated_delta) or one a channel (kda). Arguments: scale, norm.
 */
#ifndef HEED_SCAN_FORMS_DELTA_H
#define HEED_SCAN_FORMS_DELTA_H

#include "scan/forms/parts.h"

enum { HEED_DELTA_SCALE, HEED_DELTA_NORM };

static inline bool heed_delta_normed(const heed_form_state *form)
{
    return form->arg[HEED_DELTA_NORM].number == 0;
}

static inline void heed_delta_look(const heed_form_state *form, const float *x, int count, int dim,
                                   float *query)
{
    for (int t = 0; t < count; t++, x += dim, query += dim) {
        const float length = heed_delta_normed(form) ? heed_scan_inverse_length(x, dim) : 1.0f;
        heed_scan_scale(x, dim, length * heed_arg_float(form, HEED_DELTA_SCALE), query);
    }
}

static inline void heed_delta_look_back(const heed_form_state *form, const float *x, int count, int dim,
                                        const float *dquery, float *dx)
{
    const float scale = heed_arg_float(form, HEED_DELTA_SCALE);
    for (int t = 0; t < count; t++, x += dim, dquery += dim, dx += dim) {
        if (!heed_delta_normed(form)) {
            heed_scan_scale_back(dquery, dim, scale, dx);
            continue;
        }
        const float inverse = heed_scan_inverse_length(x, dim);
        float along = 0;
        for (int i = 0; i < dim; i++)
            along += x[i] * inverse * dquery[i];
        for (int i = 0; i < dim; i++)
            dx[i] += scale * inverse * (dquery[i] - x[i] * inverse * along);
    }
}

static inline void heed_delta_write(const heed_form_state *form, heed_scan_rows *rows)
{
    heed_scan_keep(rows);
    for (int t = 0; t < rows->count; t++) {
        const int64_t at = (int64_t)t * rows->dim;
        const float *k = rows->k + at, beta = rows->beta[t];
        const float inverse = heed_delta_normed(form) ? heed_scan_inverse_length(k, rows->dim) : 1.0f;
        for (int c = 0; c < rows->dim; c++) {
            const float x = inverse * k[c];
            rows->key[at + c] = beta * x;
            rows->remove[at + c] = -beta * x;
            rows->probe[at + c] = rows->keep[at + c] * x;
        }
    }
}

/* dkey, dkeep, dremove, dprobe to dk, dbeta and dkeep as if keep stood nowhere else. */
static inline void heed_delta_write_back(const heed_form_state *form, heed_scan_rows *rows)
{
    for (int t = 0; t < rows->count; t++) {
        const int64_t at = (int64_t)t * rows->dim;
        const float *k = rows->k + at, beta = rows->beta[t];
        const float inverse = heed_delta_normed(form) ? heed_scan_inverse_length(k, rows->dim) : 1.0f;
        const float all = rows->decay ? heed_exp(rows->decay[t]) : 1.0f;
        float *dx = rows->key + at; /* beta times it is the gradient of the key of length 1 */
        float dbeta = 0;
        for (int c = 0; c < rows->dim; c++) {
            const float x = inverse * k[c], written = rows->key[at + c] - rows->remove[at + c];
            const float keep = rows->gate ? heed_exp(rows->gate[at + c]) : all;
            dbeta += written * x;
            dx[c] = beta * written + keep * rows->probe[at + c];
            rows->keep[at + c] += rows->probe[at + c] * x;
        }
        rows->dbeta[t] += dbeta;
        if (heed_delta_normed(form))
            heed_scan_length_back(k, inverse, dx, rows->dim, rows->dk + at);
        else
            heed_scan_scale_back(dx, rows->dim, 1.0f, rows->dk + at);
    }
    heed_scan_keep_back(rows);
}

static const heed_option heed_delta_norms[] = {{"l2", NULL}, {"none", NULL}, {NULL, NULL}};
static const heed_arg heed_delta_args[] = {
    HEED_SCAN_SCALE_ARG,
    {.name = "norm",
     .kind = HEED_ARG_CHOICE,
     .options = heed_delta_norms,
     .summary = "queries and keys are divided by their length, or taken as they are"},
    {0},
};

#define HEED_DELTA_RULE(reads)                                                                               \
    {                                                                                                        \
        .flags = HEED_SCAN_DELTA | HEED_SCAN_READS_BETA | (reads), .look = heed_delta_look,                  \
        .look_backward = heed_delta_look_back, .write = heed_delta_write,                                    \
        .write_backward = heed_delta_write_back,                                                             \
    }

#endif
