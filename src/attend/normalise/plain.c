/* Plain: scores are weights as they are, which may be below 0 and need not sum to 1.
 *
 *     w_j = s_j
 *
 * For scores that bring weights with them, as comate does. A weight of exactly 0 is made the least normal
 * number, since 0 says that a pair is closed.
 */
#include "attend/normalise/alone.h"
#include "attend/normalise/exponential.h"

static inline float weight(float s)
{
    const float open = s == 0.0f ? 1.2e-38f : s;
    return s == -INFINITY ? 0.0f : open;
}

static void online(const heed_form_state *form, heed_tile *tile, heed_row_sums *sums)
{
    (void)form;
    heed_sum_tile(tile, 1.0f, sums, false);
    for (int i = 0; i < tile->rows; i++) {
        float *x = tile->score + i * tile->stride;
        for (int j = 0; j < tile->cols; j++)
            x[j] = weight(x[j]);
    }
}

static void weights(const heed_form_state *form, heed_tile *tile, const float *norm)
{
    (void)form;
    for (int i = 0; i < tile->rows; i++) {
        float *x = tile->score + i * tile->stride;
        for (int j = 0; j < tile->cols; j++) {
            const float w = weight(x[j]) + norm[i];
            x[j] = x[j] == -INFINITY ? 0.0f : w;
        }
    }
}

static void weights_backward(const heed_form_state *form, heed_tile *tile, const float *norm,
                             const float *delta)
{
    (void)form, (void)norm, (void)delta;
    for (int i = 0; i < tile->rows; i++) {
        const float *w = tile->score + i * tile->stride;
        float *d = tile->dscore + i * tile->stride;
        for (int j = 0; j < tile->cols; j++)
            d[j] = w[j] == 0.0f ? 0.0f : d[j];
    }
}

const heed_form HEED_FORM(normalise_plain) = {
    .name = "plain",
    .stage = HEED_NORMALISE,
    .summary = "scores are weights as they are, below 0 too",
    .formula = "w = s",
    .source = "Tay et al.: Compositional De-Attention Networks, 2019",
    .row = "000.091",
    .online = online,
    .finish = heed_finish_alone,
    .weights = weights,
    .weights_backward = weights_backward,
};
