/* Lists the instruction sets of this build: each(suffix of symbols, heed_isa). */
#ifndef HEED_BASE_EACH_ISA_H
#define HEED_BASE_EACH_ISA_H

#define HEED_EACH_ISA(each)                                                                                  \
    each(portable, HEED_ISA_PORTABLE) HEED_IF_AVX2(each) HEED_IF_AVX512(each) HEED_IF_NEON(each)
#if defined(HEED_HAVE_AVX2)
#define HEED_IF_AVX2(each) each(avx2, HEED_ISA_AVX2)
#else
#define HEED_IF_AVX2(each)
#endif
#if defined(HEED_HAVE_AVX512)
#define HEED_IF_AVX512(each) each(avx512, HEED_ISA_AVX512)
#else
#define HEED_IF_AVX512(each)
#endif
#if defined(HEED_HAVE_NEON)
#define HEED_IF_NEON(each) each(neon, HEED_ISA_NEON)
#else
#define HEED_IF_NEON(each)
#endif

#endif
