/* Sequences of which little counts: logs of what was bought, numbers among words of noise, scenes of cells
 * with finer cells, and shapes that sound. */
#include "train/synthetic.h"

#include <stddef.h>
#include <string.h>

/* arg: length, categories, each: a log of items, and one that is offered: is it taken? Categories stand in
 * pairs. Items of the offered one's category speak for it, those of the other of its pair against it, all
 * others say nothing; it is taken when more speak for it. Of the last two tokens the first is no, the second
 * yes. */
enum { LENGTH, CATEGORIES, EACH };

static int64_t items(const int64_t *arg)
{
    return 2 * arg[CATEGORIES] * arg[EACH];
}

static int64_t logs_vocabulary(const int64_t *arg)
{
    return items(arg) + 2;
}

static int64_t logs_yes(const int64_t *arg)
{
    return items(arg) + 1;
}

static int64_t logs_length(const int64_t *arg)
{
    return arg[LENGTH] + 1;
}

static void make_logs(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = arg[LENGTH], each = arg[EACH], offered = heed_draw_below(draw, items(arg)),
                  category = offered / each, pair = category / 2;
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        /* one of five is of the pair, so that there is something to find */
        const int64_t of = heed_draw_below(draw, 5) ? heed_draw_below(draw, 2 * arg[CATEGORIES])
                                                    : 2 * pair + heed_draw_below(draw, 2);
        token[i] = (int32_t)(of * each + heed_draw_below(draw, each));
        sum += of / 2 != pair ? 0 : of == category ? 1 : -1;
    }
    token[n] = (int32_t)offered;
    target[n] = (int32_t)(items(arg) + (sum > 0));
}

/* arg: length, least, most, symbols: so many numbers among noise, and a question: their sum modulo `symbols`?
 * Numbers are 0 to symbols - 1, eight words of noise, and the question stand behind them. */
enum { LEAST = 1, MOST, SYMBOLS, NOISE = 8 };

static int64_t sparse_vocabulary(const int64_t *arg)
{
    return arg[SYMBOLS] + NOISE + 1;
}

static int64_t sparse_length(const int64_t *arg)
{
    return arg[LENGTH];
}

static void make_sparse(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = arg[LENGTH], symbols = arg[SYMBOLS],
                  count = arg[LEAST] + heed_draw_below(draw, arg[MOST] - arg[LEAST] + 1);
    int32_t place[HEED_SYNTHETIC_SYMBOLS];
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        token[i] = (int32_t)(symbols + heed_draw_below(draw, NOISE));
    heed_draw_different(draw, n - 1, count, place);
    for (int64_t i = 0; i < count; i++) {
        token[place[i]] = (int32_t)heed_draw_below(draw, symbols);
        sum += token[place[i]];
    }
    token[n - 1] = (int32_t)(symbols + NOISE);
    target[n - 1] = (int32_t)(sum % symbols);
}

static const char *sparse_wrong(const int64_t *arg)
{
    return arg[LEAST] > arg[MOST]     ? "least must be at most most"
           : arg[MOST] >= arg[LENGTH] ? "length must be more than most"
                                      : NULL;
}

/* arg: cells, fine, names, colours: cells of a scene, each a name that is bright or dark; then the `fine`
 * tokens of each cell, one of them a colour and the others noise; then a name. Answer: its colour, and
 * whether it is bright. A coarse token is 2 name + bright; behind those the colours, four words of noise, the
 * names of questions, and the answers 2 colour + bright. */
enum { CELLS, FINE, NAMES, COLOURS, DUST = 4 };

static int64_t first_colour(const int64_t *arg)
{
    return 2 * arg[NAMES];
}

static int64_t first_question(const int64_t *arg)
{
    return first_colour(arg) + arg[COLOURS] + DUST;
}

static int64_t first_answer(const int64_t *arg)
{
    return first_question(arg) + arg[NAMES];
}

static int64_t scene_vocabulary(const int64_t *arg)
{
    return first_answer(arg) + 2 * arg[COLOURS];
}

static int64_t scene_length(const int64_t *arg)
{
    return arg[CELLS] * (1 + arg[FINE]) + 1;
}

static void make_scene(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t cells = arg[CELLS], fine = arg[FINE], end = cells * (1 + fine),
                  asked = heed_draw_below(draw, cells);
    int32_t name[HEED_SYNTHETIC_SYMBOLS];
    heed_draw_different(draw, arg[NAMES], cells, name);
    for (int64_t i = 0; i < cells; i++) {
        const int64_t bright = heed_draw_below(draw, 2), colour = heed_draw_below(draw, arg[COLOURS]),
                      at = heed_draw_below(draw, fine);
        token[i] = (int32_t)(2 * name[i] + bright);
        for (int64_t f = 0; f < fine; f++)
            token[cells + i * fine + f] =
                (int32_t)(first_colour(arg) +
                          (f == at ? colour : arg[COLOURS] + heed_draw_below(draw, DUST)));
        if (i == asked)
            target[end] = (int32_t)(first_answer(arg) + 2 * colour + bright);
    }
    token[end] = (int32_t)(first_question(arg) + name[asked]);
}

static const char *scene_wrong(const int64_t *arg)
{
    return arg[CELLS] > arg[NAMES] ? "there must be at least as many names as cells" : NULL;
}

/* arg: frames, side, kinds: in each frame three shapes of different kinds, and behind all frames the tone of
 * one of them for each frame; at every cell: does it belong to what sounds? Cells are 0, or 1 + the kind, one
 * of ten of them any; tones follow, then no and yes. */
enum { FRAMES, SIDE, KINDS, SHAPES = 3, SHAPE = 2 };

static int64_t tones_vocabulary(const int64_t *arg)
{
    return 1 + 2 * arg[KINDS] + 2;
}

static int64_t tones_yes(const int64_t *arg)
{
    return 1 + 2 * arg[KINDS] + 1;
}

static int64_t tones_length(const int64_t *arg)
{
    return arg[FRAMES] * (arg[SIDE] * arg[SIDE] + 1);
}

static void make_tones(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t side = arg[SIDE], cells = side * side, no = tones_yes(arg) - 1;
    for (int64_t f = 0; f < arg[FRAMES]; f++) {
        int32_t *frame = token + f * cells, *asked = target + f * cells, kind[HEED_SYNTHETIC_SYMBOLS];
        heed_draw_different(draw, arg[KINDS], SHAPES, kind);
        memset(frame, 0, (size_t)cells * sizeof *frame);
        for (int64_t i = 0; i < cells; i++)
            asked[i] = (int32_t)no;
        for (int s = 0; s < SHAPES; s++) { /* later ones stand in front; the one that sounds before all */
            const int64_t row = heed_draw_below(draw, side - SHAPE + 1),
                          col = heed_draw_below(draw, side - SHAPE + 1);
            for (int64_t i = 0; i < SHAPE * SHAPE; i++) {
                const int64_t at = (row + i / SHAPE) * side + col + i % SHAPE;
                frame[at] = 1 + kind[s];
                asked[at] = (int32_t)(no + (s == SHAPES - 1));
            }
        }
        for (int64_t i = 0; i < cells; i++)
            if (!heed_draw_below(draw, 10))
                frame[i] = (int32_t)heed_draw_below(draw, 1 + arg[KINDS]);
        token[arg[FRAMES] * cells + f] = (int32_t)(1 + arg[KINDS] + kind[SHAPES - 1]);
    }
}

const heed_synthetic heed_synthetic_logs = {.name = "logs",
                                            .summary = "what was bought, and an offer: is it taken?",
                                            .arg = {{"length", "items in the log", 32, 1, 1 << 20},
                                                    {"categories", "pairs of categories", 6, 1, 512},
                                                    {"each", "items of a category", 4, 1, 64}},
                                            .ceiling = 1.0,
                                            .vocabulary = logs_vocabulary,
                                            .length = logs_length,
                                            .make = make_logs,
                                            .yes = logs_yes};
const heed_synthetic heed_synthetic_sparse = {
    .name = "sparse",
    .summary = "a few numbers among words of noise: their sum",
    .arg = {{"length", "tokens", 48, 2, HEED_SYNTHETIC_SYMBOLS},
            {"least", "numbers at least", 1, 1, HEED_SYNTHETIC_SYMBOLS},
            {"most", "numbers at most", 6, 1, HEED_SYNTHETIC_SYMBOLS},
            {"symbols", "different numbers", 4, 2, HEED_SYNTHETIC_SYMBOLS}},
    .ceiling = 1.0,
    .vocabulary = sparse_vocabulary,
    .length = sparse_length,
    .make = make_sparse,
    .wrong = sparse_wrong};
const heed_synthetic heed_synthetic_scene = {
    .name = "scene",
    .summary = "cells with names, finer cells with colours, and a name: which colour?",
    .arg = {{"cells", "coarse cells", 9, 1, HEED_SYNTHETIC_SYMBOLS},
            {"fine", "fine cells of each", 4, 1, 64},
            {"names", "different names", 16, 1, HEED_SYNTHETIC_SYMBOLS},
            {"colours", "different colours", 4, 1, 64}},
    .ceiling = 1.0,
    .vocabulary = scene_vocabulary,
    .length = scene_length,
    .make = make_scene,
    .wrong = scene_wrong};
const heed_synthetic heed_synthetic_tones = {
    .name = "tones",
    .summary = "shapes in frames and a tone for each frame: which cells sound?",
    .arg = {{"frames", "pictures", 2, 1, 64},
            {"side", "cells of a side", 8, 2, 64},
            {"kinds", "kinds of shapes, and as many tones", 5, SHAPES, 64}},
    .ceiling = 1.0,
    .vocabulary = tones_vocabulary,
    .length = tones_length,
    .make = make_tones,
    .yes = tones_yes};
