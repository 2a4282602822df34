/* A sequence of symbols, a mark, and the sequence again: as it was, the other way round, in order, or without
 * what stood between. The mark is the first number behind the symbols; tokens behind the mark are the answers
 * so far.
 *
 *     a b c | a b      targets from the mark on: a b c
 */
#include "train/synthetic.h"

enum { LENGTH, SYMBOLS, SPAN };

static int64_t vocabulary(const int64_t *arg)
{
    return arg[SYMBOLS] + 1;
}

static int64_t length(const int64_t *arg)
{
    return 2 * arg[LENGTH];
}

/* From the mark at place `at` on, answer[i] is right. */
static void ask(int64_t at, int64_t count, int32_t mark, const int32_t *answer, int32_t *token,
                int32_t *target)
{
    token[at] = mark;
    for (int64_t i = 0; i < count; i++) {
        target[at + i] = answer[i];
        if (i + 1 < count)
            token[at + i + 1] = answer[i];
    }
}

static void draw_symbols(const int64_t *arg, heed_draw *draw, int32_t *token)
{
    for (int64_t i = 0; i < arg[LENGTH]; i++)
        token[i] = (int32_t)heed_draw_below(draw, arg[SYMBOLS]);
}

static void make_copy(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    draw_symbols(arg, draw, token);
    ask(arg[LENGTH], arg[LENGTH], (int32_t)arg[SYMBOLS], token, token, target);
}

static void make_reversal(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = arg[LENGTH];
    draw_symbols(arg, draw, token);
    token[n] = (int32_t)arg[SYMBOLS];
    for (int64_t i = 0; i < n; i++) {
        target[n + i] = token[n - 1 - i];
        if (i + 1 < n)
            token[n + i + 1] = token[n - 1 - i];
    }
}

/* By counting. */
static void make_sorting(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = arg[LENGTH];
    int64_t at = n;
    draw_symbols(arg, draw, token);
    token[n] = (int32_t)arg[SYMBOLS];
    for (int32_t symbol = 0; symbol < arg[SYMBOLS]; symbol++)
        for (int64_t i = 0; i < n; i++)
            if (token[i] == symbol) {
                target[at++] = symbol;
                if (at < 2 * n)
                    token[at] = symbol;
            }
}

/* Symbols scattered over a span of blanks, which are the second number behind the symbols. */
static void make_selective(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = arg[LENGTH], span = arg[SPAN];
    int64_t left = n, put = 0;
    int32_t answer[HEED_SYNTHETIC_SYMBOLS];
    for (int64_t i = 0; i < span; i++) {
        token[i] = (int32_t)arg[SYMBOLS] + 1;
        if (heed_draw_below(draw, span - i) < left) { /* each choice of places as likely as any other */
            token[i] = (int32_t)heed_draw_below(draw, arg[SYMBOLS]);
            answer[put++] = token[i];
            left--;
        }
    }
    ask(span, n, (int32_t)arg[SYMBOLS], answer, token, target);
}

static int64_t selective_vocabulary(const int64_t *arg)
{
    return arg[SYMBOLS] + 2;
}

static int64_t selective_length(const int64_t *arg)
{
    return arg[SPAN] + arg[LENGTH];
}

static const char *selective_wrong(const int64_t *arg)
{
    return arg[SPAN] < arg[LENGTH] ? "span must be at least length" : NULL;
}

#define LENGTH_ARG                                                                                           \
    {                                                                                                        \
        "length", "symbols of a sequence", 16, 1, HEED_SYNTHETIC_SYMBOLS                                     \
    }
#define SYMBOLS_ARG                                                                                          \
    {                                                                                                        \
        "symbols", "different symbols", 16, 2, HEED_SYNTHETIC_SYMBOLS                                        \
    }

const heed_synthetic heed_synthetic_copy = {.name = "copy",
                                            .summary = "a sequence, a mark, and the sequence again",
                                            .arg = {LENGTH_ARG, SYMBOLS_ARG},
                                            .ceiling = 1.0,
                                            .vocabulary = vocabulary,
                                            .length = length,
                                            .make = make_copy};
const heed_synthetic heed_synthetic_reversal = {
    .name = "reversal",
    .summary = "a sequence, a mark, and the sequence from its end to its start",
    .arg = {LENGTH_ARG, SYMBOLS_ARG},
    .ceiling = 1.0,
    .vocabulary = vocabulary,
    .length = length,
    .make = make_reversal};
const heed_synthetic heed_synthetic_sorting = {.name = "sorting",
                                               .summary =
                                                   "a sequence, a mark, and its symbols in rising order",
                                               .arg = {LENGTH_ARG, SYMBOLS_ARG},
                                               .ceiling = 1.0,
                                               .vocabulary = vocabulary,
                                               .length = length,
                                               .make = make_sorting};
const heed_synthetic heed_synthetic_selective_copy = {
    .name = "selective_copy",
    .summary = "symbols among blanks, a mark, and the symbols without the blanks",
    .arg = {LENGTH_ARG, SYMBOLS_ARG, {"span", "places for symbols and blanks", 64, 1, 1 << 20}},
    .ceiling = 1.0,
    .vocabulary = selective_vocabulary,
    .length = selective_length,
    .make = make_selective,
    .wrong = selective_wrong};
