/* Gate: a sigmoid opens or shuts each entry of the output.
 *
 *     o := sigmoid(g) o,     g [batch or 1, H or 1, N or 1, E or 1], given by the caller
 *
 * Usually g is a projection of the layer's input, so it has a gradient and no initial value. Qiu et al.:
 * Gated Attention for Large Language Models, 2025.
 */
#include "attend/form.h"

/* Where the gate of one query begins in g or its gradient; a size of 1 is shared by all. */
static int64_t gate_row(const heed_form_state *form, int batch, int head, int64_t query)
{
    const int64_t *shape = form->shape[0];
    const int64_t b = shape[0] == 1 ? 0 : batch, h = shape[1] == 1 ? 0 : head, n = shape[2] == 1 ? 0 : query;
    return ((b * shape[1] + h) * shape[2] + n) * shape[3];
}

static void output(const heed_form_state *form, int batch, int head, int64_t query0, int rows, float *out,
                   int64_t stride)
{
    const int64_t dim = form->sizes.value_dim;
    for (int i = 0; i < rows; i++) {
        const float *g = form->param[0] + gate_row(form, batch, head, query0 + i);
        float *o = out + i * stride;
        if (form->shape[0][3] == 1) {
            const float open = heed_sigmoid(g[0]);
            for (int64_t e = 0; e < dim; e++)
                o[e] *= open;
        } else {
            for (int64_t e = 0; e < dim; e++)
                o[e] *= heed_sigmoid(g[e]);
        }
    }
}

/* dg = sum of do before sigma (1 - sigma),  dbefore = do sigma */
static void output_backward(const heed_form_state *form, int batch, int head, int64_t query0, int rows,
                            const float *before, float *dout, int64_t stride)
{
    const int64_t dim = form->sizes.value_dim;
    for (int i = 0; i < rows; i++) {
        const int64_t at = gate_row(form, batch, head, query0 + i);
        const float *g = form->param[0] + at, *o = before + i * stride;
        float *dg = form->grad[0] ? form->grad[0] + at : NULL, *d = dout + i * stride;
        if (form->shape[0][3] == 1) {
            const float open = heed_sigmoid(g[0]);
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t e = 0; e < dim; e++) {
                sum += d[e] * o[e];
                d[e] *= open;
            }
            if (dg)
                dg[0] += sum * open * (1.0f - open);
        } else {
            if (dg)
#pragma omp simd
                for (int64_t e = 0; e < dim; e++) {
                    const float open = heed_sigmoid(g[e]);
                    dg[e] += d[e] * o[e] * open * (1.0f - open);
                }
#pragma omp simd
            for (int64_t e = 0; e < dim; e++)
                d[e] *= heed_sigmoid(g[e]);
        }
    }
}

static const heed_param params[] = {
    {.name = "g", .shape = "B|1,H|1,N|1,E|1", .required = true, .summary = "the gate before its sigmoid"},
    {0},
};

const heed_form HEED_FORM(read_gate) = {
    .name = "gate",
    .stage = HEED_READ,
    .summary = "a sigmoid gate on the output, from a tensor of the caller",
    .formula = "o := sigmoid(g) o",
    .source = "Qiu et al. 2025",
    .params = params,
    .output = output,
    .output_backward = output_backward,
};
