#include "nn/gemm.h"
#include "base/cpu.h"

#include <omp.h>
#if defined(HEED_HAVE_DNNL)
#include <dnnl.h>
#endif

/* Side of a block: the sizes shared out evenly among blocks of at most `most`. */
static int64_t side(int64_t size, int64_t most)
{
    const int64_t blocks = (size + most - 1) / most, even = blocks ? (size + blocks - 1) / blocks : 1;
    return (even + 15) / 16 * 16;
}

#if defined(HEED_HAVE_DNNL)
static void run_block(const heed_nn_kernels *kernels, const heed_gemm *g)
{
    (void)kernels;
    dnnl_sgemm(g->transposed_a ? 'T' : 'N', g->transposed_b ? 'T' : 'N', g->m, g->n, g->k, 1.0f, g->a, g->lda,
               g->b, g->ldb, g->add ? 1.0f : 0.0f, g->c, g->ldc);
}
#else
enum { DEPTH = 256, WIDTH = 64 };

static void copy_columns(const heed_gemm *g, int64_t l0, int64_t depth, int64_t j0, int64_t width,
                         float panel[DEPTH][WIDTH])
{
    for (int64_t l = 0; l < depth; l++)
        for (int64_t j = 0; j < width; j++)
            panel[l][j] =
                g->transposed_b ? g->b[(j0 + j) * g->ldb + l0 + l] : g->b[(l0 + l) * g->ldb + j0 + j];
}

static void run_block(const heed_nn_kernels *kernels, const heed_gemm *g)
{
    float panel[DEPTH][WIDTH];
    const int64_t row = g->transposed_a ? 1 : g->lda, col = g->transposed_a ? g->lda : 1;
    for (int64_t j = 0; j < g->n; j += WIDTH) {
        const int64_t width = g->n - j < WIDTH ? g->n - j : WIDTH;
        for (int64_t l = 0; l < g->k; l += DEPTH) {
            const int64_t depth = g->k - l < DEPTH ? g->k - l : DEPTH;
            copy_columns(g, l, depth, j, width, panel);
            for (int64_t i = 0; i < g->m; i += HEED_PRODUCT_ROWS) {
                const int rows = (int)(g->m - i < HEED_PRODUCT_ROWS ? g->m - i : HEED_PRODUCT_ROWS);
                kernels->product(rows, width, depth, g->a + i * row + l * col, row, col, panel[0], WIDTH,
                                 g->c + i * g->ldc + j, g->ldc, g->add || l > 0);
            }
        }
    }
}
#endif

bool heed_gemm_has_bf16(const heed_nn_kernels *kernels)
{
    return *kernels->product16 && heed_cpu_has_avx512_bf16();
}

void heed_gemm_run(const heed_nn_kernels *kernels, int threads, const heed_gemm *gemm)
{
    if (gemm->m == 0 || gemm->n == 0)
        return;
    if (gemm->k == 0) {
        for (int64_t i = 0; i < gemm->m && !gemm->add; i++)
            for (int64_t j = 0; j < gemm->n; j++)
                gemm->c[i * gemm->ldc + j] = 0.0f;
        return;
    }
    const int64_t rows = side(gemm->m, gemm->n <= 256 && gemm->m <= 512 ? 128 : 256),
                  cols = side(gemm->n, 1024);
    const int64_t down = (gemm->m + rows - 1) / rows, across = (gemm->n + cols - 1) / cols,
                  blocks = down * across;
    const int most = omp_get_max_threads();
    const int team = blocks < threads ? (int)blocks : threads;
    if (team == 1)
        omp_set_num_threads(1); /* for the library: no threads of its own */
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t i = b / across * rows, j = b % across * cols;
        heed_gemm block = *gemm;
        block.m = gemm->m - i < rows ? gemm->m - i : rows;
        block.n = gemm->n - j < cols ? gemm->n - j : cols;
        block.a += gemm->transposed_a ? i : i * gemm->lda;
        block.b += gemm->transposed_b ? j * gemm->ldb : j;
        block.c += i * gemm->ldc + j;
        if (block.bf16)
            (*kernels->product16)(&block);
        else
            run_block(kernels, &block);
    }
    if (team == 1)
        omp_set_num_threads(most);
}
