#include "eval/ask.h"
#include "base/clock.h"
#include "base/try.h"

static heed_status feed(heed_session *session, const int32_t *tokens, int64_t count, float *logits)
{
    const heed_feed_item item = {.tokens = tokens, .count = count};
    return count ? heed_feed(session, &item, 1, &(heed_feed_wants){.logits = logits}) : HEED_OK;
}

/* A policy acts at the end of what is fed as one prompt. So that the first token of an answer comes from what
 * it kept, the prompt ends one token before the answer, and that token is fed by itself. */
heed_status heed_ask(heed_session *session, const heed_quiz *quiz, int64_t vocabulary, bool apart,
                     float *logits, heed_score *score)
{
    const int32_t *text = quiz->text.id;
    int64_t done = 0;
    TRY(heed_session_cut(session, 0, 0));
    if (apart && quiz->context && quiz->context < quiz->question[0].at - 1) {
        TRY(feed(session, text, quiz->context, NULL));
        done = quiz->context;
    }
    for (int q = 0; q < quiz->questions; q++) {
        const heed_question *question = &quiz->question[q];
        bool missed = false;
        TRY(feed(session, text + done, question->at - 1 - done, NULL));
        done = question->at - 1;
        for (int64_t i = 0; i < question->count; i++, done++) {
            TRY(feed(session, text + done, 1, logits));
            heed_score_token(score, logits, vocabulary, question, text + question->at, i, &missed);
        }
    }
    return HEED_OK;
}

heed_status heed_pace_measure(heed_session *session, const int32_t *tokens, int64_t read, int64_t written,
                              float *logits, heed_pace *pace)
{
    heed_session_usage before, after;
    TRY(heed_session_cut(session, 0, 0));
    const double begin = heed_seconds();
    TRY(feed(session, tokens, read, logits));
    const double between = heed_seconds();
    heed_session_get_usage(session, &before);
    for (int64_t i = 0; i < written; i++)
        TRY(feed(session, tokens + read + i, 1, logits));
    const double end = heed_seconds();
    heed_session_get_usage(session, &after);
    *pace = (heed_pace){.prefill = (double)read / (between - begin),
                        .decode = (double)written / (end - between),
                        .bytes = (double)after.bytes,
                        .peak_bytes = (double)after.peak_bytes,
                        .pairs_read = after.pairs_read - before.pairs_read,
                        .pairs_open = after.pairs_open - before.pairs_open};
    return HEED_OK;
}
