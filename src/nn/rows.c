#include "nn/rows.h"

extern const heed_rows_table heed_rows_portable;
#if defined(HEED_HAVE_AVX2)
extern const heed_rows_table heed_rows_avx2;
#endif
#if defined(HEED_HAVE_AVX512)
extern const heed_rows_table heed_rows_avx512;
#endif
#if defined(HEED_HAVE_NEON)
extern const heed_rows_table heed_rows_neon;
#endif

const heed_rows_table *heed_rows_of(heed_isa isa)
{
    switch (isa) {
#if defined(HEED_HAVE_AVX2)
    case HEED_ISA_AVX2:
        return &heed_rows_avx2;
#endif
#if defined(HEED_HAVE_AVX512)
    case HEED_ISA_AVX512:
        return &heed_rows_avx512;
#endif
#if defined(HEED_HAVE_NEON)
    case HEED_ISA_NEON:
        return &heed_rows_neon;
#endif
    default:
        return &heed_rows_portable;
    }
}
