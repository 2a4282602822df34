/* Dense products of f32 matrices in rows: C (+)= A B, either of them transposed. */
#ifndef HEED_NN_GEMM_H
#define HEED_NN_GEMM_H

#include "nn/kernels.h"

typedef struct heed_gemm {
    int64_t m, n, k;
    const float *a; /* [m, k], or [k, m] when transposed_a */
    const float *b; /* [k, n], or [n, k] when transposed_b */
    float *c;       /* [m, n] */
    int64_t lda, ldb, ldc;
    bool transposed_a, transposed_b, add;
    bool bf16; /* A and B are rounded to bf16; only where heed_gemm_has_bf16 */
} heed_gemm;

/* Whether this instruction set and this processor have products of bf16. */
bool heed_gemm_has_bf16(const heed_nn_kernels *kernels);

/* The same bits for any number of threads: blocks of C depend on the sizes alone, and each is one thread's.
 */
void heed_gemm_run(const heed_nn_kernels *kernels, int threads, const heed_gemm *gemm);

#endif
