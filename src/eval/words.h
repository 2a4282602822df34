/* Words that prompts are made of. */
#ifndef HEED_EVAL_WORDS_H
#define HEED_EVAL_WORDS_H

#include "eval/dice.h"

enum { HEED_NOUNS = 96, HEED_PLACES = 40 };
extern const char *const heed_nouns[HEED_NOUNS]; /* each with a space in front */
extern const char *const heed_places[HEED_PLACES];

/* `count` different words of a list, in the order of the dice; count <= size. */
void heed_words_draw(heed_dice *dice, const char *const *list, int size, int count, const char **drawn);

#endif
