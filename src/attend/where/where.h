/* Loops that the `where` forms share.
 *
 * Positions lie within +-2^30, so a distance may reach 2^31, which int32 does not hold. Most forms therefore
 * never form it: a query opens the keys whose positions lie in an interval, or those whose position leaves
 * the same remainder as its own.
 */
#ifndef HEED_ATTEND_WHERE_H
#define HEED_ATTEND_WHERE_H

#include "attend/form.h"
#include <string.h>

#define HEED_BEYOND ((INT64_C(1) << 31) + 1) /* larger than any distance */
#define HEED_CHUNK 256                       /* columns of a tile for which something is worked out at once */
#define HEED_WHOLE .kind = HEED_ARG_INT, .least = 1, .most = INFINITY

/* Argument i as a whole number; whatever is larger than any distance counts as HEED_BEYOND. */
static inline int64_t heed_whole(const heed_form_state *form, int i)
{
    const double x = form->arg[i].number;
    return x >= (double)HEED_BEYOND ? HEED_BEYOND : (int64_t)x;
}

static inline int64_t heed_clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* floor(a / b) of whole numbers a and b > 0 whose quotient fits int32. The quotient in double is never
 * rounded up to a whole number: it would have to be closer to one than 1 / b, which at these sizes is many
 * units in its last place. */
static inline int32_t heed_floor_divide(double a, double b)
{
    const double quotient = a / b;
    const int32_t towards_zero = (int32_t)quotient;
    return towards_zero - (towards_zero > quotient);
}

/* a mod b in 0 .. b-1, which may need all 32 bits; a 32-bit product wraps to the right difference. */
static inline uint32_t heed_remainder(int32_t a, int64_t b)
{
    return (uint32_t)a - (uint32_t)heed_floor_divide(a, (double)b) * (uint32_t)b;
}

/* Key positions from low to high, both included. */
typedef struct heed_interval {
    int64_t low, high;
} heed_interval;

/* States of key blocks, when the interval of a query moves up with its position: `first` and `last` are the
 * intervals of the lowest and the highest query. A block outside their union is closed, one inside their
 * intersection is open. */
static inline void heed_interval_blocks(heed_interval first, heed_interval last, const heed_key_blocks *keys,
                                        uint8_t *restrict state)
{
    const int32_t low = (int32_t)heed_clamp(first.low, INT32_MIN, INT32_MAX);
    const int32_t high = (int32_t)heed_clamp(last.high, INT32_MIN, INT32_MAX);
    const int32_t inner_low = (int32_t)heed_clamp(last.low, INT32_MIN, INT32_MAX);
    const int32_t inner_high = (int32_t)heed_clamp(first.high, INT32_MIN, INT32_MAX);
    const int32_t *restrict pos_min = keys->pos_min, *restrict pos_max = keys->pos_max;
    for (int b = 0; b < keys->count; b++) {
        const int touched = (pos_max[b] >= low) & (pos_min[b] <= high);
        const int inside = (pos_min[b] >= inner_low) & (pos_max[b] <= inner_high);
        state[b] =
            (uint8_t)(touched + inside); /* inside implies touched: HEED_CLOSED, HEED_PARTLY or HEED_OPEN */
    }
}

/* One row of a mask. */
static inline void heed_interval_row(heed_interval seen, const heed_tile *tile, uint8_t *restrict open)
{
    const int32_t low = (int32_t)heed_clamp(seen.low, INT32_MIN, INT32_MAX);
    const int32_t high = (int32_t)heed_clamp(seen.high, INT32_MIN, INT32_MAX);
    const int32_t *restrict pos = tile->key_pos;
    for (int j = 0; j < tile->cols; j++)
        open[j] = (pos[j] >= low) & (pos[j] <= high);
}

/* The distances between a run of queries and a block of keys, from least to most. */
static inline heed_interval heed_distances(const heed_query_range *range, int32_t pos_min, int32_t pos_max)
{
    return (heed_interval){(int64_t)range->pos_min - pos_max, (int64_t)range->pos_max - pos_min};
}

/* State of a block whose pairs are open when their distance, somewhere in `distance`, lies in `reach` and is
 * a multiple of step. */
static inline uint8_t heed_multiples_state(heed_interval distance, heed_interval reach, int64_t step)
{
    const bool inside = distance.low >= reach.low && distance.high <= reach.high;
    const int64_t low = distance.low > reach.low ? distance.low : reach.low;
    const int64_t high = distance.high < reach.high ? distance.high : reach.high;
    if (low > high)
        return HEED_CLOSED;
    if (step == 1)
        return inside ? HEED_OPEN : HEED_PARTLY;
    if (heed_floor_divide((double)high, (double)step) * step < low)
        return HEED_CLOSED;
    return inside && low == high ? HEED_OPEN : HEED_PARTLY;
}

/* Remainders of the positions of columns col.. of a tile; returns how many were worked out. */
static inline int heed_remainders(const heed_tile *tile, int col, int64_t step,
                                  uint32_t remainder[HEED_CHUNK])
{
    const int count = tile->cols - col < HEED_CHUNK ? tile->cols - col : HEED_CHUNK;
    const int32_t *restrict pos = tile->key_pos + col;
    for (int j = 0; j < count; j++)
        remainder[j] = heed_remainder(pos[j], step);
    return count;
}

/* Keys of a tile that exist, and rows that exist: beyond them there is nothing to read in a mask or in
 * segments. */
static inline int heed_real_cols(const heed_tile *tile)
{
    return (int)heed_clamp(tile->inputs->keys - tile->key0, 0, tile->cols);
}

static inline int heed_real_rows(const heed_form_state *form, const heed_tile *tile)
{
    return (int)heed_clamp(form->sizes.queries - tile->query0, 0, tile->rows);
}

/* The segments of a batch entry, a number a query or key. */
static inline const int32_t *heed_query_segments(const heed_inputs *inputs, int64_t batch)
{
    return inputs->query_segment + batch * inputs->query_segment_stride;
}

static inline const int32_t *heed_key_segments(const heed_inputs *inputs, int64_t batch)
{
    return inputs->key_segment + batch * inputs->key_segment_stride;
}

#endif
