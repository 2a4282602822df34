/* Random tokens, and later the same again: what came next the first time? Nothing but the sequence itself
 * tells (Olsson et al. 2022, induction heads). */
#include "base/try.h"
#include "eval/task.h"

enum { MOST = 48, SHOWN = 8 };

static heed_status make(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz)
{
    heed_dice dice = heed_dice_for(wish->seed, 6);
    const int64_t all = wish->length - material->start.count, block = all / 3 < MOST ? all / 3 : MOST;
    const int64_t between = all - 2 * block, before = (int64_t)(wish->depth * (double)between);
    heed_tokens *text = &quiz->text;
    if (block < 2)
        return heed_fail(HEED_INVALID, "%lld tokens have no room for a repeated sequence",
                         (long long)wish->length);
    TRY(heed_tokens_join(text, &material->start));
    const int64_t first = text->count + before;
    for (int64_t i = 0; i < all - block; i++)
        TRY(heed_tokens_add(text, heed_material_token(material, &dice)));
    for (int64_t i = 0; i < block; i++)
        TRY(heed_tokens_add(text, text->id[first + i]));
    const int64_t shown = block / 2 < SHOWN ? block / 2 : SHOWN;
    quiz->question[0] = (heed_question){.at = text->count - block + shown, .count = block - shown};
    quiz->questions = 1;
    return HEED_OK;
}

const heed_task heed_task_induction = {
    .name = "induction", .summary = "random tokens that come again", .by_token = true, .make = make};
