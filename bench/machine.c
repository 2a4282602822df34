/* What this machine can do at most: multiply-adds a second, and bytes read a second. */
#include "base/clock.h"
#include "bench.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BUFFER ((size_t)1 << 30)
#define CHAINS 12 /* latency 4 times two units, and some more */

/* x = x a + b on CHAINS vectors, each in a register of its own; a is below 1, so that they stay finite. The
 * sum makes the result needed. */
#define EACH_CHAIN(each)                                                                                     \
    each(0) each(1) each(2) each(3) each(4) each(5) each(6) each(7) each(8) each(9) each(10) each(11)
#define CHAIN_BEGIN(c) vector x##c = zero + (float)c;
#define CHAIN_STEP(c) x##c = x##c * a + b;
#define CHAIN_SUM(c) sum += x##c;
#define FMA_CHAINS(name, target, bytes)                                                                      \
    target static float name(int64_t turns)                                                                  \
    {                                                                                                        \
        typedef float vector __attribute__((vector_size(bytes)));                                            \
        const vector zero = {0}, a = zero + 0.999f, b = zero + 0.001f;                                       \
        vector sum = zero;                                                                                   \
        EACH_CHAIN(CHAIN_BEGIN)                                                                              \
        for (int64_t t = 0; t < turns; t++) {                                                                \
            EACH_CHAIN(CHAIN_STEP)                                                                           \
        }                                                                                                    \
        EACH_CHAIN(CHAIN_SUM)                                                                                \
        return sum[0];                                                                                       \
    }

#if defined(__x86_64__)
FMA_CHAINS(chains_512, __attribute__((target("avx512f"))), 64)
FMA_CHAINS(chains_256, __attribute__((target("avx2,fma"))), 32)
#endif
FMA_CHAINS(chains_128, , 16)

double bench_measure_flops(int threads)
{
    float (*chains)(int64_t) = chains_128;
    int lanes = 4;
#if defined(__x86_64__)
    if (heed_isa_available(HEED_ISA_AVX2)) {
        chains = chains_256;
        lanes = 8;
    }
    if (heed_isa_available(HEED_ISA_AVX512)) {
        chains = chains_512;
        lanes = 16;
    }
#endif
    const int64_t turns = 1000000;
    volatile float keep = 0.0f;
    double seconds = 0.0;
#pragma omp parallel num_threads(threads)
    {
        keep = chains(turns / 20);
#pragma omp barrier
#pragma omp master
        seconds = heed_seconds();
        keep = chains(turns);
#pragma omp barrier
#pragma omp master
        seconds = heed_seconds() - seconds;
    }
    (void)keep;
    return (double)threads * (double)turns * CHAINS * lanes * 2.0 / seconds;
}

#define HUGE_PAGE ((size_t)2 << 20)

void *bench_allocate(size_t bytes)
{
    const size_t page = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : 64;
    void *memory = aligned_alloc(page, (bytes + page - 1) / page * page);
    if (memory && page == HUGE_PAGE)
        madvise(memory, bytes, MADV_HUGEPAGE); /* slower pages will do where it fails */
    return memory;
}

static char *buffer;

void bench_machine_free(void)
{
    free(buffer);
    buffer = NULL;
}

double bench_measure_bandwidth(int threads)
{
    if (!buffer) {
        buffer = bench_allocate(BUFFER);
        if (!buffer)
            return 0.0;
        memset(buffer, 1, BUFFER);
    }
    uint64_t total = 0;
    const double start = heed_seconds();
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        const size_t share = BUFFER / (size_t)omp_get_num_threads() / 512 * 512;
        const uint64_t *from = (const uint64_t *)(buffer + share * (size_t)omp_get_thread_num());
        uint64_t sum[8] = {0};
        for (size_t i = 0; i < share / 8; i += 8)
            for (int j = 0; j < 8; j++)
                sum[j] += from[i + (size_t)j];
        for (int j = 0; j < 8; j++)
            total += sum[j];
    }
    const double seconds = heed_seconds() - start;
    /* every byte is 1, so the sum is known, and the reads cannot be left out */
    return total >= 0x0101010101010101ull ? (double)BUFFER / seconds : 0.0;
}
