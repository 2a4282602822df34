/* What a model file says of itself, for people: read leniently, so that files are described that heed cannot
 * run. What is not said is 0 or NULL. */
#ifndef HEED_MODEL_SUMMARY_H
#define HEED_MODEL_SUMMARY_H

#include "model/file.h"

typedef struct heed_model_summary {
    char architecture[64], name[128];
    int64_t layers, width, heads, kv_heads, key_dim, value_dim, feed_forward, vocabulary, context, window;
    int64_t kv_heads_most; /* above kv_heads where layers differ */
    bool causal;           /* false for models that only embed */
    double parameters;     /* numbers in all tensors */
    double cache_values;   /* of keys and values, a token, over all layers; 0: not known, or no cache */
} heed_model_summary;

void heed_summarise(const heed_model_file *file, heed_model_summary *summary);

#endif
