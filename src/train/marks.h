/* Marks among the tokens of a sequence: a landmark behind every n of them, or a mark before and one behind.
 */
#ifndef HEED_TRAIN_MARKS_H
#define HEED_TRAIN_MARKS_H

#include "train/data.h"

/* Tokens of a sequence of `context`, marks aside; and places that so many tokens take. */
int64_t heed_marks_tokens(const heed_data *data, int64_t context);
int64_t heed_marks_places(const heed_data *data, int64_t tokens);
/* Moves the tokens apart and puts the marks, of which nothing is asked, between them; [context]. What was
 * asked for at a token stays there. */
void heed_marks_put(const heed_data *data, int64_t context, int32_t *token, int32_t *target);
/* Sets them up, behind the vocabulary and the context of a task. */
heed_status heed_marks_open(heed_data *data, int64_t landmarks, int64_t sentinels);

#endif
