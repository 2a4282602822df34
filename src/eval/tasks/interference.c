/* A stream of updates, of which for every key only the last one counts: old values interfere with it.
 *
 * The more updates a key has had, the more often models answer with an old value. Wang, Sun: Unable to
 * Forget: Proactive Interference, 2025; as Sculptor (Li et al. 2025) has it.
 */
#include "base/try.h"
#include "eval/task.h"
#include "eval/words.h"

enum { KEYS = 4, LEAST = 2, MOST = 16, UPDATE = 7 }; /* an update takes about UPDATE tokens */

typedef struct stream {
    const char *key[KEYS], *value[KEYS * MOST];
    int updates; /* of each key; update u of key k is value[u KEYS + k] */
} stream;

static heed_status write(const heed_material *material, heed_dice *dice, const stream *all, heed_tokens *to)
{
    TRY(heed_material_tokens(material, "\n\nA list of changes; the last word of each place counts:", to));
    for (int u = 0; u < all->updates; u++) {
        const int first = (int)heed_dice_throw(dice, KEYS);
        for (int k = 0; k < KEYS; k++) {
            const int key = (first + k) % KEYS;
            TRY(heed_material_say(material, to, "\n%s:%s", all->key[key], all->value[u * KEYS + key]));
        }
    }
    return heed_material_tokens(material, "\n\n", to);
}

/* Wrong are older values of the key, the last ones first. */
static heed_status ask(const heed_material *material, const stream *all, int key, heed_quiz *tail)
{
    const char *wrong[HEED_RIVALS];
    int rivals = 0;
    for (int u = all->updates - 2; u >= 0 && rivals < HEED_RIVALS; u--)
        wrong[rivals++] = all->value[u * KEYS + key];
    TRY(heed_material_say(material, &tail->text, "\n%s:", all->key[key]));
    return heed_quiz_ask(material, tail, all->value[(all->updates - 1) * KEYS + key], wrong, rivals);
}

static heed_status make(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz)
{
    heed_dice dice = heed_dice_for(wish->seed, 101);
    const int64_t room = wish->length * 2 / 3 / (UPDATE * KEYS);
    stream all = {.updates = room < LEAST ? LEAST : room < MOST ? (int)room : MOST};
    heed_hidden hidden = {.needles = 1,
                          .depth = {1.0},
                          .filler = &material->book,
                          .first = heed_dice_throw(&dice, material->book.count)};
    heed_words_draw(&dice, heed_places, HEED_PLACES, KEYS, all.key);
    heed_words_draw(&dice, heed_nouns, HEED_NOUNS, all.updates * KEYS, all.value);
    heed_status status = write(material, &dice, &all, &hidden.needle[0]);
    if (!status)
        status = heed_material_tokens(material, "\n\nThe last word of each place is:", &hidden.tail.text);
    const int first = (int)heed_dice_throw(&dice, KEYS);
    for (int k = 0; k < KEYS && !status; k++)
        status = ask(material, &all, (first + k) % KEYS, &hidden.tail);
    if (!status)
        status = heed_quiz_hide(material, &hidden, wish->length, quiz);
    heed_hidden_free(&hidden);
    return status;
}

const heed_task heed_task_interference = {.name = "interference",
                                          .summary = "the last value of keys that were changed many times",
                                          .by_name = true,
                                          .make = make};
