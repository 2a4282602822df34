/* CoCA (row 001.155): rotations between a query and a key that begin collinear.
 *
 *     s(m, n) = scale sum_j t_nj |q_mj|^2 cos((m - n) theta_j),     t = relu(k_0 .. k_{D/2 - 1})
 *
 * |q_mj|^2 = q_j^2 + q_{j + D/2}^2 of a pair, theta_j = base^(-2 j / D). The entries of k behind the first
 * half are not read. As a product of rows: [|q|^2 cos, |q|^2 sin] and [t cos, t sin], so nothing of queries x
 * keys x D exists. Takes the place of position=rope. Zhu et al.: CoCA: Fusing Position Embedding with
 * Collinear Constrained Attention, 2023.
 */
#include "attend/score/rows.h"

enum { BASE };

static heed_status resolve(heed_form_state *form)
{
    if (form->sizes.dim % 2 == 0)
        return HEED_OK;
    return heed_fail(HEED_INVALID, "score=coca: rows of %lld entries have no pairs; give an even dim",
                     (long long)form->sizes.dim);
}

static size_t table_bytes(const heed_form_state *form)
{
    return (size_t)(form->sizes.dim / 2) * sizeof(double);
}

static void setup(heed_form_state *form)
{
    double *theta = form->table;
    for (int64_t j = 0; j < form->sizes.dim / 2; j++)
        theta[j] = pow(form->arg[BASE].number, -2.0 * (double)j / (double)form->sizes.dim);
}

static double scale(const heed_form_state *form)
{
    return 1.0 / sqrt((double)form->sizes.dim);
}

static void prepare_query(const heed_form_state *form, const heed_rows *rows)
{
    const double *theta = form->table;
    const int half = rows->dim / 2;
    for (int i = 0; i < rows->count; i++) {
        const float *q = rows->in + i * rows->in_stride;
        float *out = rows->out + i * rows->out_stride;
        for (int j = 0; j < half; j++) {
            const double angle = (double)rows->pos[i] * theta[j];
            const float size = q[j] * q[j] + q[j + half] * q[j + half];
            out[j] = size * (float)cos(angle);
            out[j + half] = size * (float)sin(angle);
        }
    }
}

static void prepare_query_backward(const heed_form_state *form, const heed_rows *rows)
{
    const double *theta = form->table;
    const int half = rows->dim / 2;
    for (int i = 0; i < rows->count; i++) {
        const float *q = rows->in + i * rows->in_stride, *d = rows->out + i * rows->out_stride;
        float *dq = rows->din + i * rows->din_stride;
        for (int j = 0; j < half && !row_is_zero(d, rows->dim); j++) {
            const double angle = (double)rows->pos[i] * theta[j];
            const float along = 2.0f * (d[j] * (float)cos(angle) + d[j + half] * (float)sin(angle));
            dq[j] += along * q[j];
            dq[j + half] += along * q[j + half];
        }
    }
}

static void prepare_key(const heed_form_state *form, const heed_rows *rows)
{
    const double *theta = form->table;
    const int half = rows->dim / 2;
    for (int i = 0; i < rows->count; i++) {
        const float *k = rows->in + i * rows->in_stride;
        float *out = rows->out + i * rows->out_stride;
        for (int j = 0; j < half; j++) {
            const double angle = (double)rows->pos[i] * theta[j];
            const float t = k[j] < 0.0f ? 0.0f : k[j]; /* NaN stays */
            out[j] = t * (float)cos(angle);
            out[j + half] = t * (float)sin(angle);
        }
    }
}

static void prepare_key_backward(const heed_form_state *form, const heed_rows *rows)
{
    const double *theta = form->table;
    const int half = rows->dim / 2;
    for (int i = 0; i < rows->count; i++) {
        const float *k = rows->in + i * rows->in_stride, *d = rows->out + i * rows->out_stride;
        float *dk = rows->din + i * rows->din_stride;
        for (int j = 0; j < half && !row_is_zero(d, rows->dim); j++) {
            const double angle = (double)rows->pos[i] * theta[j];
            const float along = d[j] * (float)cos(angle) + d[j + half] * (float)sin(angle);
            dk[j] += k[j] > 0.0f ? along : 0.0f;
        }
    }
}

static const heed_arg args[] = {
    [BASE] =
        {.name = "base", .value = 10000, .least = 0, .most = 1e15, .above = true, .summary = "of the angles"},
    {0},
};

const heed_form HEED_FORM(score_coca) = {
    .name = "coca",
    .stage = HEED_SCORE,
    .summary = "rotations between a query and a key that begin collinear",
    .formula = "s = sum_j relu(k_j) |q_j|^2 cos((m - n) theta_j) / sqrt(D)",
    .source = "Zhu et al.: CoCA: Fusing Position Embedding with Collinear Constrained Attention, 2023",
    .row = "001.155",
    .args = args,
    .resolve = resolve,
    .table_bytes = table_bytes,
    .setup = setup,
    .scale = scale,
    .prepare_query = prepare_query,
    .prepare_query_backward = prepare_query_backward,
    .prepare_key = prepare_key,
    .prepare_key_backward = prepare_key_backward,
};
