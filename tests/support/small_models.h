/* Small models with golden results beside them, and feeding them. */
#ifndef HEED_TEST_SMALL_MODELS_H
#define HEED_TEST_SMALL_MODELS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/golden.h"
#include <heed/model.h>

/* A model with the golden tensors beside it, opened exact unless `fast`. */
typedef struct small_model {
    heed_model *model;
    heed_model_info info;
    golden golden;
    const int32_t *tokens;
    int64_t count;
    const float *expected; /* [count, vocabulary], or [count, width] for models that give no logits */
    int64_t columns;
} small_model;

void open_small(small_model *small, const char *name, bool fast);
void close_small(small_model *small);

heed_session *new_session(const heed_model *model, const heed_session_options *options);

/* Feeds `count` tokens to sequence 0 and gives logits, or hidden states, of all of them; the caller frees. */
float *feed_all(heed_session *session, const heed_model *model, const int32_t *tokens, int64_t count);

/* Feeding must succeed; the message is shown when it does not. */
void must(heed_status status);

/* A long text of a small model's tokens. */
void small_text(const small_model *small, int32_t *tokens, int64_t count);

/* A session of this context with this attention must be refused, in a sentence that holds `says`. */
void must_refuse(const small_model *small, const char *spec, int64_t context, const char *says);

/* Largest |a - b|. */
double farthest(const float *a, const float *b, int64_t n);

#endif
