/* A list of words, much text, and the list again from its beginning: how much of the rest is copied? */
#include "base/try.h"
#include "eval/task.h"
#include "eval/words.h"

#include <stdio.h>

enum { WORDS = 24, SHOWN = 4 };

static heed_status write(const heed_material *material, heed_dice *dice, heed_hidden *hidden)
{
    const char *noun[WORDS];
    char rest[WORDS * 12] = "";
    int used = 0;
    heed_words_draw(dice, heed_nouns, HEED_NOUNS, WORDS, noun);
    TRY(heed_material_tokens(material, "\n\nThe list:", &hidden->needle[0]));
    TRY(heed_material_tokens(material, "\n\nOnce more the list:", &hidden->tail.text));
    for (int i = 0; i < WORDS; i++) {
        TRY(heed_material_tokens(material, noun[i], &hidden->needle[0]));
        if (i < SHOWN)
            TRY(heed_material_tokens(material, noun[i], &hidden->tail.text));
        else
            used += snprintf(rest + used, sizeof rest - (size_t)used, "%s", noun[i]);
    }
    TRY(heed_material_tokens(material, ".\n\n", &hidden->needle[0]));
    return heed_quiz_ask(material, &hidden->tail, rest, NULL, 0);
}

static heed_status make(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz)
{
    heed_dice dice = heed_dice_for(wish->seed, 5);
    heed_hidden hidden = {.needles = 1,
                          .depth = {wish->depth},
                          .filler = &material->book,
                          .first = heed_dice_throw(&dice, material->book.count)};
    heed_status status = write(material, &dice, &hidden);
    if (!status)
        status = heed_quiz_hide(material, &hidden, wish->length, quiz);
    heed_hidden_free(&hidden);
    return status;
}

const heed_task heed_task_copying = {
    .name = "copying", .summary = "a list of words, to be written again", .by_token = true, .make = make};
