/* A number of five digits in sentences that say nothing (Mohtashami and Jaggi 2023, landmark attention). */
#include "base/try.h"
#include "eval/task.h"

#include <stdio.h>

static heed_status write(const heed_material *material, int key, heed_hidden *hidden)
{
    char answer[16];
    snprintf(answer, sizeof answer, " %d", key);
    TRY(heed_material_tokens(
        material,
        "There is important information hidden inside a lot of irrelevant text. Find it and memorize it.\n",
        &hidden->head));
    TRY(heed_material_say(material, &hidden->needle[0],
                          "\nThe pass key is %d. Remember it. %d is the pass key.\n", key, key));
    TRY(heed_material_tokens(material, "\n\nWhat is the pass key? The pass key is", &hidden->tail.text));
    return heed_quiz_ask(material, &hidden->tail, answer, NULL, 0);
}

static heed_status make(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz)
{
    heed_dice dice = heed_dice_for(wish->seed, 1);
    heed_hidden hidden = {.needles = 1, .depth = {wish->depth}, .filler = &material->noise};
    heed_status status = write(material, 10000 + (int)heed_dice_throw(&dice, 90000), &hidden);
    if (!status)
        status = heed_quiz_hide(material, &hidden, wish->length, quiz);
    heed_hidden_free(&hidden);
    return status;
}

const heed_task heed_task_passkey = {
    .name = "passkey", .summary = "a number hidden in repeated sentences", .by_depth = true, .make = make};
