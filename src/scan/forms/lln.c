/* Linear log-normal attention (row 001.122): exponential features whose logarithms spread as those of
 * softmax.
 *
 *     phi_q = exp(alpha q),  phi_k = exp(beta k),     out_t = sum_{s<=t} (phi_q·phi_k) v_s / sum phi_q·phi_k
 *     alpha = st / sq,  beta = st / sk,  st = sqrt((sq^2 sk^2 - b) / (2 a))
 *
 * sq and sk are the standard deviations of entries of q and k, given as constants; a and b were found by
 * regression. The largest entry of a query cancels; of keys the largest so far is carried, as it cancels too.
 * Nahshan, Kampeas, Haleva: Linear Log-Normal Attention with Unbiased Concentration, 2023.
 */
#include "scan/forms/parts.h"

enum { SQ, SK, A, B };
enum { BEGUN, LARGEST, CARRIED };

/* alpha for the queries, beta for the keys */
static float factor(const heed_form_state *form, int side)
{
    const double q = form->arg[SQ].number, k = form->arg[SK].number;
    return (float)(sqrt((q * q * k * k - form->arg[B].number) / (2 * form->arg[A].number)) /
                   form->arg[side].number);
}

static float largest(const float *x, int n)
{
    float most = x[0];
    for (int i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static void look(const heed_form_state *form, const float *x, int count, int dim, float *query)
{
    const float alpha = factor(form, SQ);
    for (int t = 0; t < count; t++, x += dim, query += dim) {
        const float most = largest(x, dim);
#pragma omp simd
        for (int i = 0; i < dim; i++)
            query[i] = heed_exp(alpha * (x[i] - most));
    }
}

/* As if the largest were a constant: the output does not depend on it. */
static void look_backward(const heed_form_state *form, const float *x, int count, int dim,
                          const float *dquery, float *dx)
{
    const float alpha = factor(form, SQ);
    for (int t = 0; t < count; t++, x += dim, dquery += dim, dx += dim) {
        const float most = largest(x, dim);
        for (int i = 0; i < dim; i++)
            dx[i] += alpha * heed_exp(alpha * (x[i] - most)) * dquery[i];
    }
}

static void write(const heed_form_state *form, heed_scan_rows *rows)
{
    const float beta = factor(form, SK);
    const int dim = rows->dim;
    float *carry = rows->carry;
    for (int t = 0; t < rows->count; t++) {
        const float *k = rows->k + (int64_t)t * dim, here = largest(k, dim);
        const bool begun = carry[BEGUN] > 0;
        const float m = begun && carry[LARGEST] >= here ? carry[LARGEST] : here;
        const float keep = begun ? heed_exp(beta * (carry[LARGEST] - m)) : 0;
        for (int i = 0; i < dim; i++) {
            rows->keep[(int64_t)t * dim + i] = keep;
            rows->key[(int64_t)t * dim + i] = heed_exp(beta * (k[i] - m));
        }
        carry[BEGUN] = 1;
        carry[LARGEST] = m;
    }
}

static void write_backward(const heed_form_state *form, heed_scan_rows *rows)
{
    const float beta = factor(form, SK);
    const int dim = rows->dim;
    float m = 0;
    for (int t = 0; t < rows->count; t++) {
        const float *k = rows->k + (int64_t)t * dim, here = largest(k, dim);
        m = t && m >= here ? m : here;
        for (int i = 0; i < dim; i++)
            rows->dk[(int64_t)t * dim + i] +=
                beta * heed_exp(beta * (k[i] - m)) * rows->key[(int64_t)t * dim + i];
    }
}

static heed_status resolve(heed_form_state *form)
{
    const double q = form->arg[SQ].number, k = form->arg[SK].number;
    if (q * q * k * k > form->arg[B].number)
        return HEED_OK;
    return heed_fail(HEED_INVALID, "lln: sq^2 sk^2 is %g, it must be above b, %g", q * q * k * k,
                     form->arg[B].number);
}

static const heed_arg args[] = {
    [SQ] = {.name = "sq", .value = 1, .most = 1e6, .above = true, .summary = "standard deviation of q"},
    [SK] = {.name = "sk", .value = 1, .most = 1e6, .above = true, .summary = "standard deviation of k"},
    [A] = {.name = "a", .value = 0.1486, .most = 1e6, .above = true, .summary = "slope of the regression"},
    [B] = {.name = "b", .value = -0.3549, .summary = "its intercept"},
    {0},
};

static const heed_scan_rule rule = {
    .flags = HEED_SCAN_NORMALISES,
    .look = look,
    .look_backward = look_backward,
    .write = write,
    .write_backward = write_backward,
    .carried = CARRIED,
};

const heed_form HEED_FORM(scan_lln) = {
    .name = "lln",
    .stage = HEED_SCAN,
    .summary = "exponential features whose logarithms spread as softmax's do",
    .formula =
        "weights exp(alpha q)·exp(beta k) over their sum, alpha sq = beta sk = sqrt((sq^2 sk^2 - b)/(2a))",
    .source = "Nahshan, Kampeas, Haleva: Linear Log-Normal Attention with Unbiased Concentration, 2023",
    .row = "001.122",
    .args = args,
    .resolve = resolve,
    .scan = &rule,
};
