/* What softmax, softmax1 and sink are: exponentials over a denominator that may have a term of its own.
 *
 *     w_j = exp(z_j) / (exp(extra) + sum exp(z)),     z = s / temperature
 *
 * extra = -inf is softmax, 0 softmax1, a learnt logit a sink. Tiles come one after another: with m the
 * largest logit so far, a tile is left as exp(z - m) and whatever was summed under the old m is rescaled by
 * exp(m_old - m). Milakov, Gimelshein: Online normalizer calculation for softmax, 2018.
 *
 * NaN and +inf logits must make the sum NaN: the maximum passes over NaN, which the exponential then finds,
 * and +inf as the maximum leaves inf - inf.
 */
#ifndef HEED_NORMALISE_EXPONENTIAL_H
#define HEED_NORMALISE_EXPONENTIAL_H

#include "attend/form.h"
#include "attend/normalise/exp_down.h"

#define HEED_INLINE static inline __attribute__((always_inline))

/* 1 / temperature, finite, so that a logit of 0 stays 0. */
static inline float heed_inverse(double temperature)
{
    return temperature < 3e-39 ? 3e38f : (float)(1.0 / temperature);
}

/* Four rows go through a tile together, so that their chains of comparisons and sums overlap and what happens
 * once a row is a vector operation. In a tile's last group the last row may stand several times; only `count`
 * are stored. */
typedef struct heed_four {
    float *row[4];
    float max[4], base[4], rescale[4], sum[4], moment[4];
    int first, count;
} heed_four;

HEED_INLINE void heed_four_maxima(heed_four *four, int cols)
{
    const float *a = four->row[0], *b = four->row[1], *c = four->row[2], *d = four->row[3];
    float m0 = -INFINITY, m1 = -INFINITY, m2 = -INFINITY, m3 = -INFINITY;
#pragma omp simd reduction(max : m0, m1, m2, m3)
    for (int j = 0; j < cols; j++) {
        m0 = a[j] > m0 ? a[j] : m0;
        m1 = b[j] > m1 ? b[j] : m1;
        m2 = c[j] > m2 ? c[j] : m2;
        m3 = d[j] > m3 ? d[j] : m3;
    }
    four->max[0] = m0, four->max[1] = m1, four->max[2] = m2, four->max[3] = m3;
}

/* From the maxima of the tile to those so far, and what the sums before are worth under them. */
HEED_INLINE void heed_four_begin(heed_four *four, float inverse, const heed_row_sums *sums)
{
    float old[4];
    for (int r = 0; r < 4; r++)
        old[r] = sums->max[four->first + (r < four->count ? r : 0)];
    for (int r = 0; r < 4; r++) {
        const float here = four->max[r] * inverse;
        const float max = here > old[r] ? here : old[r];
        const float base = max == -INFINITY ? 0.0f : max;
        const float moved = old[r] == max || old[r] == -INFINITY ? 0.0f : old[r] - base;
        four->max[r] = max;
        four->base[r] = base;
        four->rescale[r] = heed_exp_down(moved);
    }
}

/* Sums exp(z - m) of one row, and puts it in place of the logits if `replace`. */
HEED_INLINE float heed_sum_row(float *x, int cols, float inverse, float base, bool replace)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < cols; j++) {
        const float e = heed_exp_down(x[j] * inverse - base);
        sum += e;
        x[j] = replace ? e : x[j];
    }
    return sum;
}

/* Sums exp(z - m) (z - m), before the logits are replaced. */
HEED_INLINE float heed_moment_row(const float *x, int cols, float inverse, float base)
{
    float moment = 0.0f;
#pragma omp simd reduction(+ : moment)
    for (int j = 0; j < cols; j++) {
        const float below = x[j] * inverse - base;
        moment += heed_exp_down(below) * (below > -88.0f ? below : -88.0f); /* 0, not 0 inf, where closed */
    }
    return moment;
}

/* m changes by d: sum exp(z - m') (z - m') = exp(d) (moment + d sum), d = m - m'. */
HEED_INLINE void heed_four_moments(const heed_four *four, int cols, float inverse, const heed_row_sums *sums)
{
    for (int r = 0; r < four->count; r++) {
        const int i = four->first + r;
        const float shift = sums->max[i] == -INFINITY ? 0.0f : sums->max[i] - four->base[r];
        const float before = sums->moment[i] + (shift == 0.0f ? 0.0f : shift * sums->sum[i]);
        const float here = heed_moment_row(four->row[r], cols, inverse, four->base[r]);
        sums->moment[i] = (four->rescale[r] == 0.0f ? 0.0f : four->rescale[r] * before) + here;
    }
}

/* Brings the sums up to date with a tile. Without `replace` the logits stay, for weights that are no
 * exponentials; what was accumulated of those needs no rescaling. */
HEED_INLINE void heed_sum_tile(const heed_tile *tile, float inverse, const heed_row_sums *sums, bool replace)
{
    const int cols = tile->cols & ~15;
    for (int first = 0; first < tile->rows; first += 4) {
        heed_four four = {.first = first, .count = tile->rows - first < 4 ? tile->rows - first : 4};
        for (int r = 0; r < 4; r++)
            four.row[r] = tile->score + (first + (r < four.count ? r : 0)) * tile->stride;
        heed_four_maxima(&four, cols);
        heed_four_begin(&four, inverse, sums);
        if (sums->moment)
            heed_four_moments(&four, cols, inverse, sums);
        for (int r = 0; r < four.count; r++)
            four.sum[r] = heed_sum_row(four.row[r], cols, inverse, four.base[r], replace);
        for (int r = 0; r < four.count; r++) {
            sums->sum[first + r] = four.rescale[r] * sums->sum[first + r] + four.sum[r];
            sums->max[first + r] = four.max[r];
            sums->rescale[first + r] = replace ? four.rescale[r] : 1.0f;
        }
    }
}

/* scale exp(z - m) = exp(z - norm) = w. Nothing open (the sum is exactly 0): weights 0. */
HEED_INLINE void heed_exponential_finish(float extra, int rows, const heed_row_sums *sums, heed_row_end *end)
{
    for (int i = 0; i < rows; i++) {
        const float max = sums->max[i], sum = sums->sum[i];
        const float top = extra > max ? extra : max;
        const float open =
            max == top ? 1.0f : heed_exp_down(max - top); /* exp(max) and exp(extra) over exp(top) */
        const float more = extra == top ? 1.0f : heed_exp_down(extra - top);
        const float total = open * sum + more;
        end[i].scale = sum == 0.0f ? 0.0f : open / total;
        end[i].norm = sum == 0.0f ? INFINITY : top + heed_log(total);
    }
}

/* A closed pair weighs 0 even in a row that is NaN. */
HEED_INLINE void heed_exponential_weights(const heed_tile *tile, float inverse, const float *norm)
{
    const int cols = tile->cols & ~15;
    for (int i = 0; i < tile->rows; i++) {
        float *x = tile->score + i * tile->stride;
        const float base = norm[i];
        for (int j = 0; j < cols; j++) {
            const float w = heed_exp_down(x[j] * inverse - base);
            x[j] = x[j] == -INFINITY ? 0.0f : w;
        }
    }
}

/* ds = w (dw - sum w dw) / temperature. A pair of weight 0 passes nothing on, whatever its value held. */
HEED_INLINE void heed_exponential_backward(const heed_tile *tile, float inverse, const float *delta)
{
    const int cols = tile->cols & ~15;
    for (int i = 0; i < tile->rows; i++) {
        const float *w = tile->score + i * tile->stride;
        float *d = tile->dscore + i * tile->stride;
        const float mean = delta[i];
#pragma omp simd
        for (int j = 0; j < cols; j++) {
            const float g = w[j] * (d[j] - mean) * inverse;
            d[j] = w[j] == 0.0f ? 0.0f : g;
        }
    }
}

#endif
