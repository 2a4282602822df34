/* Lightning attention of TransNormerLLM (rows 000.054, 004.172): swish features, no division, a decay that
 * weakens with the layer.
 *
 *     S_t = lambda S_{t-1} + phi(k_t) v_t^T,     out_t = S_t^T phi(q_t),     phi(x) = x sigmoid(x)
 *     lambda = exp(-8 h / H (1 - l / L)) (paper), exp(-2^(-8 (h + 1) / H) (1 - l / (L - 1) + 1e-5))
 * (released), 1 (none)
 *
 * h of H kv heads and l of L layers count from 0. What comes out is normalised by whoever uses it. Qin et
 * al.: TransNormerLLM, 2023; Lightning Attention-2, 2024.
 */
#include "scan/forms/parts.h"

static void map(const float *x, int64_t n, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * heed_sigmoid(x[i]);
}

static void map_back(const float *x, int64_t n, const float *dy, float *dx)
{
    for (int64_t i = 0; i < n; i++) {
        const float s = heed_sigmoid(x[i]);
        dx[i] += s * (1 + x[i] * (1 - s)) * dy[i];
    }
}

enum { DECAY, MAP };
enum { PAPER, RELEASED, NONE };

static bool is_mapped(const heed_form_state *form)
{
    return form->arg[MAP].number == 0;
}

static void look(const heed_form_state *form, const float *x, int count, int dim, float *query)
{
    if (is_mapped(form))
        map(x, (int64_t)count * dim, query);
    else
        heed_scan_scale(x, (int64_t)count * dim, 1, query);
}

static void look_backward(const heed_form_state *form, const float *x, int count, int dim,
                          const float *dquery, float *dx)
{
    if (is_mapped(form))
        map_back(x, (int64_t)count * dim, dquery, dx);
    else
        heed_scan_scale_back(dquery, (int64_t)count * dim, 1, dx);
}

static float decay_of(const heed_form_state *form, int64_t head)
{
    const double heads = (double)form->sizes.kv_heads, h = (double)head;
    const double l = (double)form->sizes.layer, layers = (double)form->sizes.layers;
    if (form->arg[DECAY].number == NONE)
        return 1.0f;
    if (form->arg[DECAY].number == PAPER)
        return (float)exp(-8 * h / heads * (1 - l / layers));
    return (float)exp(-exp2(-8 * (h + 1) / heads) * (1 - (layers > 1 ? l / (layers - 1) : 0) + 1e-5));
}

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    const int64_t floats = (int64_t)rows->count * rows->dim;
    const float lambda = decay_of(form, rows->head);
    if (is_mapped(form))
        map(rows->k, floats, rows->key);
    else
        heed_scan_scale(rows->k, floats, 1, rows->key);
    for (int64_t i = 0; i < floats; i++)
        rows->keep[i] = lambda;
}

static void write_backward(const heed_form_state *form, heed_scan_rows *rows)
{
    if (is_mapped(form))
        map_back(rows->k, (int64_t)rows->count * rows->dim, rows->key, rows->dk);
    else
        heed_scan_scale_back(rows->key, (int64_t)rows->count * rows->dim, 1, rows->dk);
}

static const heed_option decays[] = {{"paper", NULL}, {"released", NULL}, {"none", NULL}, {NULL, NULL}};
static const heed_option maps[] = {{"swish", NULL}, {"none", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [DECAY] = {.name = "decay",
               .kind = HEED_ARG_CHOICE,
               .options = decays,
               .summary = "which of the two decays, or none"},
    [MAP] = {.name = "map",
             .kind = HEED_ARG_CHOICE,
             .options = maps,
             .summary = "features: swish(x), or x itself"},
    {0},
};

static const heed_scan_rule rule = {
    .look = look, .look_backward = look_backward, .write = write, .write_backward = write_backward};

const heed_form HEED_FORM(scan_lightning) = {
    .name = "lightning",
    .stage = HEED_SCAN,
    .summary = "swish features and a decay that weakens with the layer",
    .formula = "S = lambda S + phi(k) v^T; out = S^T phi(q), phi = swish",
    .source = "Qin et al.: TransNormerLLM, 2023; Lightning Attention-2, 2024",
    .row = "000.054,004.172",
    .args = args,
    .scan = &rule,
};
