/* Chains of assignments in a book: what is the value of the last name of a chain? (RULER's variable tracking,
 * Hsieh et al. 2024, with words as values.) */
#include "base/try.h"
#include "eval/task.h"
#include "eval/words.h"

enum { CHAINS = 4, LINKS = 2 };

static heed_status write(const heed_material *material, heed_dice *dice, heed_hidden *hidden)
{
    const char *noun[CHAINS], *name[CHAINS * LINKS];
    heed_words_draw(dice, heed_nouns, HEED_NOUNS, CHAINS, noun);
    heed_words_draw(dice, heed_places, HEED_PLACES, CHAINS * LINKS, name);
    for (int i = 0; i < CHAINS * LINKS; i++) {
        const int chain = i % CHAINS; /* all first assignments, then all second ones */
        if (i < CHAINS)
            TRY(heed_material_say(material, &hidden->needle[i], "\n\nLet %s =%s.\n\n", name[i], noun[chain]));
        else
            TRY(heed_material_say(material, &hidden->needle[i], "\n\nLet %s = %s.\n\n", name[i],
                                  name[i - CHAINS]));
    }
    const int first = (int)heed_dice_throw(dice, CHAINS);
    TRY(heed_material_tokens(material, "\n", &hidden->tail.text));
    for (int i = 0; i < CHAINS; i++) {
        const int chain = (first + i) % CHAINS;
        TRY(heed_material_say(material, &hidden->tail.text,
                              "\nQuestion: What is the value of %s?\nAnswer: %s = %s =", name[CHAINS + chain],
                              name[CHAINS + chain], name[chain]));
        TRY(heed_quiz_ask(material, &hidden->tail, noun[chain], noun, CHAINS));
        TRY(heed_material_tokens(material, ".", &hidden->tail.text));
    }
    return HEED_OK;
}

static heed_status make(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz)
{
    heed_dice dice = heed_dice_for(wish->seed, 4);
    heed_hidden hidden = {.needles = CHAINS * LINKS,
                          .filler = &material->book,
                          .first = heed_dice_throw(&dice, material->book.count)};
    heed_hidden_scatter(&hidden, &dice);
    heed_status status = write(material, &dice, &hidden);
    if (!status)
        status = heed_quiz_hide(material, &hidden, wish->length, quiz);
    heed_hidden_free(&hidden);
    return status;
}

const heed_task heed_task_variables = {
    .name = "variables", .summary = "what a chain of assignments in a book comes to", .make = make};
