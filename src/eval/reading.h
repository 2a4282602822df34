/* Reading a text with several forms of attention side by side, a step at a time: how well each foresees it,
 * and how far each is from the first one, the reference. */
#ifndef HEED_EVAL_READING_H
#define HEED_EVAL_READING_H

#include "eval/divergence.h"

#include <heed/model.h>

enum { HEED_READING_STEP = 32 }; /* tokens fed at once */

typedef struct heed_reader {
    heed_session *session;
    float *logits; /* [HEED_READING_STEP, vocabulary]; made and freed by heed_readers_... */
    heed_divergence window, all, last_quarter; /* of short windows; of the long text; of its last quarter */
} heed_reader;

typedef struct heed_reading {
    heed_reader *reader; /* [readers] the reference first */
    int readers;
    int64_t vocabulary;
    int threads;
    void (*progress)(void *context, int64_t tokens); /* after each step */
    void *context;
} heed_reading;

heed_status heed_readers_create(heed_reading *reading);
void heed_readers_free(heed_reading *reading);

/* Empties all sessions and reads `tokens`, at least 2: the first half as one prompt, then a step at a time.
 * Each position of the second half that a token follows is added to what `part` chooses. */
typedef enum heed_reading_part { HEED_READING_WINDOW, HEED_READING_LONG } heed_reading_part;
heed_status heed_read_text(heed_reading *reading, const int32_t *tokens, int64_t count,
                           heed_reading_part part);

#endif
