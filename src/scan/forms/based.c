/* Based: linear attention whose features are the Taylor series of exp to the second power.
 *
 *     phi(q)·phi(k) = 1 + s + s^2 / 2,     s = q·k / sqrt(D)
 *
 * which is above 0 always. Products of two entries stand once: 1 + D + D (D + 1) / 2 channels, so D is small
 * (16). Arora et al.: Simple linear attention language models balance the recall-throughput tradeoff, 2024.
 */
#include "scan/forms/parts.h"

static int channels(const heed_form_state *form, int dim)
{
    (void)form;
    return 1 + dim + dim * (dim + 1) / 2;
}

static void features(const float *x, int count, int dim, float *y)
{
    const float root = 1 / sqrtf(sqrtf((float)dim)), half = sqrtf(0.5f);
    for (int t = 0; t < count; t++, x += dim) {
        *y++ = 1;
        for (int i = 0; i < dim; i++)
            *y++ = root * x[i];
        for (int i = 0; i < dim; i++)
            for (int j = i; j < dim; j++)
                *y++ = (i == j ? half : 1.0f) * root * x[i] * (root * x[j]);
    }
}

static void features_back(const float *x, int count, int dim, const float *dy, float *dx)
{
    const float root = 1 / sqrtf(sqrtf((float)dim)), half = sqrtf(0.5f);
    for (int t = 0; t < count; t++, x += dim, dx += dim) {
        dy++;
        for (int i = 0; i < dim; i++)
            dx[i] += root * *dy++;
        for (int i = 0; i < dim; i++)
            for (int j = i; j < dim; j++, dy++) {
                const float d = (i == j ? half : 1.0f) * root * root * *dy;
                dx[i] += d * x[j];
                dx[j] += d * x[i];
            }
    }
}

static void look(const heed_form_state *form, const float *x, int count, int dim, float *query)
{
    (void)form;
    features(x, count, dim, query);
}

static void look_backward(const heed_form_state *form, const float *x, int count, int dim,
                          const float *dquery, float *dx)
{
    (void)form;
    features_back(x, count, dim, dquery, dx);
}

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    (void)form;
    heed_scan_keep(rows);
    features(rows->k, rows->count, rows->dim, rows->key);
}

static void write_backward(const heed_form_state *form, heed_scan_rows *rows)
{
    (void)form;
    features_back(rows->k, rows->count, rows->dim, rows->key, rows->dk);
}

static heed_status resolve(heed_form_state *form)
{
    if (form->sizes.dim <= 256)
        return HEED_OK;
    return heed_fail(HEED_INVALID, "based: dim is %lld, which would make %lld channels; at most 256",
                     (long long)form->sizes.dim,
                     (long long)(1 + form->sizes.dim + form->sizes.dim * (form->sizes.dim + 1) / 2));
}

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_NORMALISES,
    .channels = channels,
    .look = look,
    .look_backward = look_backward,
    .write = write,
    .write_backward = write_backward,
};

const heed_form HEED_FORM(scan_based) = {
    .name = "based",
    .stage = HEED_SCAN,
    .summary = "linear attention with the Taylor series of exp to the second power",
    .formula = "weights 1 + s + s^2/2, s = q·k/sqrt(D), over their sum",
    .source =
        "Arora et al.: Simple linear attention language models balance the recall-throughput tradeoff, 2024",
    .row = "001.234",
    .resolve = resolve,
    .scan = &rule,
};
