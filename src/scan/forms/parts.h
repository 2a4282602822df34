/* What forms of the stage `scan` share. */
#ifndef HEED_SCAN_FORMS_PARTS_H
#define HEED_SCAN_FORMS_PARTS_H

#include <heed/scan.h>

#include <string.h>

/* y = scale x, and dx += scale dy */
static inline void heed_scan_scale(const float *x, int64_t n, float scale, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = scale * x[i];
}

static inline void heed_scan_scale_back(const float *dy, int64_t n, float scale, float *dx)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] += scale * dy[i];
}

/* Queries as they are, times the argument `scale`, which is the form's first. */
static inline void heed_scan_look(const heed_form_state *form, const float *x, int count, int dim,
                                  float *query)
{
    heed_scan_scale(x, (int64_t)count * dim, heed_arg_float(form, 0), query);
}

static inline void heed_scan_look_back(const heed_form_state *form, const float *x, int count, int dim,
                                       const float *dquery, float *dx)
{
    (void)x;
    heed_scan_scale_back(dquery, (int64_t)count * dim, heed_arg_float(form, 0), dx);
}

static inline heed_status heed_scan_resolve_scale(heed_form_state *form)
{
    if (!form->arg[0].given)
        form->arg[0].number = 1 / sqrt((double)form->sizes.dim);
    return HEED_OK;
}

#define HEED_SCAN_SCALE_ARG                                                                                  \
    {                                                                                                        \
        .name = "scale", .value = NAN, .computed = "1/sqrt(D)", .summary = "what queries are multiplied by"  \
    }

/* keep from the log of one number a token, of one a channel, or of none (1). */
static inline void heed_scan_keep(const heed_scan_rows *rows)
{
    for (int t = 0; t < rows->count; t++) {
        float *keep = rows->keep + (int64_t)t * rows->channels;
        const float *gate = rows->gate ? rows->gate + (int64_t)t * rows->dim : NULL;
        const float all = rows->decay ? heed_exp(rows->decay[t]) : 1.0f;
        if (gate)
#pragma omp simd
            for (int c = 0; c < rows->channels; c++)
                keep[c] = heed_exp(gate[c]);
        else
            for (int c = 0; c < rows->channels; c++)
                keep[c] = all;
    }
}

/* rows->keep holds the gradient. */
static inline void heed_scan_keep_back(const heed_scan_rows *rows)
{
    for (int t = 0; t < rows->count; t++) {
        const float *dkeep = rows->keep + (int64_t)t * rows->channels;
        const int64_t at = (int64_t)t * rows->dim;
        float sum = 0;
        for (int c = 0; c < rows->channels; c++)
            sum += dkeep[c];
        if (rows->gate)
            for (int c = 0; c < rows->channels; c++)
                rows->dgate[at + c] += heed_exp(rows->gate[at + c]) * dkeep[c];
        else if (rows->decay)
            rows->ddecay[t] += heed_exp(rows->decay[t]) * sum;
    }
}

/* keep = exp(decay or gate), key = k: what the gated forms without a delta rule have. */
static inline void heed_scan_write(const heed_form_state *form, heed_scan_rows *rows)
{
    (void)form;
    heed_scan_keep(rows);
    memcpy(rows->key, rows->k, (size_t)rows->count * (size_t)rows->dim * sizeof *rows->key);
}

static inline void heed_scan_write_back(const heed_form_state *form, heed_scan_rows *rows)
{
    (void)form;
    heed_scan_keep_back(rows);
    heed_scan_scale_back(rows->key, (int64_t)rows->count * rows->dim, 1.0f, rows->dk);
}

/* 1 / |x|, with a little more so that rows of zeros stay what they are */
static inline float heed_scan_inverse_length(const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return 1.0f / sqrtf(sum + 1e-6f);
}

/* dx += the gradient of x = u / |u| from dy, that of x; inverse = 1 / |u|. */
static inline void heed_scan_length_back(const float *u, float inverse, const float *dy, int n, float *dx)
{
    float along = 0;
    for (int i = 0; i < n; i++)
        along += u[i] * inverse * dy[i];
    for (int i = 0; i < n; i++)
        dx[i] += inverse * (dy[i] - u[i] * inverse * along);
}

/* y = (x - mean) / deviation over a row; returns the deviation, a little more so that it is not 0. */
static inline float heed_scan_standard(const float *x, int n, float *y)
{
    float mean = 0, squares = 0;
    for (int i = 0; i < n; i++)
        mean += x[i] / (float)n;
    for (int i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean) / (float)n;
    const float deviation = sqrtf(squares) + 1e-6f;
    for (int i = 0; i < n; i++)
        y[i] = (x[i] - mean) / deviation;
    return deviation;
}

/* dx += its gradient from dy; y as it was made. */
static inline void heed_scan_standard_back(const float *y, float deviation, int n, const float *dy, float *dx)
{
    float mean = 0, along = 0;
    for (int i = 0; i < n; i++) {
        mean += dy[i] / (float)n;
        along += dy[i] * y[i] / (float)n;
    }
    for (int i = 0; i < n; i++)
        dx[i] += (dy[i] - mean - y[i] * along) / deviation;
}

#endif
