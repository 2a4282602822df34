/* A sentence that does not belong there, in a book (Kamradt 2023, needle in a haystack). */
#include "base/try.h"
#include "eval/task.h"
#include "eval/words.h"

enum { NOUNS = 9 }; /* the right one first */

static heed_status write(const heed_material *material, const char *place, const char *const *noun,
                         heed_hidden *hidden)
{
    TRY(heed_material_say(material, &hidden->needle[0], "\n\nThe secret word of %s is%s.\n\n", place,
                          noun[0]));
    TRY(heed_material_say(material, &hidden->tail.text,
                          "\n\nQuestion: What is the secret word of %s?\nAnswer: The secret word of %s is",
                          place, place));
    return heed_quiz_ask(material, &hidden->tail, noun[0], noun + 1, NOUNS - 1);
}

static heed_status make(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz)
{
    heed_dice dice = heed_dice_for(wish->seed, 2);
    const char *noun[NOUNS], *place;
    heed_words_draw(&dice, heed_nouns, HEED_NOUNS, NOUNS, noun);
    heed_words_draw(&dice, heed_places, HEED_PLACES, 1, &place);
    heed_hidden hidden = {.needles = 1,
                          .depth = {wish->depth},
                          .filler = &material->book,
                          .first = heed_dice_throw(&dice, material->book.count)};
    heed_status status = write(material, place, noun, &hidden);
    if (!status)
        status = heed_quiz_hide(material, &hidden, wish->length, quiz);
    heed_hidden_free(&hidden);
    return status;
}

const heed_task heed_task_needle = {
    .name = "needle", .summary = "a sentence hidden in a book", .by_depth = true, .make = make};
