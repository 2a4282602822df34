/* Pictures and clips as tokens, row by row: digits in a row, a shape among noise, a dot that moves, and
 * textures that repeat. */
#include "train/synthetic.h"

#include <stddef.h>
#include <string.h>

enum { MOST_SIDE = 64 };

/* arg: count, cols: digits of 5 rows and 3 columns side by side on 8 rows, each somewhere in its part; a
 * mark, and the digits. Cells are 0 or 1, the mark is 2, digits are 3 to 12. */
enum { DIGITS, DIGIT_COLS, DIGIT_ROWS = 8, GLYPH_ROWS = 5, GLYPH_COLS = 3 };

static const char *const glyphs[10] = {
    "####.##.##.####", ".#..#..#..#..#.", "###..#####..###", "###..####..####", "#.##.####..#..#",
    "####..###..####", "####..####.####", "###..#..#..#..#", "####.#####.####", "####.####..####"};

static int64_t digits_vocabulary(const int64_t *arg)
{
    (void)arg;
    return 13;
}

static int64_t digits_length(const int64_t *arg)
{
    return DIGIT_ROWS * arg[DIGIT_COLS] + arg[DIGITS];
}

static void make_digits(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t cells = DIGIT_ROWS * arg[DIGIT_COLS], part = arg[DIGIT_COLS] / arg[DIGITS];
    token[cells] = 2;
    for (int64_t i = 0; i < arg[DIGITS]; i++) {
        const int64_t digit = heed_draw_below(draw, 10),
                      row = heed_draw_below(draw, DIGIT_ROWS - GLYPH_ROWS + 1),
                      col = i * part + heed_draw_below(draw, part - GLYPH_COLS);
        for (int64_t c = 0; c < GLYPH_ROWS * GLYPH_COLS; c++)
            token[(row + c / GLYPH_COLS) * arg[DIGIT_COLS] + col + c % GLYPH_COLS] = glyphs[digit][c] == '#';
        target[cells + i] = (int32_t)(3 + digit);
        if (i + 1 < arg[DIGITS])
            token[cells + i + 1] = (int32_t)(3 + digit);
    }
}

static const char *digits_wrong(const int64_t *arg)
{
    return arg[DIGIT_COLS] / arg[DIGITS] <= GLYPH_COLS ? "cols must be more than 3 for each digit" : NULL;
}

/* arg: side, small, large, noise: a shape of small to large cells a side, of level 7, on a ground of levels
 * below `noise`, and a question; the answer is 0 to 3: a square, a ring, a cross, or a diagonal cross. */
enum { SIDE, SMALL, LARGE, NOISE, OBJECT = 7 };

static int64_t salient_vocabulary(const int64_t *arg)
{
    (void)arg;
    return OBJECT + 1;
}

static int64_t salient_length(const int64_t *arg)
{
    return arg[SIDE] * arg[SIDE] + 1;
}

static bool is_of_shape(int64_t kind, int64_t size, int64_t row, int64_t col)
{
    switch (kind) {
    case 0:
        return true;
    case 1:
        return !row || !col || row == size - 1 || col == size - 1;
    case 2:
        return row == size / 2 || col == size / 2;
    default:
        return row == col || row == size - 1 - col;
    }
}

static void make_salient(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t side = arg[SIDE], size = arg[SMALL] + heed_draw_below(draw, arg[LARGE] - arg[SMALL] + 1),
                  row = heed_draw_below(draw, side - size + 1), col = heed_draw_below(draw, side - size + 1),
                  kind = heed_draw_below(draw, 4);
    for (int64_t i = 0; i < side * side; i++)
        token[i] = arg[NOISE] > 1 ? (int32_t)heed_draw_below(draw, arg[NOISE]) : 0;
    for (int64_t i = 0; i < size * size; i++)
        if (is_of_shape(kind, size, i / size, i % size))
            token[(row + i / size) * side + col + i % size] = OBJECT;
    token[side * side] = 0;
    target[side * side] = (int32_t)kind;
}

static const char *salient_wrong(const int64_t *arg)
{
    return arg[SMALL] > arg[LARGE] || arg[LARGE] > arg[SIDE]
               ? "small must be at most large, and large at most side"
               : NULL;
}

/* arg: frames, side, others: in each frame a dot one cell further right, left, down or up than in the one
 * before, and `others` that are elsewhere each time; a question, and the answer 0 to 3. Frames stand one
 * above the other; cells are 0 or 3, other dots 1. */
enum { FRAMES, CLIP_SIDE, OTHERS, DOT = 3 };

static int64_t clips_vocabulary(const int64_t *arg)
{
    (void)arg;
    return DOT + 1;
}

static int64_t clips_length(const int64_t *arg)
{
    return arg[FRAMES] * arg[CLIP_SIDE] * arg[CLIP_SIDE] + 1;
}

static void make_clip(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t frames = arg[FRAMES], side = arg[CLIP_SIDE], kind = heed_draw_below(draw, 4),
                  along = heed_draw_below(draw, side - frames + 1), across = heed_draw_below(draw, side);
    memset(token, 0, (size_t)(frames * side * side + 1) * sizeof *token);
    for (int64_t f = 0; f < frames; f++) {
        int32_t *frame = token + f * side * side;
        const int64_t at = along + (kind % 2 ? frames - 1 - f : f);
        for (int64_t i = 0; i < arg[OTHERS]; i++)
            frame[heed_draw_below(draw, side * side)] = 1;
        frame[kind < 2 ? across * side + at : at * side + across] = DOT;
    }
    target[frames * side * side] = (int32_t)kind;
}

static const char *clips_wrong(const int64_t *arg)
{
    return arg[FRAMES] > arg[CLIP_SIDE] ? "frames must be at most side" : NULL;
}

/* arg: side, period, levels, noise: a tile of 2 to `period` cells a side repeated over a picture, of which
 * `noise` percent of the cells are any level: which level was each? */
enum { PERIOD = 1, LEVELS, WRONG, MOST_PERIOD = 16 };

static int64_t denoise_vocabulary(const int64_t *arg)
{
    return arg[LEVELS];
}

static int64_t denoise_length(const int64_t *arg)
{
    return arg[SIDE] * arg[SIDE];
}

static void make_texture(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    int32_t tile[MOST_PERIOD * MOST_PERIOD];
    const int64_t side = arg[SIDE], period = 2 + heed_draw_below(draw, arg[PERIOD] - 1);
    for (int64_t i = 0; i < period * period; i++)
        tile[i] = (int32_t)heed_draw_below(draw, arg[LEVELS]);
    for (int64_t i = 0; i < side * side; i++) {
        target[i] = tile[i / side % period * period + i % side % period];
        token[i] =
            heed_draw_below(draw, 100) < arg[WRONG] ? (int32_t)heed_draw_below(draw, arg[LEVELS]) : target[i];
    }
}

const heed_synthetic heed_synthetic_digits = {
    .name = "digits",
    .summary = "a picture of digits in a row: which are they?",
    .arg = {{"count", "digits", 4, 1, 64}, {"cols", "cells of a row", 32, 4, 1024}},
    .ceiling = 1.0,
    .vocabulary = digits_vocabulary,
    .length = digits_length,
    .make = make_digits,
    .wrong = digits_wrong};
const heed_synthetic heed_synthetic_salient = {
    .name = "salient",
    .summary = "a picture of one shape on noise: which shape?",
    .arg = {{"side", "cells of a side", 16, 3, MOST_SIDE},
            {"small", "cells of a side of the shape, at least", 4, 3, MOST_SIDE},
            {"large", "cells of a side of the shape, at most", 5, 3, MOST_SIDE},
            {"noise", "levels of the ground; 0: it is blank", 4, 0, OBJECT}},
    .ceiling = 1.0,
    .vocabulary = salient_vocabulary,
    .length = salient_length,
    .make = make_salient,
    .wrong = salient_wrong};
const heed_synthetic heed_synthetic_clips = {
    .name = "clips",
    .summary = "frames with a dot that moves among others: where to?",
    .arg = {{"frames", "frames", 4, 2, MOST_SIDE},
            {"side", "cells of a side of a frame", 8, 2, MOST_SIDE},
            {"others", "dots that do not move along", 4, 0, MOST_SIDE}},
    .ceiling = 1.0,
    .vocabulary = clips_vocabulary,
    .length = clips_length,
    .make = make_clip,
    .wrong = clips_wrong};
const heed_synthetic heed_synthetic_denoise = {
    .name = "denoise",
    .summary = "a texture that repeats, with noise: what was it without?",
    .arg = {{"side", "cells of a side", 12, 4, MOST_SIDE},
            {"period", "cells of a side of what repeats, at most", 4, 2, MOST_PERIOD},
            {"levels", "levels of a cell", 4, 2, 256},
            {"noise", "percent of cells that are any level", 30, 0, 100}},
    .ceiling = 1.0,
    .vocabulary = denoise_vocabulary,
    .length = denoise_length,
    .make = make_texture};
