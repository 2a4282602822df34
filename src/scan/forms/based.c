/* Based: linear attention whose features are the Taylor series of exp to the second power.
 *
 *     phi(q)·phi(k) = 1 + s + s^2 / 2,     s = q·k / sqrt(D)
 *
 * which is above 0 always. Products of two entries stand once: 1 + D + D (D + 1) / 2 channels, so D is small
 * (16). Arora et al.: Simple linear attention language models balance the recall-throughput tradeoff, 2024.
 */
#include "scan/forms/taylor.h"

static int channels(const heed_form_state *form, int dim)
{
    (void)form;
    return heed_taylor_channels(dim, 2);
}

static float root_of(int dim)
{
    return 1 / sqrtf(sqrtf((float)dim));
}

static void features(const float *x, int count, int dim, float *y)
{
    for (int t = 0; t < count; t++)
        heed_taylor(x + (int64_t)t * dim, dim, 2, root_of(dim),
                    y + (int64_t)t * heed_taylor_channels(dim, 2));
}

static void features_back(const float *x, int count, int dim, const float *dy, float *dx)
{
    for (int t = 0; t < count; t++)
        heed_taylor_back(x + (int64_t)t * dim, dim, 2, root_of(dim),
                         dy + (int64_t)t * heed_taylor_channels(dim, 2), dx + (int64_t)t * dim);
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
    return heed_taylor_resolve(form, 2);
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
