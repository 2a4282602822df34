/* Series in time: melodies whose first phrase returns, and events of which some come at a slow rate among
 * fast ones. */
#include "train/synthetic.h"

#include <stddef.h>

/* arg: phrase, notes, between: a phrase of notes, other phrases, and the first one again, moved up by some
 * interval. Phrases end with a bar line, which is the number `notes`; notes go round at the top of the scale.
 * From the second note of the return on each can be known. */
enum { PHRASE, NOTES, BETWEEN };

static int64_t melody_vocabulary(const int64_t *arg)
{
    return arg[NOTES] + 1;
}

static int64_t melody_length(const int64_t *arg)
{
    return (arg[PHRASE] + 1) * (arg[BETWEEN] + 1) + arg[PHRASE];
}

/* Steps of at most two notes up or down. */
static void write_phrase(const int64_t *arg, heed_draw *draw, int32_t *note)
{
    int64_t now = heed_draw_below(draw, arg[NOTES]);
    for (int64_t i = 0; i < arg[PHRASE]; i++) {
        note[i] = (int32_t)now;
        now = (now + heed_draw_below(draw, 5) - 2 + arg[NOTES]) % arg[NOTES];
    }
}

static void make_melody(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    const int64_t phrase = arg[PHRASE], last = (phrase + 1) * (arg[BETWEEN] + 1);
    for (int64_t at = 0; at < last; at += phrase + 1) {
        write_phrase(arg, draw, token + at);
        token[at + phrase] = (int32_t)arg[NOTES];
    }
    const int64_t up = heed_draw_below(draw, arg[NOTES]);
    for (int64_t i = 0; i < phrase; i++) {
        token[last + i] = (int32_t)((token[i] + up) % arg[NOTES]);
        if (i > 0)
            target[last + i - 1] = token[last + i];
    }
}

/* arg: length, fast, every, slow: a pattern of `fast` events goes round, but each `every`th event is the next
 * of another pattern of `slow` events. Fast events are numbers from 0 on, slow ones from 16 on. What has been
 * seen a round before is asked for. */
enum { LENGTH, FAST, EVERY, SLOW };
enum { KINDS = 16, MOST_EVENTS = 256 };

static int64_t events_vocabulary(const int64_t *arg)
{
    (void)arg;
    return 2 * KINDS;
}

static int64_t events_length(const int64_t *arg)
{
    return arg[LENGTH];
}

static void make_events(const int64_t *arg, heed_draw *draw, int32_t *token, int32_t *target)
{
    int32_t fast[MOST_EVENTS], slow[MOST_EVENTS];
    for (int64_t i = 0; i < arg[FAST]; i++)
        fast[i] = (int32_t)heed_draw_below(draw, KINDS);
    for (int64_t i = 0; i < arg[SLOW]; i++)
        slow[i] = KINDS + (int32_t)heed_draw_below(draw, KINDS);
    for (int64_t i = 0, fasts = 0, slows = 0; i < arg[LENGTH]; i++) {
        const bool is_slow = i % arg[EVERY] == arg[EVERY] - 1;
        const bool known = is_slow ? slows >= arg[SLOW] : fasts >= arg[FAST];
        token[i] = is_slow ? slow[slows++ % arg[SLOW]] : fast[fasts++ % arg[FAST]];
        if (known && i > 0)
            target[i - 1] = token[i];
    }
}

static const char *too_few_events(const int64_t *arg)
{
    return arg[LENGTH] < arg[EVERY] * (arg[SLOW] + 1) || arg[LENGTH] - arg[LENGTH] / arg[EVERY] <= arg[FAST]
               ? "length must hold each pattern once, and some of it again: more than every (slow + 1), and "
                 "fast ones"
               : NULL;
}

const heed_synthetic heed_synthetic_melody = {
    .name = "melody",
    .summary = "a phrase, others, and the phrase again from another note: how does it go on?",
    .arg = {{"phrase", "notes of a phrase", 8, 2, 4096},
            {"notes", "notes of the scale", 12, 3, 4096},
            {"between", "phrases before it returns", 1, 0, 1 << 10}},
    .ceiling = 1.0,
    .vocabulary = melody_vocabulary,
    .length = melody_length,
    .make = make_melody};
const heed_synthetic heed_synthetic_events = {
    .name = "events",
    .summary = "a fast pattern, and among it a slow one: what comes next?",
    .arg = {{"length", "events", 96, 4, 1 << 20},
            {"fast", "events of the fast pattern", 5, 1, MOST_EVENTS},
            {"every", "one event of so many is a slow one", 8, 2, 1 << 16},
            {"slow", "events of the slow pattern", 3, 1, MOST_EVENTS}},
    .ceiling = 1.0,
    .vocabulary = events_vocabulary,
    .length = events_length,
    .make = make_events,
    .wrong = too_few_events};
