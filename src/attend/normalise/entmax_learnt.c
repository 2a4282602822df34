/* Entmax whose alpha each head learns (row 001.107): between softmax and sparsemax.
 *
 *     alpha_h = 1 + sigmoid(a_h);   w_j = [(alpha - 1) s_j - tau]_+^(1 / (alpha - 1)),  sum w = 1
 *     dw_j/dalpha = (w_j - t_j) / (alpha - 1)^2 + (H_j - t_j sum H) / (alpha - 1) on the support
 *     t = w^(2 - alpha) over its sum,  H_j = -w_j ln w_j
 *
 * Correia, Niculae, Martins: Adaptively Sparse Transformers, 2019.
 */
#include "attend/normalise/projection.h"

static double share_of(const heed_form_state *form, int head)
{
    return 1.0 / (1.0 + exp(-(double)form->param[0][head]));
}

static heed_alpha alpha_of(const heed_form_state *form, int head)
{
    const double above = fmax(share_of(form, head), 1e-7);
    return (heed_alpha){.alpha = 1.0 + above, .m = 1.0 / above, .loops = HEED_ALPHA_ANY};
}

static void whole_row(const heed_form_state *form, heed_row *row)
{
    heed_project(row, alpha_of(form, row->head));
}

static void whole_row_backward(const heed_form_state *form, heed_row *row)
{
    const heed_alpha a = alpha_of(form, row->head);
    const double above = a.alpha - 1.0, share = share_of(form, row->head);
    if (form->grad[0]) {
        double t = 0.0, H = 0.0, dt = 0.0, dp = 0.0, dH = 0.0; /* sums of t, H, t dw, w dw, H dw */
        for (int j = 0; j < row->cols; j++) {
            const double w = (double)row->score[j], d = (double)row->dweight[j];
            if (!(w > 0.0))
                continue;
            const double s = pow(w, 2.0 - a.alpha), h = -w * log(w);
            t += s;
            H += h;
            dt += s * d;
            dp += w * d;
            dH += h * d;
        }
        if (t > 0.0) {
            const double dalpha = (dp - dt / t) / (above * above) + (dH - dt / t * H) / above;
            form->grad[0][row->head] += (float)(dalpha * share * (1.0 - share));
        }
    }
    heed_project_backward(row, a);
}

static const heed_param params[] = {
    {.name = "a", .shape = "H", .initial = 0.0f, .summary = "alpha of each head is 1 + sigmoid(a)"},
    {0},
};

const heed_form HEED_FORM(normalise_entmax_learnt) = {
    .name = "entmax_learnt",
    .stage = HEED_NORMALISE,
    .summary = "sparse weights between softmax and sparsemax, each head's alpha learnt",
    .formula = "w = [(alpha - 1) s - tau]_+^(1/(alpha - 1)), alpha = 1 + sigmoid(a_h)",
    .source = "Correia, Niculae, Martins: Adaptively Sparse Transformers, 2019",
    .row = "001.107",
    .params = params,
    .whole_row = whole_row,
    .whole_row_backward = whole_row_backward,
};
