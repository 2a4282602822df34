/* Putting quizzes to a session, and what a session uses meanwhile. */
#ifndef HEED_EVAL_ASK_H
#define HEED_EVAL_ASK_H

#include "eval/score.h"

#include <heed/model.h>

/* Empties sequence 0, feeds the quiz and judges its answers, which are fed token by token as if they had
 * been written. `apart`: the context is fed before the question, so that policies act on it without knowing
 * what will be asked; else they act once they have seen all of the question but its last token. `logits`
 * [vocabulary] is work memory. Adds to `score`. */
heed_status heed_ask(heed_session *session, const heed_quiz *quiz, int64_t vocabulary, bool apart,
                     float *logits, heed_score *score);

/* What reading some tokens and then writing some took. */
typedef struct heed_pace {
    double prefill, decode;        /* tokens a second */
    double bytes, peak_bytes;      /* of keys and values and what is kept beside them */
    double pairs_read, pairs_open; /* as in heed_session_usage, of decoding */
} heed_pace;

/* Empties sequence 0, feeds `read` tokens as a prompt and `written` more one by one. */
heed_status heed_pace_measure(heed_session *session, const int32_t *tokens, int64_t read, int64_t written,
                              float *logits, heed_pace *pace);

#endif
