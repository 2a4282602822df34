/* Choosing a form for each unit (a kv head of a layer) so that little is lost and enough is saved, and
 * writing the choice as one spec. */
#ifndef HEED_EVAL_MIX_H
#define HEED_EVAL_MIX_H

#include <heed/base.h>

/* loss, saved [units, forms]: what each form costs and saves there, alone. Writes choice [units]: the form,
 * or -1 for none, with sum saved >= need, or all that can be saved when that is less; returns the sum.
 *
 * Greedy: the cheapest step for what it saves first, where a unit may also step from one form to another that
 * saves more; then steps that are not needed any more are undone, the dearest first. Losses are taken to add
 * up. */
double heed_mix_choose(const double *loss, const double *saved, int64_t units, int64_t forms, double need,
                       int32_t *choice);

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
