#include "scan/scan.h"

#include "base/each_isa.h"

#define HEED_DECLARE(name, isa)                                                                              \
    extern const heed_scan_kernels heed_scan_kernels_##name;                                                 \
    extern const heed_slots_kernels heed_slots_kernels_##name;
HEED_EACH_ISA(HEED_DECLARE)

#define HEED_CASE(name, isa)                                                                                 \
    case isa:                                                                                                \
        return &heed_scan_kernels_##name;

const heed_scan_kernels *heed_scan_kernels_of(heed_isa isa)
{
    switch (isa) {
        HEED_EACH_ISA(HEED_CASE)
    default:
        return &heed_scan_kernels_portable;
    }
}

#define HEED_SLOTS_CASE(name, isa)                                                                           \
    case isa:                                                                                                \
        return &heed_slots_kernels_##name;

const heed_slots_kernels *heed_slots_kernels_of(heed_isa isa)
{
    switch (isa) {
        HEED_EACH_ISA(HEED_SLOTS_CASE)
    default:
        return &heed_slots_kernels_portable;
    }
}
