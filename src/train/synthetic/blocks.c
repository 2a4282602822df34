/* What takes several tokens together to find: a block by the letters in it, and whether two sequences are the
 * same. */
#include "train/synthetic.h"

#include <stddef.h>

/* arg: blocks, size, symbols, letters: blocks of different symbols, a mark behind each, then a question mark
 * and letters, which only one block has all of: what is the last symbol of that block? It is not among the
 * letters. Marks are the two numbers behind the symbols. After Golovneva et al.: Multi-Token Attention, 2025
 */
enum { BLOCKS, SIZE, SYMBOLS, LETTERS };

static int64_t blocks_vocabulary(const int64_t *arg)
{
    return arg[SYMBOLS] + 2;
}

static int64_t blocks_length(const int64_t *arg)
{
    return arg[BLOCKS] * (arg[SIZE] + 1) + 1 + arg[LETTERS];
}

static void put_block(const int64_t *arg, heed_draw *draw, int32_t *block)
{
    int32_t list[HEED_SYNTHETIC_SYMBOLS];
    heed_draw_different(draw, arg[SYMBOLS], arg[SIZE], list);
    for (int64_t i = 0; i < arg[SIZE]; i++)
        block[i] = list[i];
    block[arg[SIZE]] = (int32_t)arg[SYMBOLS];
}

static bool has_all(const int64_t *arg, const int32_t *block, const int32_t *letter)
{
    int64_t found = 0;
    for (int64_t l = 0; l < arg[LETTERS]; l++)
        for (int64_t i = 0; i < arg[SIZE]; i++)
            found += block[i] == letter[l];
    return found == arg[LETTERS];
}

static void make_blocks(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    int32_t order[HEED_SYNTHETIC_SYMBOLS];
    const int64_t wide = arg[SIZE] + 1, right = heed_draw_below(draw, arg[BLOCKS]), end = arg[BLOCKS] * wide;
    int32_t *letter = token + end + 1;
    put_block(arg, draw, token + right * wide);
    heed_draw_different(draw, arg[SIZE] - 1, arg[LETTERS], order);
    token[end] = (int32_t)arg[SYMBOLS] + 1;
    for (int64_t l = 0; l < arg[LETTERS]; l++)
        letter[l] = token[right * wide + order[l]];
    target[end + arg[LETTERS]] = token[right * wide + arg[SIZE] - 1];
    for (int64_t b = 0; b < arg[BLOCKS]; b++)
        while (b != right && (!token[b * wide + arg[SIZE]] || has_all(arg, token + b * wide, letter)))
            put_block(arg, draw, token + b * wide); /* until it lacks a letter; its mark is no 0 */
}

static const char *blocks_wrong(const int64_t *arg)
{
    return arg[SYMBOLS] <= arg[SIZE]   ? "there must be more symbols than a block has"
           : arg[LETTERS] >= arg[SIZE] ? "there must be fewer letters than a block has"
                                       : NULL;
}

/* arg: length, symbols: a sequence, a mark, and the sequence again, in half of all cases with another symbol
 * at one place; then a question: are they the same? Behind the symbols mark, question, no and yes. */
enum { LENGTH, ALPHABET };

static int64_t same_vocabulary(const int64_t *arg)
{
    return arg[ALPHABET] + 4;
}

static int64_t same_length(const int64_t *arg)
{
    return 2 * arg[LENGTH] + 2;
}

static void make_same(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t n = arg[LENGTH], symbols = arg[ALPHABET], same = heed_draw_below(draw, 2),
                  at = heed_draw_below(draw, n), by = 1 + heed_draw_below(draw, symbols - 1);
    for (int64_t i = 0; i < n; i++)
        token[i] = token[n + 1 + i] = (int32_t)heed_draw_below(draw, symbols);
    if (!same)
        token[n + 1 + at] = (int32_t)((token[at] + by) % symbols);
    token[n] = (int32_t)symbols;
    token[2 * n + 1] = (int32_t)symbols + 1;
    target[2 * n + 1] = (int32_t)(symbols + 2 + same);
}

const heed_synthetic heed_synthetic_blocks = {
    .name = "blocks",
    .summary = "blocks of symbols, then letters that one of them has: which symbol ends it?",
    .arg = {{"blocks", "blocks", 4, 1, 1024},
            {"size", "symbols of a block", 4, 2, 256},
            {"symbols", "different symbols", 16, 3, HEED_SYNTHETIC_SYMBOLS},
            {"letters", "letters that are asked for", 2, 1, 255}},
    .ceiling = 1.0,
    .vocabulary = blocks_vocabulary,
    .length = blocks_length,
    .make = make_blocks,
    .wrong = blocks_wrong};
const heed_synthetic heed_synthetic_same = {
    .name = "same",
    .summary = "two sequences that differ at one place, or nowhere: are they the same?",
    .arg = {{"length", "symbols of a sequence", 8, 1, HEED_SYNTHETIC_SYMBOLS},
            {"symbols", "different symbols", 8, 2, HEED_SYNTHETIC_SYMBOLS}},
    .ceiling = 1.0,
    .vocabulary = same_vocabulary,
    .length = same_length,
    .make = make_same};
