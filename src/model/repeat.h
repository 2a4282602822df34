/* Prompts that are read once more, for policies that judge keys by how they serve a repetition. */
#ifndef HEED_MODEL_REPEAT_H
#define HEED_MODEL_REPEAT_H

#include "base/arena.h"
#include <heed/model.h>
#include <stdatomic.h>

enum { HEED_REPEAT_HINT = 8 }; /* last tokens of the part before, by which the next one is announced */

typedef struct heed_repeat {
    int64_t each;              /* tokens of a prompt that are repeated at a time; 0: none are */
    int64_t room;              /* keys that a repetition takes at most */
    heed_tokens whole, part;   /* instructions: for the beginning, for what follows the hint */
    int32_t *token;            /* [room] */
    _Atomic uint32_t *largest; /* [layers][kv_heads][keys] bits of the largest weights: those of floats above
                                  0 rise with them */
    uint8_t *heads;            /* [layers][heads] 1 where weights are wanted */
    int64_t keys;              /* of a list, at most */
    bool done;                 /* the prompt was repeated: policies that waited for it may act */
} heed_repeat;

/* What the policies of a session want; the instructions. HEED_UNSUPPORTED with what it cannot be with. */
heed_status heed_repeat_find(heed_session *session);
/* Refuses what the layers' plans turned out to have. */
heed_status heed_repeat_check(const heed_session *session);
/* Memory for it, once the layers' plans are made. */
void heed_repeat_take(heed_session *session, heed_arena *arena);
void heed_repeat_free(heed_repeat *repeat);

/* After a prompt of a sequence was read: repeats what no text repeated yet, where a policy is due that wants
 * it, and lets those policies act. The sequence has read nothing more afterwards. */
heed_status heed_repeat_prompt(heed_session *session, int64_t sequence);

#endif
