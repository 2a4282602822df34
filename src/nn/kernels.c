#include "nn/kernels.h"

#include "base/each_isa.h"

#define HEED_DECLARE(name, isa) extern const heed_nn_kernels heed_nn_kernels_##name;
HEED_EACH_ISA(HEED_DECLARE)

#define HEED_CASE(name, isa)                                                                                 \
    case isa:                                                                                                \
        return &heed_nn_kernels_##name;

const heed_nn_kernels *heed_nn_kernels_of(heed_isa isa)
{
    switch (isa) {
        HEED_EACH_ISA(HEED_CASE)
    default:
        return &heed_nn_kernels_portable;
    }
}
