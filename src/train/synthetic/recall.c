/* What stood beside a symbol before: associative recall with one query or many, induction, and a needle in a
 * long text. */
#include "train/synthetic.h"

enum { PAIRS, QUERIES };
enum { LENGTH, SYMBOLS };

/* Keys are numbers from 0 on, values from `symbols` on. */
static int64_t both(const int64_t *arg)
{
    return 2 * arg[SYMBOLS];
}

static int64_t recall_length(const int64_t *arg)
{
    return 2 * arg[PAIRS] + 1;
}

/* k1 v1 k2 v2 ... with different keys; returns in `key` and `value` what was put down. */
static void put_pairs(int64_t pairs, int64_t symbols, heed_draw *draw, int32_t *token, int32_t *key,
                      int32_t *value)
{
    heed_draw_different(draw, symbols, pairs, key);
    for (int64_t i = 0; i < pairs; i++) {
        value[i] = (int32_t)(symbols + heed_draw_below(draw, symbols));
        token[2 * i] = key[i];
        token[2 * i + 1] = value[i];
    }
}

/* arg: pairs, symbols */
static void make_recall(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    int32_t key[HEED_SYNTHETIC_SYMBOLS], value[HEED_SYNTHETIC_SYMBOLS];
    put_pairs(arg[PAIRS], arg[1], draw, token, key, value);
    const int64_t asked = heed_draw_below(draw, arg[PAIRS]);
    token[2 * arg[PAIRS]] = key[asked];
    target[2 * arg[PAIRS]] = value[asked];
}

static const char *too_many_pairs(const int64_t *arg)
{
    return arg[PAIRS] > arg[1] ? "there must be at least as many symbols as pairs" : NULL;
}

/* arg: pairs, symbols, queries: key, value, key, value after the pairs, each value asked for at its key.
 * Arora et al.: Zoology, 2023 */
static int64_t multi_length(const int64_t *arg)
{
    return 2 * arg[PAIRS] + 2 * arg[2];
}

static void make_multi(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    int32_t key[HEED_SYNTHETIC_SYMBOLS], value[HEED_SYNTHETIC_SYMBOLS], order[HEED_SYNTHETIC_SYMBOLS];
    put_pairs(arg[PAIRS], arg[1], draw, token, key, value);
    heed_draw_different(draw, arg[PAIRS], arg[2], order);
    for (int64_t i = 0; i < arg[2]; i++) {
        const int64_t at = 2 * arg[PAIRS] + 2 * i;
        token[at] = key[order[i]];
        target[at] = token[at + 1] = value[order[i]];
    }
}

static const char *multi_wrong(const int64_t *arg)
{
    return arg[2] > arg[PAIRS] ? "there must be at least as many pairs as queries" : too_many_pairs(arg);
}

/* arg: length, symbols: symbols at random, a mark somewhere with a symbol behind it, and the mark again at
 * the end: which symbol came behind it? Olsson et al. 2022 */
static int64_t one_more(const int64_t *arg)
{
    return arg[SYMBOLS] + 1;
}

static int64_t induction_length(const int64_t *arg)
{
    return arg[LENGTH];
}

static void make_induction(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = arg[LENGTH];
    for (int64_t i = 0; i < n; i++)
        token[i] = (int32_t)heed_draw_below(draw, arg[SYMBOLS]);
    const int64_t at = heed_draw_below(draw, n - 2);
    token[at] = token[n - 1] = (int32_t)arg[SYMBOLS];
    target[n - 1] = token[at + 1];
}

/* arg: length, symbols: words of noise, numbers from `symbols` on, and one symbol among them that a question
 * at the end asks for; the question is the last number. */
static void make_needle(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = arg[LENGTH], symbols = arg[SYMBOLS];
    for (int64_t i = 0; i < n; i++)
        token[i] = (int32_t)(symbols + heed_draw_below(draw, symbols));
    const int64_t at = heed_draw_below(draw, n - 1);
    token[at] = (int32_t)heed_draw_below(draw, symbols);
    token[n - 1] = (int32_t)(2 * symbols);
    target[n - 1] = token[at];
}

static int64_t needle_vocabulary(const int64_t *arg)
{
    return 2 * arg[SYMBOLS] + 1;
}

const heed_synthetic heed_synthetic_recall = {
    .name = "recall",
    .summary = "pairs of keys and values, then a key: its value",
    .arg = {{"pairs", "pairs before the question", 8, 1, HEED_SYNTHETIC_SYMBOLS},
            {"symbols", "different keys, and as many values", 16, 2, HEED_SYNTHETIC_SYMBOLS}},
    .ceiling = 1.0,
    .vocabulary = both,
    .length = recall_length,
    .make = make_recall,
    .wrong = too_many_pairs};
const heed_synthetic heed_synthetic_multi_recall = {
    .name = "multi_recall",
    .summary = "pairs of keys and values, then many of the keys: the value of each",
    .arg = {{"pairs", "pairs before the questions", 8, 1, HEED_SYNTHETIC_SYMBOLS},
            {"symbols", "different keys, and as many values", 16, 2, HEED_SYNTHETIC_SYMBOLS},
            {"queries", "questions", 4, 1, HEED_SYNTHETIC_SYMBOLS}},
    .ceiling = 1.0,
    .vocabulary = both,
    .length = multi_length,
    .make = make_multi,
    .wrong = multi_wrong};
const heed_synthetic heed_synthetic_induction = {
    .name = "induction",
    .summary = "which symbol stood behind the mark before?",
    .arg = {{"length", "tokens", 32, 3, 1 << 20},
            {"symbols", "different symbols", 16, 2, HEED_SYNTHETIC_SYMBOLS}},
    .ceiling = 1.0,
    .vocabulary = one_more,
    .length = induction_length,
    .make = make_induction};
const heed_synthetic heed_synthetic_needle = {
    .name = "needle",
    .summary = "one symbol in a long text of noise, asked for at the end",
    .arg = {{"length", "tokens", 128, 2, 1 << 20},
            {"symbols", "different symbols, and as many words of noise", 16, 2, HEED_SYNTHETIC_SYMBOLS}},
    .ceiling = 1.0,
    .vocabulary = needle_vocabulary,
    .length = induction_length,
    .make = make_needle};
