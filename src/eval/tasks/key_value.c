/* A list of pairs that fills the context: the value of a key (Liu et al. 2023, lost in the middle). */
#include "base/try.h"
#include "eval/task.h"
#include "eval/words.h"

enum { ASKED = 6, NUMBERS = 9, MOST_PAIRS = HEED_PLACES * NUMBERS };

typedef struct list {
    int key[MOST_PAIRS], value[MOST_PAIRS]; /* of place and number; of noun */
    int pairs;
} list;

/* "Paris 3:", each once, in the order of the dice. */
static void shuffle(list *all, heed_dice *dice)
{
    for (int i = 0; i < MOST_PAIRS; i++) {
        const int j = (int)heed_dice_throw(dice, i + 1);
        all->key[i] = all->key[j];
        all->key[j] = i;
        all->value[i] = (int)heed_dice_throw(dice, HEED_NOUNS);
    }
}

static heed_status say_key(const heed_material *material, heed_tokens *tokens, int key)
{
    return heed_material_say(material, tokens, "\n%s %d:", heed_places[key / NUMBERS], 1 + key % NUMBERS);
}

/* As many pairs as leave room for the questions, which repeat some of them. */
static heed_status write_list(const heed_material *material, int64_t length, list *all, heed_tokens *text)
{
    int64_t longest = 0;
    for (all->pairs = 0; all->pairs < MOST_PAIRS; all->pairs++) {
        const int64_t before = text->count;
        TRY(say_key(material, text, all->key[all->pairs]));
        TRY(heed_material_tokens(material, heed_nouns[all->value[all->pairs]], text));
        longest = text->count - before > longest ? text->count - before : longest;
        if (text->count + (ASKED + 1) * (longest + 2) > length) {
            text->count = before;
            break;
        }
    }
    return all->pairs >= ASKED
               ? HEED_OK
               : heed_fail(HEED_INVALID, "%lld tokens have no room for %d pairs and questions",
                           (long long)length, ASKED);
}

static heed_status ask(const heed_material *material, const list *all, int pair, heed_quiz *quiz)
{
    const char *wrong[HEED_RIVALS];
    int rivals = 0;
    for (int i = 0; i < all->pairs && rivals < HEED_RIVALS; i++)
        wrong[rivals++] = heed_nouns[all->value[(pair + 1 + i) % all->pairs]];
    TRY(say_key(material, &quiz->text, all->key[pair]));
    return heed_quiz_ask(material, quiz, heed_nouns[all->value[pair]], wrong, rivals);
}

static heed_status make(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz)
{
    heed_dice dice = heed_dice_for(wish->seed, 7);
    list all = {.pairs = 0};
    shuffle(&all, &dice);
    TRY(heed_tokens_join(&quiz->text, &material->start));
    TRY(heed_material_tokens(material, "A list of places and their words:", &quiz->text));
    TRY(write_list(material, wish->length, &all, &quiz->text));
    quiz->context = quiz->text.count;
    TRY(heed_material_tokens(material, "\n\nAgain:", &quiz->text));
    const int first = (int)heed_dice_throw(&dice, ASKED);
    for (int i = 0; i < ASKED; i++) { /* one of each part of the list, not in its order */
        const int part = (first + 5 * i) % ASKED, begin = part * all.pairs / ASKED,
                  end = (part + 1) * all.pairs / ASKED;
        TRY(ask(material, &all, begin + (int)heed_dice_throw(&dice, end - begin), quiz));
    }
    return HEED_OK;
}

const heed_task heed_task_key_value = {
    .name = "key_value", .summary = "values of keys from a list that fills the context", .make = make};
