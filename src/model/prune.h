/* Prompts of which only some tokens go on to later layers. */
#ifndef HEED_MODEL_PRUNE_H
#define HEED_MODEL_PRUNE_H

#include "attend/spec.h"
#include "base/arena.h"
#include <heed/model.h>
#include <heed/policy.h>

struct heed_step;

typedef struct heed_prune {
    int64_t layer; /* the last that all tokens reach; where `form` is NULL all reach all */
    const heed_form *form;
    heed_form_state state;
    float *x;               /* [context, width] what leaves that layer */
    float *last, *mean;     /* [context] heed_prompt */
    float *work;            /* [2 context] */
    uint8_t *keep;          /* [context] */
    int32_t *place;         /* [context] of the tokens that go on */
    int64_t before, tokens; /* of the prompt that is being read; 0 tokens: none is */
} heed_prune;

/* Finds such a form in the spec of a layer. */
heed_status heed_prune_find(struct heed_session *session, int64_t layer, const heed_spec *spec);
/* Refuses what does not go together with it. */
heed_status heed_prune_check(const struct heed_session *session);
void heed_prune_take(struct heed_session *session, heed_arena *arena);

/* Reads the prompt of item i of a call: all layers, the logits of the last token. */
heed_status heed_prune_read(struct heed_session *session, const heed_feed_item *item, int64_t i,
                            const heed_feed_wants *wants);

/* After the attention of that layer to a piece of a prompt: what its tokens received. */
heed_status heed_prune_look(struct heed_session *session, const struct heed_step *step);

#endif
