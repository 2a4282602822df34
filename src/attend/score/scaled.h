/* What the scores that are products share: the factor on the product, by default 1/sqrt(D). */
#ifndef HEED_SCORE_SCALED_H
#define HEED_SCORE_SCALED_H

#include "attend/form.h"

/* The default keeps the variance of a product of random rows at 1. */
static inline heed_status resolve_scale(heed_form_state *form)
{
    if (!form->arg[0].given)
        form->arg[0].number = 1.0 / sqrt((double)form->sizes.dim);
    return HEED_OK;
}

static inline double scale(const heed_form_state *form)
{
    return form->arg[0].number;
}

#endif
