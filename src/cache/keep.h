/* Applying a chain of cache forms to what one layer holds of one sequence: pure functions over arrays,
 * without a model or a store. */
#ifndef HEED_CACHE_KEEP_H
#define HEED_CACHE_KEEP_H

#include "attend/spec.h"
#include <heed/policy.h>

enum { HEED_MAX_CHAIN = 12 };

/* A chain as it stands in the spec, for one kv head; its storage type is read by others. */
typedef struct heed_chain {
    heed_form_state form[HEED_MAX_CHAIN];
    int forms; /* 0: everything is kept */
    int64_t layer, layers;
    /* filled by heed_chain_settle */
    unsigned observes; /* all forms together; merging forms see keys and values */
    int window, top;   /* the largest of any form */
    int state_floats;  /* of all forms, one after the other */
    int state_at[HEED_MAX_CHAIN];
    int judges;
    bool packed, prompt_only, merges;
    int64_t every;   /* 0: as its effort asks for, see heed_chain_every */
    int64_t chunked; /* 0: only at the end of a prompt */
    int64_t effort;  /* what acting costs, in queries that meet all keys */
    int repeats;     /* tokens of the prompt that are read once more at a time; 0: it is not */
} heed_chain;

/* The chain of a cache clause (`root` from heed_spec_clauses), built for `isa` and settled. Storage types,
 * which end the clause, are left out; a clause without policies gives a chain of no forms. The sizes that
 * forms ask for: heads, kv_heads, dim, value_dim. */
heed_status heed_chain_of_spec(heed_chain *chain, const heed_spec *spec, int root, heed_isa isa,
                               const heed_sizes *sizes, int64_t layer, int64_t layers);

/* Resolves arguments, adds up what the forms want, and refuses chains that make no sense (a shape before any
 * judge, two budgets, no budget, one that its ends alone exceed), by the names of forms. */
heed_status heed_chain_settle(heed_chain *chain);

/* The same forms with the same arguments: such chains of a layer's kv heads act together. */
bool heed_chain_is_same(const heed_chain *a, const heed_chain *b);

typedef enum heed_moment {
    HEED_IN_PROMPT,   /* more of the prompt follows; with `chunked` it is read at most `chunked` at a time */
    HEED_PROMPT_ENDS, /* its last token was read */
    HEED_DECODING,
} heed_moment;

/* Whether the chain has anything to do now. `visible` as in heed_held; `held` keys a kv head (the mean over
 * the heads whose chains are the same); `since` tokens read since it last acted. */
bool heed_chain_is_due(const heed_chain *chain, int64_t visible, int64_t held, int64_t since,
                       heed_moment moment);

/* How many keys beyond its budget, while decoding, make the chain act. Without `every` as many as keep what
 * it costs at a twentieth of what attention costs meanwhile, but no more than a quarter of the budget, and 64
 * at least. */
int64_t heed_chain_every(const heed_chain *chain, int64_t visible);

/* Keys a kv head keeps when the chain acts (the mean over the heads whose chains are the same), `visible`
 * where no judge has a budget. */
int64_t heed_chain_budget(const heed_chain *chain, int64_t visible);

/* Hands what new queries gave on to the forms. state [count][chain->state_floats]. */
void heed_chain_observe(const heed_chain *chain, const heed_seen *seen, float *state);

/* What is kept of a layer: held [kv_heads] in, keep[g] [count] out. key, value and mass of kept keys may
 * change where forms merge (chain->merges; then HEED_OBSERVES_KEYS and _VALUES are set and the arrays of held
 * are written to: `changed` says). chain [kv_heads]: one a kv head; forms that share out room act among the
 * heads whose chains are the same. A head whose chain has no forms keeps all. held->state has the state of
 * all forms, state_stride apart; beside and besides are set here. */
typedef struct heed_keep {
    const heed_chain *const *chain; /* [kv_heads] */
    heed_held *held;                /* [kv_heads] */
    int kv_heads;
    float *const *key, *const *value, *const *mass; /* [kv_heads] writable arrays behind held's */
    uint8_t *const *keep;                           /* [kv_heads][count] */
    bool *changed;                                  /* [kv_heads] */
    void *work;                                     /* heed_keep_work_bytes, 8-byte aligned */
} heed_keep;

/* `largest`: the largest count, dim, value_dim, group and queries of any head that will come, layers and all
 * else as in heed_held; chain: any that will come, one at a time. */
size_t heed_keep_work_bytes(const heed_chain *chain, int kv_heads, const heed_held *largest);
void heed_keep_apply(const heed_keep *keep);

#endif
