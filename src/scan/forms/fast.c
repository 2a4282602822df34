/* FAST (row 004.020): linear attention with the Taylor series of exp to the power p, on standardised q and k.
 *
 *     weights f(s) / sum f(s),     f(s) = sum_{l=0..p} s^l / l!,     s = qh·kh
 *     xh = (x - mean(x)) / (deviation(x) + 1e-6), over the D entries of a row
 *
 * p is 1 or 2; with 2 all weights are above 0, with 1 a sum of weights may come near 0. Gerami et al.: FAST:
 * Factorizable Attention for Speeding up Transformers, 2024. Over all keys, not only earlier ones:
 * lowrank=fast.
 */
#include "scan/forms/taylor.h"

#define MOST_DIM 256

static int power_of(const heed_form_state *form)
{
    return heed_arg_int(form, 0);
}

static int channels(const heed_form_state *form, int dim)
{
    return heed_taylor_channels(dim, power_of(form));
}

static void features(const heed_form_state *form, const float *x, int count, int dim, float *y)
{
    const int width = channels(form, dim);
    float h[MOST_DIM];
    for (int t = 0; t < count; t++) {
        heed_scan_standard(x + (int64_t)t * dim, dim, h);
        heed_taylor(h, dim, power_of(form), 1, y + (int64_t)t * width);
    }
}

static void features_back(const heed_form_state *form, const float *x, int count, int dim, const float *dy,
                          float *dx)
{
    const int width = channels(form, dim);
    float h[MOST_DIM], dh[MOST_DIM];
    for (int t = 0; t < count; t++) {
        memset(dh, 0, sizeof dh);
        const float deviation = heed_scan_standard(x + (int64_t)t * dim, dim, h);
        heed_taylor_back(h, dim, power_of(form), 1, dy + (int64_t)t * width, dh);
        heed_scan_standard_back(h, deviation, dim, dh, dx + (int64_t)t * dim);
    }
}

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    heed_scan_keep(rows);
    features(form, rows->k, rows->count, rows->dim, rows->key);
}

static void write_backward(const heed_form_state *form, heed_scan_rows *rows)
{
    features_back(form, rows->k, rows->count, rows->dim, rows->key, rows->dk);
}

static heed_status resolve(heed_form_state *form)
{
    if (form->sizes.dim > MOST_DIM)
        return heed_fail(HEED_INVALID, "fast: dim is %lld; at most %d", (long long)form->sizes.dim, MOST_DIM);
    return HEED_OK;
}

static const heed_arg args[] = {
    {.name = "p", .kind = HEED_ARG_INT, .value = 2, .least = 1, .most = 2, .summary = "highest power"},
    {0},
};

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_NORMALISES,
    .channels = channels,
    .look = features,
    .look_backward = features_back,
    .write = write,
    .write_backward = write_backward,
};

const heed_form HEED_FORM(scan_fast) = {
    .name = "fast",
    .stage = HEED_SCAN,
    .summary = "the Taylor series of exp on standardised queries and keys",
    .formula = "weights 1 + s + s^2/2 over their sum, s = qh·kh, xh = (x - mean)/deviation",
    .source = "Gerami et al.: FAST: Factorizable Attention for Speeding up Transformers, 2024",
    .row = "004.020",
    .args = args,
    .resolve = resolve,
    .scan = &rule,
};
