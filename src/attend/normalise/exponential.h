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

/* Four rows of a tile, which go through it together, so that what happens once a row is a vector operation:
 * the vectors hold number r in their r-th quarter. In a tile's last group the first row stands for missing
 * ones. */
typedef struct heed_four {
    float *row[4];
    heed_vec old_max, old_sum, base, rescale, sum, moment;
    int first, count;
} heed_four;

HEED_INLINE heed_vec heed_four_read(const heed_four *four, const float *x)
{
    float last[4];
    if (four->count == 4)
        return heed_vec_spread(x + four->first);
    for (int r = 0; r < 4; r++)
        last[r] = x[four->first + (r < four->count ? r : 0)];
    return heed_vec_spread(last);
}

HEED_INLINE void heed_four_write(const heed_four *four, heed_vec x, float *to)
{
    float last[4];
    if (four->count == 4) {
        heed_vec_collect(x, to + four->first);
        return;
    }
    heed_vec_collect(x, last);
    for (int r = 0; r < four->count; r++)
        to[four->first + r] = last[r];
}

HEED_INLINE heed_vec heed_four_maxima(const heed_four *four, int cols)
{
    const heed_vec least = (heed_vec){0} - INFINITY;
    heed_vec max[4] = {least, least, least, least};
    for (int j = 0; j < cols; j += HEED_WIDTH)
        for (int r = 0; r < 4; r++)
            max[r] = heed_vec_max(heed_vec_load(four->row[r] + j), max[r]);
    return heed_vec_fold(heed_vec_max, max);
}

/* From the maxima of the tile to those so far, and what the sums before are worth under them. Returns the new
 * maxima. */
HEED_INLINE heed_vec heed_four_begin(heed_four *four, heed_vec here, const heed_row_sums *sums)
{
    const heed_vec least = (heed_vec){0} - INFINITY;
    four->old_max = heed_four_read(four, sums->max);
    four->old_sum = heed_four_read(four, sums->sum);
    const heed_vec max = heed_vec_max(here, four->old_max);
    const heed_ivec same = (heed_ivec)(four->old_max == max) | (heed_ivec)(four->old_max == least);
    four->base = heed_vec_select((heed_ivec)(max == least), (heed_vec){0}, max);
    four->rescale = heed_vec_exp_down(heed_vec_select(same, (heed_vec){0}, four->old_max - four->base));
    return max;
}

/* Sums exp(z - m) of the rows, and puts it in place of the logits if `replace`; with `moments` also exp(z -
 * m) (z - m). */
HEED_INLINE void heed_four_sums(heed_four *four, int cols, float inverse, bool replace, bool moments)
{
    const heed_ivec quarter[4] = {HEED_LANES(HEED_LANE_OF, 0), HEED_LANES(HEED_LANE_OF, 1),
                                  HEED_LANES(HEED_LANE_OF, 2), HEED_LANES(HEED_LANE_OF, 3)};
    heed_vec sum[4] = {{0}}, moment[4] = {{0}};
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        if (r >= four->count)
            break;
        const heed_vec base = heed_vec_shuffle(four->base, four->base, quarter[r]);
        for (int j = 0; j < cols; j += HEED_WIDTH) {
            const heed_vec below = heed_vec_load(four->row[r] + j) * inverse - base;
            const heed_vec e = heed_vec_exp_down(below);
            sum[r] += e;
            if (moments) /* 0, not 0 inf, where closed */
                moment[r] += e * heed_vec_max((heed_vec){0} - 88.0f, below);
            if (replace)
                heed_vec_store(four->row[r] + j, e);
        }
    }
    four->sum = heed_vec_fold(heed_vec_add, sum);
    if (moments)
        four->moment = heed_vec_fold(heed_vec_add, moment);
}

/* m changes by d: sum exp(z - m') (z - m') = exp(d) (moment + d sum), d = m - m'. */
HEED_INLINE void heed_four_moments(const heed_four *four, const heed_row_sums *sums)
{
    const heed_vec none = {0}, least = none - INFINITY;
    const heed_vec shift =
        heed_vec_select((heed_ivec)(four->old_max == least), none, four->old_max - four->base);
    const heed_vec moved = heed_vec_select((heed_ivec)(shift == none), none, shift * four->old_sum);
    const heed_vec before = four->rescale * (heed_four_read(four, sums->moment) + moved);
    const heed_vec kept = heed_vec_select((heed_ivec)(four->rescale == none), none, before);
    heed_four_write(four, kept + four->moment, sums->moment);
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
        const heed_vec max = heed_four_begin(&four, heed_four_maxima(&four, cols) * inverse, sums);
        if (sums->moment) {
            heed_four_sums(&four, cols, inverse, replace, true);
            heed_four_moments(&four, sums);
        } else {
            heed_four_sums(&four, cols, inverse, replace, false);
        }
        heed_four_write(&four, four.rescale * four.old_sum + four.sum, sums->sum);
        heed_four_write(&four, max, sums->max);
        if (!replace)
            four.rescale = (heed_vec){0} + 1.0f;
        heed_four_write(&four, four.rescale, sums->rescale);
    }
}

/* scale exp(z - m) = exp(z - norm) = w. Nothing open (the sum is exactly 0): weights 0. */
HEED_INLINE void heed_exponential_finish(float extra, int rows, const heed_row_sums *sums, heed_row_end *end)
{
    for (int i = 0; i < rows; i++) {
        const float max = sums->max[i], sum = sums->sum[i];
        const float top = extra > max ? extra : max;
        const float open = max == top ? 1.0f : expf(max - top); /* exp(max) and exp(extra) over exp(top) */
        const float more = extra == top ? 1.0f : expf(extra - top);
        const float total = open * sum + more;
        end[i].scale = sum == 0.0f ? 0.0f : open / total;
        const float rest = heed_log(total);
        end[i].norm = sum == 0.0f ? INFINITY : top + rest;
        end[i].rest = sum == 0.0f ? INFINITY : (top - max) + rest;
    }
}

/* A closed pair weighs 0 even in a row that is NaN. */
HEED_INLINE void heed_exponential_weights(const heed_tile *tile, float inverse, const float *norm)
{
    const int cols = tile->cols & ~15;
    for (int i = 0; i < tile->rows; i++) {
        float *x = tile->score + i * tile->stride;
        const float base = tile->base ? tile->base[i] : norm[i], rest = tile->base ? norm[i] : 0.0f;
        for (int j = 0; j < cols; j++) {
            const float w = heed_exp_down((x[j] * inverse - base) - rest);
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
