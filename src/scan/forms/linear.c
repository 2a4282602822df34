/* Linear attention: the exponential of q·k is replaced by a product of feature maps, so that sums over keys
 * become a state.
 *
 *     out_t = sum_{s<=t} (phi(q_t)·phi(k_s)) v_s / sum_{s<=t} phi(q_t)·phi(k_s)
 *
 * phi: elu(x) + 1, relu(x), or exp(x), all of them at least 0. Where all features of a query or of all keys
 * are 0 (relu), the output is 0. Katharopoulos, Vyas, Pappas, Fleuret: Transformers are RNNs,
 * 2020.
 */
#include "scan/forms/parts.h"

enum { ELU, RELU, EXP };

static inline float map(int kind, float x)
{
    const float below = heed_exp(kind == EXP || x < 0 ? x : 0), above = x > 0 ? x : 0;
    return kind == RELU ? above : kind == EXP || x < 0 ? below : above + 1;
}

static inline float slope(int kind, float x)
{
    const float below = heed_exp(kind == EXP || x < 0 ? x : 0);
    return kind == RELU ? (float)(x > 0) : kind == EXP || x < 0 ? below : 1.0f;
}

/* One loop a kind, so that each is compiled without a question. */
#define EACH_KIND(kind, loop)                                                                                \
    switch (kind) {                                                                                          \
    case ELU:                                                                                                \
        loop(ELU);                                                                                           \
        break;                                                                                               \
    case RELU:                                                                                               \
        loop(RELU);                                                                                          \
        break;                                                                                               \
    default:                                                                                                 \
        loop(EXP);                                                                                           \
    }
#define FORWARD(kind) _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = map(kind, x[i])
#define BACKWARD(kind) _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] += slope(kind, x[i]) * dy[i]

static void map_all(const heed_form_state *form, const float *x, int64_t n, float *y)
{
    EACH_KIND((int)form->arg[0].number, FORWARD)
}

static void map_back(const heed_form_state *form, const float *x, int64_t n, const float *dy, float *dx)
{
    EACH_KIND((int)form->arg[0].number, BACKWARD)
}

static void look(const heed_form_state *form, const float *x, int count, int dim, float *query)
{
    map_all(form, x, (int64_t)count * dim, query);
}

static void look_backward(const heed_form_state *form, const float *x, int count, int dim,
                          const float *dquery, float *dx)
{
    map_back(form, x, (int64_t)count * dim, dquery, dx);
}

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    heed_scan_keep(rows);
    map_all(form, rows->k, (int64_t)rows->count * rows->dim, rows->key);
}

static void write_backward(const heed_form_state *form, heed_scan_rows *rows)
{
    map_back(form, rows->k, (int64_t)rows->count * rows->dim, rows->key, rows->dk);
}

static const heed_option maps[] = {
    [ELU] = {"elu", NULL}, [RELU] = {"relu", NULL}, [EXP] = {"exp", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    {.name = "map",
     .kind = HEED_ARG_CHOICE,
     .options = maps,
     .summary = "features: elu(x) + 1, relu(x), exp(x)"},
    {0},
};

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_NORMALISES,
    .look = look,
    .look_backward = look_backward,
    .write = write,
    .write_backward = write_backward,
};

const heed_form HEED_FORM(scan_linear) = {
    .name = "linear",
    .stage = HEED_SCAN,
    .summary = "sums of key features times values, read by query features",
    .formula = "S = S + phi(k) v^T, z = z + phi(k); out = S^T phi(q) / z^T phi(q)",
    .source = "Katharopoulos, Vyas, Pappas, Fleuret: Transformers are RNNs, 2020",
    .args = args,
    .scan = &rule,
};
