/* Choosing a form for each unit (a layer, or a kv head of it) so that little is lost within a budget, and
 * writing the choice as one spec. */
#ifndef HEED_EVAL_MIX_H
#define HEED_EVAL_MIX_H

#include <heed/base.h>

/* loss, bytes [units, forms]: what each form costs and takes there; a loss that is no number: it may not be
 * chosen. Writes choice [units], the form of each unit: the least sum of losses of all choices whose bytes
 * come to `limit` at most (to one part in 16384: bytes are rounded up). Losses are taken to add up. *fits:
 * whether there is such a choice; else the choice is left alone. */
heed_status heed_mix_fit(const double *loss, const double *bytes, int64_t units, int64_t forms, double limit,
                         int32_t *choice, bool *fits);

/* A choice for a model. */
typedef struct heed_mix {
    int64_t layers, kv_heads, group; /* group: query heads that share a kv head */
    const char *type;                /* storage type of everything; NULL: the session's */
    const char *const *policy;       /* [forms] chains of the stage `cache`, without a type */
    const int32_t *choice;           /* [layers, kv_heads] form, or -1 */
} heed_mix;

/* "cache=q8; layers 0,3-5: cache=streaming(share=0.1) > q8; layers 1: heads 0-2: cache=streaming(share=0.1)".
 * Returns the length needed, as snprintf. */
size_t heed_mix_write(const heed_mix *mix, char *text, size_t size);

#endif
