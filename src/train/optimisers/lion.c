/* Lion: w -= rate sign(beta1 m + (1 - beta1) g), after w -= rate decay w; then m = beta2 m + (1 - beta2) g.
 *
 * Chen et al.: Symbolic Discovery of Optimization Algorithms, 2023.
 */
#include "train/optimiser.h"

static void update_lion(const heed_update *update)
{
    const heed_step_size size = {.rate = update->rate,
                                 .decay = update->rate * update->decay,
                                 .beta1 = update->how->beta1,
                                 .beta2 = update->how->beta2,
                                 .scale = update->scale};
    const heed_parameter *p = update->parameter;
#pragma omp parallel for num_threads(update->threads) schedule(static) if (p->count > HEED_UPDATE_PIECE)
    for (int64_t from = 0; from < p->count; from += HEED_UPDATE_PIECE) {
        const int64_t left = p->count - from;
        update->kernels->lion(&size, p->value + from, update->state[0] + from, p->gradient + from,
                              left < HEED_UPDATE_PIECE ? left : HEED_UPDATE_PIECE);
    }
}

const heed_optimiser_kind heed_optimiser_lion = {
    .name = "lion",
    .source = "Chen et al. 2023",
    .slot = {"mean"},
    .size = heed_update_same,
    .update = update_lion,
    .usual = {.rate = 1e-4f, .beta1 = 0.9f, .beta2 = 0.99f, .decay = 1.0f},
};
