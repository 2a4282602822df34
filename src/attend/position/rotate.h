/* Rotation of pairs of entries by an angle that grows with position: what rope and xpos share.
 *
 *     (x, y) -> (x cos a - y sin a, x sin a + y cos a),     a = p f_t
 *
 * A position is p = 128 high + low, so that cos a and sin a follow from tabulated values of both parts by the
 * addition formula. The tables come from angles in double precision; what is left is a few roundings of
 * floats (below 2e-7), however far the position.
 */
#ifndef HEED_POSITION_ROTATE_H
#define HEED_POSITION_ROTATE_H

#include "attend/form.h"

enum {
    ROTATE_LOWS = 128,   /* values of low */
    ROTATE_HIGHS = 1024, /* most values of high that are tabulated: positions below 131072 */
    ROTATE_TURN = 64     /* pairs turned at a time */
};

/* Header of the table; behind it lie, all [half rounded up to `stride`], the frequencies (double), and cos
 * and sin of the angles of low and of high: float [ROTATE_LOWS][2][stride], float [highs][2][stride]. */
typedef struct rotation {
    int half, stride, highs;
    float factor; /* on what was rotated */
} rotation;

static inline double *rotation_frequency(const rotation *r)
{
    return (double *)((char *)r + 64);
}

static inline float *rotation_low(const rotation *r, int low)
{
    return (float *)(rotation_frequency(r) + r->stride) + (int64_t)low * 2 * r->stride;
}

static inline float *rotation_high(const rotation *r, int64_t high)
{
    return rotation_low(r, ROTATE_LOWS) + high * 2 * r->stride;
}

/* What the table needs for `half` pairs and the positions of a problem of these sizes. */
static inline rotation rotation_sized(int half, const heed_sizes *sizes)
{
    const int64_t positions = sizes->keys > sizes->queries ? sizes->keys : sizes->queries;
    const int64_t highs = positions / ROTATE_LOWS + 1;
    return (rotation){.half = half,
                      .stride = (half + 15) / 16 * 16,
                      .highs = highs < ROTATE_HIGHS ? (int)highs : ROTATE_HIGHS,
                      .factor = 1.0f};
}

static inline size_t rotation_bytes(int half, const heed_sizes *sizes)
{
    const rotation r = rotation_sized(half, sizes);
    const size_t rows = 2 * (size_t)(ROTATE_LOWS + r.highs);
    return 64 + (size_t)r.stride * (sizeof(double) + rows * sizeof(float));
}

static inline void rotation_angles(const rotation *r, int64_t position, int t0, int count, float *cosine,
                                   float *sine)
{
    const double *frequency = rotation_frequency(r) + t0;
    for (int t = 0; t < count; t++) {
        const double angle = (double)position * frequency[t];
        cosine[t] = (float)cos(angle);
        sine[t] = (float)sin(angle);
    }
}

/* Fills the tables; the header and the frequencies are already there. */
static inline void rotation_fill(rotation *r)
{
    for (int low = 0; low < ROTATE_LOWS; low++) {
        float *cosine = rotation_low(r, low);
        rotation_angles(r, low, 0, r->half, cosine, cosine + r->stride);
    }
    for (int high = 0; high < r->highs; high++) {
        float *cosine = rotation_high(r, high);
        rotation_angles(r, (int64_t)high * ROTATE_LOWS, 0, r->half, cosine, cosine + r->stride);
    }
}

/* cos and sin of the angles of `high` for the pairs t0..., times `factor`. */
static inline void rotation_turn(const rotation *r, float factor, int64_t high, int t0, int count,
                                 float *cosine, float *sine)
{
    if (high >= 0 && high < r->highs) {
        const float *from = rotation_high(r, high) + t0;
        for (int t = 0; t < count; t++) {
            cosine[t] = from[t];
            sine[t] = from[t + r->stride];
        }
    } else {
        rotation_angles(r, high * ROTATE_LOWS, t0, count, cosine, sine);
    }
    for (int t = 0; t < count; t++) {
        cosine[t] *= factor;
        sine[t] *= factor;
    }
}

/* One row: pair t stands at x[t step], y[t step]. Forward sets `to`; backward turns the other way and adds.
 */
static inline __attribute__((always_inline)) void
rotate_row(int count, const float *restrict low_cosine, const float *restrict low_sine,
           const float *restrict high_cosine, const float *restrict high_sine, const float *restrict x,
           const float *restrict y, float *restrict to_x, float *restrict to_y, int64_t step, bool back)
{
    for (int t = 0; t < count; t++) {
        const float c = low_cosine[t] * high_cosine[t] - low_sine[t] * high_sine[t];
        const float s = low_sine[t] * high_cosine[t] + low_cosine[t] * high_sine[t];
        const float a = x[t * step], b = y[t * step];
        if (back) {
            to_x[t * step] += a * c + b * s;
            to_y[t * step] += b * c - a * s;
        } else {
            to_x[t * step] = a * c - b * s;
            to_y[t * step] = a * s + b * c;
        }
    }
}

/* Pairs t0... of all rows. adjacent: pair t is (2t, 2t+1), else (t, t + half). */
static inline __attribute__((always_inline)) void rotate_pairs(const rotation *r, float factor,
                                                               const heed_rows *rows, int t0, int count,
                                                               bool adjacent, bool back)
{
    float cosine[ROTATE_TURN], sine[ROTATE_TURN];
    int64_t turned = INT64_MIN;
    for (int i = 0; i < rows->count; i++) {
        const int low = rows->pos[i] & (ROTATE_LOWS - 1);
        const int64_t high = ((int64_t)rows->pos[i] - low) / ROTATE_LOWS;
        if (high != turned) {
            rotation_turn(r, factor, high, t0, count, cosine, sine);
            turned = high;
        }
        const float *low_cosine = rotation_low(r, low) + t0;
        const float *from = back ? rows->out + i * rows->out_stride : rows->in + i * rows->in_stride;
        float *to = back ? rows->din + i * rows->din_stride : rows->out + i * rows->out_stride;
        const int first = adjacent ? 2 * t0 : t0, second = adjacent ? 2 * t0 + 1 : t0 + r->half;
        rotate_row(count, low_cosine, low_cosine + r->stride, cosine, sine, from + first, from + second,
                   to + first, to + second, adjacent ? 2 : 1, back);
    }
}

/* What was rotated by p, rotated by d with factor 1, is rotated by p + d. */
static inline __attribute__((always_inline)) void rotate_rows(const rotation *r, float factor,
                                                              const heed_rows *rows, bool adjacent, bool back)
{
    for (int t0 = 0; t0 < r->half; t0 += ROTATE_TURN) {
        const int count = r->half - t0 < ROTATE_TURN ? r->half - t0 : ROTATE_TURN;
        rotate_pairs(r, factor, rows, t0, count, adjacent, back);
    }
    for (int i = 0; i < rows->count; i++)
        for (int d = 2 * r->half; d < rows->dim; d++) {
            if (back)
                rows->din[i * rows->din_stride + d] += rows->out[i * rows->out_stride + d];
            else
                rows->out[i * rows->out_stride + d] = rows->in[i * rows->in_stride + d];
        }
}

#endif
