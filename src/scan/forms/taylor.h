/* Features whose product is the Taylor series of exp to the power 1 or 2.
 *
 *     phi(x)·phi(y) = 1 + s + s^2 / 2,     s = x·y root^2
 *
 * Products of two entries stand once: 1 + D + D (D + 1) / 2 features.
 */
#ifndef HEED_SCAN_FORMS_TAYLOR_H
#define HEED_SCAN_FORMS_TAYLOR_H

#include "scan/forms/parts.h"

static inline int heed_taylor_channels(int dim, int power)
{
    return 1 + dim + (power == 2 ? dim * (dim + 1) / 2 : 0);
}

static inline void heed_taylor(const float *x, int dim, int power, float root, float *y)
{
    const float half = sqrtf(0.5f);
    *y++ = 1;
    for (int i = 0; i < dim; i++)
        *y++ = root * x[i];
    for (int i = 0; power == 2 && i < dim; i++)
        for (int j = i; j < dim; j++)
            *y++ = (i == j ? half : 1.0f) * root * x[i] * (root * x[j]);
}

static inline void heed_taylor_back(const float *x, int dim, int power, float root, const float *dy,
                                    float *dx)
{
    const float half = sqrtf(0.5f);
    dy++;
    for (int i = 0; i < dim; i++)
        dx[i] += root * *dy++;
    for (int i = 0; power == 2 && i < dim; i++)
        for (int j = i; j < dim; j++, dy++) {
            const float d = (i == j ? half : 1.0f) * root * root * *dy;
            dx[i] += d * x[j];
            dx[j] += d * x[i];
        }
}

static inline heed_status heed_taylor_resolve(const heed_form_state *form, int power)
{
    if (power < 2 || form->sizes.dim <= 256)
        return HEED_OK;
    return heed_fail(HEED_INVALID, "%s: dim is %lld, which would make %d channels; at most 256",
                     form->form->name, (long long)form->sizes.dim,
                     heed_taylor_channels((int)form->sizes.dim, 2));
}

#endif
