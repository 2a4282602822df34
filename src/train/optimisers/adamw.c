/* AdamW: m, v = running means of g and g^2 (beta1, beta2), each divided by 1 - beta^t;
 *
 *     w -= rate decay w,     w -= rate m / (sqrt(v) + eps)
 *
 * Loshchilov, Hutter: Decoupled Weight Decay Regularization, 2019.
 */
#include "train/optimiser.h"

#include <math.h>

void heed_update_adamw(const heed_update *update, float rate)
{
    const heed_optimiser_how *how = update->how;
    const double t = (double)update->step;
    const heed_step_size size = {
        .rate = rate,
        .decay = rate * update->decay,
        .beta1 = how->beta1,
        .beta2 = how->beta2,
        .eps = how->eps,
        .correction1 = (float)(1.0 / (1.0 - pow((double)how->beta1, t))),
        .correction2 = (float)(1.0 / sqrt(1.0 - pow((double)how->beta2, t))),
        .scale = update->scale,
    };
    const heed_parameter *p = update->parameter;
#pragma omp parallel for num_threads(update->threads) schedule(static) if (p->count > HEED_UPDATE_PIECE)
    for (int64_t from = 0; from < p->count; from += HEED_UPDATE_PIECE) {
        const int64_t left = p->count - from;
        update->kernels->adamw(&size, p->value + from, update->state[0] + from, update->state[1] + from,
                               p->gradient + from, left < HEED_UPDATE_PIECE ? left : HEED_UPDATE_PIECE);
    }
}

static void update_adamw(const heed_update *update)
{
    heed_update_adamw(update, update->rate);
}

const heed_optimiser_kind heed_optimiser_adamw = {
    .name = "adamw",
    .source = "Loshchilov, Hutter 2019",
    .slot = {"mean", "square"},
    .size = heed_update_same,
    .update = update_adamw,
    .usual = {.rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f},
};
