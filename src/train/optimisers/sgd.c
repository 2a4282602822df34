/* Gradient descent with momentum: m = beta1 m + g; w -= rate m, or rate (g + beta1 m) (Nesterov). Weight
 * decay is decoupled. Polyak 1964, Nesterov 1983.
 */
#include "train/optimiser.h"

static void update_sgd(const heed_update *update)
{
    const heed_step_size size = {.rate = update->rate,
                                 .decay = update->rate * update->decay,
                                 .beta1 = update->how->beta1,
                                 .scale = update->scale};
    const heed_parameter *p = update->parameter;
#pragma omp parallel for num_threads(update->threads) schedule(static) if (p->count > HEED_UPDATE_PIECE)
    for (int64_t from = 0; from < p->count; from += HEED_UPDATE_PIECE) {
        const int64_t left = p->count - from;
        update->kernels->momentum(&size, update->how->nesterov, p->value + from, update->state[0] + from,
                                  p->gradient + from, left < HEED_UPDATE_PIECE ? left : HEED_UPDATE_PIECE);
    }
}

const heed_optimiser_kind heed_optimiser_sgd = {
    .name = "sgd",
    .source = "Polyak 1964, Nesterov 1983",
    .slot = {"momentum"},
    .size = heed_update_same,
    .update = update_sgd,
    .usual = {.rate = 1e-2f, .beta1 = 0.9f},
};
