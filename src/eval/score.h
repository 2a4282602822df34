/* Judging answers by the logits from which each of their tokens would be drawn. */
#ifndef HEED_EVAL_SCORE_H
#define HEED_EVAL_SCORE_H

#include "eval/quiz.h"

/* Sums over the answers of a cell: one task, length and depth. */
typedef struct heed_score {
    int64_t asked, exact;    /* answers; those whose every token was the likeliest */
    int64_t choices, chosen; /* answers that had rivals; those whose first token was likelier than theirs */
    int64_t tokens, right;   /* of all answers; those that were the likeliest */
    double nll;              /* -log of the probability of all tokens */
} heed_score;

/* The least number of the largest logits. */
int32_t heed_likeliest(const float *logits, int64_t vocabulary);

/* Token number `i` of a question's answer, by the logits that stand before it. Of equal logits the token with
 * the least number is the likeliest. Tokens of an answer come in order. `missed`: whether one before it was
 * not the likeliest; kept up to date. */
void heed_score_token(heed_score *score, const float *logits, int64_t vocabulary,
                      const heed_question *question, const int32_t *answer, int64_t i, bool *missed);
void heed_score_add(heed_score *sum, const heed_score *more);

/* Shares, NaN where nothing was asked. */
double heed_score_exact(const heed_score *score);
double heed_score_chosen(const heed_score *score);
double heed_score_right(const heed_score *score);
double heed_score_surprise(const heed_score *score); /* nll a token */

#endif
