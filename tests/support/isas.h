/* The instruction sets that a test runs through: all that this build and processor have, or the one that
 * HEED_TEST_ISA names, for runs in which the others would show nothing new. */
#ifndef HEED_SUPPORT_ISAS_H
#define HEED_SUPPORT_ISAS_H

#include <heed/attend.h>
#include <stdlib.h>

static inline bool test_isa_runs(heed_isa isa)
{
    const char *only = getenv("HEED_TEST_ISA");
    heed_isa named;
    return heed_isa_available(isa) && (!only || !heed_isa_from_name(only, &named) || named == isa);
}

/* Ended by HEED_ISA_AUTO. */
static inline const heed_isa *test_isas(void)
{
    static heed_isa list[5];
    int n = 0;
    for (int isa = HEED_ISA_PORTABLE; isa <= HEED_ISA_NEON; isa++)
        if (test_isa_runs((heed_isa)isa))
            list[n++] = (heed_isa)isa;
    list[n] = HEED_ISA_AUTO;
    return list;
}

#endif
