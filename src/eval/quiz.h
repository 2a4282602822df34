/* Prompts with questions in them, as tokens, and the pieces they are put together from.
 *
 * A quiz is the whole text as it should be: what comes before a question's answer is fed to a model, then
 * its answer, token by token, and each of them is compared with what the model would have written there. So a
 * quiz with several questions is read once, and a wrong answer does not spoil the next question.
 */
#ifndef HEED_EVAL_QUIZ_H
#define HEED_EVAL_QUIZ_H

#include "eval/dice.h"

#include <heed/tokenizer.h>

enum { HEED_QUESTIONS = 16, HEED_RIVALS = 16 };

typedef struct heed_question {
    int64_t at, count;          /* the answer: tokens [at, at + count) of the text; at >= 1 */
    int32_t rival[HEED_RIVALS]; /* first tokens of wrong answers, all different from the right one's */
    int rivals;
} heed_question;

typedef struct heed_quiz {
    heed_tokens text;
    heed_question question[HEED_QUESTIONS];
    int questions;
    int64_t context; /* tokens before the first word of the first question; 0: it has no such place */
} heed_quiz;

void heed_quiz_free(heed_quiz *quiz);

/* What quizzes are made of. */
typedef struct heed_material {
    const heed_tokenizer *tokenizer;
    int32_t vocabulary;
    heed_tokens start;  /* the token that begins a text, where the model wants one */
    heed_tokens book;   /* tokens of the book */
    heed_tokens noise;  /* sentences that say nothing, to be repeated */
    heed_tokens anchor; /* of a line break, for tokenising what stands inside a text */
} heed_material;

heed_status heed_material_create(heed_material *material, const heed_tokenizer *tokenizer);
void heed_material_free(heed_material *material);

/* Adds the tokens of a text that stands inside another one: vocabularies that put a space in front of texts
 * do not put one here. */
heed_status heed_material_tokens(const heed_material *material, const char *text, heed_tokens *tokens);
/* The same, as printf writes it. At most 500 bytes. */
heed_status heed_material_say(const heed_material *material, heed_tokens *tokens, const char *format, ...)
    HEED_PRINTF(3, 4);
/* Adds `count` of `source` from `first` on, which starts anew at its end. */
heed_status heed_tokens_fill(heed_tokens *tokens, const heed_tokens *source, int64_t first, int64_t count);
heed_status heed_tokens_join(heed_tokens *tokens, const heed_tokens *more);
/* A token that is no control token. */
int32_t heed_material_token(const heed_material *material, heed_dice *dice);

/* Ends the text with a question's answer. `wrong` [rivals]: other answers; of those that begin with the same
 * token as the right one or as another only the first counts. */
heed_status heed_quiz_ask(const heed_material *material, heed_quiz *quiz, const char *answer,
                          const char *const *wrong, int rivals);

/* Things to find in a filler, and what is asked at the end. */
typedef struct heed_hidden {
    heed_tokens head;
    heed_tokens needle[HEED_QUESTIONS];
    double depth[HEED_QUESTIONS]; /* 0: before the filler, 1: behind it; ascending */
    int needles;
    const heed_tokens *filler;
    int64_t first;  /* token of the filler that it begins with */
    heed_quiz tail; /* questions and answers */
} heed_hidden;

void heed_hidden_free(heed_hidden *hidden);

/* Depths of all needles: each somewhere in its own part of the filler. */
void heed_hidden_scatter(heed_hidden *hidden, heed_dice *dice);

/* The whole text in `length` tokens: start, head, filler with the needles in it, tail. HEED_INVALID when
 * there is no room for it. */
heed_status heed_quiz_hide(const heed_material *material, const heed_hidden *hidden, int64_t length,
                           heed_quiz *quiz);

#endif
