/* What the processor has. */
#ifndef HEED_BASE_CPU_H
#define HEED_BASE_CPU_H

#include <heed/attend.h>

/* AUTO becomes what HEED_ISA in the environment says, else the best that is available; HEED_INVALID for an
 * unknown name in the environment, HEED_UNSUPPORTED for a set that this build or this processor lacks. */
heed_status heed_isa_resolve(heed_isa wanted, heed_isa *isa);

/* bf16 products with fp32 sums; whole-number products of bytes. Both on 512-bit vectors. */
bool heed_cpu_has_avx512_bf16(void);
bool heed_cpu_has_avx512_vnni(void);

/* Cores, not hardware threads, among the processors that this process may use; at least 1. */
int heed_cpu_physical_cores(void);

/* Hardware threads that this process may use; at least 1. */
int heed_cpu_threads(void);

/* The maker's name of the processor, "unknown" where the system does not tell; returns `text`. */
const char *heed_cpu_name(char *text, size_t size);

#endif
