/* Chains of assignments in a book, to be followed link by link (RULER's variable tracking, Hsieh et al. 2024,
 * with words as values): the name that the last one points at, then its value. */
#include "base/try.h"
#include "eval/task.h"
#include "eval/words.h"

#include <stdio.h>

enum { CHAINS = 3 };

typedef struct chains {
    const char *noun[CHAINS],
        *name[2 * CHAINS]; /* name[i] has the value noun[i], name[CHAINS + i] that of it */
    char link[CHAINS][24]; /* name[i] with a space in front */
} chains;

static heed_status write_links(const heed_material *material, const chains *all, heed_hidden *hidden)
{
    for (int i = 0; i < CHAINS; i++) {
        TRY(heed_material_say(material, &hidden->needle[i], "\n\nThe value of %s is%s.\n\n", all->name[i],
                              all->noun[i]));
        TRY(heed_material_say(material, &hidden->needle[CHAINS + i], "\n\nThe value of %s is that of%s.\n\n",
                              all->name[CHAINS + i], all->link[i]));
    }
    return HEED_OK;
}

static heed_status ask(const heed_material *material, const chains *all, int chain, heed_quiz *tail)
{
    const char *const links[CHAINS] = {all->link[0], all->link[1], all->link[2]};
    TRY(heed_material_say(material, &tail->text,
                          "\nQuestion: What is the value of %s?\nAnswer: The value of %s is that of",
                          all->name[CHAINS + chain], all->name[CHAINS + chain]));
    TRY(heed_quiz_ask(material, tail, all->link[chain], links, CHAINS));
    TRY(heed_material_say(material, &tail->text, ". The value of %s is", all->name[chain]));
    TRY(heed_quiz_ask(material, tail, all->noun[chain], all->noun, CHAINS));
    return heed_material_tokens(material, ".", &tail->text);
}

static heed_status make(const heed_material *material, const heed_task_wish *wish, heed_quiz *quiz)
{
    heed_dice dice = heed_dice_for(wish->seed, 4);
    chains all;
    heed_hidden hidden = {.needles = 2 * CHAINS,
                          .filler = &material->book,
                          .first = heed_dice_throw(&dice, material->book.count)};
    heed_hidden_scatter(&hidden, &dice);
    heed_words_draw(&dice, heed_nouns, HEED_NOUNS, CHAINS, all.noun);
    heed_words_draw(&dice, heed_places, HEED_PLACES, 2 * CHAINS, all.name);
    for (int i = 0; i < CHAINS; i++)
        snprintf(all.link[i], sizeof all.link[i], " %s", all.name[i]);
    heed_status status = write_links(material, &all, &hidden);
    const int first = (int)heed_dice_throw(&dice, CHAINS);
    for (int i = 0; i < CHAINS && !status; i++)
        status = ask(material, &all, (first + i) % CHAINS, &hidden.tail);
    if (!status)
        status = heed_quiz_hide(material, &hidden, wish->length, quiz);
    heed_hidden_free(&hidden);
    return status;
}

const heed_task heed_task_variables = {
    .name = "variables", .summary = "chains of assignments in a book, link by link", .make = make};
