/* Adafactor: the running mean of squares of a matrix kept as one number a row and one a column.
 *
 *     r = mean over columns, c = mean over rows of g^2, averaged with weight t^-0.8 for the new;  v = r c /
 * mean(r) u = g / sqrt(v),     u /= max(1, rms(u)) w -= rate decay w,   w -= max(1e-3, rms(w)) min(rate,
 * 1/sqrt(t)) u
 *
 * Shazeer, Stern: Adafactor, 2018.
 */
#include "train/optimiser.h"

#include <math.h>

/* Dimensions before the last count as rows. */
static int64_t cols_of(const heed_parameter *parameter)
{
    return parameter->rank > 1 ? parameter->shape[parameter->rank - 1] : 0;
}

static int64_t size_of(const heed_parameter *parameter, int slot)
{
    const int64_t cols = cols_of(parameter);
    if (!cols)
        return slot == 0 ? parameter->count : 0;
    return slot == 0 ? parameter->count / cols : cols;
}

static int64_t scratch_of(const heed_parameter *parameter)
{
    return parameter->count;
}

static double mean(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum / (double)n;
}

/* x = x (1 - fresh) + value fresh */
static void blend(float *x, double value, double fresh)
{
    *x = (float)((double)*x + fresh * (value - (double)*x));
}

static void factored(const heed_update *update, double fresh, float *u)
{
    const heed_parameter *p = update->parameter;
    const int64_t cols = cols_of(p), rows = p->count / cols;
    const double scale = (double)update->scale * (double)update->scale;
    float *row = update->state[0], *col = update->state[1];
    for (int64_t i = 0; i < rows; i++)
        blend(&row[i], scale * update->kernels->squares(p->gradient + i * cols, cols) / (double)cols, fresh);
#pragma omp parallel for num_threads(update->threads) schedule(static) if (cols > 256)
    for (int64_t j0 = 0; j0 < cols; j0 += 64) { /* columns side by side, each summed in the order of rows */
        double sum[64] = {0.0};
        const int64_t some = cols - j0 < 64 ? cols - j0 : 64;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < some; j++) {
                const double g = (double)p->gradient[i * cols + j0 + j];
                sum[j] += g * g;
            }
        for (int64_t j = 0; j < some; j++)
            blend(&col[j0 + j], scale * sum[j] / (double)rows, fresh);
    }
    const double middle = fmax(mean(row, rows), 1e-30);
#pragma omp parallel for num_threads(update->threads) schedule(static) if (rows > 16)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const float v = (float)((double)row[i] / middle) * col[j];
            u[i * cols + j] = update->scale * p->gradient[i * cols + j] / sqrtf(fmaxf(v, 1e-30f));
        }
}

static void update_adafactor(const heed_update *update)
{
    const heed_parameter *p = update->parameter;
    const double t = (double)update->step, fresh = pow(t, -0.8), n = (double)p->count;
    float *u = update->scratch;
    if (cols_of(p))
        factored(update, fresh, u);
    else
        for (int64_t i = 0; i < p->count; i++) {
            const double g = (double)update->scale * (double)p->gradient[i];
            blend(&update->state[0][i], g * g, fresh);
            u[i] = (float)(g / sqrt(fmax((double)update->state[0][i], 1e-30)));
        }
    const double size = sqrt(update->kernels->squares(p->value, p->count) / n);
    const double length = sqrt(update->kernels->squares(u, p->count) / n);
    const double rate = fmax(1e-3, size) * fmin((double)update->rate, 1.0 / sqrt(t)) / fmax(1.0, length);
    update->kernels->scale(p->value, 1.0f - update->rate * update->decay, 0.0f, p->value, false, p->count);
    update->kernels->scale(u, (float)-rate, 0.0f, p->value, true, p->count);
}

const heed_optimiser_kind heed_optimiser_adafactor = {
    .name = "adafactor",
    .source = "Shazeer, Stern 2018",
    .slot = {"rows", "columns"},
    .size = size_of,
    .scratch = scratch_of,
    .update = update_adafactor,
    .usual = {.rate = 1e-2f, .decay = 0.0f},
};
