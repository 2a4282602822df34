/* A model's own attention with a user's clauses over it. */
#ifndef HEED_MODEL_ATTENTION_H
#define HEED_MODEL_ATTENTION_H

#include "attend/spec.h"

enum { HEED_ATTENTION_TEXT = 65536 };

/* The spec of one layer: those clauses of `override` (NULL: none) that hold for it replace the stages of
 * `own`, for all heads or some. Canonical text, without prefixes for layers. `forms`: a user's own, or NULL.
 */
heed_status heed_attention_of_layer(const char *own, const char *override, const heed_form *const *forms,
                                    int64_t layer, char *text, size_t size);

/* Such a spec, taken apart. */
typedef struct heed_attention {
    heed_spec *spec;
    char *plain;  /* its text without the clause `cache`, as plans take it */
    char *prompt; /* the same without `select`, for prompts, where the selector has a memory; else NULL */
    const heed_form *recaller; /* that selector; or NULL */
    heed_type keys, values;    /* how they are stored; left alone where the clause says nothing */
    heed_form_state aging;     /* the form by which pages change as they age; its form NULL: there is none */
} heed_attention;

heed_status heed_attention_take_apart(heed_attention *attention, const char *text,
                                      const heed_form *const *forms);
void heed_attention_free(heed_attention *attention);

/* Refuses prefixes of layers or heads that hold for none of the model's. */
heed_status heed_attention_holds(const char *override, const heed_form *const *forms, int64_t layers,
                                 int64_t heads);

#endif
