/* Pictures and clips of one shape each, for what makes pictures: a square, a ring, a cross or a diagonal
 * cross of three cells a side somewhere; in a clip it stands still, or moves a cell to the right from frame
 * to frame. The class is the kind, and of a clip kind + 4 where it moves. Frames stand one above the other;
 * cells are 0 or the last number. */
#include "train/glyphs.h"

#include <string.h>

enum { FRAMES, SIDE };

bool heed_glyph_has(int64_t kind, int64_t row, int64_t col)
{
    static const char *const shapes[HEED_GLYPHS] = {"111111111", "111101111", "010111010", "101010101"};
    return shapes[kind][row * HEED_GLYPH_SIDE + col] == '1';
}

static int64_t vocabulary(const int64_t *arg)
{
    return arg[FRAMES] > 1 ? 2 * HEED_GLYPHS : HEED_GLYPHS;
}

static int64_t length(const int64_t *arg)
{
    return arg[FRAMES] * arg[SIDE] * arg[SIDE];
}

static void make(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t frames = arg[FRAMES], side = arg[SIDE], kind = heed_draw_below(draw, HEED_GLYPHS),
                  moves = frames > 1 ? heed_draw_below(draw, 2) : 0,
                  row = heed_draw_below(draw, side - HEED_GLYPH_SIDE + 1),
                  col = heed_draw_below(draw, side - HEED_GLYPH_SIDE + 1 - moves * (frames - 1));
    for (int64_t f = 0; f < frames; f++)
        for (int64_t i = 0; i < HEED_GLYPH_SIDE * HEED_GLYPH_SIDE; i++)
            if (heed_glyph_has(kind, i / HEED_GLYPH_SIDE, i % HEED_GLYPH_SIDE))
                token[(f * side + row + i / HEED_GLYPH_SIDE) * side + col + moves * f + i % HEED_GLYPH_SIDE] =
                    (int32_t)(vocabulary(arg) - 1);
    target[length(arg) - 1] = (int32_t)(kind + HEED_GLYPHS * moves);
}

static const char *wrong(const int64_t *arg)
{
    return arg[FRAMES] - 1 + HEED_GLYPH_SIDE > arg[SIDE]
               ? "a shape of three cells must have room to move in side"
               : NULL;
}

int64_t heed_glyph_nearest(const float *frame, int64_t side)
{
    double least = INFINITY;
    int64_t best = 0, room = side - HEED_GLYPH_SIDE + 1;
    for (int64_t kind = 0; kind < HEED_GLYPHS; kind++)
        for (int64_t at = 0; at < room * room; at++) {
            double off = 0.0;
            for (int64_t i = 0; i < side * side; i++) {
                const int64_t row = i / side - at / room, col = i % side - at % room;
                const bool inside = row >= 0 && row < HEED_GLYPH_SIDE && col >= 0 && col < HEED_GLYPH_SIDE;
                const double want = inside && heed_glyph_has(kind, row, col) ? 1.0 : -1.0;
                off += ((double)frame[i] - want) * ((double)frame[i] - want);
            }
            if (off < least) {
                least = off;
                best = kind;
            }
        }
    return best;
}

const heed_synthetic heed_synthetic_glyphs = {
    .name = "glyphs",
    .summary = "one of four shapes in a picture, or in a clip where it stands or moves",
    .arg = {{"frames", "pictures of a clip", 1, 1, 64}, {"side", "cells of a side", 8, HEED_GLYPH_SIDE, 64}},
    .ceiling = 1.0,
    .vocabulary = vocabulary,
    .length = length,
    .make = make,
    .wrong = wrong};
