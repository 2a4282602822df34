/* Applying a chain of cache forms to what one layer holds of one sequence: pure functions over arrays,
 * without a model or a store. */
#ifndef HEED_CACHE_KEEP_H
#define HEED_CACHE_KEEP_H

#include <heed/policy.h>

enum { HEED_MAX_CHAIN = 12 };

/* A chain as it stands in the spec, for one kv head; its storage type is read by others. */
typedef struct heed_chain {
    heed_form_state form[HEED_MAX_CHAIN];
    int forms;
    /* filled by heed_chain_settle */
    unsigned observes; /* all forms together */
    int window, top;   /* the largest of any form */
    int state_floats;  /* of all forms, one after the other */
    int state_at[HEED_MAX_CHAIN];
    bool packed, prompt_only;
    int64_t every, chunked; /* chunked 0: only at the end of a prompt */
} heed_chain;

/* Resolves arguments, adds up what the forms want, and refuses chains that make no sense (a shape before any
 * judge, two budgets, no budget), by the names of forms. */
heed_status heed_chain_settle(heed_chain *chain);

/* Whether the chain has anything to do now. `prompt_ends`: the last token read so far ends a prompt. */
bool heed_chain_is_due(const heed_chain *chain, int64_t read, int64_t held, bool prompt_ends);

/* Most keys a kv head can hold after the chain acted when `read` tokens were read; for planning memory. */
int64_t heed_chain_budget(const heed_chain *chain, int64_t read);

/* Hands what new queries gave on to the forms. state [count][chain->state_floats]. */
void heed_chain_observe(const heed_chain *chain, const heed_seen *seen, float *state);

/* What is kept of a layer: held [kv_heads] in, keep[g] [count] out. key, value and mass of kept keys may
 * change where forms merge (then HEED_OBSERVES_KEYS and _VALUES are set and the arrays of held are written
 * to: `changed` says). chain [kv_heads]: one a kv head; forms that share out room act among the heads whose
 * chains hold the same forms. */
typedef struct heed_keep {
    const heed_chain *const *chain; /* [kv_heads] */
    heed_held *held;                /* [kv_heads] */
    int kv_heads;
    float *const *key, *const *value, *const *mass; /* [kv_heads] writable arrays behind held's */
    uint8_t *const *keep;                           /* [kv_heads][count] */
    bool *changed;                                  /* [kv_heads] */
    float *work;                                    /* heed_keep_work_floats of the largest count */
} heed_keep;

int64_t heed_keep_work_floats(int64_t count, int kv_heads, int64_t dim, int64_t value_dim);
void heed_keep_apply(const heed_keep *keep);

#endif
