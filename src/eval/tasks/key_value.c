/* A list of pairs in a book: the value of a key (Liu et al. 2023, lost in the middle). */
#include "base/try.h"
#include "eval/task.h"
#include "eval/words.h"

enum { ASKED = 6, LEAST = 6, MOST = 32, PAIR = 8 }; /* a pair takes about PAIR tokens */

typedef struct list {
    const char *key[MOST], *value[MOST];
    int pairs;
} list;

static heed_status ask(const heed_material *material, const list *all, int pair, heed_quiz *tail)
{
    const char *wrong[HEED_RIVALS];
    int rivals = 0;
    for (int i = 1; i < all->pairs && rivals < HEED_RIVALS; i++)
        wrong[rivals++] = all->value[(pair + i) % all->pairs];
    TRY(heed_material_say(material, &tail->text, "\n%s:", all->key[pair]));
    return heed_quiz_ask(material, tail, all->value[pair], wrong, rivals);
}

static heed_status write(const heed_material *material, heed_dice *dice, const list *all, heed_hidden *hidden)
{
    TRY(heed_material_tokens(material, "\n\nA list of places and their words:", &hidden->needle[0]));
    for (int i = 0; i < all->pairs; i++)
        TRY(heed_material_say(material, &hidden->needle[0], "\n%s:%s", all->key[i], all->value[i]));
    TRY(heed_material_tokens(material, "\n\n", &hidden->needle[0]));
    TRY(heed_material_tokens(material,
                             "\n\nAgain some of the list of places and their words:", &hidden->tail.text));
    const int first = (int)heed_dice_throw(dice, ASKED);
    for (int i = 0; i < ASKED; i++) { /* one of each part of the list, not in its order */
        const int part = (first + 5 * i) % ASKED, begin = part * all->pairs / ASKED,
                  end = (part + 1) * all->pairs / ASKED;
        TRY(ask(material, all, begin + (int)heed_dice_throw(dice, end - begin), &hidden->tail));
    }
    return HEED_OK;
}

static heed_status make(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz)
{
    heed_dice dice = heed_dice_for(wish->seed, 7);
    const int64_t room = wish->length / 2 / PAIR;
    list all = {.pairs = room < LEAST ? LEAST : room < MOST ? (int)room : MOST};
    heed_hidden hidden = {.needles = 1,
                          .depth = {wish->depth},
                          .filler = &material->book,
                          .first = heed_dice_throw(&dice, material->book.count)};
    heed_words_draw(&dice, heed_places, HEED_PLACES, all.pairs, all.key);
    heed_words_draw(&dice, heed_nouns, HEED_NOUNS, all.pairs, all.value);
    heed_status status = write(material, &dice, &all, &hidden);
    if (!status)
        status = heed_quiz_hide(material, &hidden, wish->length, quiz);
    heed_hidden_free(&hidden);
    return status;
}

const heed_task heed_task_key_value = {
    .name = "key_value", .summary = "values of keys from a list in a book", .make = make};
