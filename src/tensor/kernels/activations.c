/* Rows of activations into tiles.
 *
 * Whole numbers by blocks of 32: scale = max|x| / 127, n = x / scale rounded to nearest, ties to even; so
 * that |x - scale n| <= scale (1/2 + 2^-16). A block below 1e-30 throughout counts as zeros. A block that
 * holds a NaN or an infinity gets the scale NaN, and spoils its row's results as it should.
 */
#include "tensor/kernels/parts.h"

static void block_to_whole(const float x[HEED_WHOLE], int row, int rows, int8_t *whole, float *scale,
                           int32_t *sum)
{
    int32_t most = 0; /* bits of the largest magnitude; those of NaN are above all numbers' */
    int8_t n[HEED_WHOLE];
    for (int i = 0; i < HEED_WHOLE; i++) {
        const int32_t size = (int32_t)(heed_bits_of_float(x[i]) & 0x7fffffffu);
        most = size > most ? size : most;
    }
    const float far = heed_float_from_bits((uint32_t)most);
    const bool finite = most < 0x7f800000;
    const float inverse = finite && far >= 1e-30f ? 127.0f / far : 0.0f;
    scale[row] = !finite ? NAN : far >= 1e-30f ? far / 127.0f : 0.0f;
    const float shift = 12582912.0f; /* 1.5 2^23: adding it rounds to a whole number */
    for (int i = 0; i < HEED_WHOLE; i++) {
        const float product = finite ? x[i] * inverse : 0.0f;
        n[i] = (int8_t)(int32_t)(heed_bits_of_float(product + shift) - 0x4b400000u);
    }
    for (int half = 0; half < 2; half++) {
        int32_t total = 0;
        for (int i = 0; i < HEED_WHOLE / 2; i++)
            total += n[half * HEED_WHOLE / 2 + i];
        sum[half * rows + row] = total;
    }
    for (int s = 0; s < HEED_WHOLE / HEED_STEP; s++)
        memcpy(whole + (s * rows + row) * HEED_STEP, n + s * HEED_STEP, HEED_STEP);
}

void heed_to_whole(const float *x, int64_t stride, int64_t cols, int64_t depth, const heed_whole_tile *to)
{
    const int rows = to->rows;
    for (int r = 0; r < rows; r++)
        for (int64_t b = 0; b < depth / HEED_WHOLE; b++) {
            const float *from = x + r * stride + b * HEED_WHOLE;
            float last[HEED_WHOLE] = {0};
            if ((b + 1) * HEED_WHOLE > cols) {
                if (b * HEED_WHOLE < cols)
                    memcpy(last, from, (size_t)(cols - b * HEED_WHOLE) * sizeof *last);
                from = last;
            }
            block_to_whole(from, r, rows, to->whole + b * HEED_WHOLE * rows, to->scale + b * rows,
                           to->sum + 2 * b * rows);
        }
}

void heed_to_floats(const float *x, int64_t stride, int64_t cols, int rows, float *to)
{
    for (int64_t c = 0; c < cols; c++)
        for (int r = 0; r < rows; r++)
            to[c * rows + r] = x[r * stride + c];
}
