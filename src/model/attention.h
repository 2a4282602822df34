/* A model's own attention with a user's clauses over it. */
#ifndef HEED_MODEL_ATTENTION_H
#define HEED_MODEL_ATTENTION_H

#include <heed/attend.h>

enum { HEED_ATTENTION_TEXT = 65536 };

/* The spec of one layer: those clauses of `override` (NULL: none) that hold for it replace the stages of
 * `own`, for all heads or some. Canonical text, without prefixes for layers; `cache` becomes what a cache
 * clause says, and stays as it is otherwise. */
heed_status heed_attention_of_layer(const char *own, const char *override, int64_t layer, char *text,
                                    size_t size, heed_type *cache);

/* Refuses prefixes of layers or heads that hold for none of the model's. */
heed_status heed_attention_holds(const char *override, int64_t layers, int64_t heads);

#endif
