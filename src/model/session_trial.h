/* Trying one choice of policies after another on texts that were read once: while a prompt is read, nothing
 * is dropped, so what a session holds at its end is the same for all policies that act there. */
#ifndef HEED_MODEL_SESSION_TRIAL_H
#define HEED_MODEL_SESSION_TRIAL_H

#include "cache/keep.h"
#include <heed/model.h>

typedef struct heed_trials {
    heed_session *session;
    heed_chain *made; /* [layers, kv_heads] the chains that the session was made with: what they gather and
                         show is what the chains that are tried may look at */
    char *own_work;   /* memory in which they act, */
    char *work;       /* and that of chains which need more; NULL: none */
    size_t work_bytes;
} heed_trials;

/* The session must have been made with policies for all layers that keep everything, as
 * "cache=snapkv(share=1) > h2o(share=1)". It goes back to them and stays the caller's. */
heed_status heed_trials_begin(heed_trials *trials, heed_session *session);
void heed_trials_end(heed_trials *trials);

/* From now on the session has the policies of `attention` (clauses as in heed_session_options) instead.
 * HEED_UNSUPPORTED, with those before in place, for anything but policies that act at the end of a prompt or
 * later, look at no more than those that it was made with, and leave keys as they are: storage, other stages,
 * `chunked`, `packed`, forms that merge. */
heed_status heed_trials_change(heed_trials *trials, const char *attention);

/* The policies act on a sequence as if its last token had been the end of a prompt; then its pages get the
 * grades that they have there. */
heed_status heed_trials_act(heed_trials *trials, int64_t sequence);

/* Sequence `to`, which holds all of a prompt, gets what a kv head of a layer holds of `from`, in which
 * policies acted on the same prompt. */
heed_status heed_trials_take(heed_trials *trials, int64_t from, int64_t to, int64_t layer, int64_t kv_head);

/* Bytes of the pages of a kv head of a layer, which are taken whole, and of what would go with its keys in a
 * session with these policies only: all together, what the store of such a session holds. */
double heed_trials_bytes(const heed_trials *trials, int64_t sequence, int64_t layer, int64_t kv_head);

#endif
