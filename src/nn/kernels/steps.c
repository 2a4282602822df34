/* Dropout, and the steps of optimisers. */
#include "base/philox.h"
#include "nn/kernels/parts.h"

#include <heed/maths.h>

void heed_nn_dropout_loop(uint64_t seed, uint64_t stream, int64_t from, uint32_t below, float keep,
                          const float *x, float *y, bool add, int64_t n)
{
    enum { PIECE = 256 };
    uint32_t bits[4][PIECE];
    for (int64_t at = 0; at < n; at += 4 * PIECE) {
        const int64_t left = n - at < 4 * PIECE ? n - at : 4 * PIECE, blocks = (left + 3) / 4;
        for (int64_t b = 0; b < blocks; b++) {
            uint32_t c[4];
            heed_philox_at(seed, stream, (uint64_t)((from + at) / 4 + b), c);
            for (int j = 0; j < 4; j++)
                bits[j][b] = c[j];
        }
        for (int64_t i = 0; i < left; i++) {
            const float kept = bits[i % 4][i / 4] < below ? 0.0f : x[at + i] * keep;
            y[at + i] = kept + (add ? y[at + i] : 0.0f);
        }
    }
}

/* m, v = running means of g, g^2; w -= rate m^ / (sqrt(v^) + eps), after w *= 1 - rate decay. Loshchilov,
 * Hutter 2019 */
void heed_nn_adamw_loop(const heed_step_size *size, float *w, float *m, float *v, const float *g, int64_t n)
{
    const heed_step_size s = *size;
    const float rate = s.rate * s.correction1, rest1 = 1.0f - s.beta1, rest2 = 1.0f - s.beta2,
                left = 1.0f - s.decay;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float gradient = g[i] * s.scale;
        m[i] = s.beta1 * m[i] + rest1 * gradient;
        v[i] = s.beta2 * v[i] + rest2 * gradient * gradient;
        w[i] = w[i] * left - rate * m[i] / (sqrtf(v[i]) * s.correction2 + s.eps);
    }
}

/* w -= rate sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g. Chen et al. 2023 */
void heed_nn_lion_loop(const heed_step_size *size, float *w, float *m, const float *g, int64_t n)
{
    const heed_step_size s = *size;
    const float left = 1.0f - s.decay;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float gradient = g[i] * s.scale, mixed = s.beta1 * m[i] + (1.0f - s.beta1) * gradient;
        const float sign = (mixed > 0.0f ? 1.0f : 0.0f) - (mixed < 0.0f ? 1.0f : 0.0f);
        w[i] = w[i] * left - s.rate * (sign + 0.0f * mixed);
        m[i] = s.beta2 * m[i] + (1.0f - s.beta2) * gradient;
    }
}

/* m = beta1 m + g; w -= rate m, or rate (g + beta1 m) (Nesterov). Weight decay is decoupled. */
void heed_nn_momentum_loop(const heed_step_size *size, bool nesterov, float *w, float *m, const float *g,
                           int64_t n)
{
    const heed_step_size s = *size;
    const float left = 1.0f - s.decay, ahead = nesterov ? s.beta1 : 1.0f, own = nesterov ? 1.0f : 0.0f;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float gradient = g[i] * s.scale;
        m[i] = s.beta1 * m[i] + gradient;
        w[i] = w[i] * left - s.rate * (ahead * m[i] + own * gradient);
    }
}

double heed_nn_squares_loop(const float *x, int64_t n)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}
