/* What comes again after a while: rows of a text, and textures. */
#include "train/synthetic.h"

#include <stddef.h>

/* arg: length, period, symbols, noise: each symbol is the one `period` places before, or in `noise` of a
 * hundred places another drawn by lot; which comes next? What is drawn by lot cannot be known, and is not
 * asked for. */
enum { LENGTH, PERIOD, SYMBOLS, NOISE };

static int64_t rows_vocabulary(const int64_t *arg)
{
    return arg[SYMBOLS];
}

static int64_t rows_length(const int64_t *arg)
{
    return arg[LENGTH];
}

static void make_rows(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    for (int64_t i = 0; i < arg[LENGTH]; i++) {
        const bool drawn = heed_draw_below(draw, 100) < arg[NOISE] || i < arg[PERIOD];
        token[i] = drawn ? (int32_t)heed_draw_below(draw, arg[SYMBOLS]) : token[i - arg[PERIOD]];
        if (!drawn)
            target[i - 1] = token[i];
    }
    if (arg[LENGTH] > arg[PERIOD]) /* one at least, with all noise too */
        target[arg[LENGTH] - 1] = token[arg[LENGTH] - arg[PERIOD]];
}

static const char *rows_wrong(const int64_t *arg)
{
    return arg[PERIOD] >= arg[LENGTH] ? "length must be above the period" : NULL;
}

/* arg: side, periods: a square of 0 and 1 whose rows, each by itself, repeat after 1, 2, ... or `periods`
 * places, and no sooner in at least one row: which? Behind the picture a question, 2; answers from 3 on. */
enum { SIDE, PERIODS, MOST_SIDE = 64 };

static int64_t texture_vocabulary(const int64_t *arg)
{
    return 3 + arg[PERIODS];
}

static int64_t texture_length(const int64_t *arg)
{
    return arg[SIDE] * arg[SIDE] + 1;
}

/* Whether each row repeats after `period` places. */
static bool repeats(const int64_t *arg, const int32_t *token, int64_t period)
{
    for (int64_t y = 0; y < arg[SIDE]; y++)
        for (int64_t x = period; x < arg[SIDE]; x++)
            if (token[y * arg[SIDE] + x] != token[y * arg[SIDE] + x - period])
                return false;
    return true;
}

static bool repeats_sooner(const int64_t *arg, const int32_t *token, int64_t period)
{
    for (int64_t sooner = 1; sooner < period; sooner++)
        if (repeats(arg, token, sooner))
            return true;
    return false;
}

static void make_texture(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t side = arg[SIDE], period = 1 + heed_draw_below(draw, arg[PERIODS]);
    do {
        for (int64_t i = 0; i < side * side; i++)
            token[i] = i % side < period ? (int32_t)heed_draw_below(draw, 2) : token[i - period];
    } while (repeats_sooner(arg, token, period));
    token[side * side] = 2;
    target[side * side] = (int32_t)(2 + period);
}

static const char *texture_wrong(const int64_t *arg)
{
    return arg[PERIODS] >= arg[SIDE] ? "periods must be below the side" : NULL;
}

const heed_synthetic heed_synthetic_rows = {
    .name = "rows",
    .summary = "each symbol is that of the row before, but for a few: which comes next?",
    .arg = {{"length", "symbols", 64, 2, 1 << 20},
            {"period", "symbols of a row", 8, 1, 1 << 20},
            {"symbols", "different symbols", 8, 2, HEED_SYNTHETIC_SYMBOLS},
            {"noise", "of a hundred symbols, how many are drawn by lot", 10, 0, 100}},
    .ceiling = 1.0,
    .vocabulary = rows_vocabulary,
    .length = rows_length,
    .make = make_rows,
    .wrong = rows_wrong};
const heed_synthetic heed_synthetic_texture = {.name = "texture",
                                               .summary =
                                                   "a picture whose rows repeat: after how many places?",
                                               .arg = {{"side", "cells of a side", 8, 2, MOST_SIDE},
                                                       {"periods", "different periods", 4, 1, MOST_SIDE - 1}},
                                               .ceiling = 1.0,
                                               .vocabulary = texture_vocabulary,
                                               .length = texture_length,
                                               .make = make_texture,
                                               .wrong = texture_wrong};
