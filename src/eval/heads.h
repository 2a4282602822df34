/* Which heads look back at what was there before: random tokens that are repeated tell (Olsson et al. 2022;
 * Tang et al.: RazorAttention, 2024, row 004.197). */
#ifndef HEED_EVAL_HEADS_H
#define HEED_EVAL_HEADS_H

#include "eval/quiz.h"

#include <heed/model.h>

/* Mean weights of the queries behind the first repeat: on all earlier places of the same token, and on the
 * places right behind them. */
typedef struct heed_head_scores {
    float echo, induction;
} heed_head_scores;

/* `block` random tokens, `repeats` times; score [layers, heads]. The session must hold them, be empty, and be
 * made with HEED_WITH_WEIGHTS. */
heed_status heed_heads_score(heed_session *session, const heed_model *model, const heed_material *material,
                             int64_t block, int64_t repeats, uint64_t seed, heed_head_scores *score);

/* Marks [layers, heads] those with the highest scores: the share `echo` of all by echo, `induction` by
 * induction, at least one of each, of equal ones the first. */
heed_status heed_heads_classify(const heed_head_scores *score, int64_t heads, double echo, double induction,
                                bool *retrieval);

#endif
