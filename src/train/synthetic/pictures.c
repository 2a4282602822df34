/* Pictures as tokens, row by row: lines between dots, shapes with a caption, and points that may mirror each
 * other. */
#include "train/synthetic.h"

#include <stddef.h>

enum { SIDE, MOST_SIDE = 64, MOST_CELLS = MOST_SIDE * MOST_SIDE };

/* arg: side, line: two lines of `line` cells that do not touch, and two dots at ends of lines; are they ends
 * of the same? Cells are 0, on a line 1, dots 2; the question behind the picture is 3, the answer 4 for no
 * and 5 for yes. After Linsley et al. 2018, and Tay et al.: Long Range Arena, 2020 */
enum { LINE = 1 };

static int64_t path_vocabulary(const int64_t *arg)
{
    (void)arg;
    return 6;
}

static int64_t path_length(const int64_t *arg)
{
    return arg[SIDE] * arg[SIDE] + 1;
}

/* Neighbour d of a cell in a row, -1 beyond the edge. */
static int64_t neighbour(int64_t side, int64_t cell, int d)
{
    const int64_t x = cell % side, y = cell / side;
    switch (d) {
    case 0:
        return x > 0 ? cell - 1 : -1;
    case 1:
        return x + 1 < side ? cell + 1 : -1;
    case 2:
        return y > 0 ? cell - side : -1;
    default:
        return y + 1 < side ? cell + side : -1;
    }
}

/* A cell that is free and has no neighbour on a line but `from`, so that lines touch neither each other nor
 * themselves. */
static bool is_clear(const int32_t *cell, int64_t side, int64_t at, int64_t from)
{
    if (at < 0 || cell[at])
        return false;
    for (int d = 0; d < 4; d++) {
        const int64_t beside = neighbour(side, at, d);
        if (beside >= 0 && beside != from && cell[beside])
            return false;
    }
    return true;
}

/* A walk of `line` cells; false when it runs into a corner, and then nothing is left of it. */
static bool walk(const int64_t *arg, heed_draw *draw, int32_t *cell, int64_t end[2])
{
    int64_t path[MOST_CELLS], at = heed_draw_below(draw, arg[SIDE] * arg[SIDE]), from = -1, count = 0;
    while (at >= 0 && is_clear(cell, arg[SIDE], at, from)) {
        cell[at] = 1;
        path[count++] = at;
        if (count == arg[LINE]) {
            end[0] = path[0];
            end[1] = at;
            return true;
        }
        int64_t choice[4];
        int choices = 0;
        for (int d = 0; d < 4; d++) {
            const int64_t next = neighbour(arg[SIDE], at, d);
            if (is_clear(cell, arg[SIDE], next, at))
                choice[choices++] = next;
        }
        from = at;
        at = choices ? choice[heed_draw_below(draw, choices)] : -1;
    }
    for (int64_t i = 0; i < count; i++)
        cell[path[i]] = 0;
    return false;
}

/* Straight from the left edge, in a row of its own, when walks fail too often. */
static void straight(const int64_t *arg, int32_t *cell, int64_t row, int64_t end[2])
{
    for (int64_t i = 0; i < arg[LINE]; i++)
        cell[row * arg[SIDE] + i] = 1;
    end[0] = row * arg[SIDE];
    end[1] = end[0] + arg[LINE] - 1;
}

static void make_path(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t cells = arg[SIDE] * arg[SIDE];
    int64_t end[2][2];
    bool drawn = false;
    for (int trial = 0; trial < 20 && !drawn; trial++) {
        for (int64_t i = 0; i < cells; i++)
            token[i] = 0;
        drawn = walk(arg, draw, token, end[0]);
        for (int second = 0, found = 0; drawn && !found && second < 20; second++) {
            found = walk(arg, draw, token, end[1]);
            drawn = found || second < 19;
        }
    }
    for (int64_t i = 0; i < cells && !drawn; i++)
        token[i] = 0;
    for (int i = 0; i < 2 && !drawn; i++)
        straight(arg, token, 2 * i + heed_draw_below(draw, 2) * (arg[SIDE] > 3), end[i]);
    const int64_t same = heed_draw_below(draw, 2), first = heed_draw_below(draw, 2);
    token[end[0][first]] = 2;
    token[same ? end[0][1 - first] : end[1][heed_draw_below(draw, 2)]] = 2;
    token[cells] = 3;
    target[cells] = (int32_t)(4 + same);
}

static const char *line_too_long(const int64_t *arg)
{
    return arg[LINE] > arg[SIDE] ? "a line must have at most as many cells as a side" : NULL;
}

/* arg: side, colours: two shapes of three cells a side, beside each other or one above the other, then a
 * caption: colour and shape of the left or upper one, where it is, colour and shape of the other. Cells are 0
 * or 1 + the colour; behind the colours the mark in front of the caption, the words of colours, the four
 * shapes, "left of" and "above". */
enum { COLOURS = 1, SHAPES = 4, SHAPE_SIDE = 3 };

static int64_t shape_mark(const int64_t *arg)
{
    return 1 + arg[COLOURS];
}

static int64_t shapes_vocabulary(const int64_t *arg)
{
    return 2 + 2 * arg[COLOURS] + SHAPES + 2;
}

static int64_t shapes_length(const int64_t *arg)
{
    return arg[SIDE] * arg[SIDE] + 5;
}

static const char *const shapes[SHAPES] = {"#########", ".#.###.#.", "####.####", "#.#.#.#.#"};

static void make_shapes(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t side = arg[SIDE], half = side / 2, mark = shape_mark(arg), cells = side * side;
    const int64_t above = heed_draw_below(draw, 2), across = heed_draw_below(draw, side - SHAPE_SIDE + 1);
    int32_t caption[5];
    for (int i = 0; i < 2; i++) {
        const int64_t shape = heed_draw_below(draw, SHAPES), colour = heed_draw_below(draw, arg[COLOURS]);
        const int64_t along = i * half + heed_draw_below(draw, half - SHAPE_SIDE + 1);
        const int64_t corner = above ? along * side + across : across * side + along;
        for (int64_t c = 0; c < SHAPE_SIDE * SHAPE_SIDE; c++)
            if (shapes[shape][c] == '#')
                token[corner + c / SHAPE_SIDE * side + c % SHAPE_SIDE] = (int32_t)(1 + colour);
        caption[3 * i] = (int32_t)(mark + 1 + colour);
        caption[3 * i + 1] = (int32_t)(mark + 1 + arg[COLOURS] + shape);
    }
    caption[2] = (int32_t)(mark + 1 + arg[COLOURS] + SHAPES + above);
    token[cells] = (int32_t)mark;
    for (int64_t i = 0; i < 5; i++) {
        target[cells + i] = caption[i];
        if (i < 4)
            token[cells + i + 1] = caption[i];
    }
}

/* arg: points, side: points on a square, each a number `row` side + `column`, in any order, and then a
 * question: are they their own mirror image? The question is side^2, the answers behind it: no, left and
 * right, above and below, through the middle. */
enum { POINTS = 0, CLOUD_SIDE = 1 };

static int64_t points_vocabulary(const int64_t *arg)
{
    return arg[CLOUD_SIDE] * arg[CLOUD_SIDE] + 5;
}

static int64_t points_length(const int64_t *arg)
{
    return arg[POINTS] + 1;
}

static int32_t mirrored(int64_t side, int32_t point, int64_t kind)
{
    const int64_t x = point % side, y = point / side;
    const int64_t across = kind & 1 ? side - 1 - x : x, down = kind & 2 ? side - 1 - y : y;
    return (int32_t)(down * side + across);
}

static bool is_mirrored(const int64_t *arg, const int32_t *point, int64_t kind)
{
    bool there[MOST_CELLS] = {false};
    for (int64_t i = 0; i < arg[POINTS]; i++)
        there[point[i]] = true;
    for (int64_t i = 0; i < arg[POINTS]; i++)
        if (!there[mirrored(arg[CLOUD_SIDE], point[i], kind)])
            return false;
    return true;
}

/* 0: in no way; 1 to 3: in this way only; -1: in all three. */
static int64_t symmetry_of(const int64_t *arg, const int32_t *point)
{
    int64_t found = 0, kinds = 0;
    for (int64_t kind = 1; kind <= 3; kind++)
        if (is_mirrored(arg, point, kind)) {
            found = kind;
            kinds++;
        }
    return kinds > 1 ? -1 : found;
}

static void make_points(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t side = arg[CLOUD_SIDE], points = arg[POINTS], kind = heed_draw_below(draw, 4);
    int32_t list[MOST_CELLS];
    int64_t symmetry = -1;
    /* what is drawn may be symmetric in more ways; so few points that it stays so are as good a question */
    for (int trial = 0; trial < 50 && symmetry != kind; trial++) {
        int64_t count = 0;
        bool there[MOST_CELLS] = {false};
        heed_draw_different(draw, side * side, side * side, list);
        for (int64_t i = 0; i < side * side && count < points; i++) {
            const int32_t other = kind ? mirrored(side, list[i], kind) : list[i];
            if (there[list[i]] || count + 1 + (other != list[i]) > points)
                continue;
            there[list[i]] = there[other] = true;
            token[count++] = list[i];
            if (other != list[i])
                token[count++] = other;
        }
        symmetry = count == points ? symmetry_of(arg, token) : -1;
    }
    for (int64_t i = 0; i + 1 < points; i++) { /* in any order */
        const int64_t j = i + heed_draw_below(draw, points - i);
        const int32_t swap = token[i];
        token[i] = token[j];
        token[j] = swap;
    }
    token[points] = (int32_t)(side * side);
    target[points] = symmetry < 0 ? -1 : (int32_t)(side * side + 1 + symmetry);
}

static const char *points_wrong(const int64_t *arg)
{
    return arg[POINTS] % 2                                       ? "points must be an even number"
           : arg[CLOUD_SIDE] % 2                                 ? "side must be an even number"
           : 2 * arg[POINTS] > arg[CLOUD_SIDE] * arg[CLOUD_SIDE] ? "points must be at most half of the cells"
                                                                 : NULL;
}

const heed_synthetic heed_synthetic_pathfinder = {
    .name = "pathfinder",
    .summary = "a picture of two lines and two dots: are the dots on the same line?",
    .arg = {{"side", "cells of a side", 12, 4, MOST_SIDE}, {"line", "cells of a line", 8, 2, MOST_SIDE}},
    .ceiling = 1.0,
    .vocabulary = path_vocabulary,
    .length = path_length,
    .make = make_path,
    .wrong = line_too_long};
const heed_synthetic heed_synthetic_shapes = {
    .name = "shapes",
    .summary = "a picture of two shapes, and its caption",
    .arg = {{"side", "cells of a side", 8, 6, MOST_SIDE}, {"colours", "colours", 4, 1, 64}},
    .ceiling = 1.0,
    .vocabulary = shapes_vocabulary,
    .length = shapes_length,
    .make = make_shapes};
const heed_synthetic heed_synthetic_points = {
    .name = "points",
    .summary = "points on a square: are they their own mirror image, and in which way?",
    .arg = {{"points", "points", 12, 4, MOST_CELLS / 2}, {"side", "cells of a side", 8, 4, MOST_SIDE}},
    .ceiling = 1.0,
    .vocabulary = points_vocabulary,
    .length = points_length,
    .make = make_points,
    .wrong = points_wrong};
