/* Rules: parity of bits, brackets that close, sums, and a line to be found from its points. */
#include "train/synthetic.h"

#include <stddef.h>

enum { LENGTH };

/* Bits; at each place, whether there were an odd number of ones so far. */
static int64_t parity_vocabulary(const int64_t *arg)
{
    (void)arg;
    return 2;
}

static int64_t parity_length(const int64_t *arg)
{
    return arg[LENGTH];
}

static void make_parity(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    int32_t odd = 0;
    for (int64_t i = 0; i < arg[LENGTH]; i++) {
        token[i] = (int32_t)heed_draw_below(draw, 2);
        odd ^= token[i];
        target[i] = odd;
    }
}

/* arg: length, kinds, depth: balanced brackets, opening ones 0.., closing ones `kinds`..; wherever a bracket
 * closes, which? The place before it asks. */
enum { KINDS = 1, DEPTH };

static int64_t dyck_vocabulary(const int64_t *arg)
{
    return 2 * arg[KINDS];
}

static int64_t dyck_length(const int64_t *arg)
{
    return 2 * arg[LENGTH];
}

static void make_dyck(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = 2 * arg[LENGTH];
    int32_t open[1 << 10];
    int64_t depth = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool must_close = depth == n - i || depth == arg[DEPTH], must_open = depth == 0;
        if (!must_open && (must_close || heed_draw_below(draw, 2))) {
            token[i] = (int32_t)arg[KINDS] + open[--depth];
            target[i - 1] = token[i];
        } else {
            token[i] = open[depth++] = (int32_t)heed_draw_below(draw, arg[KINDS]);
        }
    }
}

/* arg: digits: a + b = c, the digits of c from the last to the first. Digits are 0 to 9, + is 10, = is 11. */
static int64_t addition_vocabulary(const int64_t *arg)
{
    (void)arg;
    return 12;
}

static int64_t addition_length(const int64_t *arg)
{
    return 3 * arg[0] + 2;
}

static void make_addition(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = arg[0];
    int32_t carry = 0;
    for (int64_t i = 0; i < n; i++) {
        token[i] = (int32_t)heed_draw_below(draw, 10);
        token[n + 1 + i] = (int32_t)heed_draw_below(draw, 10);
    }
    token[n] = 10;
    token[2 * n + 1] = 11;
    for (int64_t i = 0; i < n; i++) {
        const int32_t sum = token[n - 1 - i] + token[2 * n - i] + carry;
        target[2 * n + 1 + i] = sum % 10;
        if (2 * n + 2 + i < 3 * n + 2)
            token[2 * n + 2 + i] = sum % 10;
        carry = sum / 10;
    }
    target[3 * n + 1] = carry;
}

/* arg: pairs, prime: x1 y1 x2 y2 ... with y = a x + b modulo the prime. Numbers x are 0.., y `prime`... Asked
 * for at each x from where two different ones, or the same one, have shown a and b. */
enum { PRIME = 1 };

static int64_t regression_vocabulary(const int64_t *arg)
{
    return 2 * arg[PRIME];
}

static void make_regression(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t prime = arg[PRIME], a = heed_draw_below(draw, prime), b = heed_draw_below(draw, prime);
    for (int64_t i = 0; i < arg[0]; i++) {
        const int64_t x = heed_draw_below(draw, prime), y = (a * x + b) % prime;
        bool two = false, seen = false;
        for (int64_t j = 0; j < i; j++) {
            two = two || token[2 * j] != token[0];
            seen = seen || token[2 * j] == x;
        }
        token[2 * i] = (int32_t)x;
        token[2 * i + 1] = (int32_t)(prime + y);
        if (two || seen)
            target[2 * i] = token[2 * i + 1];
    }
}

static const char *no_prime(const int64_t *arg)
{
    for (int64_t d = 2; d * d <= arg[PRIME]; d++)
        if (arg[PRIME] % d == 0)
            return "prime must be a prime number";
    return NULL;
}

const heed_synthetic heed_synthetic_parity = {
    .name = "parity",
    .summary = "bits, and at each place whether the ones so far are odd in number",
    .arg = {{"length", "bits", 16, 1, 1 << 20}},
    .ceiling = 1.0,
    .vocabulary = parity_vocabulary,
    .length = parity_length,
    .make = make_parity};
const heed_synthetic heed_synthetic_dyck = {
    .name = "dyck",
    .summary = "balanced brackets of several kinds: which one closes next?",
    .arg = {{"length", "pairs of brackets", 16, 1, 1 << 18},
            {"kinds", "kinds of brackets", 3, 1, 1000},
            {"depth", "brackets open at once, at most", 8, 1, 1 << 10}},
    .ceiling = 1.0,
    .vocabulary = dyck_vocabulary,
    .length = dyck_length,
    .make = make_dyck};
const heed_synthetic heed_synthetic_addition = {.name = "addition",
                                                .summary = "two numbers and their sum, its last digit first",
                                                .arg = {{"digits", "digits of each number", 3, 1, 1000}},
                                                .ceiling = 1.0,
                                                .vocabulary = addition_vocabulary,
                                                .length = addition_length,
                                                .make = make_addition};
const heed_synthetic heed_synthetic_regression = {
    .name = "regression",
    .summary = "points of a line modulo a prime: where is the next?",
    .arg = {{"pairs", "points", 8, 2, 4096}, {"prime", "the prime", 11, 2, 4093}},
    .ceiling = 1.0,
    .vocabulary = regression_vocabulary,
    .length = dyck_length,
    .make = make_regression,
    .wrong = no_prime};
