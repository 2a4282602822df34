/* Several sentences of one kind in a book; which one is asked for is said only at the end (RULER's multi-key
 * needles, Hsieh et al. 2024). */
#include "base/try.h"
#include "eval/task.h"
#include "eval/words.h"

enum { KEYS = 4 };

static heed_status write(const heed_material *material, heed_dice *dice, heed_hidden *hidden)
{
    const char *noun[KEYS], *place[KEYS];
    heed_words_draw(dice, heed_nouns, HEED_NOUNS, KEYS, noun);
    heed_words_draw(dice, heed_places, HEED_PLACES, KEYS, place);
    for (int i = 0; i < KEYS; i++)
        TRY(heed_material_say(material, &hidden->needle[i], "\n\nThe secret word of %s is%s.\n\n", place[i],
                              noun[i]));
    const int first = (int)heed_dice_throw(dice, KEYS);
    TRY(heed_material_tokens(material, "\n", &hidden->tail.text));
    for (int i = 0; i < KEYS; i++) {
        const int key = (first + 3 * i) % KEYS; /* 3 and KEYS have no common factor: each once */
        TRY(heed_material_say(material, &hidden->tail.text,
                              "\nQuestion: What is the secret word of %s?\nAnswer: The secret word of %s is",
                              place[key], place[key]));
        TRY(heed_quiz_ask(material, &hidden->tail, noun[key], noun, KEYS));
        TRY(heed_material_tokens(material, ".", &hidden->tail.text));
    }
    return HEED_OK;
}

static heed_status make(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz)
{
    heed_dice dice = heed_dice_for(wish->seed, 3);
    heed_hidden hidden = {
        .needles = KEYS, .filler = &material->book, .first = heed_dice_throw(&dice, material->book.count)};
    heed_hidden_scatter(&hidden, &dice);
    heed_status status = write(material, &dice, &hidden);
    if (!status)
        status = heed_quiz_hide(material, &hidden, wish->length, quiz);
    heed_hidden_free(&hidden);
    return status;
}

const heed_task heed_task_multikey = {
    .name = "multikey", .summary = "one of several sentences hidden in a book", .make = make};
