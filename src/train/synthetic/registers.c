/* Orders to registers, whose values are asked for: a bit that is written and read, and variables that count.
 */
#include "train/synthetic.h"

#include <stddef.h>

/* arg: orders, ignore: order, bit, order, bit, ...: write, ignore or read; behind a read stands the bit that
 * was written last, which is asked for at the read. Bits are 0 and 1, orders 2, 3 and 4. The first order
 * writes, the last reads; of the others `ignore` in a hundred are ignored, half of the rest are reads. After
 * Liu et al.: Exposing Attention Glitches with Flip-Flop Language Modeling, 2023 */
enum { ORDERS, IGNORE };
enum { WRITE = 2, PASS, READ, FLIP_FLOP_TOKENS };

static int64_t flip_flop_vocabulary(const int64_t *arg)
{
    (void)arg;
    return FLIP_FLOP_TOKENS;
}

static int64_t flip_flop_length(const int64_t *arg)
{
    return 2 * arg[ORDERS];
}

static void make_flip_flop(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    int32_t written = 0;
    for (int64_t i = 0; i < arg[ORDERS]; i++) {
        const bool passes = heed_draw_below(draw, 100) < arg[IGNORE], reads = heed_draw_below(draw, 2);
        const int32_t bit = (int32_t)heed_draw_below(draw, 2);
        token[2 * i] = i + 1 == arg[ORDERS] ? READ : i == 0 ? WRITE : passes ? PASS : reads ? READ : WRITE;
        token[2 * i + 1] = token[2 * i] == READ ? written : bit;
        if (token[2 * i] == READ)
            target[2 * i] = written;
        if (token[2 * i] == WRITE)
            written = bit;
    }
}

/* arg: orders, variables, pass: each order sets a variable to 0, adds 1 to one, or does nothing (`pass` in a
 * hundred); at the end one is asked for. Setting variable v is 3 v, adding 3 v + 1, asking 3 v + 2, nothing
 * the number behind these; values, at most 9 as 9, behind that. After Golovneva et al.: CoPE, 2024 */
enum { VARIABLES = 1, IDLE, MOST_VARIABLES = 64, MOST_VALUE = 9 };

static int64_t counting_vocabulary(const int64_t *arg)
{
    return 3 * arg[VARIABLES] + 1 + MOST_VALUE + 1;
}

static int64_t counting_length(const int64_t *arg)
{
    return arg[ORDERS] + 1;
}

static void make_counting(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    int32_t value[MOST_VARIABLES] = {0};
    const int32_t variables = (int32_t)arg[VARIABLES];
    for (int64_t i = 0; i < arg[ORDERS]; i++) {
        const int32_t v = (int32_t)heed_draw_below(draw, variables);
        const bool passes = heed_draw_below(draw, 100) < arg[IDLE], sets = heed_draw_below(draw, 7) == 0;
        token[i] = passes ? 3 * variables : 3 * v + !sets;
        if (!passes)
            value[v] = sets ? 0 : value[v] < MOST_VALUE ? value[v] + 1 : MOST_VALUE;
    }
    const int32_t asked = (int32_t)heed_draw_below(draw, variables);
    token[arg[ORDERS]] = 3 * asked + 2;
    target[arg[ORDERS]] = 3 * variables + 1 + value[asked];
}

const heed_synthetic heed_synthetic_flip_flop = {
    .name = "flip_flop",
    .summary = "a bit is written, others are ignored: which one is read?",
    .arg = {{"orders", "orders, a bit behind each", 16, 2, 1 << 19},
            {"ignore", "of a hundred orders, how many are ignored", 80, 0, 100}},
    .ceiling = 1.0,
    .vocabulary = flip_flop_vocabulary,
    .length = flip_flop_length,
    .make = make_flip_flop};
const heed_synthetic heed_synthetic_counting = {
    .name = "counting",
    .summary = "variables are set to 0 and counted up: what is one of them?",
    .arg = {{"orders", "orders before the question", 24, 1, 1 << 20},
            {"variables", "variables", 1, 1, MOST_VARIABLES},
            {"pass", "of a hundred orders, how many do nothing", 50, 0, 100}},
    .ceiling = 1.0,
    .vocabulary = counting_vocabulary,
    .length = counting_length,
    .make = make_counting};
