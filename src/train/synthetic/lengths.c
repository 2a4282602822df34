/* Sequences whose length is part of the question. */
#include "train/synthetic.h"

#include <stddef.h>

/* arg: shortest, longest: so many bits, 2 for padding behind them, and a question, 3: is the number of ones
 * odd? The answer is 0 or 1. */
enum { SHORTEST, LONGEST };

static int64_t odd_vocabulary(const int64_t *arg)
{
    (void)arg;
    return 4;
}

static int64_t odd_length(const int64_t *arg)
{
    return arg[LONGEST] + 1;
}

static void make_odd(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t bits = arg[SHORTEST] + heed_draw_below(draw, arg[LONGEST] - arg[SHORTEST] + 1);
    int32_t odd = 0;
    for (int64_t i = 0; i < arg[LONGEST]; i++) {
        token[i] = i < bits ? (int32_t)heed_draw_below(draw, 2) : 2;
        odd ^= i < bits ? token[i] : 0;
    }
    token[arg[LONGEST]] = 3;
    target[arg[LONGEST]] = odd;
}

static const char *odd_wrong(const int64_t *arg)
{
    return arg[SHORTEST] > arg[LONGEST] ? "shortest must be at most longest" : NULL;
}

const heed_synthetic heed_synthetic_odd = {
    .name = "odd",
    .summary = "bits of some length, padded: is the number of ones odd?",
    .arg = {{"shortest", "bits, at least", 4, 1, 4096}, {"longest", "bits, at most", 16, 1, 4096}},
    .ceiling = 1.0,
    .vocabulary = odd_vocabulary,
    .length = odd_length,
    .make = make_odd,
    .wrong = odd_wrong};
