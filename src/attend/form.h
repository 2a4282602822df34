/* What a built-in form includes: the public descriptor, and the shapes of loops that forms of a stage share.
 */
#ifndef HEED_ATTEND_FORM_H
#define HEED_ATTEND_FORM_H

#include <heed/form.h>

/* Least and largest of floats, as reductions that start from infinity. OpenMP's own min and max start from
 * the largest finite number with some compilers, which a row of closed pairs never falls below. */
#pragma omp declare reduction(heed_least:float                                                               \
                              : omp_out = omp_in < omp_out ? omp_in : omp_out)                               \
    initializer(omp_priv = INFINITY)
#pragma omp declare reduction(heed_largest:float                                                             \
                              : omp_out = omp_in > omp_out ? omp_in : omp_out)                               \
    initializer(omp_priv = -INFINITY)

#endif
