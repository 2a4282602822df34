/* Quantising a block: first the scale (and offset) of each group that leave the least squared error, then
 * those of the block from which all groups' are whole multiples, then the nearest levels.
 *
 * For given levels l the best scale of x = s l is sum(x l) / sum(l l), which lowers the squared error by
 * sum(x l)^2 / sum(l l); that of x = s l + o is the line of least squares. So levels are tried for a range of
 * starting scales, and the best line wins.
 */
#include "tensor/block.h"
#include "tensor/half.h"
#include <string.h>

typedef struct group_fit {
    float scale, offset;
} group_fit;

static int clamp_level(float n, int most)
{
    return n > 0.0f ? n < (float)most ? (int)rintf(n) : most : 0; /* 0 for NaN */
}

static int nearest_in_table(const int8_t *table, int count, float x)
{
    int best = 0;
    for (int n = 1; n < count; n++)
        if (fabsf(x - (float)table[n]) < fabsf(x - (float)table[best]))
            best = n;
    return best;
}

static int nearest_level(const heed_block_format *format, float x)
{
    const int levels = 1 << format->bits;
    if (format->table)
        return nearest_in_table(format->table, levels, x);
    return clamp_level(x + (float)format->zero, levels - 1);
}

/* What the level nearest to x stands for. */
static float nearest(const heed_block_format *format, float x)
{
    return (float)heed_block_level(format, nearest_level(format, x));
}

/* Takes the scale that levels at x / start ask for, if it is better. */
static void try_scale(const heed_block_format *format, const float *x, float start, float *gain, float *scale)
{
    float along = 0.0f, square = 0.0f;
    const float inverse = start != 0.0f ? 1.0f / start : 0.0f;
    for (int i = 0; i < format->group; i++) {
        const float l = nearest(format, x[i] * inverse);
        along += x[i] * l;
        square += l * l;
    }
    if (square > 0.0f && along * along / square > *gain) {
        *gain = along * along / square;
        *scale = along / square;
    }
}

static group_fit fit_scale(const heed_block_format *format, const float *x)
{
    float far = 0.0f, gain = 0.0f, scale = 0.0f;
    for (int i = 0; i < format->group; i++)
        far = fabsf(x[i]) > fabsf(far) ? x[i] : far;
    /* the farthest value falls on the lowest level, the highest, or somewhat beside them */
    const float low = (float)(format->table ? format->table[0] : -format->zero);
    const float high = (float)heed_block_level(format, (1 << format->bits) - 1);
    for (int k = -8; k <= 8; k++) {
        const float beside = 1.0f + 0.02f * (float)k * 8.0f / fabsf(low);
        try_scale(format, x, far / (low * beside), &gain, &scale);
        try_scale(format, x, far / (high * beside), &gain, &scale);
    }
    for (int again = 0; again < 2; again++)
        try_scale(format, x, scale, &gain, &scale);
    return (group_fit){scale, 0.0f};
}

/* The power of two of least squared error. */
static group_fit fit_power(const heed_block_format *format, const float *x)
{
    float far = 0.0f, least = INFINITY, scale = 0.0f;
    for (int i = 0; i < format->group; i++)
        far = fabsf(x[i]) > far ? fabsf(x[i]) : far;
    if (far == 0.0f)
        return (group_fit){0x1p-128f, 0.0f};
    int exponent;
    frexpf(far, &exponent); /* far < 2^exponent, and the table reaches 12 */
    for (int k = exponent - 5; k <= exponent - 2; k++) {
        const float start = ldexpf(1.0f, k < -128 ? -128 : k > 127 ? 127 : k);
        float error = 0.0f;
        for (int i = 0; i < format->group; i++) {
            const float miss = x[i] / start - nearest(format, x[i] / start);
            error += miss * miss * (start / far) * (start / far);
        }
        if (error < least) {
            least = error;
            scale = start;
        }
    }
    return (group_fit){scale, 0.0f};
}

/* Takes the line that levels at (x - offset) / scale ask for, if its squared error is less. */
static void try_line(const heed_block_format *format, const float *x, group_fit start, float *least,
                     group_fit *best)
{
    const int most = (1 << format->bits) - 1, n = format->group;
    const float inverse = start.scale > 0.0f ? 1.0f / start.scale : 0.0f;
    float level[HEED_MOST_VALUES], sum = 0.0f, sum_l = 0.0f, along = 0.0f, square = 0.0f;
    for (int i = 0; i < n; i++) {
        level[i] = (float)clamp_level((x[i] - start.offset) * inverse, most);
        sum += x[i];
        sum_l += level[i];
        along += x[i] * level[i];
        square += level[i] * level[i];
    }
    const float width = square * (float)n - sum_l * sum_l;
    group_fit line = start;
    if (width > 0.0f)
        line = (group_fit){(along * (float)n - sum * sum_l) / width, (sum * square - sum_l * along) / width};
    if (format->lowers && line.offset > 0.0f)
        line = (group_fit){square > 0.0f ? along / square : 0.0f, 0.0f};
    float error = 0.0f;
    for (int i = 0; i < n; i++) {
        const float miss = x[i] - line.scale * level[i] - line.offset;
        error += miss * miss;
    }
    if (error < *least && line.scale >= 0.0f) {
        *least = error;
        *best = line;
    }
}

static group_fit fit_line(const heed_block_format *format, const float *x)
{
    float low = x[0], high = x[0], least = INFINITY;
    for (int i = 1; i < format->group; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (format->lowers && low > 0.0f)
        low = 0.0f;
    const float most = (float)((1 << format->bits) - 1);
    group_fit best = {0.0f, low};
    for (int k = -4; k <= 12; k++) {
        const float inner = (high - low) * 0.015f * (float)k;
        try_line(format, x, (group_fit){(high - low - inner) / most, low + 0.5f * inner}, &least, &best);
        try_line(format, x, (group_fit){(high - low - inner) / most, low}, &least, &best);
    }
    for (int again = 0; again < 2; again++)
        try_line(format, x, best, &least, &best);
    return best;
}

static uint16_t to_d(const heed_block_format *format, float x)
{
    return format->d_type == HEED_BF16 ? heed_bf16_from_float(x) : heed_f16_from_float(x);
}

static int whole_between(float x, int least, int most)
{
    return x > (float)least ? x < (float)most ? (int)rintf(x) : most : least;
}

/* The block's d and e, and each group's whole multiples of them. */
static void share_scales(const heed_block_format *format, const group_fit *fit, heed_block_parts *parts)
{
    const int groups = format->values / format->group;
    const heed_sub_range sub = format->sub;
    float far = 0.0f, lowest = 0.0f;
    for (int g = 0; g < groups; g++) {
        far = fabsf(fit[g].scale) > fabsf(far) ? fit[g].scale : far;
        lowest = fit[g].offset < lowest ? fit[g].offset : lowest;
    }
    parts->d = to_d(format, far / (float)(sub.least < 0 ? sub.least : sub.most));
    parts->e = heed_f16_from_float(sub.most_offset > 0 ? lowest / (float)sub.most_offset : 0.0f);
    const float d = heed_block_d(format, parts), e = heed_block_e(parts);
    for (int g = 0; g < groups; g++) {
        parts->sub_scale[g] = (int8_t)(d != 0.0f ? whole_between(fit[g].scale / d, sub.least, sub.most) : 0);
        parts->sub_offset[g] =
            (uint8_t)(e != 0.0f ? whole_between(fit[g].offset / e, 0, sub.most_offset) : 0);
    }
}

static bool is_finite16(const heed_block_format *format, const heed_block_parts *parts)
{
    const uint16_t exponent = format->d_type == HEED_BF16 ? 0x7f80 : 0x7c00;
    return (parts->d & exponent) != exponent && (parts->e & 0x7c00) != 0x7c00;
}

void heed_block_store(const heed_block_format *format, const float *x, uint8_t *block)
{
    const int groups = format->values / format->group;
    heed_block_parts parts = {0};
    group_fit fit[HEED_MOST_GROUPS];
    /* f16 scales end far below 2^40, where squares are still floats */
    const float most = format->d_type == HEED_BF16 ? 0x1p127f : 0x1p40f;
    bool finite = true;
    for (int i = 0; i < format->values; i++)
        finite = finite && fabsf(x[i]) <= most;
    for (int g = 0; g < groups && finite; g++) {
        const float *from = x + g * format->group;
        fit[g] = format->d_type == HEED_BF16   ? fit_power(format, from)
                 : format->sub.most_offset > 0 ? fit_line(format, from)
                                               : fit_scale(format, from);
    }
    if (finite && format->sub.most > 1)
        share_scales(format, fit, &parts);
    else if (finite) {
        parts.d = to_d(format, fit[0].scale);
        parts.e = heed_f16_from_float(fit[0].offset);
        parts.sub_scale[0] = 1;
        parts.sub_offset[0] = (uint8_t)format->sub.most_offset;
    }
    if (!finite || !is_finite16(format, &parts)) {
        parts = (heed_block_parts){.d = format->d_type == HEED_BF16 ? 0x7f00 : 0x7e00, .sub_scale = {1}};
        memset(parts.level, (1 << format->bits) / 2 - 1, sizeof parts.level);
        for (int g = 0; g < groups; g++)
            parts.sub_scale[g] = (int8_t)format->sub.most;
        format->put(&parts, block);
        return;
    }
    const float d = heed_block_d(format, &parts), e = heed_block_e(&parts);
    for (int i = 0; i < format->values; i++) {
        const int g = i / format->group;
        const float scale = d * (float)parts.sub_scale[g], offset = e * (float)parts.sub_offset[g];
        parts.level[i] = (uint8_t)nearest_level(format, scale != 0.0f ? (x[i] - offset) / scale : 0.0f);
    }
    format->put(&parts, block);
}
