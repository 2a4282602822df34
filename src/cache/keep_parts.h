/* What the parts of applying a chain share. */
#ifndef HEED_CACHE_KEEP_PARTS_H
#define HEED_CACHE_KEEP_PARTS_H

#include "cache/keep.h"

static inline bool heed_is_judge(const heed_policy *policy)
{
    return policy->judge || policy->choose;
}

/* The first judge at or behind `from`; chain->forms where there is none. */
int heed_chain_next_judge(const heed_chain *chain, int from);

/* What a judge's own arguments allow; what is left of it for this layer. */
int64_t heed_judge_budget(const heed_form_state *judge, int64_t visible);
int64_t heed_layer_budget(const heed_chain *chain, int judge, int64_t visible);

/* Keeps `first` and `recent` keys at the ends, of those between them the highest scores until `budget` is
 * used, of equal ones the later; +inf always, -inf never. work [count]. */
void heed_keep_best(const float *score, int64_t count, int64_t budget, int64_t first, int64_t recent,
                    uint8_t *keep, float *work);

/* What a judge left of one head, as the next sees it: copies of the kept rows in `memory`, which may be that
 * of `held`. `index` [count] holds their places among all keys, in and out; `capacity` is that of
 * heed_left_bytes' largest. */
size_t heed_left_bytes(const heed_chain *chain, const heed_held *largest);
heed_held heed_left(const heed_chain *chain, const heed_held *held, const uint8_t *keep, int32_t *index,
                    void *memory, int64_t capacity);

#endif
