/* Talking heads: heads mix their scores before the keys are weighed, and their weights after.
 *
 *     s'_h = sum_g before[h, g] s_g          w'_h = sum_g after[h, g] w_g
 *
 * Both matrices [H, H] start as the identity. Shazeer et al.: Talking-Heads Attention, 2020.
 */
#include "attend/form.h"

enum { BEFORE, AFTER };
enum { BLOCK = 256 }; /* columns mixed at a time: what all heads hold of them stays in the near cache */

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* out = sum_g coefficient[g step] x[g], over columns of one row; `offset` is where they begin in every x. */
static inline void combine(const float *coefficient, int64_t step, const float *const *x, int64_t heads,
                           int64_t offset, int64_t cols, float *restrict out)
{
    for (int64_t j = 0; j < cols; j++)
        out[j] = 0.0f;
    int64_t g = 0;
    for (; g + 4 <= heads; g += 4) {
        const float *a = x[g] + offset, *b = x[g + 1] + offset, *c = x[g + 2] + offset,
                    *d = x[g + 3] + offset;
        const float *k = coefficient + g * step;
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            out[j] += k[0] * a[j] + k[step] * b[j] + k[2 * step] * c[j] + k[3 * step] * d[j];
    }
    for (; g < heads; g++) {
        const float *a = x[g] + offset, k = coefficient[g * step];
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            out[j] += k * a[j];
    }
}

/* x_h := sum_g m[h, g] x_g, or with the transpose of m. Of `work` [H cols] no more than [H, BLOCK] is used.
 */
static void mix(const float *m, bool transposed, float *const *x, int64_t heads, int rows, int cols,
                int64_t stride, float *work)
{
    for (int i = 0; i < rows; i++)
        for (int64_t first = 0; first < cols; first += BLOCK) {
            const int64_t n = least(cols - first, BLOCK), offset = i * stride + first;
            for (int64_t h = 0; h < heads; h++)
                combine(transposed ? m + h : m + h * heads, transposed ? heads : 1, (const float *const *)x,
                        heads, offset, n, work + h * n);
            for (int64_t h = 0; h < heads; h++)
                memcpy(x[h] + offset, work + h * n, sizeof(float) * (size_t)n);
        }
}

/* dm[h, g] += sum dx'_h x_g. Where dx' is 0, x may be anything: scores of closed pairs are. */
static void matrix_gradient(float *dm, const float *const *x, float *const *dx, int64_t heads, int rows,
                            int cols, int64_t stride)
{
    for (int i = 0; i < rows; i++)
        for (int64_t first = 0; first < cols; first += BLOCK) {
            const int64_t n = least(cols - first, BLOCK), offset = i * stride + first;
            for (int64_t h = 0; h < heads; h++)
                for (int64_t g = 0; g < heads; g++) {
                    const float *d = dx[h] + offset, *s = x[g] + offset;
                    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                    for (int64_t j = 0; j < n; j++)
                        sum += d[j] == 0.0f ? 0.0f : d[j] * s[j];
                    dm[h * heads + g] += sum;
                }
        }
}

static void mix_scores(const heed_form_state *form, float *const *x, int rows, int cols, int64_t stride,
                       float *work)
{
    mix(form->param[BEFORE], false, x, form->sizes.heads, rows, cols, stride, work);
}

static void mix_scores_backward(const heed_form_state *form, const float *const *x, float *const *dx,
                                int rows, int cols, int64_t stride, float *work)
{
    if (form->grad[BEFORE])
        matrix_gradient(form->grad[BEFORE], x, dx, form->sizes.heads, rows, cols, stride);
    mix(form->param[BEFORE], true, dx, form->sizes.heads, rows, cols, stride, work);
}

static void mix_weights(const heed_form_state *form, float *const *x, int rows, int cols, int64_t stride,
                        float *work)
{
    mix(form->param[AFTER], false, x, form->sizes.heads, rows, cols, stride, work);
}

static void mix_weights_backward(const heed_form_state *form, const float *const *x, float *const *dx,
                                 int rows, int cols, int64_t stride, float *work)
{
    if (form->grad[AFTER])
        matrix_gradient(form->grad[AFTER], x, dx, form->sizes.heads, rows, cols, stride);
    mix(form->param[AFTER], true, dx, form->sizes.heads, rows, cols, stride, work);
}

static void identity(const heed_form_state *form, float *m)
{
    const int64_t heads = form->sizes.heads;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t g = 0; g < heads; g++)
            m[h * heads + g] = h == g;
}

static const heed_param params[] = {
    [BEFORE] = {.name = "before", .shape = "H,H", .fill = identity, .summary = "mixes scores"},
    [AFTER] = {.name = "after", .shape = "H,H", .fill = identity, .summary = "mixes weights"},
    {0},
};

const heed_form HEED_FORM(heads_talking) = {
    .name = "talking",
    .stage = HEED_HEADS,
    .summary = "heads mix their scores, and then their weights",
    .formula = "s'_h = sum_g before[h,g] s_g; w'_h = sum_g after[h,g] w_g",
    .source = "Shazeer et al. 2020",
    .flags = HEED_MIXES_HEADS,
    .params = params,
    .mix_scores = mix_scores,
    .mix_scores_backward = mix_scores_backward,
    .mix_weights = mix_weights,
    .mix_weights_backward = mix_weights_backward,
};
