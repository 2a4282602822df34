/* Sequences of parts that attention may be bound to: replies to a context, and phrases of a tune.
 * `where=arrow` and `where=segments` read which part a token is of. */
#include "train/synthetic.h"

#include <stddef.h>

/* arg: context, replies, length, symbols: different symbols, then replies of `length` different words, each
 * of which names a symbol: does a reply name only symbols of the context? The last word of each asks; half of
 * them do, the others name one that the context lacks. Order says nothing. Words are the numbers behind the
 * symbols, answers those behind the words, no and yes. The context is part 0, replies are 1 and on. After
 * Song et al.: Uni-Encoder, 2021 */
enum { CONTEXT, REPLIES, LENGTH, SYMBOLS };

static int64_t replies_vocabulary(const int64_t *arg)
{
    return 2 * arg[SYMBOLS] + 2;
}

static int64_t replies_length(const int64_t *arg)
{
    return arg[CONTEXT] + arg[REPLIES] * arg[LENGTH];
}

static int32_t replies_part(const int64_t *arg, int64_t place)
{
    return place < arg[CONTEXT] ? 0 : (int32_t)(1 + (place - arg[CONTEXT]) / arg[LENGTH]);
}

static void make_replies(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    int32_t list[HEED_SYNTHETIC_SYMBOLS], order[HEED_SYNTHETIC_SYMBOLS];
    const int64_t context = arg[CONTEXT], length = arg[LENGTH], symbols = arg[SYMBOLS];
    heed_draw_different(draw, symbols, context, list); /* what is left over stands behind */
    for (int64_t i = 0; i < context; i++)
        token[i] = list[i];
    for (int64_t r = 0; r < arg[REPLIES]; r++) {
        int32_t *reply = token + context + r * length;
        const int64_t fits = heed_draw_below(draw, 2), wrong = heed_draw_below(draw, length),
                      other = context + heed_draw_below(draw, symbols - context);
        heed_draw_different(draw, context, length, order);
        for (int64_t i = 0; i < length; i++)
            reply[i] = (int32_t)symbols + list[!fits && i == wrong ? other : order[i]];
        target[context + (r + 1) * length - 1] = (int32_t)(2 * symbols + fits);
    }
}

static const char *replies_wrong(const int64_t *arg)
{
    return arg[LENGTH] > arg[CONTEXT]     ? "a reply must be no longer than the context"
           : arg[SYMBOLS] <= arg[CONTEXT] ? "there must be more symbols than the context has"
                                          : NULL;
}

/* arg: phrases, beats, notes: of each phrase of a tune the notes on its beats, a mark, and the tune: after
 * each beat's note `notes` - 1 more, each two above the one before, and then the next beat's. Which note
 * comes next? Pitches are 0 to 23 and go round, the mark is 24. Parts are phrases; a token of the tune is of
 * the phrase of the note behind it. After a melody generator that is given skeletons, Small Tunes
 * Transformer, 2024 */
enum { PHRASES, BEATS, NOTES };
enum { PITCHES = 24, RISE = 2 };

static int64_t tune_vocabulary(const int64_t *arg)
{
    (void)arg;
    return PITCHES + 1;
}

static int64_t skeleton(const int64_t *arg)
{
    return arg[PHRASES] * arg[BEATS];
}

static int64_t tune_length(const int64_t *arg)
{
    return skeleton(arg) * (1 + arg[NOTES]);
}

static int32_t tune_part(const int64_t *arg, int64_t place)
{
    const int64_t first = skeleton(arg);
    return (int32_t)(place < first ? place / arg[BEATS] : (place - first) / (arg[BEATS] * arg[NOTES]));
}

static void make_tune(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t beats = skeleton(arg), notes = beats * arg[NOTES];
    for (int64_t i = 0; i < beats; i++)
        token[i] = (int32_t)heed_draw_below(draw, PITCHES);
    token[beats] = PITCHES;
    for (int64_t i = 0; i < notes; i++) {
        target[beats + i] = (int32_t)((token[i / arg[NOTES]] + RISE * (i % arg[NOTES])) % PITCHES);
        if (i + 1 < notes)
            token[beats + 1 + i] = target[beats + i];
    }
}

const heed_synthetic heed_synthetic_replies = {
    .name = "replies",
    .summary = "a context and replies: which of them name only what the context has?",
    .arg = {{"context", "symbols of the context", 16, 1, 1024},
            {"replies", "replies", 8, 1, 1024},
            {"length", "words of a reply", 2, 1, 1024},
            {"symbols", "different symbols", 32, 2, HEED_SYNTHETIC_SYMBOLS}},
    .ceiling = 1.0,
    .vocabulary = replies_vocabulary,
    .length = replies_length,
    .make = make_replies,
    .part = replies_part,
    .wrong = replies_wrong};
const heed_synthetic heed_synthetic_tune = {
    .name = "tune",
    .summary = "notes on the beats of phrases, then the whole tune: which note comes next?",
    .arg = {{"phrases", "phrases", 4, 1, 256},
            {"beats", "beats of a phrase", 2, 1, 256},
            {"notes", "notes of a beat", 3, 1, 64}},
    .ceiling = 1.0,
    .vocabulary = tune_vocabulary,
    .length = tune_length,
    .make = make_tune,
    .part = tune_part};
