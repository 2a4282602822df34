/* Names that the build for each instruction set makes its own, so that several builds live in one library. */
#ifndef HEED_KERNELS_ISA_H
#define HEED_KERNELS_ISA_H

#include <heed/form.h>

#define HEED_LOCAL(name) HEED_JOIN(name, HEED_ISA)

#define heed_form_table HEED_LOCAL(heed_form_table)
#define heed_kernels HEED_LOCAL(heed_kernels)

extern const heed_form *const *const heed_form_table[HEED_STAGES];

#endif
